"""What does trimming do for seven senders to one receiver? `sudo python -m bench.lab.incast [ROUNDS] [KIB...]`.

Every round all seven write one message at the same moment of the machine's clock, when the network is idle: more than
the receiver's ports can hold comes in the first round trip. The time of a write is from that moment to its completion.
The same lab twice for each size: full ports trim, full ports drop.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np

from harness import labs
from openmrc.lab import run
from openmrc.lab.status import status

FABRIC = Path(__file__).parents[2] / "scenarios" / "fabrics" / "lab-fast.yaml"
NAME, TARGET, SENDERS = "bench-incast", "h7", 7
SIZES_KIB = (32, 64, 128)
LARGEST = 1 << 20
PORT = 7020
WARM = 5  # rounds before counting
ROUND_S = 0.15  # much longer than the writes of a round take together


def receive() -> None:
    """Be the one that all write to."""
    from openmrc.programs.endpoint.opening import EndpointOptions, open_endpoint
    from openmrc.verbs import NO_TOKEN, ConnectionOptions, Listener

    with open_endpoint(EndpointOptions(max_qp=SENDERS)) as context:
        memory = context.alloc_pd().reg_mr(bytearray(LARGEST * SENDERS))
        with Listener(context, "", PORT, token=NO_TOKEN) as listener:  # a network of its own, without strangers
            asked = ConnectionOptions()
            peers = [listener.accept(regions=[memory], options=asked, timeout=180) for _ in range(SENDERS)]
            begin = time.monotonic() + 0.5
            for peer in peers:
                peer.tell(begin)
            for peer in peers:
                peer.hear(str, timeout=300)
            for peer in peers:
                peer.tell("bye")
                peer.close()


def send(number: int, rounds: int, size: int) -> None:
    """Be one of the senders; print the milliseconds of each write."""
    from openmrc.programs.endpoint.opening import EndpointOptions, open_endpoint
    from openmrc.verbs import ConnectionOptions, connect

    with open_endpoint(EndpointOptions()) as context:
        memory = context.alloc_pd().reg_mr(bytearray(size))
        asked = ConnectionOptions()
        with connect(context, TARGET, PORT, regions=[memory], options=asked, timeout=180) as peer:
            remote = peer.remote.regions[0][number * LARGEST : number * LARGEST + size]
            begin: float = peer.hear(float, timeout=180)
            times = []
            for round_ in range(WARM + rounds):
                due = begin + round_ * ROUND_S
                time.sleep(max(0.0, due - time.monotonic()))
                peer.write(memory, remote, timeout=60)
                times.append((time.monotonic() - due) * 1e3)
            peer.tell("done")
            peer.hear(str, timeout=300)
    print(json.dumps(times[WARM:]))


def incast(trimming: bool, rounds: int, kib: int) -> list[float]:
    with labs.held(FABRIC, NAME, trimming):
        return _measure(trimming, rounds, kib)


def _measure(trimming: bool, rounds: int, kib: int) -> list[float]:
    here = [sys.executable, __file__]
    processes: list[subprocess.Popen[bytes]] = []
    try:
        receiver = labs.start(NAME, TARGET, [*here, "receive"])
        processes.append(receiver)
        while not _listens():
            time.sleep(0.05)
        senders = [
            labs.start(NAME, f"h{n}", [*here, "send", str(n), str(rounds), str(kib)], stdout=subprocess.PIPE)
            for n in range(SENDERS)
        ]
        processes += senders
        times = [each for sender in senders for each in json.loads(sender.communicate(timeout=600)[0])]
        receiver.wait(60)
        links = status(NAME, with_sids=False).links
        counted = ", ".join(f"{sum(getattr(link, kind) for link in links)} {kind}" for kind in ("marked", "trimmed"))
        causes = Counter[str]()
        for link in links:
            causes.update(link.losses.named())
        counted += f", lost {dict(causes) or 0}"
        p50, p99 = np.percentile(times, (50, 99))
        name = "trimming" if trimming else "dropping"
        print(f"{kib:4} KiB {name:<9} p50 {p50:6.1f} ms  p99 {p99:6.1f} ms  most {max(times):6.1f} ms   {counted}")
        return times
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()


def _listens() -> bool:
    summary = subprocess.run(
        run.command_line(NAME, TARGET, ["cat", "/proc/net/tcp", "/proc/net/tcp6"]), capture_output=True, text=True
    ).stdout
    return any(f":{PORT:04X} " in line and " 0A " in line for line in summary.splitlines())


def main() -> None:
    if sys.argv[1:2] == ["receive"]:
        receive()
    elif sys.argv[1:2] == ["send"]:
        number, rounds, kib = map(int, sys.argv[2:])
        send(number, rounds, kib << 10)
    else:
        rounds, *sizes = map(int, sys.argv[1:] or ["100"])
        for kib in sizes or SIZES_KIB:
            for trimming in (True, False):
                incast(trimming, rounds, kib)


if __name__ == "__main__":
    main()
