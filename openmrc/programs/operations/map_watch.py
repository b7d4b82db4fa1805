"""`mrc map watch`: the controller of a lab, of this host, or of agents."""

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from openmrc.ctl.folder import folder_of
from openmrc.errors import ConfigError, UsageError
from openmrc.operations.control.controller import ControllerEvent, FabricController
from openmrc.operations.control.controllers import AgentsOptions, agents_controller, run
from openmrc.operations.control.etcd_lease import EtcdLease
from openmrc.operations.control.operated import operated
from openmrc.operations.control.order_hook import OrderHook, key_in
from openmrc.operations.diagnosis.denial import DenialLimits
from openmrc.operations.diagnosis.path_index import PathIndex
from openmrc.operations.fleets.agents.certificates import CONTROLLER, agent_tls, check_identity
from openmrc.operations.fleets.agents.host_agent import HostAgent
from openmrc.operations.fleets.agents.host_prober import HostProber
from openmrc.operations.fleets.agents.link import AgentLink, run_agent
from openmrc.operations.fleets.agents.messages import fabric_digest
from openmrc.operations.fleets.fleet import Fleet
from openmrc.operations.fleets.state_folder import StateFolder
from openmrc.programs.fabrics.files import FabricFile, answer, load_plan, load_topology
from openmrc.programs.operations.map import order_lines
from openmrc.programs.option_groups import with_groups
from openmrc.programs.outcome import Json, check_folder, print_json, stoppable
from openmrc.telemetry.metrics_server import parse_address

Certificates = Annotated[Path, typer.Option("--certs", help="Folder of ca.pem and one's own certificate and key.")]


def agent(
    file: FabricFile,
    host: Annotated[str, typer.Argument(metavar="HOST", help="This host's name in the fabric, such as h3.")],
    controllers: Annotated[
        list[str], typer.Option("--controller", help="ADDRESS:PORT of a controller; more are tried in turn.")
    ],
    certificates: Certificates,
    probes: Annotated[bool, typer.Option("--probes/--no-probes", help="Send probes besides reading votes.")] = True,
    folder: Annotated[Path | None, typer.Option("--ctl", help="Folder of the endpoints' sockets.")] = None,
    seconds: Annotated[float | None, typer.Option("--for", min=0, help="End after so many seconds.")] = None,
) -> None:
    """Speak for this host: report what its endpoints and probes see to a controller, and have denied what it says."""
    plan = load_plan(file)
    nic, digest = plan.topology.node_named(host), fabric_digest(plan.topology)
    where = [parse_address(each, "--controller") for each in controllers]
    check_identity(certificates, host)  # an error in it is told before anything else is done
    begun = time.monotonic()
    with (
        closing(Fleet(folder_of(None if folder is None else str(folder)), PathIndex(plan), nic)) as fleet,
        closing(HostProber(plan, nic)) if probes else nullcontext() as prober,
        stoppable(),
    ):
        run_agent(
            HostAgent(fleet, prober),
            prober,
            where,
            lambda address: AgentLink(address, agent_tls(certificates, host), digest),  # files may be new ones
            lambda: seconds is not None and time.monotonic() - begun >= seconds,
            lambda text: typer.echo(f"mrc: {host}: {text}", err=True),
        )


def certs(
    file: FabricFile,
    hosts: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Only these (default: all).")] = None,
    out: Annotated[Path, typer.Option(help="Folder to write; an authority in it is used again.")] = Path("certs"),
    days: Annotated[int, typer.Option(min=1, max=3650, help="How long the certificates are valid.")] = 90,
    revoked: Annotated[bool, typer.Option("--revoke", help="Make none: revoke the present ones of NAME.")] = False,
    as_json: Json = False,
) -> None:
    """Make an authority, a controller's certificate and one for each host of a fabric, with their keys."""
    try:
        from openmrc.operations.fleets.agents.authority import make_certificates, revoke
    except ImportError as error:
        raise ConfigError("certificates need the cryptography package: pip install '.[agents]'") from error
    topology = load_topology(file)
    known = [topology.name(nic) for nic in range(topology.nics)]
    for name in hosts or []:
        if name not in (*known, CONTROLLER):
            raise UsageError(f"{name!r} is neither a host of {topology.fabric.name} nor {CONTROLLER!r}")
    if revoked:
        if not hosts:
            raise UsageError("--revoke: name whose certificates")
        answer({"folder": str(out), "revoked": revoke(out, hosts)}, as_json)
        return
    check_folder(out, "--out")
    written = make_certificates(out, topology.fabric.name, hosts or [CONTROLLER, *known], days)
    answer({"folder": str(out), "days": days, "certificates": len(written) // 2}, as_json)


@dataclass(frozen=True)
class Denying:
    """What the controller may take out of use."""

    apply: Annotated[bool, typer.Option("--apply", help="Deny what is named; without it, only say so.")] = False
    lease: Annotated[float, typer.Option(min=1, max=60, help="Seconds until a denial lapses without us.")] = 30.0
    per_minute: Annotated[int, typer.Option(min=0, help="Parts that are newly denied in a minute, at most.")] = 4
    plane_share: Annotated[float, typer.Option(min=0, max=1, help="Share of a plane that is denied, at most.")] = 0.25

    def limits(self) -> DenialLimits:
        return DenialLimits(
            dry_run=not self.apply, per_minute=self.per_minute, plane_share=self.plane_share, lease=self.lease
        )


@dataclass(frozen=True)
class Listening:
    """The agents of other hosts, if there are any."""

    listen: Annotated[str, typer.Option(help="ADDRESS:PORT for agents (mrc map agent) of other hosts.")] = ""
    certificates: Annotated[Path, typer.Option("--certs", help="With --listen: what mrc map certs made.")] = Path(
        "certs"
    )
    absent: Annotated[list[str] | None, typer.Option(help="With --listen: a host that is off.")] = None

    def agents(self, probes: bool) -> AgentsOptions:
        return AgentsOptions(self.certificates, parse_address(self.listen, "--listen"), self.absent or [], probes)


@dataclass(frozen=True)
class Outside:
    """What the controller speaks to besides the fabric."""

    orders: Annotated[str, typer.Option("--orders", help="URL that work orders are sent to, as signed JSON.")] = ""
    orders_key: Annotated[Path | None, typer.Option("--orders-key", help="With --orders: file of the key.")] = None
    etcd: Annotated[str, typer.Option("--etcd", help="URL of etcd: of several controllers, who has its lease.")] = ""

    @contextmanager
    def hook(self, controller: FabricController) -> Iterator[Callable[[ControllerEvent], ControllerEvent]]:
        """Yield what takes every event before it is printed."""
        if not self.orders:
            yield lambda event: event
            return
        if self.orders_key is None:
            raise UsageError("--orders needs --orders-key, the key that signs")
        topology = controller.planes[0].parts.topology
        with closing(OrderHook(self.orders, key_in(self.orders_key), topology.fabric.name, controller.state)) as hook:
            yield hook.take

    @contextmanager
    def lease(self, fabric: str, folder: Path | None) -> Iterator[Callable[[], bool]]:
        """Wait for the lease; yield what tells whether it is lost."""
        if not self.etcd:
            yield lambda: False
            return
        if folder is None:
            raise UsageError("--etcd needs --ctl, a folder for what the next controller has to know")
        lease = EtcdLease(self.etcd, fabric, f"{socket.getfqdn()} (pid {os.getpid()})", StateFolder(folder))
        told = list[str]()

        def wait(said: str) -> bool:
            if told[-1:] != [said]:
                told.append(said)
                typer.echo(f"mrc: waiting: {said}", err=True)
            return True

        with lease.held(wait):
            yield lambda: lease.is_lost


@with_groups
def watch(
    fabric: Annotated[str, typer.Argument(metavar="FABRIC", help="A lab that is up, or a fabric.yaml with --ctl.")],
    denying: Denying,
    listening: Listening,
    outside: Outside,
    probes: Annotated[bool, typer.Option("--probes/--no-probes", help="Send probes besides reading votes.")] = True,
    seconds: Annotated[float | None, typer.Option("--for", min=0, help="End after so many seconds.")] = None,
    folder: Annotated[Path | None, typer.Option("--ctl", help="The endpoints' sockets, or our state.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object a line.")] = False,
) -> None:
    """Be the controller of a lab, of this host, or of agents: name faulty parts, have them denied, carry out drains."""
    limits = denying.limits()
    lab = None if listening.listen else operated(fabric, folder, made_later=True)

    def is_over() -> bool:
        ended = seconds is not None and time.monotonic() - begun >= seconds
        return ended or is_lost() or not (lab is None or lab.is_up())

    with ExitStack() as stack:
        stack.enter_context(stoppable())
        is_lost = stack.enter_context(outside.lease(Path(fabric).stem, folder if lab is None else lab.sockets))
        controller = stack.enter_context(
            lab.controller(limits, probes)
            if lab is not None
            else _of_agents(fabric, folder, limits, listening.agents(probes))
        )
        take = stack.enter_context(outside.hook(controller))
        begun = time.monotonic()
        endpoints = len(controller.fleet.names())
        does = "denies" if denying.apply else "dry run"
        typer.echo(f"mrc: watching {fabric}, {endpoints} endpoints; {does}", err=True)
        run(controller, lambda event: say(take(event), begun, as_json), is_over)
        if lab is not None and not lab.is_up():
            typer.echo(f"mrc: lab {fabric} is down", err=True)
        if outside.etcd and is_lost():
            typer.echo("mrc: the lease is lost: another controller may be in charge", err=True)
        if controller.is_fenced or is_lost():
            raise typer.Exit(1)


def _of_agents(
    fabric: str, folder: Path | None, limits: DenialLimits, options: AgentsOptions
) -> AbstractContextManager[FabricController]:
    if folder is None:
        raise UsageError("--listen needs --ctl, a folder for what the next controller has to know")
    typer.echo(f"mrc: agents at {options.listen[0]}:{options.listen[1]}", err=True)
    return agents_controller(load_plan(Path(fabric)), folder, options, limits)


def say(event: ControllerEvent, begun: float, as_json: bool) -> None:
    """Print what a controller did: a line, or a JSON object a line."""
    if as_json:
        print_json(event)
        return
    found, outcome = event.verdict, f": {event.outcome}" if event.outcome else ""
    evidence = (
        f" ({found.effect}, {found.lost} of {found.sent} lost, confidence {found.confidence:.3f})" if found else ""
    )
    typer.echo(f"{event.at - begun:8.3f} s  {event.what} {event.part}{evidence}{outcome}")
    if event.order is not None:
        for line in order_lines(event.order):
            typer.echo(f"            {line}")
