"""`mrc ctl`: look at the endpoints of this host, and control them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec
import typer

from openmrc.ctl.client import CtlClient, endpoint, local_endpoints
from openmrc.ctl.denials import Denial
from openmrc.ctl.device import DeviceReport
from openmrc.ctl.operations.denial_ops import DenialsQuery, DenialsReply, Deny, Lift, Renew
from openmrc.ctl.operations.device_ops import Nothing, PortsReply, SetPort
from openmrc.ctl.operations.path_ops import PathsQuery, PathsReply, VotesQuery, VotesReply
from openmrc.errors import PeerError, UsageError
from openmrc.programs.outcome import Json, print_json

Endpoint = Annotated[
    str, typer.Option("--endpoint", "-e", help="Name of the endpoint, or how it begins (default: the only one).")
]
Folder = Annotated[str | None, typer.Option(help="Folder of the sockets (default: as MRC_CTL says).")]


@dataclass(frozen=True)
class ProfileSettings:
    """What an EV profile is set to."""

    mode: Annotated[str | None, typer.Option(help="auto, explicit or generated.")] = None
    form: Annotated[int | None, typer.Option("--format", help="Number of its EV format profile.")] = None
    count: Annotated[int | None, typer.Option(help="How many EVs.")] = None
    fields: Annotated[
        list[str] | None, typer.Option("--field", metavar="W,INIT,MIN,MAX,MASK", help="A field; once for each.")
    ] = None
    min_active: Annotated[int | None, typer.Option(help="EVs that stay in use whatever their state.")] = None
    events: Annotated[str | None, typer.Option(help="States to report: good,assumed_bad, or none.")] = None


@dataclass(frozen=True)
class ArrayChanges:
    """What happens to the EVs of a profile."""

    fill: Annotated[
        list[str] | None, typer.Option("--fill", metavar="PORT:EV", help="Put an EV into an entry that is empty.")
    ] = None
    replace: Annotated[
        list[str] | None, typer.Option("--replace", metavar="PORT:EV=PORT:EV", help="Replace an EV by another.")
    ] = None
    set_state: Annotated[
        list[str] | None, typer.Option("--set", metavar="PORT:EV=STATE", help="Set an EV to good, denied, assumed_bad.")
    ] = None
    all_copies: Annotated[bool, typer.Option(help="Change all copies of an EV, not one.")] = False


Evs = Annotated[list[str] | None, typer.Argument(metavar="PORT:EV[@PEER]", help="EVs: 2:0xc005, or 2:0xc005@10.0.1.2.")]
Epoch = Annotated[
    int | None, typer.Option(min=0, help="Epoch of this controller; older ones are refused (default: the present).")
]
Lease = Annotated[float, typer.Option(help="Seconds until it lapses unless renewed, at most 60.")]

_EV = re.compile(r"(?P<port>\d+):(?P<ev>0[xX][0-9a-fA-F]+|\d+)(?:@(?P<peer>\S+))?")


def list_endpoints(folder: Folder = None, as_json: Json = False) -> None:
    """List the endpoints of this user."""
    found, silent = [], []
    for path in local_endpoints(folder):
        try:
            with CtlClient(path) as client:
                found.append(client.call("device", Nothing(), DeviceReport))
        except PeerError as error:  # it may have ended in between
            silent.append(str(error))
    if as_json:
        print_json({"endpoints": found, "silent": silent})
        return
    for each in found:
        typer.echo(f"{each.endpoint:<12} {', '.join(each.planes)}  {each.command}")
    for line in silent:
        typer.echo(f"mrc: {line}", err=True)
    if not found:
        typer.echo("no endpoint; start programs with MRC_CTL=on")


def device(name: Endpoint = "", folder: Folder = None, as_json: Json = False) -> None:
    """Show an endpoint and its limits."""
    with endpoint(name, folder) as client:
        found = client.call("device", Nothing(), DeviceReport)
    if as_json:
        print_json(found)
        return
    for field, value in msgspec.to_builtins(found).items():
        typer.echo(f"{field:<14} {', '.join(value) if isinstance(value, list) else value}")


def ports(name: Endpoint = "", folder: Folder = None, as_json: Json = False) -> None:
    """Show the ports of an endpoint."""
    with endpoint(name, folder) as client:
        found = client.call("ports", Nothing(), PortsReply)
    _print_ports(found, as_json)


def port(
    number: Annotated[int, typer.Argument(metavar="PORT", help="Port, from 1.")],
    state: Annotated[str, typer.Argument(metavar="up|down", help="Admin state.")],
    name: Endpoint = "",
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Enable or disable a port; peers are told, and traffic takes the others."""
    if state not in ("up", "down"):
        raise UsageError(f"{state!r} is not one of up, down")
    with endpoint(name, folder) as client:
        found = client.call("set_port", SetPort(port=number, enabled=state == "up"), PortsReply)
    _print_ports(found, as_json)


def evs(
    qpn: Annotated[int, typer.Option("--qp", help="Only this queue pair.")] = 0,
    name: Endpoint = "",
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Show the EVs of the queue pairs: state, and what was sent, delivered, lost, marked and trimmed on each."""
    with endpoint(name, folder) as client:
        found = client.call("paths", PathsQuery(qpn=qpn), PathsReply)
    if as_json:
        print_json(found)
        return
    for pair in found.queue_pairs:
        typer.echo(f"queue pair {pair.qpn:#x} {pair.state} to {', '.join(pair.peer)}")
        typer.echo("  port  EV          state        sent      acked     lost      marked    trimmed   path")
        for ev in pair.evs:
            counts = " ".join(f"{count:<9}" for count in (ev.sent, ev.acked, ev.lost, ev.marked, ev.trimmed))
            typer.echo(f"  {ev.port:<5} {ev.ev:<#11x} {ev.state:<12} {counts} {ev.path}")


def votes(name: Endpoint = "", folder: Folder = None, as_json: Json = False) -> None:
    """Show losses, trims, marks and deliveries by path, over all queue pairs."""
    with endpoint(name, folder) as client:
        found = client.call("votes", VotesQuery(), VotesReply)
    if as_json:
        print_json({"votes": [msgspec.structs.asdict(vote) for vote in found.votes]})
        return
    typer.echo("port  EV          sent      acked     lost      marked    trimmed   denied path")
    for vote in found.votes:
        counts = " ".join(f"{count:<9}" for count in (vote.sent, vote.acked, vote.lost, vote.marked, vote.trimmed))
        typer.echo(f"{vote.port:<5} {vote.ev:<#11x} {counts} {'yes' if vote.denied else 'no':<6} {vote.path}")


def deny(
    which: Evs = None,
    lease: Lease = 60.0,
    epoch: Epoch = None,
    name: Endpoint = "",
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Deny EVs, so that no data takes them. Refused if a queue pair would keep no path."""
    if not which:
        raise UsageError("give EVs to deny: PORT:EV, or PORT:EV@PEER")
    with endpoint(name, folder) as client:
        found = client.call("deny", Deny(denials=_parsed(which), lease=lease, epoch=epoch), DenialsReply)
    _print_denials(found, as_json)


def renew(
    lease: Lease = 60.0, epoch: Epoch = None, name: Endpoint = "", folder: Folder = None, as_json: Json = False
) -> None:
    """Extend the leases of all denials."""
    with endpoint(name, folder) as client:
        found = client.call("renew", Renew(lease=lease, epoch=epoch), DenialsReply)
    _print_denials(found, as_json)


def lift(
    which: Evs = None, epoch: Epoch = None, name: Endpoint = "", folder: Folder = None, as_json: Json = False
) -> None:
    """Lift denials: those that are named, or all."""
    with endpoint(name, folder) as client:
        found = client.call("lift", Lift(denials=_parsed(which) if which else None, epoch=epoch), DenialsReply)
    _print_denials(found, as_json)


def denials(name: Endpoint = "", folder: Folder = None, as_json: Json = False) -> None:
    """Show what is denied, and for how long."""
    with endpoint(name, folder) as client:
        found = client.call("denials", DenialsQuery(), DenialsReply)
    _print_denials(found, as_json)


def _parsed(texts: Sequence[str]) -> list[Denial]:
    found = []
    for text in texts:
        match = _EV.fullmatch(text)
        if match is None:
            raise UsageError(f"{text!r} is not PORT:EV or PORT:EV@PEER, such as 2:0xc005@10.0.1.2")
        found.append(Denial(port=int(match["port"]), ev=int(match["ev"], 0), peer=match["peer"] or ""))
    return found


def _print_ports(found: object, as_json: bool) -> None:
    assert isinstance(found, PortsReply)
    if as_json:
        print_json(found)
        return
    for each in found.ports:
        admin, works = "enabled" if each.enabled else "disabled", "up" if each.up else "down"
        typer.echo(f"port {each.port:<3} {admin:<9} {works:<5} {each.address}  {', '.join(each.faults)}".rstrip())


def _print_denials(found: DenialsReply, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    typer.echo(f"epoch {found.epoch}, {len(found.denied)} denied")
    for each in found.denied:
        denial = each.denial
        who = denial.peer or "every peer"
        typer.echo(f"port {denial.port:<3} EV {denial.ev:<#11x} to {who}, for {each.seconds:.1f} s more")
