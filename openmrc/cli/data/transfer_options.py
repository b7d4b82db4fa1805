"""Options that `mrc send`, `mrc recv` and `mrc perf` share, and those of the first two in groups."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from openmrc.apps.endpoint import EndpointOptions

ENDPOINT, NETWORK, OUTPUT = "Endpoint", "Impairments and capture", "Output"  # panels of the help
LONGEST_SECONDS = 1e6  # longest timeout that the kernel's waits accept


def seconds(value: float | None) -> float | None:
    """Parse a number of seconds; infinity becomes eleven days."""
    if value is not None and math.isnan(value):
        raise typer.BadParameter("not a number of seconds")
    return min(value, LONGEST_SECONDS) if value is not None else None


Port = Annotated[int, typer.Option("-p", "--port", min=0, max=65535, help="TCP port of the receiver.")]
Planes = Annotated[
    str | None,
    typer.Option(
        "--planes",
        metavar="N|ADDR,...",
        help="Local address of each plane, or a number of loopback planes (default: one per network interface).",
        rich_help_panel=ENDPOINT,
    ),
]
Remote = Annotated[
    str | None,
    typer.Option(
        "--remote",
        metavar="ADDR,...",
        help="Addresses of the peer's planes (default: those that it announces).",
        rich_help_panel=ENDPOINT,
    ),
]
Format = Annotated[
    str,
    typer.Option(
        "--format", help="Header fields that carry the entropy value: udp, stev or srv6.", rich_help_panel=ENDPOINT
    ),
]
Mtu = Annotated[
    int,
    typer.Option(
        "-m",
        "--mtu",
        help="Path MTU: 256 to 4096 (default: the largest that all planes support).",
        show_default=False,
        rich_help_panel=ENDPOINT,
    ),
]
Timeout = Annotated[
    float,
    typer.Option(
        "--timeout",
        min=0.1,
        callback=seconds,
        help="Seconds without progress until failure; inf: no limit.",
        rich_help_panel=ENDPOINT,
    ),
]
Impair = Annotated[
    str | None,
    typer.Option(
        "--impair",
        metavar="WORDS",
        help='Impairments of arriving packets: "loss: 1%, delay: 200us".',
        rich_help_panel=NETWORK,
    ),
]
Schedule = Annotated[
    Path | None,
    typer.Option(
        "--schedule",
        metavar="FILE",
        help="YAML file of impairments of arriving packets.",
        rich_help_panel=NETWORK,
    ),
]
Capture = Annotated[
    Path | None,
    typer.Option(
        "--capture", metavar="FILE.pcapng", help="Write every packet to this pcapng file.", rich_help_panel=NETWORK
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.", rich_help_panel=OUTPUT)]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Print no progress on stderr.", rich_help_panel=OUTPUT)]


@dataclass(frozen=True)
class TransferLocal:
    """This end: planes, format, timeout."""

    planes: Planes = None
    remote: Remote = None
    ev_format: Format = "udp"
    mtu: Mtu = 0
    timeout: Timeout = 30.0

    def addresses(self, host: str | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the local plane addresses, and those that override the peer's."""
        from openmrc.cli.outcome import planes_of

        return planes_of(self.planes, self.remote, host)

    def endpoint(self, ours: tuple[str, ...], capture: Path | None) -> EndpointOptions:
        """Return the parameters of the endpoint."""
        from openmrc.apps.endpoint import EndpointOptions

        return EndpointOptions(ours, self.ev_format, self.mtu, capture=capture)


@dataclass(frozen=True)
class TransferNetwork:
    """Impairments of arriving packets, and the capture file."""

    impair: Impair = None
    schedule: Schedule = None
    capture: Capture = None


@dataclass(frozen=True)
class TransferOutput:
    """What is printed."""

    as_json: Json = False
    quiet: Quiet = False
