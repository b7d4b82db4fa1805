"""One line a packet, and what a capture holds in all: what `mrc decode` prints unless asked for the tree."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from typing import Any

from openmrc.units import NS_PER_S
from openmrc.wire.codes import CONGESTED, EndpointOp, NackReason, Opcode, PathMark, Syndrome

_NUMBERS = f"{'opcode':<17} {'QPN':>8} {'PSN':>8} {'EV':>10} {'bytes':>6}  special"
_PLANE_WIDTH = 8  # characters; names of interfaces may be longer
_LONGER = 2  # characters by which the address of another plane is longer than that of the first: fd00::1, fd00:3::1


def plane_width(entry: dict[str, Any]) -> int:
    """Return the width of the planes' column, by the first packet."""
    name = entry["interface"]
    return _PLANE_WIDTH if len(name) <= _PLANE_WIDTH else len(name) + _LONGER


def heading(width: int) -> str:
    """Return the names of the columns; `width` is that of the planes."""
    return f"{'frame':>6} {'time s':>12} {'plane':<{width}} {_NUMBERS}"


def packet_line(entry: dict[str, Any], begun: int, width: int) -> str:
    """Return one packet, as `mrc decode --json` describes it, on one line; times count from `begun` (ns)."""
    start = f"{entry['frame']:>6} {(entry['time_ns'] - begun) / NS_PER_S:>12.6f} {entry['interface']:<{width}}"
    bth = entry.get("bth")
    if bth is None:
        return f"{start} {entry.get('error', '')}"
    ev = f"{entry['ev']:#x}" if "ev" in entry else ""
    words = f"{opcode_name(entry):<17} {bth['dqp']:#8x} {bth['psn']:>8} {ev:>10} {entry['payload_length']:>6}"
    return f"{start} {words}  {' '.join(special(entry))}".rstrip()


def opcode_name(entry: dict[str, Any]) -> str:
    """Return the name of a packet's opcode."""
    return Opcode(entry["bth"]["opcode"]).name


def special(entry: dict[str, Any]) -> Iterator[str]:
    """Yield what is not the same in every packet of the kind."""
    bth = entry["bth"]
    if bth["a"]:
        yield "A"
    if bth["rtx"]:
        yield "rtx"
    if entry.get("ip", {}).get("ecn") == CONGESTED:
        yield "marked"
    if entry.get("trimmed"):
        yield "trimmed"
    for header, words in _WORDS.items():
        if header in entry:
            yield from words(entry[header])
    if "error" in entry:
        yield f"! {entry['error']}"


def _seth(seth: dict[str, Any]) -> Iterator[str]:
    if "cack_psn" not in seth:
        return
    yield f"cack={seth['cack_psn']}"
    count = bin(seth["sack_bitmap"]).count("1")
    if count:
        yield f"+{count} from {seth['cack_psn'] + seth['sack_offset']}"
    yield f"probe={seth['ack_psn_offset']}" if seth["pr"] else f"for={seth['cack_psn'] + seth['ack_psn_offset']}"
    if seth["m"]:
        yield f"{_named(PathMark, seth['m'])} of {seth['entropy']:#x}"
    if seth["mpr"]:
        yield f"mpr={seth['mpr']}"


def _aeth(aeth: dict[str, Any]) -> Iterator[str]:
    if aeth["syndrome"] != Syndrome.ACK:
        yield _named(Syndrome, aeth["syndrome"], f"syndrome={aeth['syndrome']:#x}")
    yield f"messages={aeth['msn']}"


def _named(kind: type[IntEnum], value: int, otherwise: str = "") -> str:
    """Return the name of a value, if it has one."""
    return kind(value).name if value in kind.__members__.values() else otherwise or str(value)


_WORDS: dict[str, Callable[[dict[str, Any]], Iterable[str]]] = {
    "meth": lambda meth: [f"msn={meth['msn']}"],
    "immdt": lambda immdt: [f"immediate={immdt['immediate']:#x}"],
    "seth": _seth,
    "neth": lambda neth: [f"{_named(NackReason, neth['nack_reason'])} of {neth['nack_psn']}"],
    "aeth": _aeth,
    "peth": lambda peth: [f"probe={peth['probe_id']}"],
    "erth": lambda erth: ["EV probe" if erth["op"] == EndpointOp.EV_PROBE else f"ports={erth['port_status_mask']:#x}"],
}


class CaptureSummary:
    def __init__(self) -> None:
        self._kinds: Counter[tuple[str, str]] = Counter()  # opcode, plane
        self._seen: set[tuple[int, int]] = set()  # QPN, PSN of writes
        self.repeated = 0
        self.trimmed = 0
        self.marked = 0

    def add(self, entry: dict[str, Any]) -> None:
        if "bth" not in entry:
            return
        bth, name = entry["bth"], opcode_name(entry)
        self._kinds[name, entry["interface"]] += 1
        self.trimmed += bool(entry.get("trimmed"))
        self.marked += entry["ip"]["ecn"] == CONGESTED
        if bth["opcode"] <= Opcode.WRITE_ONLY_IMM:
            key = bth["dqp"], bth["psn"]
            self.repeated += bool(bth["rtx"]) or key in self._seen
            self._seen.add(key)

    def lines(self) -> Iterator[str]:
        """Yield a table of packets by opcode and plane, and what was lost on the way."""
        planes = sorted({plane for _, plane in self._kinds})
        if not planes:
            return
        widths = [max(10, len(plane)) for plane in planes]
        yield " ".join([f"{'':<18}", *(f"{plane:>{width}}" for plane, width in zip(planes, widths, strict=True))])
        for opcode in Opcode:
            counts = [self._kinds[opcode.name, plane] for plane in planes]
            if any(counts):
                cells = (f"{count:>{width}}" for count, width in zip(counts, widths, strict=True))
                yield " ".join([f"{opcode.name:<18}", *cells])
        plural = "" if self.repeated == 1 else "s"
        yield f"{self.repeated} retransmission{plural}, {self.trimmed} trimmed, {self.marked} marked"
