"""Create in NetBox what `netbox.files` lists, over its REST API through `pynetbox` (the extra `netbox`).

Only documented calls are made (`/api/schema/` of NetBox 4): GET with filters, and POST with a list, on sites,
manufacturers, device roles, device types, racks, devices, interfaces and cables of `dcim`. NetBox creates all objects
of a request or none. Rows are looked up before they are created, so a run that ended early is continued by another.
What exists keeps its status and its other properties; a device of the same name in another place, and a port with
another cable, are refused.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from sys import intern
from typing import Any

import yaml

from openmrc.errors import ConfigError, MrcError
from openmrc.fabric.cabling.cables import Cables
from openmrc.fabric.cabling.netbox import NetboxNaming, files, slug, type_slug

OLDEST = 4  # major version: the first whose answers can be limited to some fields
_BATCH = 40  # rows of a request: their names of up to 64 characters fit the 4,094 of gunicorn's request line
_TIMEOUT_S = 60.0
_TRIES, _BACKOFF_S, _BUSY = 5, 0.5, (429, 502, 503, 504)  # of reading; what was written may have been done
_MOST_SHOWN = 400  # characters of a refusal

Row = dict[str, Any]
Body = dict[str, Any]
Key = tuple[Any, ...]
Ids = dict[str, dict[Key, int]]  # by table, then by what names a row
Progress = Callable[[str, int, int], None]


@dataclass
class PushedTable:
    """How many rows of a table NetBox had, and how many were created."""

    there: int = 0
    created: int = 0


def connect(url: str, token: str) -> Any:
    """Return pynetbox's API object of a NetBox that answers; MrcError says why it does not."""
    try:
        import pynetbox
        import requests
        from requests.adapters import HTTPAdapter
        from urllib3.util import Retry
    except ImportError as error:
        raise ConfigError("--push needs pynetbox: pip install '.[netbox]'") from error

    class Session(requests.Session):
        """Requests that end, and repeat where repeating is harmless."""

        def request(self, *args: Any, **named: Any) -> Any:
            named.setdefault("timeout", _TIMEOUT_S)
            return super().request(*args, **named)

    api = pynetbox.api(url, token=token)
    api.http_session = Session()
    retry = Retry(total=_TRIES, connect=1, backoff_factor=_BACKOFF_S, status_forcelist=_BUSY, allowed_methods={"GET"})
    for scheme in ("http://", "https://"):
        api.http_session.mount(scheme, HTTPAdapter(max_retries=retry))
    version = str(_asked(url, api.status).get("netbox-version", ""))
    if not version.split(".")[0].isdigit() or int(version.split(".")[0]) < OLDEST:
        raise MrcError(f"{url} is NetBox {version or 'of unknown version'}; {OLDEST}.0 or newer is needed")
    return api


def push(cables: Cables, naming: NetboxNaming, api: Any, progress: Progress) -> dict[str, PushedTable]:
    """Create everything that is missing; `progress` is called with table, rows done and rows in all."""
    pusher = _Pusher(api, progress, {"interfaces": 2 * len(cables), "cables": len(cables)})
    for name, blocks in files(cables, naming):
        pusher.table(name.split(".")[0].partition("-")[2], _rows(name, blocks))
    return pusher.tables


def _rows(name: str, blocks: Iterable[str]) -> Iterator[Row]:
    if name.endswith(".yaml"):
        yield from yaml.safe_load_all("".join(blocks))
    else:
        yield from csv.DictReader(line for block in blocks for line in block.splitlines(keepends=True))


def _batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    left = iter(rows)
    while batch := list(islice(left, _BATCH)):
        yield batch


@dataclass
class _Pusher:
    """The ids of what NetBox has, and the tables so far."""

    api: Any
    progress: Progress
    totals: dict[str, int]
    tables: dict[str, PushedTable] = field(default_factory=dict)
    ids: Ids = field(default_factory=dict)
    cable_of: dict[int, int] = field(default_factory=dict)  # of interfaces that had one

    def table(self, name: str, rows: Iterable[Row]) -> None:
        """Create the missing rows of a table, or of a part of one."""
        counted = self.tables.setdefault(name, PushedTable())
        for batch in _batches(rows):
            bodies = [_BODIES[name](row, self.ids) for row in batch]
            known = self._joined(bodies) if name == "cables" else self._known(name, bodies)
            missing = [body for body in bodies if _key(name, body) not in known]
            if missing:
                self._create(name, missing)
            counted.there += len(bodies) - len(missing)
            counted.created += len(missing)
            done = counted.there + counted.created
            self.progress(name, done, max(done, self.totals.get(name, 0)))

    def _known(self, name: str, bodies: list[Body]) -> set[Key]:
        """Look rows up by what names them, and remember their ids."""
        found: dict[Key, Any] = {}
        for record in _asked(name, lambda: list(self._endpoint(name).filter(**_filters(name, bodies)))):
            found[tuple(_plain(getattr(record, part)) for part in _KEYS[name])] = record
        wanted = {_key(name, body): body for body in bodies}
        for key, record in found.items():
            if key in wanted:
                self._remember(name, key, record.id)
                _refuse_another(name, wanted[key], record)
                if name == "interfaces" and record.cable is not None:
                    self.cable_of[record.id] = record.cable.id
        return found.keys() & wanted.keys()

    def _joined(self, bodies: list[Body]) -> set[Key]:
        """Return the cables that are there; MrcError if a port has another one."""
        found = set()
        for body in bodies:
            a, b = (self.cable_of.get(body[f"{end}_terminations"][0]["object_id"]) for end in "ab")
            if a is not None and a == b:
                found.add(_key("cables", body))
            elif a is not None or b is not None:
                raise MrcError(f"NetBox: a port of {body['label']} has another cable (id {a if a is not None else b})")
        return found

    def _create(self, name: str, bodies: list[Body]) -> None:
        what = f"{name}, {_shown(bodies[0])} to {_shown(bodies[-1])}"
        made = _asked(what, lambda: self._endpoint(name).create(bodies))
        if name != "cables":
            for body, record in zip(bodies, made, strict=True):
                self._remember(name, _key(name, body), record.id)

    def _remember(self, name: str, key: Key, number: int) -> None:
        key = key[1:] if name == "devices" else key  # the site is not in the rows that name one
        self.ids.setdefault(name, {})[tuple(intern(part) if isinstance(part, str) else part for part in key)] = number

    def _endpoint(self, name: str) -> Any:
        return getattr(self.api.dcim, name.replace("-", "_"))


# By table: what names a row, as fields of its body.
_KEYS: dict[str, tuple[str, ...]] = {
    "sites": ("slug",),
    "manufacturers": ("slug",),
    "device-roles": ("slug",),
    "device-types": ("manufacturer", "slug"),
    "racks": ("site", "name"),
    "devices": ("site", "name"),
    "interfaces": ("device", "name"),
}
_PLACE = ("device_type", "rack", "position")  # of a device, by which one of another fabric is told


def _key(name: str, body: Body) -> Key:
    if name == "cables":
        return tuple(body[f"{end}_terminations"][0]["object_id"] for end in "ab")
    return tuple(body[part] for part in _KEYS[name])


def _filters(name: str, bodies: list[Body]) -> dict[str, Any]:
    """Return the filters that find rows: by `name`, and by the ids of what they are in."""
    found: dict[str, Any] = {}
    for part in _KEYS[name]:
        filter_name = part if part in ("slug", "name") else f"{part}_id"
        found[filter_name] = list(dict.fromkeys(body[part] for body in bodies))
    fields = ["id", *_KEYS[name], *(_PLACE if name == "devices" else ()), *(["cable"] if name == "interfaces" else [])]
    return {**found, "fields": ",".join(fields)}


def _plain(value: Any) -> Any:
    """Return the id of a nested record, or a plain value."""
    return getattr(value, "id", value)


def _refuse_another(name: str, body: Body, record: Any) -> None:
    if name != "devices":
        return
    other = [part for part in _PLACE if _plain(getattr(record, part)) != body[part]]
    if other:
        raise MrcError(
            f"NetBox has another device {body['name']} (id {record.id}, with another {' and '.join(other)}); "
            "`--prefix` keeps the names of two fabrics apart"
        )


def _shown(body: Body) -> str:
    return str(body.get("label") or body.get("name") or body.get("model"))


def _asked(what: str, call: Callable[[], Any]) -> Any:
    """Make a call; MrcError for what NetBox refuses and for what the network does."""
    import pynetbox
    import requests

    again = "the same command continues from here"
    try:
        return call()
    except pynetbox.RequestError as error:
        raise MrcError(f"NetBox, {what}: {str(error)[:_MOST_SHOWN]}; {again}") from error
    except (pynetbox.ContentError, requests.RequestException) as error:
        raise MrcError(f"NetBox, {what}: {str(error)[:_MOST_SHOWN]}; is the address right? If so, {again}") from error


def _by_slug(ids: Ids, table: str, name: str) -> int:
    return ids[table][slug(name),]


def _named(row: Row, ids: Ids) -> Body:
    """Return a row whose columns are the fields."""
    return dict(row)


def _device_type(row: Row, ids: Ids) -> Body:
    return {**row, "manufacturer": _by_slug(ids, "manufacturers", row["manufacturer"])}


def _rack(row: Row, ids: Ids) -> Body:
    numbers = {"width": int(row["width"]), "u_height": int(row["u_height"])}
    return {**row, **numbers, "site": _by_slug(ids, "sites", row["site"])}


def _device(row: Row, ids: Ids) -> Body:
    site = _by_slug(ids, "sites", row["site"])
    maker = _by_slug(ids, "manufacturers", row["manufacturer"])
    return {
        "name": row["name"],
        "role": _by_slug(ids, "device-roles", row["role"]),
        "device_type": ids["device-types"][maker, type_slug(row["device_type"])],
        "status": row["status"],
        "site": site,
        "rack": ids["racks"][site, row["rack"]],
        "position": float(row["position"]),
        "face": row["face"],
    }


def _interface(row: Row, ids: Ids) -> Body:
    return {
        "device": ids["devices"][row["device"],],
        "name": row["name"],
        "type": row["type"],
        "speed": int(row["speed"]),
        "enabled": row["enabled"] == "true",
        "description": row["description"],
    }


def _cable(row: Row, ids: Ids) -> Body:
    ends = {
        f"{end}_terminations": [{
            "object_type": row[f"side_{end}_type"],
            "object_id": ids["interfaces"][ids["devices"][row[f"side_{end}_device"],], row[f"side_{end}_name"]],
        }]
        for end in "ab"
    }  # fmt: skip
    plain = {name: row[name] for name in ("type", "status", "label", "length_unit")}
    return {**ends, **plain, "length": float(row["length"])}


_BODIES: dict[str, Callable[[Row, Ids], Body]] = {
    "sites": _named,
    "manufacturers": _named,
    "device-roles": _named,
    "device-types": _device_type,
    "racks": _rack,
    "devices": _device,
    "interfaces": _interface,
    "cables": _cable,
}
