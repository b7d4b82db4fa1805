"""`mrc ctl`: look at the endpoints of this host, and control them."""

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Concatenate, ParamSpec, TypeVar

import msgspec
import typer

from openmrc.base.terminal import facts_text
from openmrc.ctl import endpoint_ops
from openmrc.ctl.client import CtlClient, endpoint, local_endpoints
from openmrc.ctl.denials import ALL_BITS, MOST_LEASE, Denial
from openmrc.errors import PeerError, UsageError
from openmrc.programs.option_groups import with_groups
from openmrc.programs.outcome import Json, give

P = ParamSpec("P")
R = TypeVar("R")
Folder = Annotated[str | None, typer.Option(help="Folder of the sockets (default: as MRC_CTL says).")]


@dataclass(frozen=True)
class CtlTarget:
    """Which endpoint is asked, and how the answer is printed."""

    name: Annotated[
        str, typer.Option("--endpoint", "-e", help="Name of the endpoint, or how it begins (default: the only one).")
    ] = ""
    folder: Folder = None
    as_json: Json = False

    def call(self, operation: Callable[Concatenate[Any, P], R], /, *args: P.args, **request: P.kwargs) -> R:
        """Return the endpoint's reply to an operation."""
        with endpoint(self.name, self.folder) as client:
            return client.call(operation, *args, **request)

    def give(self, found: Any) -> None:
        give(found, self.as_json, lambda: typer.echo(facts_text(_readable(msgspec.to_builtins(found)))))


Evs = Annotated[
    list[str] | None,
    typer.Argument(metavar="PORT:EV[/MASK][@PEER]", help="EVs: 2:0xc005, 2:0xc005@10.0.1.2, or 2:0/0 for a plane."),
]
Epoch = Annotated[
    int | None, typer.Option(min=0, help="Epoch of this controller; older ones are refused (default: the present).")
]
Lease = Annotated[float, typer.Option(help="Seconds until it lapses unless renewed, at most 60.")]

_NUMBER = r"0[xX][0-9a-fA-F]+|\d+"
_EV = re.compile(rf"(?P<port>\d+):(?P<ev>{_NUMBER})(?:/(?P<mask>{_NUMBER}))?(?:@(?P<peer>\S+))?")


def list_endpoints(folder: Folder = None, as_json: Json = False) -> None:
    """List the endpoints of this user."""
    found, silent = [], []
    for path in local_endpoints(folder):
        try:
            with CtlClient(path) as client:
                found.append(client.call(endpoint_ops.device))
        except PeerError as error:  # it may have ended in between
            silent.append(str(error))

    def show() -> None:
        for each in found:
            typer.echo(f"{each.endpoint:<12} {each.host:<10} {', '.join(each.planes)}  {each.command}")
        for line in silent:
            typer.echo(f"mrc: {line}", err=True)
        if not found:
            typer.echo("no endpoint; start programs with MRC_CTL=on")

    give({"endpoints": found, "silent": silent}, as_json, show)


@with_groups
def device(asked: CtlTarget) -> None:
    """Show an endpoint and its limits."""
    asked.give(asked.call(endpoint_ops.device))


@with_groups
def ports(asked: CtlTarget) -> None:
    """Show the ports of an endpoint."""
    asked.give(asked.call(endpoint_ops.ports))


@with_groups
def port(
    number: Annotated[int, typer.Argument(metavar="PORT", help="Port, from 1.")],
    state: Annotated[str, typer.Argument(metavar="up|down", help="Admin state.")],
    asked: CtlTarget,
    yes: Annotated[bool, typer.Option("--yes", help="Also disable the last port in use, without a question.")] = False,
) -> None:
    """Enable or disable a port; peers are told, and traffic takes the others."""
    if state not in ("up", "down"):
        raise UsageError(f"{state!r} is not one of up, down")
    if state == "down" and not yes:
        in_use = [each.port for each in asked.call(endpoint_ops.ports).ports if each.up]
        if in_use == [number]:
            _confirm(f"port {number} is the last one in use: without it every queue pair stands still")
    asked.give(asked.call(endpoint_ops.set_port, port=number, enabled=state == "up"))


def _confirm(what: str) -> None:
    """Ask somebody at a terminal; UsageError for others, and for a no."""
    if not (sys.stdin.isatty() and typer.confirm(f"mrc: {what}. Do it?", err=True)):
        raise UsageError(f"{what}; --yes does it")


@with_groups
def evs(asked: CtlTarget, qpn: Annotated[int, typer.Option("--qp", help="Only this queue pair.")] = 0) -> None:
    """Show the EVs of the queue pairs: state, and what was sent, delivered, lost, marked and trimmed on each."""
    asked.give(asked.call(endpoint_ops.paths, qpn=qpn))


@with_groups
def votes(asked: CtlTarget) -> None:
    """Show losses, trims, marks and deliveries by path, over all queue pairs."""
    asked.give({"votes": [msgspec.structs.asdict(vote) for vote in asked.call(endpoint_ops.votes).votes]})


@with_groups
def deny(asked: CtlTarget, which: Evs = None, lease: Lease = MOST_LEASE, epoch: Epoch = None) -> None:
    """Deny EVs, so that no data takes them. Refused if a queue pair would keep no path."""
    if not which:
        raise UsageError("give EVs to deny: PORT:EV, or PORT:EV@PEER")
    asked.give(asked.call(endpoint_ops.deny, denials=_parsed(which), lease=lease, epoch=epoch))


@with_groups
def renew(asked: CtlTarget, lease: Lease = MOST_LEASE, epoch: Epoch = None) -> None:
    """Extend the leases of all denials."""
    asked.give(asked.call(endpoint_ops.renew, lease=lease, epoch=epoch))


@with_groups
def lift(asked: CtlTarget, which: Evs = None, epoch: Epoch = None) -> None:
    """Lift denials: those that are named, or all."""
    named = _parsed(which) if which else None
    asked.give(asked.call(endpoint_ops.lift, denials=named, epoch=epoch))


@with_groups
def denials(asked: CtlTarget) -> None:
    """Show what is denied, and for how long."""
    asked.give(asked.call(endpoint_ops.denials))


def _parsed(texts: Sequence[str]) -> list[Denial]:
    found = []
    for text in texts:
        match = _EV.fullmatch(text)
        if match is None:
            raise UsageError(f"{text!r} is not PORT:EV[/MASK][@PEER], such as 2:0xc005@10.0.1.2")
        mask = int(match["mask"], 0) if match["mask"] else ALL_BITS
        found.append(Denial(port=int(match["port"]), ev=int(match["ev"], 0), peer=match["peer"] or "", mask=mask))
    return found


_BIT_PATTERNS = ("ev", "mask", "port_mask", "qpn")


def _readable(found: Any, name: str = "") -> Any:
    """Return a report with bit patterns in hexadecimal, a process's id without commas, and times of day."""
    if isinstance(found, dict):
        return {key: _readable(value, key) for key, value in found.items()}
    if isinstance(found, list):
        return [_readable(each, name) for each in found]
    if name in _BIT_PATTERNS and isinstance(found, int):
        return f"{found:#x}"
    if name == "opened_at":
        return datetime.fromtimestamp(found).isoformat(" ", "seconds")
    return str(found) if name == "pid" else found
