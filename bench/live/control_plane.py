"""How long do control operations keep a running flow waiting, and how fast do connections come up?

One queue pair streams 1 MiB writes into this process while it registers memory with 1,000 regions registered, brings
queue pairs up to peers that are new, and takes them down again. The longest time without arriving data around each
operation stands beside the same around doing nothing. Marks: no operation adds more than 1 ms (median of its turns);
1,000 queue pairs are set up in 2 s.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe
from typing import Any

from harness.data_gaps import longest_gap
from harness.live_peers import Task, planes, run_pair

MOST_MS, SETUP_SECONDS = 1.0, 2.0
REGIONS, COUNT = 1000, 1000
MPR = 32  # unit 128 PSNs, the default
REST = 0.004  # s around an operation in which the flow is watched


def server(pipe: Pipe, task: Task) -> None:
    """Receive a stream and do control operations meanwhile."""
    from harness.many_queue_pairs import context_attr, open_group
    from openmrc.verbs import Context, ContextAttr, Listener

    base = context_attr(COUNT + 8, 256, MPR)
    attr = ContextAttr(max_qp=base.max_qp, max_peers=32, max_mr=REGIONS + 64, max_mpr=MPR)
    with Context(planes(1), attr) as context, Listener(context, "127.0.0.1", 0) as listener:
        domain = context.alloc_pd()
        region = domain.reg_mr(bytearray(task.size * task.slots))
        kept = [domain.reg_mr(bytearray(64)) for _ in range(REGIONS)]
        pipe.send(listener.port)
        with listener.accept(regions=[region], timeout=300) as peer:
            began = time.monotonic()
            group = open_group(context, peer, region, COUNT, 2, MPR, 4096)
            setup = time.monotonic() - began
            group.close()
            peer.barrier(60)
            time.sleep(0.5)
            found = Operations(context, domain, peer).run(task.options["turns"])
            peer.tell("stop")
            pipe.recv()
            pipe.send({"setup_seconds": setup, "ms": found})
            peer.barrier(60)
        for each in kept:
            each.dereg()


class Operations:
    """Control operations, each with the time that the stream stood still around it."""

    def __init__(self, context: Any, domain: Any, peer: Any) -> None:
        self._context, self._domain, self._peer = context, domain, peer
        self._cq = context.create_cq(64)
        self._found: dict[str, list[float]] = {}
        self._number = 0

    def run(self, turns: int) -> dict[str, list[float]]:
        """Do each of them so many times, in turns with nothing at all."""
        for _ in range(turns):
            self._timed("nothing", lambda: None)
            region = self._timed("reg_mr", lambda: self._domain.reg_mr(bytearray(4096)))
            self._timed("dereg", region.dereg)
            qp = self._timed("create_qp, RTR, RTS: new peer", self._connect)
            self._timed("destroy: last of a peer", qp.destroy)
            self._timed("set_plane", lambda: self._context.set_plane(0, True))
            self._timed("counters", self._context.plane_counters)
        self._cq.destroy()
        return self._found

    def _timed(self, name: str, operation: Callable[[], Any]) -> Any:
        longest_gap(self._context)
        time.sleep(REST / 2)
        result = operation()
        time.sleep(REST / 2)
        self._found.setdefault(name, []).append(longest_gap(self._context) * 1e3)
        return result

    def _connect(self) -> Any:
        from openmrc.verbs import Access, PeerAddress, QpInitAttr, QpState

        self._number += 1
        address = PeerAddress(planes=tuple(f"127.99.{self._number % 250}.{plane + 1}" for plane in range(4)))
        qp = self._context.create_qp(self._domain, QpInitAttr(send_cq=self._cq, recv_cq=self._cq))
        qp.modify(state=QpState.INIT, access_flags=Access.REMOTE_WRITE)
        qp.modify(
            state=QpState.RTR, remote=address, dest_qpn=7, rq_psn=1, path_mtu=4096, max_wimm_dest=8, mpr_dest=8, mpr=8
        )
        qp.modify(state=QpState.RTS, sq_psn=1, max_wimm=8, mpr=8, timeout=14, linear_count=7, exponential_count=7)
        return qp


def client(pipe: Pipe, task: Task) -> None:
    """Stream until told to stop."""
    from harness.many_queue_pairs import context_attr, open_group
    from openmrc.verbs import Context, SendWr, connect

    with Context(planes(0), context_attr(COUNT + 8, 256, MPR)) as context:
        region = context.alloc_pd().reg_mr(bytearray(task.size))
        with connect(context, "127.0.0.1", pipe.recv(), regions=[region], timeout=300) as peer:
            group = open_group(context, peer, region, COUNT, 2, MPR, 4096)
            group.close()
            peer.barrier(60)
            listening = threading.Thread(target=lambda: peer.hear(str, timeout=300), daemon=True)
            listening.start()
            target = peer.remote.regions[0]
            request = SendWr(local=region, remote_addr=target.addr, r_key=target.r_key)
            peer.qp.post_send([request] * 16)
            while listening.is_alive():
                peer.qp.post_send([request] * len(peer.send_cq.wait(30)))
            peer.qp.drain(30)
            pipe.send(0)
            peer.barrier(60)


def main() -> int:
    """Measure, print, and return 1 if a mark is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found, _ = run_pair(server, client, Task(options={"turns": asked.turns}))
    quiet = statistics.median(found["ms"]["nothing"])
    rows = {
        name: {"median_ms": statistics.median(values), "most_ms": max(values)} for name, values in found["ms"].items()
    }
    late = {name: row["median_ms"] - quiet for name, row in rows.items() if row["median_ms"] - quiet > MOST_MS}
    result = {"setup_seconds": found["setup_seconds"], "setup_mark": SETUP_SECONDS, "gaps": rows, "late": late}
    if asked.json:
        print(json.dumps(result))
    else:
        print(f"{COUNT} queue pairs set up in {found['setup_seconds']:.2f} s (mark: {SETUP_SECONDS:g} s)")
        print("longest time without data around an operation, ms:    median     most")
        for name, row in rows.items():
            print(f"  {name:<50} {row['median_ms']:7.2f}  {row['most_ms']:7.2f}{'  over 1 ms' if name in late else ''}")
    return int(bool(late) or found["setup_seconds"] > SETUP_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
