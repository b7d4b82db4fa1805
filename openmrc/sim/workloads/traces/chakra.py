"""Read Chakra execution traces: one file per rank, `NAME.RANK.et` (github.com/mlcommons/chakra, et_def.proto).

A file holds a GlobalMetadata and then nodes, each a message preceded by its length. Writers differ in the integer type
of an attribute, and omit zeros; all variants are accepted. The ranks of a collective are given by `pg_name` or
`comm_group` (a name in a file of groups, as ASTRA-sim's comm-group configuration), or by `involved_dim` (dimensions of
a grid of ranks, the first varying fastest); without either, it includes all ranks.
"""

import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from openmrc.base.documents import parse_json, read_text
from openmrc.collectives.choice import Collective
from openmrc.errors import ConfigError
from openmrc.sim.workloads.traces.operations import LONGEST, MOST_RANKS, NONE, OperationKind, Operations
from openmrc.sim.workloads.traces.protobuf import BadMessage, Field, WireType, fields, messages, packed, text
from openmrc.units import PS_PER_S, PS_PER_US

_FILE = re.compile(r"(.+)\.(\d{1,7})\.et")
_ALL = ""  # the group without a name
METADATA, MEMORY_LOAD, MEMORY_STORE, COMPUTE, SEND, RECEIVE, COLLECTIVE, STORAGE, BATCH, CHECKPOINT = range(1, 11)
_OF_KIND = {SEND: OperationKind.SEND, RECEIVE: OperationKind.RECEIVE, COLLECTIVE: OperationKind.COLLECTIVE}
_COLLECTIVES = {
    0: Collective.ALL_REDUCE, 1: Collective.REDUCE, 2: Collective.ALL_GATHER, 3: Collective.GATHER,
    4: Collective.SCATTER, 5: Collective.BROADCAST, 6: Collective.ALL_TO_ALL, 7: Collective.REDUCE_SCATTER,
    8: Collective.REDUCE_SCATTER, 9: Collective.BARRIER,
}  # fmt: skip
_WANTED = frozenset(
    b"comm_type comm_size comm_src comm_dst comm_tag involved_dim pg_name comm_group num_ops is_cpu_op".split()
)
_DOUBLE, _FLOAT, _SIGNED, _ZIGZAG = 3, 5, (7, 9), (15, 17)
_FIXED = {19: "<I", 21: "<Q", 23: "<i", 25: "<q"}
_PLAIN = (11, 13, 27)
_STRINGS = (29, 31)
_BOOLS = 28


@dataclass(frozen=True)
class ChakraAssumptions:
    """Information that a trace does not contain."""

    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # ranks of a process group, by its name
    dimensions: Sequence[int] = ()  # of the grid of ranks that `involved_dim` refers to
    flops: float = 0.0  # per second and rank, for computations with `num_ops` and no duration


@dataclass
class _Node:
    identity: int = 0
    name: str = ""
    kind: int = 0
    duration: int = 0  # us
    waits: list[int] = field(default_factory=list)
    attributes: dict[bytes, Any] = field(default_factory=dict)


def is_trace(path: Path) -> bool:
    """Return whether a path names Chakra files: one of them, or their common prefix."""
    return path.suffix == ".et" or Path(f"{path}.0.et").is_file()


def prefix_of(path: Path) -> str:
    """Return the common prefix of all ranks' files, given one of them or the prefix."""
    match = _FILE.fullmatch(str(path))
    return match[1] if match else str(path)


def read(path: Path, reading: ChakraAssumptions = ChakraAssumptions()) -> Operations:
    """Read the files of all ranks; raise ConfigError with file and node if they are invalid."""
    prefix = prefix_of(path)
    made = Operations(prefix, ranks=_ranks(prefix))
    known: dict[tuple[int, ...] | str, int] = {}
    for rank in range(made.ranks):
        _Rank(made, rank, reading, known).read(Path(made.file_of(rank)))
    return made


def read_groups(path: Path) -> dict[str, tuple[int, ...]]:
    """Read a JSON object of process groups: names with lists of ranks."""
    found = parse_json(read_text(path), str(path))
    if not isinstance(found, dict):
        raise ConfigError(f'{path}: expected an object such as {{"0": [0, 1, 2, 3]}}')
    for name, ranks in found.items():
        if not isinstance(ranks, list) or not ranks or not all(type(rank) is int and rank >= 0 for rank in ranks):
            raise ConfigError(f"{path}: group {name!r}: expected a list of ranks such as [0, 1, 2, 3]")
        if len(set(ranks)) < len(ranks):
            raise ConfigError(f"{path}: group {name!r}: duplicate rank")
    return {name: tuple(ranks) for name, ranks in found.items()}


def _ranks(prefix: str) -> int:
    """Return the number of ranks; refuse a gap in their files."""
    folder, name = Path(prefix).parent, Path(prefix).name
    found = set()
    for path in folder.glob("*.et") if folder.is_dir() else ():
        match = _FILE.fullmatch(path.name)
        if match and match[1] == name:
            found.add(int(match[2]))
    if not found:
        raise ConfigError(f"{prefix}.0.et: file not found; a Chakra trace has a file NAME.RANK.et for each rank")
    if max(found) >= MOST_RANKS:
        raise ConfigError(f"{prefix}.{max(found)}.et: at most {MOST_RANKS:,} ranks")
    missing = next((rank for rank in range(max(found)) if rank not in found), None)
    if missing is not None:
        raise ConfigError(f"{prefix}.{missing}.et: rank {missing} is missing; the last file is of rank {max(found)}")
    return max(found) + 1


class _Rank:
    """Reads the file of one rank and adds its operations to those of all."""

    def __init__(
        self, made: Operations, rank: int, reading: ChakraAssumptions, known: dict[tuple[int, ...] | str, int]
    ) -> None:
        self._made, self._rank, self._reading, self._known = made, rank, reading, known
        self._rows: dict[int, int] = {}  # by node identity
        self._waits: list[tuple[int, list[int]]] = []
        self._version = "unknown"

    def read(self, path: Path) -> None:
        """Read all nodes, then their dependencies, which may refer to later nodes."""
        number = 0
        try:
            with path.open("rb", buffering=1 << 18) as file:
                for number, data in enumerate(messages(file)):
                    if number == 0:
                        self._version = _version(data)
                    else:
                        self._add(_node(data))
        except BadMessage as error:
            raise ConfigError(f"{path}: message {number}: {error}") from None
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
        if number == 0:
            raise ConfigError(f"{path}: no nodes; expected GlobalMetadata and nodes, each preceded by its length")
        self._link()

    def _add(self, node: _Node) -> None:
        if node.identity in self._rows:
            self._refuse(node, "duplicate identity")
        kind = _OF_KIND.get(node.kind, OperationKind.COMPUTE)
        if not METADATA <= node.kind <= CHECKPOINT:
            self._refuse(node, f"node type {node.kind} is unknown (schema version {self._version})")
        given = self._communication(node, kind) if kind != OperationKind.COMPUTE else self._computation(node)
        row = self._made.add(kind, self._rank, node.identity, node.name[:80], **given)
        self._rows[node.identity] = row
        if node.waits:
            self._waits.append((row, node.waits))

    def _computation(self, node: _Node) -> dict[str, int]:
        length = node.duration * PS_PER_US
        operations = self._number(node, b"num_ops", 0)
        if not length and operations and node.kind == COMPUTE:
            if not self._reading.flops:
                self._refuse(node, f"{operations} operations and no duration; give tflops, the speed of a rank")
            length = int(min(LONGEST + 1, operations * PS_PER_S / self._reading.flops))
        takes = node.kind != METADATA and length > 0
        return {"length": length if takes else 0, "lane": int(self._number(node, b"is_cpu_op", 0) != 0)}

    def _communication(self, node: _Node, kind: OperationKind) -> dict[str, int]:
        size = self._number(node, b"comm_size", 0)
        if kind == OperationKind.COLLECTIVE:
            wanted = self._number(node, b"comm_type", 0)
            if wanted not in _COLLECTIVES:
                self._refuse(node, f"comm_type {wanted}; expected 0 to {max(_COLLECTIVES)}")
            return {"size": size, "collective": _COLLECTIVES[wanted], "group": self._group(node)}
        mine, other = (b"comm_src", b"comm_dst") if kind == OperationKind.SEND else (b"comm_dst", b"comm_src")
        if self._number(node, mine, self._rank) != self._rank and mine in node.attributes:
            self._refuse(node, f"{mine.decode()} is {node.attributes[mine]}, but the file is of rank {self._rank}")
        peer = self._number(node, other, 0)
        if peer >= self._made.ranks:
            self._refuse(node, f"{other.decode()} is {peer}; the trace has ranks 0..{self._made.ranks - 1}")
        return {"size": size, "peer": peer, "tag": self._number(node, b"comm_tag", 0)}

    def _number(self, node: _Node, name: bytes, default: int) -> int:
        value = node.attributes.get(name, default)
        if isinstance(value, str):
            value = int(value) if re.fullmatch(r"\d{1,18}", value) else NONE
        if not isinstance(value, (int, float)) or not 0 <= value < 1 << 63:
            self._refuse(node, f"{name.decode()} is {value!r}; expected a number, at least 0")
        return int(value)

    def _group(self, node: _Node) -> int:
        named = node.attributes.get(b"pg_name", node.attributes.get(b"comm_group", _ALL))
        involved = node.attributes.get(b"involved_dim")
        key: tuple[int, ...] | str = str(named)
        if key == _ALL and isinstance(involved, tuple) and not all(involved):
            key = self._along(node, involved)
        if key not in self._known:
            self._known[key] = len(self._made.groups)
            self._made.groups.append(key if isinstance(key, tuple) else self._named(node, key))
        group = self._known[key]
        if self._rank not in self._made.groups[group]:
            self._refuse(node, f"rank {self._rank} is not in the group {named!r} of its collective")
        return group

    def _named(self, node: _Node, name: str) -> tuple[int, ...]:
        everyone = tuple(range(self._made.ranks))
        if name == _ALL or (not self._reading.groups and name == "0"):
            return everyone
        ranks = self._reading.groups.get(name)
        if ranks is None:
            have = ", ".join(sorted(self._reading.groups)[:8]) or "none; give a file by `groups`"
            self._refuse(node, f"process group {name!r} is unknown; known groups: {have}")
        if max(ranks) >= self._made.ranks:
            self._refuse(node, f"process group {name!r} has rank {max(ranks)}; the trace has {self._made.ranks} ranks")
        return ranks

    def _along(self, node: _Node, involved: tuple[int, ...]) -> tuple[int, ...]:
        """Return the ranks that differ from this one in the involved dimensions only."""
        grid = tuple(self._reading.dimensions)
        involved = involved[: len(grid)] if all(involved[len(grid) :]) or not any(involved[len(grid) :]) else involved
        product = 1
        for size in grid:
            product *= size
        if len(involved) != len(grid) or product != self._made.ranks:
            self._refuse(
                node,
                f"involved_dim {list(map(int, involved))} needs `dimensions`, the grid of the "
                f"{self._made.ranks} ranks; given is {list(grid)}",
            )
        ranks, stride = [self._rank], 1
        for size, takes_part in zip(grid, involved, strict=True):
            if takes_part:
                place = self._rank // stride % size
                ranks = [rank + (other - place) * stride for rank in ranks for other in range(size)]
            stride *= size
        return tuple(sorted(ranks))

    def _link(self) -> None:
        for row, waits in self._waits:
            for identity in dict.fromkeys(waits):
                if identity not in self._rows:
                    self._made.refuse(row, f"waits for node {identity}, which does not exist")
                self._made.follow(self._rows[identity], row)

    def _refuse(self, node: _Node, why: str) -> NoReturn:
        name = f" ({node.name[:80]})" if node.name else ""
        raise ConfigError(f"{self._made.file_of(self._rank)}: node {node.identity}{name}: {why}")


def _version(data: bytes) -> str:
    for each in fields(data, 0, len(data)):
        if each[0] == 1:
            return text(data, each)[:40]
    return "unknown"


def _node(data: bytes) -> _Node:
    node = _Node()
    for each in fields(data, 0, len(data)):
        number, kind, value, _ = each
        if number in (1, 3, 7):
            if kind != WireType.VARINT:
                raise BadMessage(f"field {number} of a node is not an integer")
            setattr(node, {1: "identity", 3: "kind", 7: "duration"}[number], value)
        elif number == 2:
            node.name = text(data, each)
        elif number in (4, 5):
            node.waits += packed(data, each)
        elif number == 10:
            _attribute(data, each, node.attributes)
    if node.duration > LONGEST // PS_PER_US:
        raise BadMessage(f"node {node.identity} takes {node.duration} us")
    return node


def _attribute(data: bytes, whole: Field, into: dict[bytes, Any]) -> None:
    """Read an attribute into a dict, if it is used."""
    if whole[1] != WireType.LENGTH:
        raise BadMessage("an attribute is not a message")
    name, value = b"", None
    for each in fields(data, whole[2], whole[3]):
        if each[0] == 1:
            name = data[each[2] : each[3]] if each[1] == WireType.LENGTH else b""
            if name not in _WANTED:
                return
        elif each[0] > 2:
            value = _value(data, each)
    if name in _WANTED:
        into[name] = 0 if value is None else value  # a missing value is zero


def _value(data: bytes, each: Field) -> Any:
    """Return the value of an attribute as number, text or tuple; None if it has another type."""
    number, kind, value, end = each
    if kind == WireType.VARINT:
        if number in _ZIGZAG:
            return (value >> 1) ^ -(value & 1)
        if number in _SIGNED:
            return value - (1 << 64) if value >= 1 << 63 else value
        return value if number in _PLAIN else None
    if number in _FIXED and end - value == struct.calcsize(_FIXED[number]):
        return struct.unpack_from(_FIXED[number], data, value)[0]
    if number in (_DOUBLE, _FLOAT) and end - value == (8 if number == _DOUBLE else 4):
        return struct.unpack_from("<d" if number == _DOUBLE else "<f", data, value)[0]
    if number in _STRINGS:
        return data[value:end].decode(errors="replace")
    return tuple(_bools(data, each)) if number == _BOOLS and kind == WireType.LENGTH else None


def _bools(data: bytes, each: Field) -> Iterator[int]:
    for inner in fields(data, each[2], each[3]):
        if inner[0] == 1:
            yield from (int(value != 0) for value in packed(data, inner))
