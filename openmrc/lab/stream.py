"""One end of a test stream, as a program of its own: `python -m openmrc.lab.stream ...` inside a lab's namespace.

receive KIND ADDRESS PORT FILE     take one stream and write what arrived when
send KIND ADDRESS PORT SECONDS     send one
"""

from __future__ import annotations

import sys
from pathlib import Path

from openmrc.lab import stream_mrc, stream_tcp

KINDS = ("mrc", "tcp", "mptcp")


def main(arguments: list[str]) -> None:
    """Be one end."""
    side, kind, address, port, last = arguments
    if side == "receive":
        log = stream_mrc.receive(int(port)) if kind == "mrc" else stream_tcp.receive(kind, int(port))
        log.write(Path(last))
    elif kind == "mrc":
        stream_mrc.send(address, int(port), float(last))
    else:
        stream_tcp.send(kind, address, int(port), float(last))


if __name__ == "__main__":
    main(sys.argv[1:])
