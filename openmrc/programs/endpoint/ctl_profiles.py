"""`mrc ctl`: profiles, EV events, EV probes."""

from __future__ import annotations

import re
import time
from typing import Annotated, Any

import msgspec
import typer

from openmrc.ctl.client import endpoint
from openmrc.ctl.endpoint_requests import EpRequest
from openmrc.ctl.operations.event_ops import (
    CreateEvents,
    EpBatch,
    EpBatchReply,
    EventQueueReply,
    EvEventsReply,
    PollEvents,
)
from openmrc.ctl.operations.profile_ops import (
    CcReport,
    EvOpRequest,
    EvProfileReport,
    EvRef,
    EvStatesQuery,
    EvStatesReply,
    FieldSpec,
    FormatReport,
    ModifyCc,
    ModifyEvProfile,
    ModifyFormat,
    ProfilesQuery,
    ProfilesReply,
    UseProfiles,
)
from openmrc.errors import UsageError
from openmrc.programs.endpoint.ctl import ArrayChanges, Endpoint, Folder, ProfileSettings
from openmrc.programs.option_groups import with_groups
from openmrc.programs.outcome import Json, give, print_json, stoppable

Number = Annotated[int, typer.Argument(metavar="NUMBER", help="Number of the profile, from 1.")]
State = Annotated[str | None, typer.Option(help="init, offline or online.")]
_EV = re.compile(r"(?P<port>\d+):(?P<ev>(?:0[xX])?[0-9a-fA-F]+)")
_PROBE = re.compile(r"(?P<port>\d+):(?P<ev>0[xX][0-9a-fA-F]+|\d+)@(?P<peer>\S+)")
_WAIT = 1.0  # s that one poll of events waits


def profiles(name: Endpoint = "", folder: Folder = None, as_json: Json = False) -> None:
    """Show the profiles of an endpoint, and which are the defaults."""
    found = _call(name, folder, "profiles", ProfilesQuery(), ProfilesReply)
    if as_json:
        print_json(found)
        return
    for each in (*found.formats, *found.evs, *found.ccs):
        _print_fields(each)
    typer.echo(f"defaults: EV profile {found.default_ev}, congestion control profile {found.default_cc}")


def ev_format(
    number: Number,
    mode: Annotated[str | None, typer.Option(help="udp, stev or srv6.")] = None,
    widths: Annotated[str | None, typer.Option(help="Widths of the fields in bits: 16,16.")] = None,
    state: State = None,
    name: Endpoint = "",
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Change or show an EV format profile."""
    change = ModifyFormat(number=number, mode=mode, state=state, widths=_numbers(widths))
    _print_one(_call(name, folder, "modify_format", change, FormatReport), as_json)


@with_groups
def profile(
    number: Number,
    settings: ProfileSettings,
    changes: ArrayChanges,
    state: State = None,
    name: Endpoint = "",
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Change or show an EV profile."""
    fields, events = settings.fields, settings.events
    change = ModifyEvProfile(
        number=number, state=state, mode=settings.mode, format=settings.form, count=settings.count,
        min_active=settings.min_active, fields=None if fields is None else [_field(text) for text in fields],
        event_mask=None if events is None else [each for each in events.split(",") if each not in ("", "none")],
    )  # fmt: skip
    _add_operations(change, changes)
    _print_one(_call(name, folder, "modify_ev_profile", change, EvProfileReport), as_json)


def array(number: Number, name: Endpoint = "", folder: Folder = None, as_json: Json = False) -> None:
    """Show the EVs of a profile with their states and bits on the wire."""
    found = _call(name, folder, "query_evs", EvStatesQuery(number=number), EvStatesReply)
    if as_json:
        print_json(found)
        return
    for each in found.entries:
        where = f"{each.ev.port}:{each.ev.ev}" if each.ev.port else "empty"
        typer.echo(f"{where:<24} {each.state:<12} {each.wire}")


def cc(
    number: Number,
    algorithm: Annotated[str | None, typer.Option(help='Name, such as uet-1.0-nscc; "" for none.')] = None,
    config: Annotated[
        list[str] | None, typer.Option("--config", metavar="NAME=VALUE", help="A setting; bytes and ns.")
    ] = None,
    state: State = None,
    name: Endpoint = "",
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Change or show a congestion control profile."""
    settings = None if config is None else {key: _number(value) for key, value in map(_pair, config)}
    change = ModifyCc(number=number, algorithm=algorithm, config=settings, state=state)
    _print_one(_call(name, folder, "modify_cc", change, CcReport), as_json)


def use(
    ev: Annotated[int | None, typer.Option(help="EV profile; 0: the endpoint's own.")] = None,
    control: Annotated[int | None, typer.Option("--cc", help="Congestion control profile; 0: the endpoint's.")] = None,
    name: Endpoint = "",
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Set the profiles of connections that name none, from the next one on."""
    found = _call(name, folder, "use_profiles", UseProfiles(ev=ev, cc=control), ProfilesReply)
    give(found, as_json, f"defaults: EV profile {found.default_ev}, congestion control profile {found.default_cc}")


def events(
    seconds: Annotated[float, typer.Option("--for", min=0, help="Seconds to listen.")] = 10.0,
    name: Endpoint = "",
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Print EVs that fail and recover, for some seconds."""
    taken: list[Any] = []
    with endpoint(name, folder) as client, stoppable():
        queue = client.call("create_events", CreateEvents(), EventQueueReply).queue
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            poll = PollEvents(queue=queue, wait=min(left, _WAIT))
            for event in client.call("poll_events", poll, EvEventsReply, wait=_WAIT).events:
                taken.append(event)
                if not as_json:
                    lost = f"  ({event.drop_count} before were dropped)" if event.drop_count else ""
                    typer.echo(f"port {event.port} EV {event.value:#x}: {event.state}, profile {event.profile}{lost}")
        client.call("destroy_events", EventQueueReply(queue=queue), EventQueueReply)
    if as_json:
        print_json({"events": taken})


def probe(
    which: Annotated[list[str], typer.Argument(metavar="PORT:EV@PEER", help="Paths: 2:0xc105@10.0.1.2.")],
    timeout: Annotated[float, typer.Option(help="Seconds to wait for the answers, at most 10.")] = 1.0,
    name: Endpoint = "",
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Send an EV probe on each path, and print who answers and after what time."""
    requests = []
    for number, text in enumerate(which):
        match = _PROBE.fullmatch(text)
        if match is None:
            raise UsageError(f"{text!r} is not PORT:EV@PEER, such as 2:0xc105@10.0.1.2")
        requests.append(EpRequest(req_id=number, peer=match["peer"], port=int(match["port"]), ev=int(match["ev"], 0)))
    found = _call(name, folder, "ep_batch", EpBatch(requests=requests, timeout=timeout), EpBatchReply, wait=timeout)
    answered = {each.req_id: each.rtt for each in found.responses}
    if as_json:
        rows = [{"path": text, "rtt_ns": answered.get(number)} for number, text in enumerate(which)]
        print_json({"probes": rows})
        return
    for number, text in enumerate(which):
        typer.echo(f"{text}  {f'{answered[number] / 1000:.0f} us' if number in answered else 'no answer'}")


def _call(
    name: str, folder: str | None, operation: str, request: msgspec.Struct, reply: type[Any], wait: float = 0
) -> Any:

    with endpoint(name, folder) as client:
        return client.call(operation, request, reply, wait=wait)


def _add_operations(change: ModifyEvProfile, wanted: ArrayChanges) -> None:
    fill, replace, states = wanted.fill or [], wanted.replace or [], wanted.set_state or []
    if (fill or replace) and states:
        raise UsageError("--set excludes --fill and --replace; give them in two calls")
    entries: list[EvOpRequest] = [EvOpRequest(ev=EvRef(), new=_ref(text)) for text in fill]
    for old, new in map(_pair, replace):
        entries.append(EvOpRequest(ev=_ref(old), new=_ref(new), all_copies=wanted.all_copies))
    for old, state in map(_pair, states):
        entries.append(EvOpRequest(ev=_ref(old), state=state, all_copies=wanted.all_copies))
    if entries:
        change.operation = "state" if states else "replace"
        change.entries = entries


def _ref(text: str) -> EvRef:
    match = _EV.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is not PORT:EV with the EV in hexadecimal, such as 2:c105")
    return EvRef(ev=match["ev"].lower().removeprefix("0x"), port=int(match["port"]))


def _field(text: str) -> FieldSpec:
    parts = text.split(",")
    if not 1 <= len(parts) <= 5:
        raise UsageError(f"--field: {text!r} is not WIDTH,INIT,MIN,MAX,MASK")
    width, init, least, most, mask = (int(_number(part)) for part in [*parts, *["0"] * (5 - len(parts))])
    return FieldSpec(width=width, init_val=init, min_val=least, max_val=most, mask=mask)


def _numbers(text: str | None) -> list[int] | None:
    return None if text is None else [int(_number(part)) for part in text.split(",")]


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


def _print_one(found: Any, as_json: bool) -> None:
    give(found, as_json, lambda: _print_fields(found))


def _print_fields(found: Any) -> None:
    kind = {"FormatReport": "format", "EvProfileReport": "EV profile", "CcReport": "cc"}[type(found).__name__]
    known = {key: value for key, value in msgspec.to_builtins(found).items() if value not in ("", [], {})}
    number, state = known.pop("number"), known.pop("state")
    typer.echo(f"{kind} {number}: {state}" + "".join(f", {key} {_words(value)}" for key, value in known.items()))


def _words(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(_words(each) for each in value)
    if isinstance(value, dict):
        return ",".join(f"{key}={each}" for key, each in value.items())
    return str(value)
