"""When does a connection give up a peer that answers nothing, against the user timeout that is documented?

    python -m bench.live.give_up [--runs 50] [--at-once 10] [--user-timeout 20] [--load 0]

Each run has a peer in a process of its own, four planes on loopback, and writes one after the other while the peer
fails. The write that gets no answer must complete with RETRY_EXC_ERR. Causes:

    killed    the peer's process gets SIGKILL: its ports are closed, and the kernel says so (ICMP port unreachable)
    stopped   it gets SIGSTOP: its sockets take what is sent, and nobody answers
    silent    nothing that is sent to it arrives, on any plane
    deaf      what it sends back is lost, on every plane

Mark: the completion of every run within 10 % of the user timeout from its post.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from multiprocessing.connection import Connection as Pipe

from harness.busy import busy
from openmrc.verbs import Connection, ConnectionOptions, Context, ContextAttr, Listener, MemoryRegion, WcStatus, connect

CAUSES = ("killed", "stopped", "silent", "deaf")
PLANES, SIZE, SHARE = 4, 1 << 16, 0.1
WRITES = 50  # before the peer is killed or stopped
CUT = 3.0  # seconds after the start of an end from which on its impairments let nothing through
ATTR = ContextAttr(max_qp=2, max_peers=2, max_mr=8, evs_per_plane=4)
_SPAWN = multiprocessing.get_context("spawn")


def addresses(number: int, side: int) -> list[str]:
    """Return the addresses of one side of a run."""
    return [f"127.{110 + number // 250}.{number % 250}.{1 + 16 * side + plane}" for plane in range(PLANES)]


def faults_of(cause: str, side: int) -> str | None:
    """Return what impairs the arrivals of one side."""
    cut = {"silent": 1, "deaf": 0}.get(cause) == side
    return f"[{', '.join(f'{{at: {CUT}s, down: plane {plane}}}' for plane in range(PLANES))}]" if cut else None


def serve(pipe: Pipe, number: int, cause: str) -> None:
    """Be the peer until told to end."""
    with (
        Context(addresses(number, 1), ATTR, faults=faults_of(cause, 1)) as context,
        Listener(context, "127.0.0.1", 0) as listener,
    ):
        region = context.alloc_pd().reg_mr(bytearray(SIZE))
        pipe.send(listener.port)
        with listener.accept(regions=[region], timeout=60):
            pipe.recv()
            os._exit(0)


def give_up(number: int, cause: str, user_timeout: float) -> float:
    """Return the seconds from the post of the write that got no answer to its completion."""
    ours, theirs = _SPAWN.Pipe()
    peer_process = _SPAWN.Process(target=serve, args=(theirs, number, cause), daemon=True)
    peer_process.start()
    theirs.close()
    try:
        if not ours.poll(60):
            raise TimeoutError("the peer did not start")
        port = ours.recv()
        with ExitStack() as stack:
            context = stack.enter_context(Context(addresses(number, 0), ATTR, faults=faults_of(cause, 0)))
            region = context.alloc_pd().reg_mr(bytearray(SIZE))
            options = ConnectionOptions(user_timeout=user_timeout)
            peer = stack.enter_context(
                connect(context, "127.0.0.1", port, regions=[region], options=options, timeout=60)
            )
            if cause in ("killed", "stopped"):
                for _ in range(WRITES):
                    peer.write(region, peer.remote.regions[0], timeout=60)
                os.kill(int(peer_process.pid or 0), signal.SIGKILL if cause == "killed" else signal.SIGSTOP)
            return _until_given_up(peer, region, user_timeout)
    finally:
        peer_process.kill()
        peer_process.join(10)


def _until_given_up(peer: Connection, region: MemoryRegion, user_timeout: float) -> float:
    """Write until no write completes any more, and return how long the first that did not waited for its completion."""
    target = peer.remote.regions[0]
    while True:
        posted = time.monotonic()
        peer.qp.post_write(region, target.addr, target.r_key)
        completion = peer.send_cq.wait(3 * user_timeout + 10)[0]
        if not completion.ok:
            if completion.status != WcStatus.RETRY_EXC_ERR:
                raise RuntimeError(f"{completion.status.name} instead of RETRY_EXC_ERR: {completion.error}")
            return time.monotonic() - posted
        time.sleep(0.005)


def measure(cause: str, asked: argparse.Namespace) -> dict[str, object]:
    """Return the times of all runs of one cause, `--at-once` of them side by side."""
    first = CAUSES.index(cause) * asked.runs
    with ThreadPoolExecutor(asked.at_once) as pool:
        took = list(pool.map(lambda run: give_up(first + run, cause, asked.user_timeout), range(asked.runs)))
    off = max(abs(each / asked.user_timeout - 1) for each in took)
    return {
        "cause": cause,
        "runs": len(took),
        "least_s": min(took),
        "median_s": statistics.median(took),
        "most_s": max(took),
        "furthest": off,
        "met": off <= SHARE,
    }


def main() -> None:
    """Measure every cause and print a line for each; exit code 1 if the mark was missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=50, help="of each cause")
    parser.add_argument("--at-once", type=int, default=10)
    parser.add_argument("--user-timeout", type=float, default=20.0, help="seconds")
    parser.add_argument("--load", type=int, default=0, help="processes beside it that only compute")
    parser.add_argument("--causes", nargs="+", default=list(CAUSES), choices=CAUSES)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    met = True
    with busy(asked.load):
        for cause in asked.causes:
            row = measure(cause, asked)
            print(json.dumps(row) if asked.json else _line(row), flush=True)
            met = met and bool(row["met"])
    raise SystemExit(0 if met else 1)


def _line(row: dict[str, object]) -> str:
    verdict = "met" if row["met"] else "missed"
    return (
        f"{row['cause']:8} {row['runs']} runs: {row['least_s']:.2f} to {row['most_s']:.2f} s, median "
        f"{row['median_s']:.2f}, at most {row['furthest']:.1%} from the user timeout: {verdict}"
    )


if __name__ == "__main__":
    main()
