"""The options that `mrc send` and `mrc recv` share."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

LONGEST_SECONDS = 1e6  # what the kernel's waits take


def seconds(value: float | None) -> float | None:
    """Return a number of seconds that every wait takes: infinity is eleven days."""
    if value is not None and math.isnan(value):
        raise typer.BadParameter("it is not a number")
    return min(value, LONGEST_SECONDS) if value is not None else None


Port = Annotated[int, typer.Option("-p", "--port", min=0, max=65535, help="TCP port on which the receiver listens.")]
Planes = Annotated[
    str | None,
    typer.Option(
        "--planes",
        metavar="N|ADDR,...",
        help="Local address of each plane, or a number of loopback planes (default: one a network interface).",
    ),
]
Remote = Annotated[
    str | None,
    typer.Option("--remote", metavar="ADDR,...", help="Where the peer's planes are reached (default: as it tells)."),
]
Format = Annotated[str, typer.Option("--format", help="Where the entropy value travels: udp, stev or srv6.")]
Mtu = Annotated[int, typer.Option("-m", "--mtu", help="Path MTU: 256 to 4096 (default: what all planes take).")]
Timeout = Annotated[
    float,
    typer.Option("--timeout", min=0.1, callback=seconds, help="Seconds without progress until giving up; inf: never."),
]
Impair = Annotated[
    str | None, typer.Option("--impair", metavar="WORDS", help='Impair what arrives here: "loss: 1%, delay: 200us".')
]
Schedule = Annotated[
    Path | None, typer.Option("--schedule", metavar="FILE", help="Impair what arrives here as this YAML file says.")
]
Capture = Annotated[Path | None, typer.Option("--capture", metavar="FILE.pcapng", help="Write every packet there.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="No progress on stderr.")]
