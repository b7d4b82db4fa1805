"""LLDP neighbours from what switches print as JSON: (local interface, remote system, remote port).

lldpctl    `lldpctl -f json` and `-f json0` of lldpd (github.com/lldpd/lldpd, src/client/json_writer.c): interfaces as
           an object, a list of objects, or a list of structures; SONiC runs the same program in its lldp container
SONiC      `LLDP_ENTRY_TABLE` of APPL_DB, as `sonic-db-dump -n APPL_DB -k LLDP_ENTRY_TABLE:* -y` and telemetry print
           it: `lldp_rem_sys_name`, `lldp_rem_port_id`, `lldp_rem_port_desc` (sonic-dbsyncd, lldp_syncd)
NVUE       `nv show interface lldp -o json` and `lldp-detail`: INTERFACE.lldp.neighbor.NAME with `chassis.system-name`,
           `port.name` and `port.description` (NVUE reference, LLDP)

A port's ID may be its MAC address; then the port's description is what names it, as lldpd fills it by default. A
sub-interface (`Ethernet0.665`) announces itself over the cable of its port, beside the port or alone: it names both.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from openmrc.base.documents import parse_json
from openmrc.errors import ConfigError

_MAC = re.compile(r"^[0-9a-f]{2}([:-][0-9a-f]{2}){5}$", re.IGNORECASE)
_SUB_INTERFACE = re.compile(r"^(\S+)\.\d+$")
_TABLE = "LLDP_ENTRY_TABLE"


@dataclass(frozen=True)
class Neighbour:
    interface: str
    system: str
    ports: tuple[str, ...]  # names of the remote port, the most specific first, without MAC addresses


def read_neighbours(text: str, source: str) -> list[Neighbour]:
    """Read a dump; ConfigError names the expected formats."""
    document = parse_json(text, source) if text.strip() else {}
    if not isinstance(document, dict):
        raise ConfigError(f"{source}: expected an object, as lldpctl, SONiC and NVUE print it")
    if "lldp" in document:
        return list(_from_lldpd(document["lldp"]))
    if any(_is_entry(key, value) for key, value in document.items()):
        return list(_from_sonic(document))
    if any(isinstance(value, dict) and "lldp" in value for value in document.values()):
        return list(_from_nvue(document))
    if not document:
        return []
    raise ConfigError(f"{source}: neither `lldp` of lldpctl, nor {_TABLE} of SONiC, nor interfaces of NVUE")


def _from_lldpd(lldp: Any) -> Iterator[Neighbour]:
    for part in _listed(lldp):
        for each in map(_dict, _listed(_dict(part).get("interface", []))):
            if isinstance(name := each.get("name"), str):  # json0
                yield from _lldpd_neighbour(name, each)
            else:
                for name, body in each.items():
                    yield from _lldpd_neighbour(name, _dict(body))


def _lldpd_neighbour(interface: str, body: dict[str, Any]) -> Iterator[Neighbour]:
    port = _dict(_first(body.get("port")))
    names = [_value(port.get("id")), _value(port.get("descr"))]
    for chassis in _listed(body.get("chassis", [])):
        yield _neighbour(interface, _system(_dict(chassis)), names)


def _system(chassis: dict[str, Any]) -> str:
    """Return a chassis' name: json0 has it as a value, json as the key of all the rest."""
    if "name" in chassis:
        return _value(chassis["name"])
    return next((key for key, body in chassis.items() if isinstance(body, dict) and key != "id"), "")


def _is_entry(key: str, value: Any) -> bool:
    return key.startswith(_TABLE) or (isinstance(value, dict) and "lldp_rem_sys_name" in value)


def _from_sonic(document: dict[str, Any]) -> Iterator[Neighbour]:
    for key, value in document.items():
        if key == _TABLE:
            yield from _from_sonic(_dict(value))
        elif _is_entry(key, value):
            fields = _dict(value)
            fields = _dict(fields.get("value", fields))  # sonic-db-dump: type, value, ttl
            names = [_value(fields.get("lldp_rem_port_id")), _value(fields.get("lldp_rem_port_desc"))]
            yield _neighbour(key.split(":", 1)[-1], _value(fields.get("lldp_rem_sys_name")), names)


def _from_nvue(document: dict[str, Any]) -> Iterator[Neighbour]:
    for interface, body in document.items():
        lldp = _dict(_dict(body).get("lldp", {}))
        for name, neighbour in _dict(lldp.get("neighbor", {})).items():
            chassis, port = _dict(_dict(neighbour).get("chassis", {})), _dict(_dict(neighbour).get("port", {}))
            names = [_value(port.get("name")), _value(port.get("description"))]
            yield _neighbour(interface, _value(chassis.get("system-name")) or name, names)


def _neighbour(interface: str, system: str, names: Iterable[str]) -> Neighbour:
    known = [name for name in names if name and not _MAC.match(name)]
    parents = [match[1] for name in known if (match := _SUB_INTERFACE.match(name))]
    return Neighbour(interface, system, tuple(dict.fromkeys([*known, *parents])))


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, list) and value else value


def _value(value: Any) -> str:
    """Return a text, be it plain, in an object's `value`, or in a list of such."""
    value = _first(value)
    if isinstance(value, dict):
        value = value.get("value")
    return value if isinstance(value, str) else ""
