"""`mrc perf`: bandwidth and latency between two processes; a server without HOST, a client with one."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from openmrc.errors import UsageError
from openmrc.live.host.interfaces import find_planes
from openmrc.live.host.sockets import MAX_PLANES
from openmrc.programs.endpoint.access import AccessPolicy, hosts_of, token_of
from openmrc.programs.endpoint.opening import EndpointOptions, faults_text, planes_of, read_faults
from openmrc.programs.option_groups import with_groups
from openmrc.programs.perf.options import HowMuch, PerfLocal, PerfNetwork, PerfOutput, What
from openmrc.programs.perf.run import PerfCall
from openmrc.programs.perf.words import PerfPlan, Test


@dataclass(frozen=True)
class Credentials:
    """Addresses and token of a listening command."""

    panel: ClassVar = "Access"
    bind: Annotated[
        str | None,
        typer.Option(
            "--bind", metavar="ADDR,...", help="Addresses to listen on, or all (default: loopback and the planes)."
        ),
    ] = None
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            metavar="TEXT",
            help="Shared secret of 16 characters or more. Other users of this machine see it in the process "
            "list; --token-file and MRC_TOKEN avoid that (default of a listener that other machines reach: generated).",
        ),
    ] = None
    token_file: Annotated[
        Path | None, typer.Option("--token-file", metavar="FILE", help="File that contains the token.")
    ] = None
    no_token: Annotated[bool, typer.Option("--no-token", help="Accept any peer without a token.")] = False

    def listening(self) -> AccessPolicy:
        return AccessPolicy(hosts_of(self.bind), token_of(self.token, self.token_file, self.no_token))


Host = Annotated[str | None, typer.Argument(metavar="HOST", help="Server host; omit to run as the server.")]


@with_groups
def perf(
    what: What,
    how_much: HowMuch,
    local: PerfLocal,
    network: PerfNetwork,
    output: PerfOutput,
    credentials: Credentials,
    host: Host = None,
    port: Annotated[int, typer.Option("-p", "--port", min=0, max=65535, help="TCP port of the server.")] = 18515,
    loopback: Annotated[bool, typer.Option("--loopback", help="Also start the server, as a second process.")] = False,
    no_warning: Annotated[bool, typer.Option("-F", help="Accepted as by perftest; has no effect.")] = False,
    ready_fd: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Measure the throughput or latency of one or more queue pairs over all planes.

    The client decides what is measured; the server must agree only on planes, --mtu and --format. Latency is half the
    round-trip time of writes with immediate. Interval lines on stderr show the share of each plane.
    """
    if loopback and host is not None:
        raise UsageError("--loopback starts its own server; omit HOST")
    _check_together(what, how_much)
    is_client = loopback or host is not None
    ours, theirs = _addresses(local, host, loopback)
    command = PerfCall(
        endpoint=_endpoint(what, local, network, ours, is_client),
        plan=_plan(what, how_much, network, is_client),
        port=port,
        access=credentials.listening(),
        remote=theirs,
        timeout=local.timeout,
        output=output,
        for_ever=how_much.for_ever,
        ready_fd=ready_fd,
    )
    if loopback:
        command.both()
    elif host is not None:
        command.client(host)
    else:
        command.server()


def _check_together(what: What, how_much: HowMuch) -> None:
    """Refuse options of which one would be ignored."""
    if what.latency and what.both_ways:
        raise UsageError("--lat, -b: latency is of a round trip, which goes both ways; omit -b")
    if what.per_completion > what.depth:
        raise UsageError(f"--cq-mod: {what.per_completion} writes; --tx-depth leaves {what.depth} outstanding")
    if how_much.iterations is not None and how_much.seconds:
        raise UsageError("-n, -D, --run_infinitely: a run ends after a number of writes or of seconds; give one")


def _addresses(local: PerfLocal, host: str | None, loopback: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return our addresses, and those that override the peer's; loopback has four planes unless others are given."""
    planes = "4" if loopback and local.planes is None and local.device is None else local.planes
    ours, theirs = planes_of(planes, local.remote, "localhost" if loopback else host, local.device, local.gid)
    return ours if local.one_plane is None else _only(ours, local.one_plane), theirs


def _endpoint(
    what: What, local: PerfLocal, network: PerfNetwork, ours: tuple[str, ...], is_client: bool
) -> EndpointOptions:
    return EndpointOptions(
        planes=ours,
        ev_format=local.ev_format,
        mtu=local.mtu,
        max_qp=max(what.queue_pairs, 8),
        capture=network.capture,
        algorithm=local.algorithm,
        faults=None if is_client else read_faults(network.impair, network.schedule),  # a client sends its plan
    )


def _plan(what: What, how_much: HowMuch, network: PerfNetwork, is_client: bool) -> PerfPlan:
    return PerfPlan(
        test=Test.LATENCY if what.latency else Test.BANDWIDTH,
        sizes=how_much.sizes(what.latency),
        iterations=how_much.iterations or (1000 if what.latency else 5000),
        duration=how_much.seconds,
        warmup=how_much.warmup,
        depth=what.depth,
        per_completion=what.per_completion,
        queue_pairs=1 if what.latency else what.queue_pairs,
        both_ways=what.both_ways,
        immediate=what.immediate,
        faults=faults_text(network.impair, network.schedule) if is_client else None,
    )


def _only(planes: tuple[str, ...], number: int) -> tuple[str, ...]:
    known = planes or tuple(str(each.address) for each in find_planes(MAX_PLANES))
    if number > len(known):
        raise UsageError(f"--ib-port: expected 1 to {len(known)}, not {number}")
    return (known[number - 1],)
