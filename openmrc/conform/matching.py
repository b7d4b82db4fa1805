"""Does a packet or an event of a device fulfil the conditions of a line? If not, what differs?"""

from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter, eq, ge, gt, le, lt, ne

from openmrc.conform.conversation import TapEntry, TestConversation, tester_port
from openmrc.conform.datagrams import TapDatagram
from openmrc.conform.language import COUNT, PSN_FIELDS, ScriptCondition, ScriptStep, is_of_kind, number_of
from openmrc.engine.state.tables import WcStatus
from openmrc.wire.headers import BTH
from openmrc.wire.message import MrcPacket

_SIGNED_VA = 1 << 64
_FARTHEST_PSN = 1 << 16
_BTH = {each.name: (each.offset, each.width) for each in BTH.fields if each.name in ("psn", "rtx", "a")}  # bits
_EVENTS = {"completes": "completion", "receives": "receive"}
_COMPARISONS: dict[str, Callable[[int, int], bool]] = {"=": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}
_OF_DATAGRAM: dict[str, Callable[[TapDatagram], int]] = {
    **{name: attrgetter(name) for name in ("plane", "dscp", "ecn", "side")},
    "ev": attrgetter("source_port"),
    "size": lambda datagram: len(datagram.body),
}


def matches(conversation: TestConversation, step: ScriptStep, entry: TapEntry) -> list[str] | None:
    """Return the conditions that an entry does not fulfil; None if it is of another kind altogether.

    Variables that have no value yet are bound, but only if everything else holds.
    """
    if step.subject in _EVENTS:
        is_of_it = entry.event is not None and entry.event.event == _EVENTS[step.subject]
    else:
        message = entry.message
        is_of_it = message is not None and entry.from_device and is_of_kind(message.opcode, step.subject)
    return _unmet(conversation, step, entry) if is_of_it else None


def _unmet(conversation: TestConversation, step: ScriptStep, entry: TapEntry) -> list[str]:
    unmet, bound = [], {}
    for condition in step.conditions:
        value = value_of(conversation, entry, condition.name)
        variable = condition.value.variable
        if variable and variable not in conversation.variables and condition.sign == "=":
            if value is None:
                unmet.append(f"{condition.name} is not there")
            else:
                bound[variable] = value - condition.value.numbers[0]
        elif not _holds(conversation, condition, value):
            unmet.append(f"{condition.name} is {shown(condition.name, value)}, expected {_wanted(condition)}")
    if not unmet:
        conversation.variables |= bound
    return unmet


def miscounted(conversation: TestConversation, step: ScriptStep) -> list[str]:
    """Return which conditions the number of such packets does not fulfil; bind a variable that has no value yet."""
    kind = replace(step, conditions=tuple(each for each in step.conditions if each.name != COUNT))
    found = sum(matches(conversation, kind, entry) == [] for entry in conversation.entries[conversation.life :])
    unmet = []
    for condition in step.conditions:
        variable = condition.value.variable
        if condition.name == COUNT and variable and variable not in conversation.variables:
            conversation.variables[variable] = found - condition.value.numbers[0]
        elif condition.name == COUNT and not _holds(conversation, condition, found):
            unmet.append(f"{found} such packets came, expected {_wanted(condition)}")
    return unmet


def _wanted(condition: ScriptCondition) -> str:
    return condition.value.text if condition.sign == "=" else f"{condition.sign} {condition.value.text}"


def _holds(conversation: TestConversation, condition: ScriptCondition, value: int | None) -> bool:
    if value is None:
        return False
    wanted = condition.value
    if wanted.upto is not None:
        inside = min(wanted.range()) <= value <= max(wanted.range())
        return inside == (condition.sign == "=")
    if len(wanted.numbers) > 1 or condition.name == "acked":
        return (value == _bits(wanted.numbers)) == (condition.sign == "=")
    base = conversation.variables.get(wanted.variable, 0) if wanted.variable else 0
    number = number_of(wanted.word, condition.name) if wanted.word else base + wanted.numbers[0]
    return _COMPARISONS[condition.sign](value, number)


def refuses(conversation: TestConversation, condition: ScriptCondition, datagram: TapDatagram) -> bool:
    """Whether the first bytes of a datagram, or its addresses, show that it does not fulfil a condition."""
    name = condition.name
    if name in _BTH and len(datagram.body) >= BTH.size:
        offset, width = _BTH[name]
        value = int.from_bytes(datagram.body[: BTH.size], "big") >> (8 * BTH.size - offset - width) & (1 << width) - 1
        return not _holds(conversation, condition, conversation.relative(value) if name in PSN_FIELDS else value)
    return name in _OF_DATAGRAM and not _holds(conversation, condition, _OF_DATAGRAM[name](datagram))


def _bits(psns: tuple[int, ...]) -> int:
    """Return a bit for each PSN of a test; those that no test reaches, which a faulty device may report, share one."""
    return sum({1 << min(psn, _FARTHEST_PSN) for psn in psns if psn >= 0})


def value_of(conversation: TestConversation, entry: TapEntry, name: str) -> int | None:
    """Return what a condition compares; None if the packet has no such field."""
    if entry.event is not None:
        if name == "status":
            return WcStatus.__members__.get(entry.event.status)
        event = entry.event
        return {"immediate": event.immediate, "length": event.length, "pair": event.pair, "side": entry.side}.get(name)
    packet, message = entry.packet, entry.message
    if packet is None or message is None:
        return None
    if name in _OF_DATAGRAM:
        return _OF_DATAGRAM[name](packet.datagram)
    match name:
        case "length":
            return len(message.payload)
        case "icrc":
            return int(packet.icrc_ok is True)
        case "pair":
            return conversation.pair_of(message)
    value = field_of(message, name)
    if value is None:
        return _reported(conversation, message) if name == "acked" else _trigger(conversation, message, name)
    if name in PSN_FIELDS:
        return conversation.relative(value)
    if name == "va":
        return (value - conversation.ends.responder.addr) % _SIGNED_VA
    return _number_of_ev(conversation, value) if name == "entropy" else value


def field_of(message: MrcPacket, name: str) -> int | None:
    """Return a field of any header, of the last one that has it; None if none has."""
    prefix, _, field = name.rpartition(".")
    for part in reversed(message.parts):
        if (not prefix or part.header.name == prefix) and field in part.values:
            return part.values[field]
    return None


def _number_of_ev(conversation: TestConversation, value: int) -> int:
    """Return the number of one of the tester's own EVs; another value as it is."""
    wanted = conversation.wanted
    for number in range(wanted.planes * wanted.evs):
        plane, k = divmod(number, wanted.evs)
        if tester_port(plane, k) == value:
            return number
    return value


def reported(message: MrcPacket) -> set[int]:
    """Return the PSNs beyond cack_psn, counted from it, that a SACK reports."""
    seth = message.seth
    return {seth.sack_offset + bit for bit in range(64) if seth.sack_bitmap >> bit & 1 and seth.sack_offset + bit > 0}


def _reported(conversation: TestConversation, message: MrcPacket) -> int | None:
    if field_of(message, "sack_bitmap") is None:
        return None
    cack = conversation.relative(message.seth.cack_psn)
    return _bits(tuple(cack + psn for psn in reported(message)))


def _trigger(conversation: TestConversation, message: MrcPacket, name: str) -> int | None:
    if name != "trigger" or field_of(message, "ack_psn_offset") is None:
        return None
    return conversation.relative(message.seth.cack_psn) + message.seth.ack_psn_offset


def shown(name: str, value: int | None) -> str:
    if value is None:
        return "not there"
    if name == "acked":
        return ",".join(str(bit) for bit, is_set in enumerate(reversed(f"{value:b}")) if is_set == "1") or "nothing"
    return f"{value:#x}" if name in ("syndrome", "ev", "entropy", "r_key", "immediate", "va") else str(value)
