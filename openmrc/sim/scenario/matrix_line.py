"""One line of a `.cm` file at a time: the grammar, and what is refused.

Every refusal names file, line, the value and what was expected.
"""

import re
from dataclasses import dataclass, field
from decimal import Decimal
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from openmrc.errors import ConfigError

LARGEST_SIZE = (1 << 32) - 1  # bytes; the length field of a remote write has 32 bits
LARGEST_NUMBER = 10**18 - 1  # any integer of the format; larger ones do not fit 64 bits
LATEST_START = 1 << 61  # ps, a month
LARGEST_HOSTS = 1 << 24

COLUMNS = (
    "source", "destination", "size", "start", "connection", "message",
    "trigger", "send_done", "recv_done", "prio", "line",
)  # fmt: skip
_UNSET = {"size": -1, "start": -1, "message": -1, "prio": -1}  # others: 0
_ATTRIBUTES = {
    "start": "start", "size": "size", "id": "connection", "msg": "message", "trigger": "trigger",
    "send_done_trigger": "send_done", "recv_done_trigger": "recv_done", "prio": "prio",
}  # fmt: skip
_HEADER = ("Nodes", "Connections", "Triggers", "Failures")
_INTEGER = re.compile(r"\d+")
_DECIMAL = re.compile(r"\d+(\.\d*)?([eE][+-]?\d{1,2})?")
KINDS = ("oneshot", "multishot", "barrier")
SWITCH_TIERS = {"TOR": 0, "AGG": 1, "CORE": 2}


@dataclass(frozen=True)
class Trigger:
    """A `trigger` line."""

    kind: str
    count: int  # activations a barrier waits for; 1 otherwise
    line: int


@dataclass(frozen=True)
class FailureLine:
    """A `failure` line: an up link, dead from the beginning in both directions."""

    tier: int  # of the switch below the link
    switch: int  # counted over the whole tier
    uplink: int
    line: int


def refuse(path: str, line: int, what: str, value: object, expected: str) -> NoReturn:
    """Raise a ConfigError about the file."""
    shown = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
    raise ConfigError(f"{path}:{line}: {what}: {shown[:80]!r}, expected {expected}")


@dataclass
class LineReader:
    """Reads lines in order; keeps the header, the triggers and the failures."""

    path: str
    start_unit: int  # ps
    header: dict[str, int] = field(default_factory=dict)
    header_line: dict[str, int] = field(default_factory=dict)
    triggers: dict[int, Trigger] = field(default_factory=dict)
    failures: list[FailureLine] = field(default_factory=list)
    in_body: bool = False
    _seen: dict[str, int] = field(default_factory=dict)  # warning -> its first line

    def read_block(self, block: bytes, first: int) -> dict[str, NDArray[np.int64]]:
        """Read whole lines, the first of which has number `first`; return the connections' columns."""
        texts = block.split(b"\n")
        return self.read_lines(texts, np.arange(first, first + len(texts)))

    def read_lines(self, texts: list[bytes], numbers: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
        """Read lines without their line ends and with their numbers; return the connections' columns."""
        rows: list[list[int]] = []
        for raw, number in zip(texts, numbers.tolist(), strict=True):
            tokens = self._tokens(raw, number)
            if tokens:
                self._read_line(tokens, number, rows)
        table = np.array(rows, np.int64).reshape(-1, len(COLUMNS))
        return {name: table[:, at].copy() for at, name in enumerate(COLUMNS)}

    def _tokens(self, raw: bytes, number: int) -> list[str]:
        """Split a line on single spaces; a carriage return and spaces at its end are dropped."""
        if b"\t" in raw:
            refuse(self.path, number, "tab in line", raw.strip(), "tokens separated by one space")
        try:
            text = raw.decode("ascii" if not raw.startswith(b"#") else "utf-8").removesuffix("\r").rstrip(" ")
        except UnicodeDecodeError:
            refuse(self.path, number, "line", raw.strip(), "ASCII text")
        if not text:
            return []
        tokens = text.split(" ")
        if "" in tokens and not text.startswith("#"):
            refuse(self.path, number, "two spaces in a row", text, "tokens separated by one space")
        return tokens

    def _read_line(self, tokens: list[str], number: int, rows: list[list[int]]) -> None:
        first = tokens[0]
        self.in_body = self.in_body or "->" in first or first in ("trigger", "failure")
        if not self.in_body:
            self._read_header(tokens, number)
        elif "->" in first:
            rows.append(self._connection(tokens, number))
        elif first == "trigger":
            self._read_trigger(tokens, number)
        elif first == "failure":
            self._read_failure(tokens, number)
        else:
            refuse(self.path, number, "line", " ".join(tokens), "SRC->DST, trigger or failure (comments: header only)")

    def _read_header(self, tokens: list[str], number: int) -> None:
        if tokens[0].startswith("#"):
            return
        name = tokens[0]
        if name not in _HEADER or len(tokens) != 2:
            refuse(self.path, number, "header", " ".join(tokens), f"one of {', '.join(_HEADER)} and a number")
        if name in self.header:
            refuse(self.path, number, name, tokens[1], "to be given once")
        self.header_line[name] = number
        largest = LARGEST_HOSTS if name == "Nodes" else LARGEST_NUMBER
        self.header[name] = self._integer(tokens[1], number, name, 2 if name == "Nodes" else 0, largest)

    def _hosts(self, number: int) -> int:
        if "Nodes" not in self.header or "Connections" not in self.header:
            missing = "Nodes" if "Nodes" not in self.header else "Connections"
            refuse(self.path, number, "header", "nothing", f"{missing} before the first connection")
        return self.header["Nodes"]

    def _connection(self, tokens: list[str], number: int) -> list[int]:
        hosts = self._hosts(number)
        ends = tokens[0].split("->")
        if len(ends) != 2:
            refuse(self.path, number, "connection", tokens[0], "SRC->DST")
        row = dict.fromkeys(COLUMNS, 0) | _UNSET | {"line": number}
        for side, text in zip(("source", "destination"), ends, strict=True):
            row[side] = self._integer(text, number, side, 0, hosts - 1)
        self._read_attributes(tokens, number, row)
        self._check_connection(row)
        return [row[name] for name in COLUMNS]

    def _read_attributes(self, tokens: list[str], number: int, row: dict[str, int]) -> None:
        at, given = 1, list[str]()
        while at < len(tokens):
            name = tokens[at]
            value = tokens[at + 1] if at + 1 < len(tokens) else ""
            if name not in _ATTRIBUTES:
                refuse(self.path, number, "attribute", name, f"one of {', '.join(_ATTRIBUTES)}")
            if name in given:
                refuse(self.path, number, name, value, "to be given once")
            given.append(name)
            if name == "msg" and not _INTEGER.fullmatch(value):
                row["message"] = 0
                at += 1
                continue
            row[_ATTRIBUTES[name]] = self._attribute(name, value, number)
            at += 2
        self._check_order(given, number)

    def _check_order(self, given: list[str], number: int) -> None:
        if "start" in given and "trigger" in given:
            if given.index("trigger") < given.index("start"):
                refuse(self.path, number, "start", "start after trigger", "either start or trigger")
            self._warn("start and trigger on one line: the trigger takes precedence, as in htsim", number)
        if "prio" in given:
            self._warn("prio has no effect, as in htsim's UEC program", number)

    def _attribute(self, name: str, value: str, number: int) -> int:
        if name == "start":
            return self._start(value, number)
        lowest = 0 if name in ("prio", "msg") else 1
        largest = LARGEST_SIZE if name == "size" else LARGEST_NUMBER
        return self._integer(value, number, name, lowest, largest)

    def _start(self, text: str, number: int) -> int:
        if not _DECIMAL.fullmatch(text):
            refuse(self.path, number, "start", text, "a number")
        exact = Decimal(text) * self.start_unit
        if exact > LATEST_START:
            refuse(self.path, number, "start", text, f"at most {LATEST_START // self.start_unit}")
        if Decimal(text) % 1:
            self._warn("a start with a fraction is kept to the picosecond; htsim drops the fraction", number)
        return int(exact)

    def _check_connection(self, row: dict[str, int]) -> None:
        number = row["line"]
        if row["source"] == row["destination"]:
            refuse(self.path, number, "connection", f"{row['source']}->{row['destination']}", "two different hosts")
        if row["size"] < 0:
            refuse(self.path, number, "size", "missing", "a size in bytes")
        if row["start"] < 0 and not row["trigger"]:
            refuse(self.path, number, "connection", "neither start nor trigger", "one of them")
        if row["trigger"] and not row["connection"]:
            refuse(self.path, number, "trigger", row["trigger"], "an id on the same line")
        if row["message"] >= 0 and not row["connection"]:
            refuse(self.path, number, "msg", row["message"], "an id on the same line")
        if row["trigger"]:
            row["start"] = -1

    def _read_trigger(self, tokens: list[str], number: int) -> None:
        self._hosts(number)
        given, kinds = self._pairs(tokens, number, ("id", "count"), KINDS)
        if len(kinds) != 1:
            refuse(self.path, number, "trigger", " ".join(kinds) or "no kind", f"one of {', '.join(KINDS)}")
        identity = self._integer(given.get("id", ""), number, "trigger id", 1, LARGEST_NUMBER)
        if identity in self.triggers:
            refuse(self.path, number, "trigger id", identity, f"a new id (line {self.triggers[identity].line} has it)")
        count = 1
        if kinds[0] == "barrier":
            count = self._integer(given.get("count", ""), number, "barrier count", 1, LARGEST_NUMBER)
        elif "count" in given:
            self._integer(given["count"], number, "count", 0, LARGEST_NUMBER)
            self._warn(f"count on a {kinds[0]} trigger has no meaning", number)
        self.triggers[identity] = Trigger(kinds[0], count, number)

    def _read_failure(self, tokens: list[str], number: int) -> None:
        self._hosts(number)
        given, _ = self._pairs(tokens, number, ("switch_type", "switch_id", "link_id"), ())
        if given.get("switch_type") not in SWITCH_TIERS:
            refuse(self.path, number, "switch_type", given.get("switch_type", "missing"), "TOR, AGG or CORE")
        switch, uplink = (
            self._integer(given.get(name, ""), number, name, 0, LARGEST_HOSTS) for name in ("switch_id", "link_id")
        )
        self.failures.append(FailureLine(SWITCH_TIERS[given["switch_type"]], switch, uplink, number))

    def _pairs(
        self, tokens: list[str], number: int, valued: tuple[str, ...], bare: tuple[str, ...]
    ) -> tuple[dict[str, str], list[str]]:
        """Split the tokens after the first into name-value pairs and bare words."""
        given: dict[str, str] = {}
        terms: list[str] = []
        rest = iter(tokens[1:])
        for token in rest:
            if token in bare:
                terms.append(token)
            elif token in valued and token not in given:
                given[token] = next(rest, "")
            else:
                refuse(self.path, number, tokens[0], token, f"each of {', '.join(valued + bare)} at most once")
        return given, terms

    def _integer(self, text: str, number: int, what: str, lowest: int, largest: int) -> int:
        if not _INTEGER.fullmatch(text) or not lowest <= int(text) <= largest:
            refuse(self.path, number, what, text or "missing", f"an integer in {lowest}..{largest}")
        return int(text)

    def _warn(self, text: str, number: int) -> None:
        self._seen.setdefault(text, number)

    def warnings(self) -> list[str]:
        """Return the warnings, each with the first line that it concerns."""
        return [f"{self.path}:{number}: {text}" for text, number in self._seen.items()]

    def finish(self, connections: int) -> None:
        """Refuse a file whose counts of lines differ from its header.

        Fewer connections get a warning: htsim's own example of an all-to-all declares 3,600 and has 240.
        """
        found = {"Connections": connections, "Triggers": len(self.triggers), "Failures": len(self.failures)}
        self._hosts(1)
        for name, count in found.items():
            declared = self.header.get(name, 0)
            line = self.header_line.get(name, 1)
            if name == "Connections" and 0 < count < declared:
                self._warn(f"Connections: {declared}, but the body has {count}; these are run", line)
            elif declared != count:
                refuse(self.path, line, name, declared, f"{count}, the number in the body")

    def names(self, head: bytes, number: int) -> list[str]:
        """Check the plain connection line `head` and return the columns of its numbers, in order."""
        tokens = self._tokens(head, number)
        self._connection(tokens, number)
        return ["source", "destination", *(_ATTRIBUTES[name] for name in tokens[1::2])]

    def arranged(
        self, names: list[str], numbers: NDArray[np.int64], texts: list[bytes], line: NDArray[np.int64]
    ) -> dict[str, NDArray[np.int64]]:
        """Return the columns of equally shaped lines, after the checks that `read_block` makes on each."""
        count = len(numbers)
        columns = {name: np.full(count, _UNSET.get(name, 0), np.int64) for name in COLUMNS}
        columns |= {name: numbers[:, at].copy() for at, name in enumerate(names)}
        columns["line"] = line
        wrong = np.flatnonzero(self._suspects(columns, names))
        if len(wrong):  # the line reader raises the error for the first
            self.read_lines([texts[wrong[0]]], line[wrong[:1]])
        columns["start"] = np.where(columns["trigger"] > 0, -1, columns["start"] * self.start_unit)
        return columns

    def _suspects(self, columns: dict[str, NDArray[np.int64]], names: list[str]) -> NDArray[np.bool_]:
        hosts = self.header["Nodes"]
        wrong = (columns["source"] >= hosts) | (columns["destination"] >= hosts)
        wrong |= columns["source"] == columns["destination"]
        wrong |= (columns["size"] < 1) | (columns["size"] > LARGEST_SIZE)
        wrong |= columns["start"] > LATEST_START // self.start_unit
        for name in ("connection", "trigger", "send_done", "recv_done"):
            if name in names:
                wrong |= columns[name] < 1
        return wrong
