"""From the fields of a script line to the datagram that the tester injects."""

from dataclasses import dataclass, replace

from openmrc.conform.conversation import TestConversation, tester_port
from openmrc.conform.datagrams import CONTROL_DSCP, DATA_DSCP, TapDatagram, seal
from openmrc.conform.devices.contract import DeviceUnsupportedError, PairEnd, pattern
from openmrc.conform.language import LASTHOP, PSN_FIELDS, ScriptError, ScriptStep, ScriptValue, each_packet, number_of
from openmrc.errors import MisuseError
from openmrc.wire.codes import DSCP_TRIMMED, DSCP_TRIMMED_LASTHOP, ECT0, ENDPOINT_QPN, NackReason, Opcode, Syndrome
from openmrc.wire.headers import STACKS, WITH_PAYLOAD, Header, stack
from openmrc.wire.headers import length as length_of
from openmrc.wire.message import compose

TICK = 128  # ns, unit of the tester's timestamps
_SACK_BITS = 64
# What concerns the datagram, not a header
_OUTSIDE = {"plane", "ev", "ecn", "dscp", "trim", "bad", "cut", "grow", "reserved", "fill", "offset", "length",
            "acked", "trigger", "opcode", "pad", "pair", "stranger"}  # fmt: skip


@dataclass(frozen=True)
class CraftedFields:
    """The numbers of one line, with variables resolved."""

    numbers: dict[str, int]
    lists: dict[str, tuple[int, ...]]

    def get(self, name: str, otherwise: int) -> int:
        """Return a number, or a default."""
        return self.numbers.get(name, otherwise)


def craft(conversation: TestConversation, step: ScriptStep) -> list[TapDatagram]:
    """Return the datagrams of an injection; raise ScriptError if its fields do not fit together."""
    out = []
    for values in each_packet(step):
        fields = resolve(conversation, step, values)
        try:
            if step.subject == "WRITE":
                out += _message(conversation, fields)
            else:
                out.append(_single(conversation, Opcode[step.subject], fields))
        except MisuseError as error:
            raise ScriptError(f"{step.place}: {error}") from None
    return out


def resolve(conversation: TestConversation, step: ScriptStep, values: dict[str, ScriptValue]) -> CraftedFields:
    """Replace words and variables by numbers."""
    numbers = {}
    for name, value in values.items():
        if value.word:
            numbers[name] = number_of(value.word, name)
        else:
            base = conversation.variables[value.variable] if value.variable else 0
            numbers[name] = base + value.numbers[0]
    return CraftedFields(numbers, {name: value.numbers for name, value in values.items()})


def _message(conversation: TestConversation, fields: CraftedFields) -> list[TapDatagram]:
    mtu, length = conversation.wanted.mtu, fields.get("length", conversation.wanted.mtu)
    count, first = max(1, -(-length // mtu)), fields.get("psn", 0)
    has_immediate = "immediate" in fields.numbers
    out = []
    for index in range(count):
        size = min(mtu, length - index * mtu)
        offset = fields.get("offset", 0) + index * mtu
        numbers = fields.numbers | {"psn": first + index, "length": size, "offset": offset, "dmalen": length}
        numbers.setdefault("msn", 0)
        is_last = index == count - 1
        if not is_last:
            numbers.pop("immediate", None)
            numbers.pop("a", None)
        opcode = _write_opcode(index, count, has_immediate)
        out.append(_single(conversation, opcode, replace(fields, numbers=numbers)))
    return out


def _write_opcode(index: int, count: int, has_immediate: bool) -> Opcode:
    if count == 1:
        return Opcode.WRITE_ONLY_IMM if has_immediate else Opcode.WRITE_ONLY
    if index < count - 1:
        return Opcode.WRITE_FIRST if index == 0 else Opcode.WRITE_MIDDLE
    return Opcode.WRITE_LAST_IMM if has_immediate else Opcode.WRITE_LAST


def _single(conversation: TestConversation, opcode: Opcode, fields: CraftedFields) -> TapDatagram:
    defaults = _write(conversation, fields) if opcode in WITH_PAYLOAD else _control(conversation, opcode, fields)
    payload = b""
    if opcode in WITH_PAYLOAD:
        length = fields.get("length", 64)
        payload = pattern(defaults["va"] - _end(conversation, fields).addr, length, fields.get("fill", 1))
    is_endpoint = opcode in (Opcode.ENDPOINT_REQUEST, Opcode.ENDPOINT_RESPONSE)
    defaults["dqp"] = ENDPOINT_QPN if is_endpoint else _end(conversation, fields).qpn
    headers = _headers(opcode, defaults | _given(conversation, fields))
    body = _spoilt(compose(opcode, payload, **headers).emit(), opcode, fields)
    return _datagram(conversation, opcode, body, fields)


def _end(conversation: TestConversation, fields: CraftedFields) -> PairEnd:
    """Return the device's queue pair that a line is about."""
    return conversation.described[0].pairs()[fields.get("pair", 0)]


def _given(conversation: TestConversation, fields: CraftedFields) -> dict[str, int]:
    """Return what the script says about headers, PSNs and addresses as they are on the wire."""
    given = {name: value for name, value in fields.numbers.items() if name not in _OUTSIDE}
    for name in PSN_FIELDS:
        if name in given:
            given[name] = conversation.absolute(given[name])
    if "va" in given:
        given["va"] = (given["va"] + conversation.described[0].addr) % (1 << 64)
    return given


def _write(conversation: TestConversation, fields: CraftedFields) -> dict[str, int]:
    psn = fields.get("psn", 0)
    offset = fields.get("offset", psn * conversation.wanted.mtu)
    end = _end(conversation, fields)
    return {
        "psn": conversation.absolute(psn),
        "ts": 1,
        "tx_timestamp": stamp(conversation.medium.now()),
        "msn": psn & 0xFFFF,
        "va": (end.addr + offset) % (1 << 64),
        "r_key": end.r_key,
        "dmalen": fields.get("length", 64),
    }


def _control(conversation: TestConversation, opcode: Opcode, fields: CraftedFields) -> dict[str, int]:
    match opcode:
        case Opcode.SACK:
            return _sack(conversation, fields)
        case Opcode.NACK:
            reflected = _reflected(conversation, fields.get("nack_psn", 0), fields.get("pair", 0))
            return reflected | {"nack_reason": int(NackReason.TRIMMED)}
        case Opcode.ACKNOWLEDGE:
            sent = [conversation.relative(each.bth.psn) for each in conversation.device_writes(fields.get("pair", 0))]
            newest = conversation.absolute(max(sent, default=-1))  # IBTA 9.7.5
            return {"syndrome": int(Syndrome.ACK), "msn": 0, "psn": newest}
        case Opcode.PROBE | Opcode.ENDPOINT_REQUEST:
            return {"tx_timestamp": stamp(conversation.medium.now())}
        case _:
            return {}


def _sack(conversation: TestConversation, fields: CraftedFields) -> dict[str, int]:
    cack = fields.get("cack_psn", -1)
    above = fields.lists.get("acked", ())
    trigger = fields.get("trigger", max(above, default=cack))
    if above and not 0 < min(above) - cack <= max(above) - cack <= _SACK_BITS:
        raise MisuseError(
            f"acked={','.join(map(str, above))} is not within the {_SACK_BITS} PSNs behind cack_psn={cack}"
        )
    return {
        **_reflected(conversation, trigger, fields.get("pair", 0)),
        "ack_psn_offset": trigger - cack,
        "sack_offset": 1,
        "sack_bitmap": sum(1 << (psn - cack - 1) for psn in above),
        "ooo_count": len(above),
        "rcvd_bytes": -(-conversation.received_bytes(fields.get("pair", 0)) // 256) & 0xFFFFFF,
    }


def _reflected(conversation: TestConversation, psn: int, pair: int) -> dict[str, int]:
    """Return EV and timestamp of the write that an answer is about."""
    entry = conversation.latest_write(psn, pair)
    if entry is None or entry.packet is None or entry.message is None:
        return {}
    stamped = entry.message.bth.ts
    return {
        "entropy": entry.packet.datagram.source_port,
        "tx_timestamp": entry.message.tseth.tx_timestamp if stamped else 0,
    }


def _headers(opcode: Opcode, given: dict[str, int]) -> dict[str, dict[str, int]]:
    """Sort the fields into their headers; `m` and others that several headers have may be written `seth.m`."""
    headers: dict[str, dict[str, int]] = {}
    wanted = stack(opcode, bool(given.get("ts", 0)))
    for name, value in given.items():
        prefix, _, field = name.rpartition(".")
        for header in reversed(wanted):
            if prefix in ("", header.name) and any(each.name == field for each in header.fields):
                headers.setdefault(header.name, {})[field] = value
                break
    return headers


def _spoilt(body: bytes, opcode: Opcode, fields: CraftedFields) -> bytes:
    """Return the packet with another opcode, pad count or reserved bits, as the script says."""
    data = bytearray(body)
    if fields.get("reserved", 0):
        for position, mask in reserved_bits(stack(opcode, bool(fields.get("ts", int(opcode in WITH_PAYLOAD))))):
            data[position] |= mask
    if "opcode" in fields.numbers:
        data[0] = fields.numbers["opcode"] & 0xFF
    if "pad" in fields.numbers:
        data[1] = (data[1] & ~0x30) | (fields.numbers["pad"] & 3) << 4
    if "grow" in fields.numbers:
        data += bytes(fields.numbers["grow"])
    return bytes(data)


def reserved_bits(headers: tuple[Header, ...]) -> list[tuple[int, int]]:
    """Return (byte, mask) of the bits that belong to no field."""
    found, begin = [], 0
    for header in headers:
        masks = [0xFF] * header.size
        for field in header.fields:
            for bit in range(field.offset, field.offset + field.width):
                masks[bit // 8] &= ~(1 << 7 - bit % 8)
        found += [(begin + byte, mask) for byte, mask in enumerate(masks) if mask]
        begin += header.size
    return found


def _datagram(conversation: TestConversation, opcode: Opcode, body: bytes, fields: CraftedFields) -> TapDatagram:
    is_data = opcode in WITH_PAYLOAD or opcode == Opcode.PROBE
    plane, k = divmod(fields.get("ev", 0), conversation.wanted.evs)
    plane = fields.get("plane", plane)
    port = tester_port(plane, k)
    dscp = fields.get("dscp", DATA_DSCP if is_data else CONTROL_DSCP)
    link, is_of_stranger = conversation.link(0, plane), bool(fields.get("stranger", 0))
    if is_of_stranger:  # from the tester's address for another device
        here = conversation.link(1, plane).here
        if here == link.here:
            raise DeviceUnsupportedError("the test needs a local address that the device does not know")
        link = replace(link, here=here)
    sealed = seal(body, port, link)
    if fields.get("bad", 0):
        sealed = sealed[:-1] + bytes([sealed[-1] ^ 0x55])
    trim = fields.get("trim", 0)
    if trim:
        keep = length_of(STACKS[opcode]) if opcode in WITH_PAYLOAD else len(body)
        sealed = body[:keep]
        dscp = DSCP_TRIMMED_LASTHOP if trim == LASTHOP else DSCP_TRIMMED
    if "cut" in fields.numbers:
        sealed = sealed[: fields.numbers["cut"]]
    return TapDatagram(0, plane, port, sealed, dscp, fields.get("ecn", ECT0), is_of_stranger=is_of_stranger)


def stamp(now: int) -> int:
    """Return the 16-bit timestamp of a time (ns)."""
    return now // TICK & 0xFFFF
