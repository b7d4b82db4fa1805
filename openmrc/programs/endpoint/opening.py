"""Open an endpoint from command-line options."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import typer

from openmrc.base.documents import read_text
from openmrc.base.faults import Schedule, not_empty
from openmrc.engine.state.params import Settings
from openmrc.errors import ConfigError, UsageError
from openmrc.live.checks import MTUS
from openmrc.live.host.nic_file import NicFile, from_environment
from openmrc.live.host.planes import EndpointSide, interface_planes, local_planes
from openmrc.live.host.sockets import Sockets
from openmrc.live.host.tuning import settings_for
from openmrc.verbs import CaptureReport, Context, ContextAttr, EvFormat

FORMATS = {"udp": EvFormat.UDP, "stev": EvFormat.STEV, "srv6": EvFormat.SRV6}
ALGORITHMS = {"nscc": "uet-1.0-nscc", "none": "none"}


@dataclass(frozen=True)
class EndpointOptions:
    """Options common to all commands that open sockets."""

    planes: tuple[str, ...] = ()  # local addresses; empty: those of the interfaces
    ev_format: str = "udp"
    mtu: int = 0  # bytes; 0: the largest that all planes support
    max_qp: int = 8
    capture: Path | None = None
    algorithm: str = "nscc"
    faults: Schedule | None = None


def open_endpoint(options: EndpointOptions) -> Context:
    """Open the sockets and start the thread."""
    if options.ev_format not in FORMATS:
        raise UsageError(f"--format: {options.ev_format!r} is not one of {', '.join(FORMATS)}")
    if options.algorithm not in ALGORITHMS:
        raise UsageError(f"--cc: {options.algorithm!r} is not one of {', '.join(ALGORITHMS)}")
    if options.mtu not in (0, *MTUS):
        raise UsageError(f"--mtu: {options.mtu} is not one of {', '.join(map(str, MTUS))}")
    nic = from_environment() if not options.planes else None
    if nic is not None:
        return open_described(nic, options)
    attr = ContextAttr(ev_format=FORMATS[options.ev_format], max_qp=options.max_qp)
    settings = None if options.algorithm == "nscc" else _settings(options, attr)
    return Context(options.planes, attr, settings=settings, faults=options.faults, capture=options.capture)


def _settings(options: EndpointOptions, attr: ContextAttr) -> Settings:
    """Return the tuning that the context would choose, with another congestion-control algorithm."""
    ports = Sockets(options.planes, attr)
    try:
        usual = settings_for(ports, min(attr.mtu, ports.mtu))
    finally:
        ports.close()
    return replace(usual, algorithm=ALGORITHMS[options.algorithm])


def open_described(nic: NicFile, options: EndpointOptions) -> Context:
    """Open a NIC described by a file, in SRv6 format: the file lists its paths."""
    mtu = options.mtu or MTUS[-1]
    return Context(
        nic.planes,
        ContextAttr(ev_format=EvFormat.SRV6, max_qp=options.max_qp, mtu=mtu, evs_per_plane=nic.evs_per_plane),
        settings=replace(nic.settings(mtu), algorithm=ALGORITHMS[options.algorithm]),
        faults=options.faults,
        capture=options.capture,
        carrier_of=nic.carrier_of,
    )


def read_faults(text: str | None, schedule: Path | None) -> Schedule | None:
    """Return the schedule of `--impair "loss: 1%"` or of `--schedule FILE`."""
    if text is not None and schedule is not None:
        raise UsageError("--impair and --schedule exclude each other; give one")
    if schedule is not None:
        return not_empty(Schedule.read(schedule), str(schedule))
    if text is None:
        return None
    try:
        return not_empty(Schedule.parse(text, "--impair"), "--impair")
    except ConfigError as error:
        raise UsageError(str(error)) from error


def faults_text(text: str | None, schedule: Path | None) -> str | None:
    """Return the schedule as text for the peer, after validating it."""
    if read_faults(text, schedule) is None:
        return None
    return text if schedule is None else read_text(schedule)


@contextmanager
def opened(options: EndpointOptions) -> Iterator[Context]:
    """Open an endpoint for the block; afterwards report the result of its capture on stderr."""
    with open_endpoint(options) as context:
        try:
            yield context
        finally:
            context.close()
            report = context.capture_report()
            if report is not None:
                typer.echo(f"mrc: {_capture_text(report)}", err=True)


def _capture_text(report: CaptureReport) -> str:
    if report.is_complete:
        return f"{report.path}: all {report.packets} packets"
    why = f": {report.error}" if report.error else ": writing was too slow"
    return f"{report.path}: {report.packets} packets, {report.lost} are missing{why}"


def planes_of(
    planes: str | None, remote: str | None, host: str | None, device: str | None = None, index: int = 0
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the local addresses that the options select, and the remote ones that override the peer's."""
    if planes is not None and device is not None:
        raise UsageError("--planes and --ib-dev exclude each other; give one")
    side = EndpointSide.SERVER if host is None else EndpointSide.CLIENT
    ours = interface_planes(device, index) if device is not None else local_planes(planes, side, host)
    theirs = tuple(part.strip() for part in remote.split(",")) if remote else ()
    if theirs and ours and len(theirs) != len(ours):
        raise UsageError(f"--remote: {len(theirs)} addresses, but {len(ours)} planes")
    return tuple(ours), theirs
