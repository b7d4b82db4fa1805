"""`mrc ctl`: profiles, EV events, EV probes."""

import re
import time
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from openmrc.ctl import endpoint_ops, profile_ops
from openmrc.ctl.client import endpoint
from openmrc.ctl.endpoint_requests import EpRequest
from openmrc.ctl.profile_ops import EvOpRequest, EvRef
from openmrc.ctl.profiles.ev_format import EvField
from openmrc.errors import UsageError
from openmrc.programs.endpoint.ctl import CtlTarget
from openmrc.programs.option_groups import with_groups
from openmrc.programs.outcome import print_json, stoppable

Number = Annotated[int, typer.Argument(metavar="NUMBER", help="Number of the profile, from 1.")]
State = Annotated[str | None, typer.Option(help="init, offline or online.")]
_EV = re.compile(r"(?P<port>\d+):(?P<ev>(?:0[xX])?[0-9a-fA-F]+)")
_PROBE = re.compile(r"(?P<port>\d+):(?P<ev>0[xX][0-9a-fA-F]+|\d+)@(?P<peer>\S+)")
_WAIT = 1.0  # s that one poll of events waits


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


@with_groups
def profiles(asked: CtlTarget) -> None:
    """Show the profiles of an endpoint, and which are the defaults."""
    asked.give(asked.call(profile_ops.profiles))


@with_groups
def ev_format(
    number: Number,
    asked: CtlTarget,
    mode: Annotated[str | None, typer.Option(help="udp, stev or srv6.")] = None,
    widths: Annotated[str | None, typer.Option(help="Widths of the fields in bits: 16,16.")] = None,
    state: State = None,
) -> None:
    """Change or show an EV format profile."""
    bits = _numbers(widths)
    asked.give(asked.call(profile_ops.modify_format, number=number, mode=mode, state=state, widths=bits))


@with_groups
def profile(
    number: Number, settings: ProfileSettings, changes: ArrayChanges, asked: CtlTarget, state: State = None
) -> None:
    """Change or show an EV profile."""
    fields, events = settings.fields, settings.events
    entries = _entries(changes)
    found = asked.call(
        profile_ops.modify_ev_profile, number=number, state=state, mode=settings.mode, format=settings.form,
        count=settings.count, min_active=settings.min_active,
        fields=None if fields is None else tuple(map(_field, fields)),
        event_mask=None if events is None else [each for each in events.split(",") if each not in ("", "none")],
        operation=("state" if changes.set_state else "replace") if entries else None, entries=entries,
    )  # fmt: skip
    asked.give(found)


@with_groups
def array(number: Number, asked: CtlTarget) -> None:
    """Show the EVs of a profile with their states and bits on the wire."""
    asked.give(asked.call(profile_ops.query_evs, number=number))


@with_groups
def cc(
    number: Number,
    asked: CtlTarget,
    algorithm: Annotated[str | None, typer.Option(help='Name, such as uet-1.0-nscc; "" for none.')] = None,
    config: Annotated[
        list[str] | None, typer.Option("--config", metavar="NAME=VALUE", help="A setting; bytes and ns.")
    ] = None,
    state: State = None,
) -> None:
    """Change or show a congestion control profile."""
    settings = None if config is None else {key: _number(value) for key, value in map(_pair, config)}
    asked.give(asked.call(profile_ops.modify_cc, number=number, algorithm=algorithm, config=settings, state=state))


@with_groups
def use(
    asked: CtlTarget,
    ev: Annotated[int | None, typer.Option(help="EV profile; 0: the endpoint's own.")] = None,
    control: Annotated[int | None, typer.Option("--cc", help="Congestion control profile; 0: the endpoint's.")] = None,
) -> None:
    """Set the profiles of connections that name none, from the next one on."""
    asked.give(asked.call(profile_ops.use_profiles, ev=ev, cc=control))


@with_groups
def events(
    asked: CtlTarget, seconds: Annotated[float, typer.Option("--for", min=0, help="Seconds to listen.")] = 10.0
) -> None:
    """Print EVs that fail and recover, for some seconds."""
    taken: list[Any] = []
    with endpoint(asked.name, asked.folder) as client, stoppable():
        queue = client.call(endpoint_ops.create_events).queue
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            polled = client.call_within(_WAIT, endpoint_ops.poll_events, queue=queue, wait=min(left, _WAIT))
            for event in polled.events:
                taken.append(event)
                if not asked.as_json:
                    lost = f"  ({event.drop_count} before were dropped)" if event.drop_count else ""
                    typer.echo(f"port {event.port} EV {event.value:#x}: {event.state}, profile {event.profile}{lost}")
        client.call(endpoint_ops.destroy_events, queue=queue)
    if asked.as_json:
        print_json({"events": taken})


@with_groups
def probe(
    which: Annotated[list[str], typer.Argument(metavar="PORT:EV@PEER", help="Paths: 2:0xc105@10.0.1.2.")],
    asked: CtlTarget,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for the answers, at most 10.")] = 1.0,
) -> None:
    """Send an EV probe on each path, and print who answers and after what time."""
    requests = []
    for number, text in enumerate(which):
        match = _PROBE.fullmatch(text)
        if match is None:
            raise UsageError(f"{text!r} is not PORT:EV@PEER, such as 2:0xc105@10.0.1.2")
        requests.append(EpRequest(req_id=number, peer=match["peer"], port=int(match["port"]), ev=int(match["ev"], 0)))
    with endpoint(asked.name, asked.folder) as client:
        found = client.call_within(timeout, endpoint_ops.ep_batch, requests=requests, timeout=timeout)
    times = {each.req_id: each.rtt for each in found.responses}
    asked.give({"probes": [{"path": text, "rtt_ns": times.get(number)} for number, text in enumerate(which)]})


def _entries(wanted: ArrayChanges) -> list[EvOpRequest]:
    fill, replace, states = wanted.fill or [], wanted.replace or [], wanted.set_state or []
    if (fill or replace) and states:
        raise UsageError("--set excludes --fill and --replace; give them in two calls")
    entries: list[EvOpRequest] = [EvOpRequest(ev=EvRef(), new=_ref(text)) for text in fill]
    for old, new in map(_pair, replace):
        entries.append(EvOpRequest(ev=_ref(old), new=_ref(new), all_copies=wanted.all_copies))
    for old, state in map(_pair, states):
        entries.append(EvOpRequest(ev=_ref(old), state=state, all_copies=wanted.all_copies))
    return entries


def _ref(text: str) -> EvRef:
    match = _EV.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is not PORT:EV with the EV in hexadecimal, such as 2:c105")
    return EvRef(ev=match["ev"].lower().removeprefix("0x"), port=int(match["port"]))


def _field(text: str) -> EvField:
    parts = text.split(",")
    if not 1 <= len(parts) <= 5:
        raise UsageError(f"--field: {text!r} is not WIDTH,INIT,MIN,MAX,MASK")
    width, init, least, most, mask = (int(_number(part)) for part in [*parts, *["0"] * (5 - len(parts))])
    return EvField(width, init, least, most, mask)


def _numbers(text: str | None) -> tuple[int, ...] | None:
    return None if text is None else tuple(int(_number(part)) for part in text.split(","))


def _number(text: str) -> float:
    try:
        return int(text, 0)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{text!r} is not a number") from None


def _pair(text: str) -> tuple[str, str]:
    left, equals, right = text.partition("=")
    if not equals:
        raise UsageError(f"{text!r} has no '='")
    return left, right
