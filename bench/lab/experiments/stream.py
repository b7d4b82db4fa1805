"""One end of a test stream, as a program: `python -m bench.lab.experiments.stream ...` inside a lab's namespace.

receive KIND ADDRESS PORT FILE     receive one stream and write the arrivals to FILE
send KIND ADDRESS PORT SECONDS     send one
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path

from bench.lab.experiments import priorities, stream_iperf, stream_mrc, stream_tcp
from bench.lab.experiments.pieces import Log

KINDS = ("mrc", "tcp", "mptcp", stream_iperf.KIND)


def main(arguments: list[str]) -> None:
    """Run one end."""
    side, kind, address, port, last = arguments
    # The same for every kind: measure the network, not processor scheduling, garbage collection (70 ms once the engine
    # is loaded), or threads that wait for the interpreter's lock (5 ms).
    priorities.ends_second()
    gc.disable()
    sys.setswitchinterval(100e-6)
    if side == "receive":
        _receive(kind, int(port)).write(Path(last))
    else:
        _send(kind, address, int(port), float(last))


def _receive(kind: str, port: int) -> Log:
    match kind:
        case "mrc":
            return stream_mrc.receive(port)
        case stream_iperf.KIND:
            return stream_iperf.receive(port)
        case _:
            return stream_tcp.receive(kind, port)


def _send(kind: str, address: str, port: int, seconds: float) -> None:
    match kind:
        case "mrc":
            stream_mrc.send(address, port, seconds)
        case stream_iperf.KIND:
            stream_iperf.send(address, port, seconds)
        case _:
            stream_tcp.send(kind, address, port, seconds)


if __name__ == "__main__":
    main(sys.argv[1:])
