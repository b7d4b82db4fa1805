"""EV profiles of the device in virtual time, by the rules of the controller API; it sends from any UDP source port."""

import errno
from collections.abc import Iterator
from dataclasses import dataclass, field

from openmrc.conform.devices.contract import ProfileOrder
from openmrc.ctl.profiles import ev_generation
from openmrc.ctl.profiles.ev_array import UNPOPULATED, EvEntry, EvOpEntry
from openmrc.ctl.profiles.ev_configuration import EVENT_STATES, EvFormatProfile, EvLimits, EvProfileChange, FormatChange
from openmrc.ctl.profiles.ev_document import ev_from_hex
from openmrc.ctl.profiles.ev_format import EvExpansion, EvField, EvFormatMode
from openmrc.ctl.profiles.ev_profile import EvProfile
from openmrc.ctl.profiles.ev_rules import EvEntryState, EvMode, EvOp
from openmrc.ctl.profiles.states import ProfileState
from openmrc.errors import CallError, InvalidArgumentError


@dataclass
class MadeEvs:
    """The EVs of a profile, as UDP source ports."""

    ports: list[list[int]] = field(default_factory=list)  # of each plane; none: the profile is AUTO
    denied: list[int] = field(default_factory=list)


class AnySourcePort:
    """A device whose packets carry any EV on any of its ports."""

    def __init__(self, ports: int) -> None:
        self._ports = ports

    def generated(self, expansion: EvExpansion, count: int, seed: int) -> list[EvEntry]:
        """Return EVs within the fields, for the ports in turn: no value has two."""
        evs = ev_generation.generate(expansion, count, seed)
        return [EvEntry(ev, 1 + number % self._ports) for number, ev in enumerate(evs)]

    def check_ports(self, ports: set[int]) -> None:
        """Raise EINVAL unless every port has an EV."""
        if len(ports) < self._ports:
            raise InvalidArgumentError(f"EV profile: EVs on {len(ports)} of {self._ports} ports")

    def check(self, mode: EvFormatMode, ev: EvEntry, expanded: bytes, name: str) -> None:
        """Take any."""


def made(order: ProfileOrder, ports: int, evs_per_port: int) -> tuple[str, MadeEvs]:
    """Return the name of the error that refuses a profile, or none and its EVs."""
    limits = EvLimits(ports=ports, max_evs=ports * evs_per_port)
    profile = EvProfile(limits, AnySourcePort(ports))
    try:
        for change in _changes(order, ports):
            profile.modify(change)
        _deny(profile, order)
    except CallError as error:
        return errno.errorcode[error.errno], MadeEvs()
    found = MadeEvs([[] for _ in range(ports)] if profile.usable() else [])
    for ev, state, wire in profile.usable():
        value = int.from_bytes(wire[:2], "big")
        found.ports[ev.port - 1].append(value)
        if state == EvEntryState.DENIED:
            found.denied.append(value)
    return "", found


def _changes(order: ProfileOrder, ports: int) -> Iterator[EvProfileChange]:
    """Yield the calls that bring a profile to ONLINE."""
    offline, mode = ProfileState.OFFLINE, EvMode[order.mode.upper()]
    if mode == EvMode.AUTO:
        yield EvProfileChange(state=offline, mode=mode)
    else:
        form = EvFormatProfile()
        form.modify(FormatChange(state=offline, mode=EvFormatMode.UDP))
        form.modify(FormatChange(state=ProfileState.ONLINE, widths=tuple(order.widths)))
        fields = tuple(EvField(*words) for words in order.fields)
        yield EvProfileChange(state=offline, mode=mode, format=form, count=order.count, fields=fields)
    evs = [EvEntry(ev_from_hex(f"{ev:04x}"), 1 + number % ports) for number, ev in enumerate(order.evs)]
    if evs:
        yield EvProfileChange(
            ev_op=EvOp.REPLACE_EV, entries=[EvOpEntry(UNPOPULATED, EvEntryState.GOOD, ev_new=ev) for ev in evs]
        )
    yield EvProfileChange(state=ProfileState.ONLINE, min_active=order.min_active, event_mask=EVENT_STATES)


def _deny(profile: EvProfile, order: ProfileOrder) -> None:
    entries = profile.array.entries()
    denied = [EvOpEntry(entries[number][0], EvEntryState.DENIED) for number in order.denied]
    if denied:
        profile.modify(EvProfileChange(ev_op=EvOp.MODIFY_EV_STATE, entries=denied))
