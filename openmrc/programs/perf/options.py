"""The options of `mrc perf`, in groups: each is a dataclass, and a panel of the help."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from openmrc.base.amounts import size_bytes
from openmrc.programs.perf.session import sizes_from
from openmrc.programs.perf.words import LARGEST_SIZE

LARGEST_OF_ALL = 1 << 23  # bytes; the largest size of perftest's --all
FOR_EVER = 1e9  # s
LONGEST_SECONDS = 1e6  # longest timeout that the kernel's waits accept


def seconds(value: float | None) -> float | None:
    """Parse a number of seconds; infinity becomes eleven days."""
    if value is not None and math.isnan(value):
        raise typer.BadParameter("not a number of seconds")
    return min(value, LONGEST_SECONDS) if value is not None else None


@dataclass(frozen=True)
class What:
    panel: ClassVar = "Measurement"
    latency: Annotated[bool, typer.Option("--lat", help="Measure latency.")] = False
    both_ways: Annotated[bool, typer.Option("-b", "--bidirectional", help="Write from both ends.")] = False
    immediate: Annotated[bool, typer.Option("--imm", help="Use writes with immediate.")] = False
    queue_pairs: Annotated[int, typer.Option("-q", "--qp", min=1, max=64, help="Number of queue pairs.")] = 1
    depth: Annotated[
        int, typer.Option("-t", "--tx-depth", min=1, max=256, help="Outstanding writes per queue pair.")
    ] = 128
    per_completion: Annotated[
        int,
        typer.Option(
            "-Q",
            "--cq-mod",
            min=0,
            max=256,
            help="Writes per completion; 0: those of about 2 ms, a quarter of --tx-depth at most.",
        ),
    ] = 0


@dataclass(frozen=True)
class HowMuch:
    """Sizes, iterations and seconds."""

    panel: ClassVar = "Amount"
    size: Annotated[str | None, typer.Option("-s", "--size", help="Bytes, such as 64K (default: 65536, --lat: 2).")] = (
        None
    )
    all_sizes: Annotated[bool, typer.Option("-a", "--all", help="Sizes from 2 (or --min-size) to 8M (or -s).")] = False
    min_size: Annotated[str, typer.Option("--min-size", help="Smallest size of -a.")] = "2"
    factor: Annotated[int, typer.Option("--step-factor", min=2, help="Factor between sizes of -a.")] = 2
    iterations: Annotated[int | None, typer.Option("-n", "--iters", min=1, help="Writes (default: 5000).")] = None
    duration: Annotated[
        float | None,
        typer.Option(
            "-D", "--duration", min=0.01, callback=seconds, help="Seconds to run, instead of a number of writes."
        ),
    ] = None
    for_ever: Annotated[bool, typer.Option("--run_infinitely", help="Until Ctrl-C.")] = False
    warmup: Annotated[int, typer.Option("-w", "--warmup-iters", min=0, help="Warm-up writes.")] = 0

    def sizes(self, latency: bool) -> list[int]:
        default = str(LARGEST_OF_ALL) if self.all_sizes else "2" if latency else "65536"
        most = size_bytes(self.size or default, "--size", 1, LARGEST_SIZE)
        if not self.all_sizes:
            return [most]
        return sizes_from(size_bytes(self.min_size, "--min-size", 1, most), most, self.factor)

    @property
    def seconds(self) -> float:
        """Return the seconds of each run; 0 if a number of iterations is set."""
        return FOR_EVER if self.for_ever else self.duration or 0.0


@dataclass(frozen=True)
class PerfLocal:
    """This end: planes, format, congestion control."""

    panel: ClassVar = "Endpoint"
    planes: Annotated[
        str | None,
        typer.Option(
            "--planes",
            metavar="N|ADDR,...",
            help="Local address of each plane, or a number of loopback planes (default: one per network interface).",
        ),
    ] = None
    device: Annotated[
        str | None, typer.Option("-d", "--ib-dev", metavar="IF,...", help="Interfaces to use as planes.")
    ] = None
    gid: Annotated[
        int, typer.Option("-x", "--gid-index", "-g", "--gid-idx", min=0, help="Index of the address on each --ib-dev.")
    ] = 0
    one_plane: Annotated[int | None, typer.Option("-i", "--ib-port", min=1, help="Use this plane only.")] = None
    remote: Annotated[
        str | None,
        typer.Option(
            "--remote", metavar="ADDR,...", help="Addresses of the peer's planes (default: those that it announces)."
        ),
    ] = None
    mtu: Annotated[
        int,
        typer.Option(
            "-m",
            "--mtu",
            help="Path MTU: 256 to 4096 (default: the largest that all planes support).",
            show_default=False,
        ),
    ] = 0
    ev_format: Annotated[
        str, typer.Option("--format", help="Header fields that carry the entropy value: udp, stev or srv6.")
    ] = "udp"
    algorithm: Annotated[str, typer.Option("--cc", help="Congestion control: nscc or none.")] = "nscc"
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout", min=0.1, callback=seconds, help="Seconds without progress until failure; inf: no limit."
        ),
    ] = 10.0


@dataclass(frozen=True)
class PerfNetwork:
    """Impairments of arriving packets, and the capture file."""

    panel: ClassVar = "Impairments and capture"
    impair: Annotated[
        str | None, typer.Option("--impair", metavar="WORDS", help='Impairments at both ends: "loss: 1%".')
    ] = None
    schedule: Annotated[
        Path | None, typer.Option("--schedule", metavar="FILE", help="YAML file of impairments at both ends.")
    ] = None
    capture: Annotated[
        Path | None, typer.Option("--capture", metavar="FILE.pcapng", help="Write every packet to this pcapng file.")
    ] = None


@dataclass(frozen=True)
class PerfOutput:
    """What is printed, and where."""

    panel: ClassVar = "Output"
    as_json: Annotated[bool, typer.Option("--out_json", "--json", help="Print one JSON object on stdout.")] = False
    in_gbits: Annotated[bool, typer.Option("--report_gbits", help="Report Gb/s, not MiB/s.")] = False
    each_way: Annotated[bool, typer.Option("--report-both", help="With -b: print a line for each direction.")] = False
    quiet: Annotated[bool, typer.Option("--quiet", help="Print no interval lines.")] = False
