"""The options of `mrc perf`, in groups: each is a dataclass, and a panel of the help."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from openmrc.cli import transfer_options as options
from openmrc.cli.transfer_options import ENDPOINT, NETWORK, OUTPUT
from openmrc.errors import UsageError

WHAT, HOW_MUCH = "What is measured", "How much"  # panels of the help
LARGEST_OF_ALL = 1 << 23  # bytes; where perftest's --all ends
FOR_EVER = 1e9  # s


@dataclass(frozen=True)
class What:
    """What is measured."""

    latency: Annotated[bool, typer.Option("--lat", help="Measure latency.", rich_help_panel=WHAT)] = False
    both_ways: Annotated[bool, typer.Option("-b", "--bidirectional", help="Both ends write.", rich_help_panel=WHAT)] = (
        False
    )
    immediate: Annotated[bool, typer.Option("--imm", help="Writes with immediate.", rich_help_panel=WHAT)] = False
    queue_pairs: Annotated[
        int, typer.Option("-q", "--qp", min=1, max=64, help="Queue pairs.", rich_help_panel=WHAT)
    ] = 1
    depth: Annotated[
        int, typer.Option("-t", "--tx-depth", min=1, max=256, help="Outstanding writes a pair.", rich_help_panel=WHAT)
    ] = 128


@dataclass(frozen=True)
class HowMuch:
    """Sizes, iterations and seconds."""

    size: Annotated[
        str | None,
        typer.Option("-s", "--size", help="Bytes, such as 64K (default: 65536, --lat: 2).", rich_help_panel=HOW_MUCH),
    ] = None
    all_sizes: Annotated[
        bool, typer.Option("-a", "--all", help="Sizes from 2 (or --min-size) to 8M (or -s).", rich_help_panel=HOW_MUCH)
    ] = False
    min_size: Annotated[str, typer.Option("--min-size", help="Least size of -a.", rich_help_panel=HOW_MUCH)] = "2"
    factor: Annotated[
        int, typer.Option("--step-factor", min=2, help="From size to size of -a.", rich_help_panel=HOW_MUCH)
    ] = 2
    iterations: Annotated[
        int | None, typer.Option("-n", "--iters", min=1, help="Writes (default: 5000).", rich_help_panel=HOW_MUCH)
    ] = None
    duration: Annotated[
        float | None,
        typer.Option(
            "-D",
            "--duration",
            min=0.01,
            callback=options.seconds,
            help="Seconds, not writes.",
            rich_help_panel=HOW_MUCH,
        ),
    ] = None
    for_ever: Annotated[bool, typer.Option("--run_infinitely", help="Until Ctrl-C.", rich_help_panel=HOW_MUCH)] = False
    warmup: Annotated[
        int, typer.Option("-w", "--warmup-iters", min=0, help="Writes before measuring.", rich_help_panel=HOW_MUCH)
    ] = 0

    def sizes(self, latency: bool) -> list[int]:
        """Return the sizes to measure."""
        from openmrc.apps.perf_session import sizes_from
        from openmrc.apps.perf_words import LARGEST_SIZE
        from openmrc.apps.sizes import size_bytes

        default = str(LARGEST_OF_ALL) if self.all_sizes else "2" if latency else "65536"
        most = size_bytes(self.size or default, "--size", 1, LARGEST_SIZE)
        if not self.all_sizes:
            return [most]
        return sizes_from(size_bytes(self.min_size, "--min-size", 1, most), most, self.factor)

    @property
    def seconds(self) -> float:
        """How long each run lasts; 0 where iterations decide."""
        return FOR_EVER if self.for_ever else self.duration or 0.0


@dataclass(frozen=True)
class Local:
    """This end: planes, format, congestion control."""

    planes: options.Planes = None
    device: Annotated[
        str | None,
        typer.Option("-d", "--ib-dev", metavar="IF,...", help="Interfaces as planes.", rich_help_panel=ENDPOINT),
    ] = None
    gid: Annotated[
        int,
        typer.Option(
            "-x",
            "--gid-index",
            "-g",
            "--gid-idx",
            min=0,
            help="Which address of each --ib-dev.",
            rich_help_panel=ENDPOINT,
        ),
    ] = 0
    one_plane: Annotated[
        int | None, typer.Option("-i", "--ib-port", min=1, help="Use this plane only.", rich_help_panel=ENDPOINT)
    ] = None
    remote: options.Remote = None
    mtu: options.Mtu = 0
    ev_format: options.Format = "udp"
    algorithm: Annotated[
        str, typer.Option("--cc", help="Congestion control: nscc or none.", rich_help_panel=ENDPOINT)
    ] = "nscc"
    tos: Annotated[
        int,
        typer.Option(
            "-T", "--tos", min=0, max=255, help="Only 0: the endpoint sets it itself.", rich_help_panel=ENDPOINT
        ),
    ] = 0
    timeout: options.Timeout = 10.0

    def check(self) -> None:
        """Refuse what the endpoint decides itself."""
        if self.tos:
            text = "the endpoint marks each packet as data or control; only 0 works"
            raise UsageError(f"--tos: {self.tos}: {text}")


@dataclass(frozen=True)
class Network:
    """Impairments of what arrives, and the capture file."""

    impair: Annotated[
        str | None,
        typer.Option(
            "--impair",
            metavar="WORDS",
            help='Impair both ends, from the start: "loss: 1%".',
            rich_help_panel=NETWORK,
        ),
    ] = None
    schedule: Annotated[
        Path | None,
        typer.Option(
            "--schedule", metavar="FILE", help="Impair both ends as this YAML file says.", rich_help_panel=NETWORK
        ),
    ] = None
    capture: options.Capture = None


@dataclass(frozen=True)
class Output:
    """What is printed, and where."""

    as_json: Annotated[
        bool,
        typer.Option("--out_json", "--json", help="Print one JSON object on stdout.", rich_help_panel=OUTPUT),
    ] = False
    json_file: Annotated[
        Path | None, typer.Option("--out_json_file", help="Write that object to a file.", rich_help_panel=OUTPUT)
    ] = None
    in_gbits: Annotated[
        bool, typer.Option("--report_gbits", help="Report Gb/s, not MiB/s.", rich_help_panel=OUTPUT)
    ] = False
    each_way: Annotated[
        bool, typer.Option("--report-both", help="With -b: a line for each direction.", rich_help_panel=OUTPUT)
    ] = False
    quiet: Annotated[bool, typer.Option("--quiet", help="No interval lines.", rich_help_panel=OUTPUT)] = False
