"""What does trimming do for seven senders to one receiver? `sudo python bench/lab_incast.py [WRITES]`.

Each sender writes 256 KiB, one write after the other; the time of a write is from posting it to its completion.
The same lab twice: full ports trim, full ports drop.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from openmrc.lab import lifetime, run
from openmrc.lab.faults import Breaker
from openmrc.lab.status import status

FABRIC = Path(__file__).parents[1] / "scenarios" / "fabrics" / "lab-slow.yaml"
NAME, TARGET, SENDERS = "bench-incast", "h7", 7
SIZE = 256 << 10
PORT = 7020
WARM = 5  # writes before counting


def receive() -> None:
    """Be the one that all write to."""
    from openmrc.apps.endpoint import EndpointOptions, connection_options, open_endpoint
    from openmrc.verbs import Listener

    with open_endpoint(EndpointOptions(max_qp=SENDERS)) as context:
        memory = context.alloc_pd().reg_mr(bytearray(SIZE * SENDERS))
        with Listener(context, port=PORT) as listener:
            asked = connection_options(context, 0)
            peers = [listener.accept(regions=[memory], options=asked, timeout=180) for _ in range(SENDERS)]
            for peer in peers:
                peer.tell("go")
            for peer in peers:
                peer.hear(str, timeout=300)
            for peer in peers:
                peer.tell("bye")
                peer.close()


def send(number: int, writes: int) -> None:
    """Be one of the senders; print the milliseconds of each write."""
    from openmrc.apps.endpoint import EndpointOptions, connection_options, open_endpoint
    from openmrc.verbs import connect

    with open_endpoint(EndpointOptions()) as context:
        memory = context.alloc_pd().reg_mr(bytearray(SIZE))
        asked = connection_options(context, 0)
        with connect(context, TARGET, PORT, regions=[memory], options=asked, timeout=180) as peer:
            remote = peer.remote.regions[0][number * SIZE : (number + 1) * SIZE]
            peer.hear(str, timeout=180)
            times = []
            for _ in range(WARM + writes):
                began = time.perf_counter()
                peer.write(memory, remote, timeout=60)
                times.append((time.perf_counter() - began) * 1e3)
            peer.tell("done")
            peer.hear(str, timeout=300)
    print(json.dumps(times[WARM:]))


def incast(trimming: bool, writes: int) -> list[float]:
    lifetime.up(FABRIC, NAME, trimming)
    here = [sys.executable, __file__]
    processes: list[subprocess.Popen[bytes]] = []
    try:
        Breaker(NAME)
        receiver = run.start(NAME, TARGET, [*here, "receive"])
        processes.append(receiver)
        while not _listens():
            time.sleep(0.05)
        senders = [
            run.start(NAME, f"h{number}", [*here, "send", str(number), str(writes)], stdout=subprocess.PIPE)
            for number in range(SENDERS)
        ]
        processes += senders
        times = [each for sender in senders for each in json.loads(sender.communicate(timeout=600)[0])]
        receiver.wait(60)
        links = status(NAME, with_sids=False).links
        kinds = ("marked", "trimmed", "dropped")
        counted = ", ".join(f"{sum(getattr(link, kind) for link in links)} {kind}" for kind in kinds)
        p50, p99 = np.percentile(times, (50, 99))
        name = "trimming" if trimming else "dropping"
        print(f"{name:<9} p50 {p50:7.1f} ms  p99 {p99:7.1f} ms  most {max(times):7.1f} ms   {counted}")
        return times
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
        lifetime.down(NAME)


def _listens() -> bool:
    told = subprocess.run(
        run.command_line(NAME, TARGET, ["cat", "/proc/net/tcp", "/proc/net/tcp6"]), capture_output=True, text=True
    ).stdout
    return any(f":{PORT:04X} " in line and " 0A " in line for line in told.splitlines())


def main() -> None:
    if sys.argv[1:2] == ["receive"]:
        receive()
    elif sys.argv[1:2] == ["send"]:
        send(int(sys.argv[2]), int(sys.argv[3]))
    else:
        writes = int(sys.argv[1]) if len(sys.argv) > 1 else 200
        for trimming in (True, False):
            incast(trimming, writes)


if __name__ == "__main__":
    main()
