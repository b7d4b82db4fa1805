"""A server that takes requests as NetBox's published schema describes them, and nothing else.

Fields, types, choices and lengths: the `Writable*Request` schemas of contrib/openapi.json in
github.com/netbox-community/netbox (NetBox 4.5), for the fields that are used here. NetBox ignores unknown fields; this
server refuses them. Filters are those of the list operations of that schema. Beyond the schema it knows NetBox's rules
that such data can break: unique names, free rack units, and one cable a port.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKEN = "0123456789abcdef0123456789abcdef01234567"
MOST_A_PAGE = 1000  # MAX_PAGE_SIZE
REQUEST_LINE = 4094  # gunicorn's limit_request_line
_SLUG = r"^[-a-zA-Z0-9_]+$"

Row = dict[str, Any]


@dataclass(frozen=True)
class Text:
    most: int
    pattern: str = ""
    least: int = 0

    def wrong(self, value: object) -> bool:
        return (
            not isinstance(value, str)
            or not self.least <= len(value) <= self.most
            or (bool(self.pattern) and not re.search(self.pattern, value))
        )


@dataclass(frozen=True)
class Number:
    least: float
    most: float
    whole: bool = True

    def wrong(self, value: object) -> bool:
        kinds = (int,) if self.whole else (int, float)
        return isinstance(value, bool) or not isinstance(value, kinds) or not self.least <= value <= self.most


@dataclass(frozen=True)
class Choice:
    of: tuple[object, ...]

    def wrong(self, value: object) -> bool:
        return value not in self.of


@dataclass(frozen=True)
class Flag:
    def wrong(self, value: object) -> bool:
        return not isinstance(value, bool)


@dataclass(frozen=True)
class To:
    """The id of an object of another table."""

    table: str


@dataclass(frozen=True)
class Terminations:
    """A list of GenericObjectRequest: `object_type` and `object_id`."""


NAME, SLUG = Text(100, least=1), Text(100, _SLUG, 1)
SCHEMA: dict[str, dict[str, Any]] = {
    "sites": {
        "name": NAME, "slug": SLUG,
        "status": Choice(("planned", "staging", "active", "decommissioning", "retired")),
    },
    "manufacturers": {"name": NAME, "slug": SLUG, "description": Text(200)},
    "device-roles": {"name": NAME, "slug": SLUG, "color": Text(6, r"^[0-9a-f]{6}$", 1), "vm_role": Flag()},
    "device-types": {
        "manufacturer": To("manufacturers"), "model": NAME, "slug": SLUG, "part_number": Text(50),
        "u_height": Number(0, 999.5, whole=False), "is_full_depth": Flag(),
    },
    "racks": {
        "site": To("sites"), "name": NAME, "width": Choice((10, 19, 21, 23)), "u_height": Number(1, 100),
        "status": Choice(("reserved", "available", "planned", "active", "deprecated")),
    },
    "devices": {
        "name": Text(64), "device_type": To("device-types"), "role": To("device-roles"), "site": To("sites"),
        "rack": To("racks"), "position": Number(0.5, 999.5, whole=False), "face": Choice(("front", "rear", "", None)),
        "status": Choice(("offline", "active", "planned", "staged", "failed", "inventory", "decommissioning")),
    },
    "interfaces": {
        "device": To("devices"), "name": Text(64, least=1), "speed": Number(0, 2**63 - 1), "enabled": Flag(),
        "description": Text(200),
        "type": Choice((
            "10gbase-x-sfpp", "25gbase-x-sfp28", "40gbase-x-qsfpp", "50gbase-x-sfp56", "100gbase-x-qsfp28",
            "200gbase-x-qsfp56", "400gbase-x-osfp", "800gbase-x-osfp", "other",
        )),
    },
    "cables": {
        "a_terminations": Terminations(), "b_terminations": Terminations(), "label": Text(100),
        "type": Choice(("dac-active", "dac-passive", "mmf-om4", "smf", "smf-os1", "smf-os2", "aoc", "", None)),
        "status": Choice(("connected", "planned", "decommissioning")),
        "length": Number(0, 999_999.99, whole=False),
        "length_unit": Choice(("km", "m", "cm", "mi", "ft", "in", "", None)),
    },
}  # fmt: skip
REQUIRED = {
    "sites": {"name", "slug"},
    "manufacturers": {"name", "slug"},
    "device-roles": {"name", "slug"},
    "device-types": {"manufacturer", "model", "slug"},
    "racks": {"name", "site"},
    "devices": {"device_type", "role", "site"},
    "interfaces": {"device", "name", "type"},
    "cables": set(),
}
UNIQUE = {
    "sites": (("name",), ("slug",)),
    "manufacturers": (("name",), ("slug",)),
    "device-roles": (("name",), ("slug",)),
    "device-types": (("manufacturer", "model"), ("manufacturer", "slug")),
    "racks": (("site", "name"),),
    "devices": (("site", "name"),),
    "interfaces": (("device", "name"),),
    "cables": (),
}
FILTERS = {"name", "slug", "site_id", "device_id", "manufacturer_id", "limit", "offset", "fields"}


class Refused(Exception):
    """What NetBox answers with 400."""


@dataclass
class Netbox:
    """The tables, and what is counted and made to fail."""

    tables: dict[str, dict[int, Row]] = field(default_factory=lambda: {name: {} for name in SCHEMA})
    requests: list[tuple[str, str, int]] = field(default_factory=list)  # method, table, objects
    posts_until_failure: int | None = None  # then one is answered with 503, before anything is created
    cut_after_post: int | None = None  # then one is done and not answered
    version: str = "4.5.1"
    units: dict[tuple[int, int], int] = field(default_factory=dict)  # (rack, unit) to device
    cabled: dict[int, int] = field(default_factory=dict)  # interface to cable

    def find(self, table: str, asked: dict[str, list[str]]) -> dict[str, Any]:
        if unknown := set(asked) - FILTERS:
            raise Refused({name: ["Unknown filter"] for name in unknown})
        rows = [row for row in self.tables[table].values() if _matches(row, asked)]
        limit, offset = (int(asked.get(name, ["0"])[0]) for name in ("limit", "offset"))
        page = rows[offset : offset + min(limit or 50, MOST_A_PAGE)]
        left = offset + len(page) < len(rows)
        following = f"/api/dcim/{table}/?{_again(asked, offset + len(page))}" if left else None
        fields = asked.get("fields", [""])[0].split(",")
        results = [{name: self._shown(table, row, name) for name in fields} for row in page]
        return {"count": len(rows), "next": following, "previous": None, "results": results}

    def create(self, table: str, rows: list[Row]) -> list[Row]:
        """Create all or none."""
        problems = [self._problems(table, row) for row in rows]
        seen: set[tuple[object, ...]] = set()
        for row, wrong in zip(rows, problems, strict=True):
            for columns in UNIQUE[table]:
                key = (columns, *(row.get(column) for column in columns))
                if not wrong and (key in seen or self._is_taken(table, columns, row)):
                    wrong["__all__"] = [f"{columns} must be unique"]
                seen.add(key)
        if any(problems):
            raise Refused(problems)
        return [self._add(table, row) for row in rows]

    def _is_taken(self, table: str, columns: tuple[str, ...], row: Row) -> bool:
        return any(all(each[name] == row[name] for name in columns) for each in self.tables[table].values())

    def _problems(self, table: str, row: Row) -> dict[str, list[str]]:
        wrong = {name: ["This field is required."] for name in REQUIRED[table] - set(row)}
        for name, value in row.items():
            rule = SCHEMA[table].get(name)
            if rule is None:
                wrong[name] = ["not in the schema"]
            elif isinstance(rule, To):
                if isinstance(value, bool) or value not in self.tables[rule.table]:
                    wrong[name] = [f"Related object not found: {value!r}"]
            elif isinstance(rule, Terminations):
                wrong.update(self._wrong_terminations(name, value))
            elif rule.wrong(value):
                wrong[name] = [f"{value!r} is not valid"]
        if table == "devices" and not wrong:
            wrong.update(self._wrong_place(row))
        return wrong

    def _wrong_terminations(self, name: str, value: object) -> dict[str, list[str]]:
        for each in value if isinstance(value, list) else [None]:
            if not isinstance(each, dict) or set(each) != {"object_type", "object_id"}:
                return {name: ["object_type and object_id are required"]}
            if each["object_type"] != "dcim.interface" or each["object_id"] not in self.tables["interfaces"]:
                return {name: ["Related object not found"]}
            if each["object_id"] in self.cabled:
                return {name: ["Duplicate termination found"]}
        return {}

    def _wrong_place(self, row: Row) -> dict[str, list[str]]:
        if self.tables["racks"][row["rack"]]["site"] != row["site"]:
            return {"rack": ["Rack does not belong to the site"]}
        if "position" in row and not row.get("face"):
            return {"face": ["Must specify rack face when defining rack position."]}
        if any(unit in self.units for unit in self._units(row)):
            return {"position": ["already occupied or does not have sufficient space"]}
        height = self.tables["racks"][row["rack"]]["u_height"]
        return {} if all(unit <= height for _, unit in self._units(row)) else {"position": ["outside the rack"]}

    def _units(self, row: Row) -> list[tuple[int, int]]:
        height = self.tables["device-types"][row["device_type"]]["u_height"]
        return [(row["rack"], int(row["position"]) + unit) for unit in range(int(height))]

    def _add(self, table: str, row: Row) -> Row:
        made = {**row, "id": len(self.tables[table]) + 1}
        self.tables[table][made["id"]] = made
        if table == "devices":
            self.units.update(dict.fromkeys(self._units(row), made["id"]))
        if table == "cables":
            for end in "ab":
                self.cabled[row[f"{end}_terminations"][0]["object_id"]] = made["id"]
        return {"id": made["id"], "url": f"/api/dcim/{table}/{made['id']}/", "display": str(made.get("name", ""))}

    def _shown(self, table: str, row: Row, name: str) -> object:
        if name == "cable":
            number = self.cabled.get(row["id"])
            return number and {"id": number, "url": f"/api/dcim/cables/{number}/", "display": ""}
        rule = SCHEMA[table].get(name)
        if isinstance(rule, To):
            return {"id": row[name], "url": f"/api/dcim/{rule.table}/{row[name]}/", "display": ""}
        return row[name]


def _matches(row: Row, asked: dict[str, list[str]]) -> bool:
    return all(
        str(row[name.removesuffix("_id")]) in values
        for name, values in asked.items()
        if name not in ("limit", "offset", "fields")
    )


def _again(asked: dict[str, list[str]], offset: int) -> str:
    pairs = [(name, value) for name, values in asked.items() for value in values if name != "offset"]
    return "&".join(f"{name}={value}" for name, value in [*pairs, ("offset", str(offset))])


class Answers(BaseHTTPRequestHandler):
    netbox: Netbox
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(self._post)

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def _answer(self, work: Callable[[str, str], tuple[int, object]]) -> None:
        where = urlsplit(self.path)
        status: int
        body: object
        try:
            if len(self.requestline) > REQUEST_LINE:
                status, body = 414, {"detail": "too long"}
            elif self.headers.get("Authorization") != f"Token {TOKEN}":
                status, body = 403, {"detail": "Invalid token"}
            else:
                status, body = work(where.path, where.query)
        except Refused as error:
            status, body = 400, error.args[0]
        if status == 0:
            self.close_connection = True
            return
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.send_header("API-Version", ".".join(self.netbox.version.split(".")[:2]))
        self.end_headers()
        self.wfile.write(text)

    def _get(self, path: str, query: str) -> tuple[int, object]:
        if path == "/api/status/":
            return 200, {"netbox-version": self.netbox.version}
        table = _table(path)
        found = self.netbox.find(table, parse_qs(query))
        if found["next"]:
            found["next"] = f"http://{self.headers['Host']}{found['next']}"
        self.netbox.requests.append(("GET", table, len(found["results"])))
        return 200, found

    def _post(self, path: str, _: str) -> tuple[int, object]:
        rows = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.netbox.posts_until_failure == 0:
            self.netbox.posts_until_failure = None
            return 503, {"detail": "busy"}
        if self.netbox.posts_until_failure is not None:
            self.netbox.posts_until_failure -= 1
        table = _table(path)
        self.netbox.requests.append(("POST", table, len(rows)))
        made = self.netbox.create(table, rows)
        if self.netbox.cut_after_post is not None:
            self.netbox.cut_after_post -= 1
            if self.netbox.cut_after_post < 0:
                self.netbox.cut_after_post = None
                return 0, None
        return 201, made


def handler(netbox: Netbox) -> type[BaseHTTPRequestHandler]:
    """Return the class that answers for a NetBox."""
    return type("NetboxAnswers", (Answers,), {"netbox": netbox})


def _table(path: str) -> str:
    parts = path.strip("/").split("/")
    if len(parts) != 3 or parts[:2] != ["api", "dcim"] or parts[2] not in SCHEMA or not path.endswith("/"):
        raise Refused({"detail": f"no such list: {path}"})
    return parts[2]


def serve(netbox: Netbox) -> ThreadingHTTPServer:
    """Return a server on a free port of this machine; its caller runs and closes it."""
    return ThreadingHTTPServer(("127.0.0.1", 0), handler(netbox))
