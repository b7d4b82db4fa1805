"""A packet as an object: a tree of headers, parsed from a UDP payload and serialised to one.

It uses the same table as the compiled codec, with plain integers, so that tests can compare the two.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from openmrc.errors import Malformed, MisuseError, Truncated, WireError
from openmrc.wire.codec import check_length
from openmrc.wire.codes import MRC_OPCODE_GROUP, Opcode, WireStatus
from openmrc.wire.headers import (
    BTH,
    CC_STATE,
    NEEDED_OF_A_TRIMMED_PACKET,
    RETH,
    SETH,
    STACKS,
    WITH_PAYLOAD,
    Header,
    HeaderField,
    length,
    stack,
)
from openmrc.wire.layout import ICRC_LENGTH

PATH_MTUS = (256, 512, 1024, 2048, 4096)  # bytes
_FIRST_OR_MIDDLE = (Opcode.WRITE_FIRST, Opcode.WRITE_MIDDLE)
_ONLY = (Opcode.WRITE_ONLY, Opcode.WRITE_ONLY_IMM)

REASONS = {
    WireStatus.TRUNCATED: "truncated packet",
    WireStatus.NOT_MRC: "not an MRC opcode",
    WireStatus.UNKNOWN_OPCODE: "unknown MRC opcode",
    WireStatus.BAD_VERSION: "bad transport version",
    WireStatus.BAD_LENGTH: "bad packet length",
    WireStatus.BAD_PAD: "bad pad count",
    WireStatus.BAD_ICRC: "bad ICRC",
}


def problem(status: int, offset: int = 0) -> WireError:
    """Return the error for a status."""
    kind = Truncated if status == WireStatus.TRUNCATED else Malformed
    return kind(REASONS[WireStatus(status)], offset)


@dataclass
class WireCounters:
    """Counts of packets parsed, and refused by reason."""

    accepted: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    others: int = 0  # datagrams to an MRC port that are not of MRC

    def count(self, error: WireError | None = None) -> None:
        """Count one packet; `error` is the reason if it was refused."""
        if error is None:
            self.accepted += 1
        else:
            self.refused[error.reason] += 1


@dataclass(frozen=True)
class Part:
    """One header of a packet and its values, read as `part.psn` or `part["psn"]`."""

    header: Header
    values: Mapping[str, int]
    raw: bytes = b""  # raw bytes, where the fields are not defined

    def __getitem__(self, name: str) -> int:
        return self.values[name]

    def __getattr__(self, name: str) -> int:
        if name.startswith("__") or name not in self.values:
            raise AttributeError(f"{self.header.name} has no field {name}")
        return self.values[name]

    def emit(self) -> bytes:
        """Return the bytes of this header."""
        if self.raw:
            return self.raw
        bits = self.header.size * 8
        word = sum(
            (self.values[field.name] & (1 << field.width) - 1) << (bits - field.offset - field.width)
            for field in self.header.fields
        )
        return word.to_bytes(self.header.size, "big")

    def as_json(self) -> dict[str, Any]:
        """Return the fields with public definitions."""
        if self.raw:
            return {"raw": self.raw.hex()}
        return {field.name: self.values[field.name] for field in self.header.fields if field.listed}


@dataclass(frozen=True)
class MrcPacket:
    """A packet from BTH on. Headers are attributes: `message.seth.cack_psn`."""

    parts: tuple[Part, ...]
    payload: bytes = b""  # without pad
    icrc: int | None = None  # the four bytes read big-endian; None: not there
    trimmed: bool = False

    def __getattr__(self, name: str) -> Part:
        for part in self.__dict__.get("parts", ()):
            if part.header.name == name:
                return part  # type: ignore[no-any-return]
        raise AttributeError(f"the packet has no {name}")

    @property
    def opcode(self) -> Opcode:
        return Opcode(self.parts[0].values["opcode"])

    def emit(self) -> bytes:
        """Return the UDP payload, with the ICRC if there is one."""
        end = b"" if self.icrc is None else self.icrc.to_bytes(ICRC_LENGTH, "big")
        pad = 0 if self.trimmed else self.parts[0].values["pad"]  # trimmed with the payload
        return b"".join(part.emit() for part in self.parts) + self.payload + bytes(pad) + end

    def as_json(self) -> dict[str, Any]:
        """Return the packet keyed by header and field, integers as integers."""
        tree: dict[str, Any] = {part.header.name: part.as_json() for part in self.parts}
        tree |= {"payload_length": len(self.payload), "icrc": self.icrc}
        return tree | {"trimmed": True} if self.trimmed else tree


def compose(opcode: Opcode, payload: bytes = b"", **headers: Mapping[str, int]) -> MrcPacket:
    """Return a packet without ICRC: unnamed fields are 0 or their constant."""
    timestamped = bool(headers.get("bth", {}).get("ts", 0))
    wanted = stack(opcode, timestamped)
    unknown = set(headers) - {header.name for header in wanted}
    if unknown:
        raise MisuseError(f"{opcode.name} has no header {', '.join(sorted(unknown))}")
    if payload and opcode not in WITH_PAYLOAD:
        raise MisuseError(f"{opcode.name} carries no payload")
    computed = {"opcode": int(opcode), "pad": -len(payload) % 4, "ts": int(timestamped)}
    parts = [
        _compose_part(header, {**(computed if header is BTH else {}), **headers.get(header.name, {})})
        for header in wanted
    ]
    return MrcPacket(tuple(parts), payload)


def _compose_part(header: Header, given: Mapping[str, int]) -> Part:
    names = {field.name for field in header.fields}
    if not given.keys() <= names:
        raise MisuseError(f"{header.name} has no field {', '.join(sorted(given.keys() - names))}")
    values = {field.name: given.get(field.name, field.sends or 0) for field in header.fields}
    for item in header.fields:
        low, high = _range(item, values)
        if not low <= values[item.name] <= high:
            raise MisuseError(f"{header.name}.{item.name} is {values[item.name]}: allowed is {low} to {high}")
    return Part(header, values)


def _is_signed(item: HeaderField, values: Mapping[str, int]) -> bool:
    return item.signed and not (item.unsigned_when and values.get(item.unsigned_when))


def _range(item: HeaderField, values: Mapping[str, int]) -> tuple[int, int]:
    if _is_signed(item, values):
        return -(1 << item.width - 1), (1 << item.width - 1) - 1
    return 0, (1 << item.width) - 1


def parse(data: bytes, *, has_icrc: bool = True, trimmed: bool = False) -> MrcPacket:
    """Parse a UDP payload from BTH on; raise Truncated or Malformed.

    A trimmed packet lacks payload and ICRC, perhaps headers too; it must extend beyond TSETH.
    """
    opcode, timestamped = _recognise(data)
    headers = stack(opcode, timestamped)
    if trimmed:
        return _parse_trimmed(data, opcode, headers)
    size = length(headers)
    whole = len(data) if has_icrc else len(data) + ICRC_LENGTH
    pad = _field_of(BTH, "pad", data)
    status = check_length(whole, size, pad, int(opcode in WITH_PAYLOAD))
    if status != WireStatus.OK:
        raise problem(status, len(data))
    end = whole - ICRC_LENGTH
    icrc = int.from_bytes(data[end:whole], "big") if has_icrc else None
    return MrcPacket(_parts(data, headers), data[size : end - pad], icrc)


def _recognise(data: bytes) -> tuple[Opcode, bool]:
    if len(data) < BTH.size:
        raise problem(WireStatus.TRUNCATED, len(data))
    if data[0] >> 5 != MRC_OPCODE_GROUP:
        raise problem(WireStatus.NOT_MRC)
    if data[0] not in STACKS:
        raise problem(WireStatus.UNKNOWN_OPCODE)
    if _field_of(BTH, "tver", data):
        raise problem(WireStatus.BAD_VERSION, 1)
    return Opcode(data[0]), bool(_field_of(BTH, "ts", data))


def _parse_trimmed(data: bytes, opcode: Opcode, headers: tuple[Header, ...]) -> MrcPacket:
    needed = [header for header in headers if header in NEEDED_OF_A_TRIMMED_PACKET or opcode not in WITH_PAYLOAD]
    if len(data) < length(tuple(needed)):
        raise problem(WireStatus.TRUNCATED, len(data))
    whole = [header for index, header in enumerate(headers) if length(headers[: index + 1]) <= len(data)]
    return MrcPacket(_parts(data, tuple(whole)), trimmed=True)


def _field_of(header: Header, name: str, data: bytes) -> int:
    return _read(header.field(name), int.from_bytes(data[: header.size], "big"), header.size * 8)


def _read(item: HeaderField, word: int, bits: int) -> int:
    return word >> (bits - item.offset - item.width) & (1 << item.width) - 1


def _parts(data: bytes, headers: tuple[Header, ...]) -> tuple[Part, ...]:
    parts: list[Part] = []
    for header in headers:
        at = length(headers[: len(parts)])
        raw = data[at : at + header.size]
        unknown = header is CC_STATE and parts[-1].header is SETH and parts[-1].values["cc_type"] != 0
        parts.append(Part(header, {}, raw) if unknown else Part(header, _values(header, raw)))
    return tuple(parts)


def _values(header: Header, raw: bytes) -> dict[str, int]:
    word, bits = int.from_bytes(raw, "big"), header.size * 8
    values = {item.name: _read(item, word, bits) for item in header.fields}
    for item in header.fields:
        if _is_signed(item, values) and values[item.name] >> item.width - 1:
            values[item.name] -= 1 << item.width
    return values


@dataclass(frozen=True)
class IcrcPresence:
    """Whether a UDP payload ends with its ICRC, and how this was determined."""

    present: bool
    certain: bool


def icrc_presence(data: bytes) -> IcrcPresence:
    """Determine from lengths whether `data` ends with an ICRC.

    Packets without payload have one length. An Only write carries DMALEN bytes, a First or Middle one
    a path MTU. Otherwise four or more bytes after the headers are assumed to end with an ICRC.
    """
    opcode, timestamped = _recognise(data)
    rest = len(data) - length(stack(opcode, timestamped))
    if rest < ICRC_LENGTH or opcode not in WITH_PAYLOAD:
        return IcrcPresence(rest >= ICRC_LENGTH, True)
    at = length(stack(opcode, timestamped)[: -1 if opcode.name.endswith("IMM") else None]) - RETH.size
    dmalen, pad = _field_of(RETH, "dmalen", data[at:]), _field_of(BTH, "pad", data)
    with_it = _is_plausible(opcode, rest - ICRC_LENGTH - pad, dmalen)
    without = _is_plausible(opcode, rest - pad, dmalen)
    return IcrcPresence(with_it or not without, with_it != without)


def _is_plausible(opcode: Opcode, payload: int, dmalen: int) -> bool:
    if opcode in _ONLY:
        return payload == dmalen
    if opcode in _FIRST_OR_MIDDLE:
        return payload in PATH_MTUS and payload < dmalen
    return 0 < payload < dmalen and (dmalen - payload) % PATH_MTUS[0] == 0
