"""Properties of what a requester sends: messages, numbers, retransmissions, windows, paths."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise

from openmrc.conform.trail import NothingToJudgeError, PropertyProblem, Trail, TrailPacket, some
from openmrc.wire.codes import Opcode

_FIRST = (Opcode.WRITE_FIRST, Opcode.WRITE_ONLY, Opcode.WRITE_ONLY_IMM)
_LAST = (Opcode.WRITE_LAST, Opcode.WRITE_LAST_IMM, Opcode.WRITE_ONLY, Opcode.WRITE_ONLY_IMM)
_IMMEDIATE = (Opcode.WRITE_LAST_IMM, Opcode.WRITE_ONLY_IMM)


def _by_psn(trail: Trail) -> dict[int, list[TrailPacket]]:
    """Return the transmissions of each PSN, oldest first."""
    found: dict[int, list[TrailPacket]] = defaultdict(list)
    for each in some(trail.writes(judged=True), "write"):
        found[each.psn].append(each)
    return found


def _in_order(trail: Trail) -> list[TrailPacket]:
    """Return the first transmission of each PSN, in order of PSN."""
    found = _by_psn(trail)
    return [found[psn][0] for psn in sorted(found)]


def _messages(trail: Trail) -> Iterator[list[TrailPacket]]:
    """Yield the packets of each message whose packets were all seen."""
    current: list[TrailPacket] = []
    for each in _in_order(trail):
        if each.message.opcode in _FIRST or (current and each.psn != current[-1].psn + 1):
            current = []
        if each.message.opcode in _FIRST or current:
            current.append(each)
        if current and each.message.opcode in _LAST:
            yield current
            current = []


def segmentation(trail: Trail) -> Iterator[PropertyProblem]:
    """A message is an Only, or First, Middles and Last; all but the last packet are as long as the path MTU."""
    for packets in _messages(trail):
        sizes = {len(each.message.payload) for each in packets[:-1]}
        total = sum(len(each.message.payload) for each in packets)
        if len(sizes) > 1:
            yield PropertyProblem(packets[1].number, f"packets of one message carry {sorted(sizes)} bytes")
        if trail.mtu is not None and sizes - {trail.mtu}:
            yield PropertyProblem(packets[0].number, f"a First or Middle carries {max(sizes)} bytes of {trail.mtu}")
        if total != packets[0].message.reth.dmalen:
            yield PropertyProblem(
                packets[-1].number, f"the message carries {total} of {packets[0].message.reth.dmalen}"
            )
        for middle in packets[1:-1]:
            if middle.message.opcode != Opcode.WRITE_MIDDLE:
                yield PropertyProblem(middle.number, f"{middle.packet.name} between First and Last")


def reth(trail: Trail) -> Iterator[PropertyProblem]:
    """The address advances by what the packets before carried; length and key stay those of the message."""
    for packets in _messages(trail):
        first, carried = packets[0].message.reth, 0
        for each in packets:
            own = each.message.reth
            if own.va != (first.va + carried) % (1 << 64):
                yield PropertyProblem(each.number, f"the address is {own.va:#x}, expected {first.va + carried:#x}")
            if (own.dmalen, own.r_key) != (first.dmalen, first.r_key):
                yield PropertyProblem(each.number, "length or key differ from those of the first packet")
            carried += len(each.message.payload)


def message_numbers(trail: Trail) -> Iterator[PropertyProblem]:
    """All packets of a message carry one MSN, the next message the next; RQMSN counts writes with immediate."""
    msn: int | None = None
    rqmsn: int | None = None
    for packets in _messages(trail):
        numbers = {each.message.meth.msn for each in packets}
        if len(numbers) > 1:
            yield PropertyProblem(packets[0].number, f"packets of one message carry MSNs {sorted(numbers)}")
        found = packets[0].message.meth.msn
        if msn is not None and found != (msn + 1) % (1 << 16):
            yield PropertyProblem(packets[0].number, f"MSN {found} follows {msn}")
        msn = found
        if packets[-1].message.opcode in _IMMEDIATE:
            own = {each.message.meth.rqmsn for each in packets}
            if len(own) > 1 or (rqmsn is not None and own != {(rqmsn + 1) % (1 << 16)}):
                yield PropertyProblem(packets[-1].number, f"RQMSN {sorted(own)} follows {rqmsn}")
            rqmsn = packets[-1].message.meth.rqmsn


def new_psns(trail: Trail) -> Iterator[PropertyProblem]:
    """New packets take the next PSN, on a ring of 24 bits: those of a path come in order, and none is left out."""
    latest: dict[tuple[int, int], int] = {}  # of each path
    # As captured: those of several planes may have overtaken each other.
    for each in sorted(_in_order(trail), key=lambda each: each.number):
        path = each.datagram.plane, each.datagram.source_port
        if each.psn < latest.get(path, each.psn):
            yield PropertyProblem(each.number, f"PSN {each.psn} was sent after {latest[path]} on the same path")
        latest[path] = max(each.psn, latest.get(path, each.psn))
    passed = min(latest.values(), default=0)  # by every path: what is missing below will not come
    for before, behind in pairwise(_in_order(trail)):
        if behind.psn > before.psn + 1 and before.psn + 1 < passed:
            yield PropertyProblem(behind.number, f"PSN {before.psn + 1} was left out before {behind.psn}")


def retransmissions(trail: Trail) -> Iterator[PropertyProblem]:
    """A PSN that is repeated says so (BTH.rtx) and is the same packet; one that is new does not say so."""
    repeated = 0
    for transmissions in _by_psn(trail).values():
        first = transmissions[0]
        if first.message.bth.rtx:
            yield PropertyProblem(first.number, f"PSN {first.psn} says rtx, but was not seen before")
        for again in transmissions[1:]:
            repeated += 1
            if not again.message.bth.rtx:
                yield PropertyProblem(again.number, f"PSN {again.psn} was sent in packet {first.number}; rtx is 0")
            if not _is_same(first, again):
                yield PropertyProblem(again.number, f"PSN {again.psn} differs from packet {first.number}")
    if repeated == 0:
        raise NothingToJudgeError("nothing was retransmitted")


def _is_same(first: TrailPacket, again: TrailPacket) -> bool:
    one, other = (
        (each.opcode, each.meth.msn, each.reth.va, each.reth.dmalen, each.reth.r_key)
        for each in (first.message, again.message)
    )
    is_cut = first.datagram.is_trimmed or again.datagram.is_trimmed
    return one == other and (is_cut or first.message.payload == again.message.payload)


def other_path(trail: Trail) -> Iterator[PropertyProblem]:
    """A retransmission takes another EV than the transmission before it."""
    repeated = 0
    for transmissions in _by_psn(trail).values():
        for before, again in pairwise(transmissions):
            repeated += 1
            if before.datagram.source_port == again.datagram.source_port:
                text = f"PSN {again.psn} took EV {again.datagram.source_port:#x} again, as in packet {before.number}"
                yield PropertyProblem(again.number, text)
    if repeated == 0:
        raise NothingToJudgeError("nothing was retransmitted")


def window(trail: Trail) -> Iterator[PropertyProblem]:
    """No PSN passes the responder's window: at most MPR x 128 beyond what was reported as received."""
    if trail.window is None:
        raise NothingToJudgeError("the window (MPR) of the responder is not known")
    received = -1
    for each in trail.read():
        if each.message.opcode == Opcode.SACK:
            received = max(received, trail.relative(each.message.seth.cack_psn))
        elif each.is_judged and each.message.opcode <= Opcode.WRITE_ONLY_IMM and each.psn > received + trail.window:
            text = f"PSN {each.psn} was sent while {received} was reported and the window is {trail.window}"
            yield PropertyProblem(each.number, text)


def ends_with_request(trail: Trail) -> Iterator[PropertyProblem]:
    """The last packet before the sender goes idle requests a report (BTH.A)."""
    last = _in_order(trail)[-1]
    if not any(each.message.bth.a for each in _by_psn(trail)[last.psn]):
        yield PropertyProblem(last.number, "the last packet does not request a report")


def plane_shares(trail: Trail) -> Iterator[PropertyProblem]:
    """All planes carry the same share of new data: no two differ by more than a rotation, or a tenth of everything.

    Nothing may have been sent again: a path that loses packets is left, and its plane then carries less.
    """
    again = sum(len(each) - 1 for each in _by_psn(trail).values())
    if again:
        raise NothingToJudgeError(f"{again} packets were sent again: a path that loses packets is left")
    shares = Counter(each.datagram.plane for each in _in_order(trail))
    for plane in range(trail.planes or 0):
        shares[plane] += 0  # one that carried nothing counts
    evs = len({each.datagram.source_port for each in trail.writes(judged=True)})
    tolerated = max(2, evs, shares.total() // 10)  # devices may send bursts on one path
    if len(shares) > 1 and max(shares.values()) - min(shares.values()) > tolerated:
        yield PropertyProblem(0, f"planes carried {dict(sorted(shares.items()))} packets")


def rotation(trail: Trail) -> Iterator[PropertyProblem]:
    """All active EVs are used about equally often: once per rotation."""
    uses = Counter(each.datagram.source_port for each in _in_order(trail))
    planes = {each.datagram.plane for each in _in_order(trail)}
    if len(uses) == len(planes) and uses.total() > 2 * len(planes):
        yield PropertyProblem(0, f"one EV a plane was used, {sorted(uses.values())} times")
    if max(uses.values()) - min(uses.values()) > 2:
        yield PropertyProblem(0, f"EVs were used {sorted(uses.values())} times")
