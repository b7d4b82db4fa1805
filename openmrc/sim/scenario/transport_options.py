"""The transports that a scenario can name, and the assignment of their settings.

A setting is a field of the transport itself, of the engine or of the switches; the class that declares it has its
default and the reason.
"""

import dataclasses
from difflib import get_close_matches
from enum import IntEnum
from typing import Any, get_type_hints

import msgspec

from openmrc.engine.state.params import Settings
from openmrc.errors import ConfigError, FieldError
from openmrc.fabric.model.topology import Topology
from openmrc.sim.loop import run as loop
from openmrc.sim.network.build import NetworkSettings
from openmrc.sim.network.network_tables import Routing
from openmrc.sim.scenario.description import Transport, TransportName
from openmrc.sim.transports.datagrams import DatagramTransport
from openmrc.sim.transports.mrc.setup import MrcTransport, fitted
from openmrc.sim.transports.roce.tables import Recovery
from openmrc.sim.transports.roce.transport import RoceTransport, adaptive
from openmrc.sim.transports.uet.transport import UetTransport

_OWN = (
    "settings",
    "network",
    "name",
    "spraying",
    "qps",
    "recovery",
    "spray",
    "capture",
    "mtu",
)  # fields that are not settings

LARGEST_SETTING = 1 << 48  # of a whole number; far above any window or time


_PLAIN: dict[TransportName, Any] = {
    "datagrams": DatagramTransport(NetworkSettings(routing=Routing.HASH)),
    "mrc": MrcTransport(),
    "uet": UetTransport(),
    "roce": RoceTransport(),  # go-back-N
    "roce_selective": RoceTransport(recovery=Recovery.SELECTIVE, name="roce_selective"),
    "roce_adaptive": dataclasses.replace(adaptive(), name="roce_adaptive"),  # per-packet adaptive routing
}


def transport_of(wanted: Transport, topology: Topology) -> loop.LoopTransport:
    """Return the transport of a scenario, with its settings."""
    try:
        return _made(wanted, topology)
    except ConfigError as error:
        message = str(error).removeprefix("transport: ").removeprefix("settings: ")
        name = message.partition(":")[0].strip("'").partition("'")[0]
        place = f"settings.{name}" if name in wanted.settings else name
        named = "settings: " if name in wanted.settings else ""
        raise FieldError(f"$.transport.{place}", f"transport: {named}{message}") from None


def _made(wanted: Transport, topology: Topology) -> loop.LoopTransport:
    if wanted.load_balancing is not None and wanted.name != "uet":
        raise ConfigError(f"transport: load_balancing: {wanted.load_balancing!r} is for uet, not for {wanted.name}")
    if wanted.qps != 1 and not wanted.name.startswith("roce"):
        raise ConfigError(f"transport: qps: {wanted.qps} is for roce; {wanted.name} has one queue pair a flow")
    plain = _PLAIN[wanted.name]
    kind = type(plain)
    given = _given(wanted, (kind, *([Settings] if kind is MrcTransport else ()), NetworkSettings))
    network = dataclasses.replace(plain.network, mtu=wanted.mtu, **given[NetworkSettings])
    changes = {"network": network, **given[kind]}
    if engine := given.get(Settings):
        changes["settings"] = dataclasses.replace(fitted(topology, network, None), **engine)
    elif kind is RoceTransport:
        changes["qps"] = wanted.qps
    elif wanted.load_balancing is not None:
        changes["spraying"] = wanted.load_balancing
    made: loop.LoopTransport = dataclasses.replace(plain, **changes)
    return made


def _member(kind: object, value: object) -> object:
    """Return the value of a setting; the member of an enumeration may be given by its name or its number."""
    if not (isinstance(kind, type) and issubclass(kind, IntEnum)):
        return value
    by_name = {each.name.lower(): each for each in kind}
    if value not in kind.__members__.values() and value not in by_name:
        raise ConfigError(f"expected one of {', '.join(by_name)}")
    return int(by_name[value]) if isinstance(value, str) else value


def _given(wanted: Transport, kinds: tuple[type, ...]) -> dict[type, dict[str, Any]]:
    """Return the settings of a scenario, by the class that declares them."""
    declared = {
        name: (kind, hint)
        for kind in reversed(kinds)
        for name, hint in get_type_hints(kind).items()
        if name not in _OWN
    }
    found: dict[type, dict[str, Any]] = {kind: {} for kind in kinds}
    for name, value in wanted.settings.items():
        if name not in declared:
            near = get_close_matches(name, sorted(declared), 1)
            remedy = f"did you mean {near[0]!r}?" if near else f"{wanted.name} accepts {', '.join(sorted(declared))}"
            raise ConfigError(f"{name!r} is unknown; {remedy}")
        kind, hint = declared[name]
        if isinstance(value, int) and abs(value) > LARGEST_SETTING:
            raise ConfigError(f"{name}: {value}: expected at most {LARGEST_SETTING}")
        try:
            found[kind][name] = msgspec.convert(_member(hint, value), hint)
        except (msgspec.ValidationError, ConfigError) as error:
            raise ConfigError(f"{name}: {value!r}: {error}") from None
    return found
