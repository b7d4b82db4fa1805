"""Packets for the tests: any that is valid, and frames that carry them."""

from collections.abc import Callable
from ipaddress import ip_address

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from openmrc.core.jit import entry
from openmrc.core.rows import Table, table
from openmrc.wire import ip
from openmrc.wire.codec import Bytes, as_matrix, decode, encode
from openmrc.wire.codes import Opcode
from openmrc.wire.headers import BTH, STACKS, WITH_PAYLOAD, Header, stack
from openmrc.wire.icrc import icrc
from openmrc.wire.layout import COLUMN, LONGEST_HEADER, Matrix
from openmrc.wire.message import MrcPacket, compose
from openmrc.wire.packet import Packet
from tests.draws import examples

repeatable = settings(deadline=None, derandomize=True, max_examples=examples(200))  # the first call compiles


@entry
def compiled_encode(packets: Matrix, index: int, out: Bytes, at: int) -> int:
    return encode(packets, index, out, at)


@entry
def compiled_decode(buffer: Bytes, at: int, length: int, packets: Matrix, index: int) -> int:
    return decode(buffer, at, length, packets, index)


def row_of(opcode: int, **columns: int) -> Table[Packet]:
    """Return a table of one packet."""
    packets = table(Packet, 1)
    packets[0].opcode = opcode
    for name, value in columns.items():
        assert name in COLUMN
        setattr(packets[0], name, value)
    return packets


def encoded(packets: Table[Packet], encoder: Callable[..., int] = encode) -> bytes:
    """Return the header bytes of the first packet of a table."""
    out = np.zeros(LONGEST_HEADER, np.uint8)
    return bytes(out[: encoder(as_matrix(packets), 0, out, 0)])


def decoded(data: bytes, trimmed: int = 0, decoder: Callable[..., int] = decode) -> tuple[int, Table[Packet]]:
    """Return (status, table of one packet) of a UDP payload."""
    packets = table(Packet, 1)
    packets[0].trimmed = trimmed
    return decoder(np.frombuffer(bytearray(data), np.uint8), 0, len(data), as_matrix(packets), 0), packets


def framed(
    message: MrcPacket,
    source: str = "fd00::1",
    destination: str = "fd00::2",
    port: int = 50_000,
    label: int = 0,
    traffic_class: int = 0,
    to: int = 4791,
) -> bytes:
    """Return an IP packet that carries a message, with its ICRC."""
    body = message.emit()
    whole = ip.datagram(
        ip_address(source),
        ip_address(destination),
        port,
        to,
        body + bytes(4),
        traffic_class=traffic_class,
        flow_label=label,
    )
    udp_at = 40 if ":" in source else 20
    number = icrc(whole[:udp_at], whole[udp_at : udp_at + 8], body)
    sealed = body + number.to_bytes(4, "big")
    return ip.datagram(
        ip_address(source), ip_address(destination), port, to, sealed, traffic_class=traffic_class, flow_label=label
    )


@st.composite
def messages(draw: st.DrawFn, opcodes: tuple[Opcode, ...] = tuple(STACKS)) -> MrcPacket:
    """Draw any packet with any value in every field that a sender may choose."""
    opcode = draw(st.sampled_from(opcodes))
    timestamped = draw(st.booleans())
    headers = {header.name: draw(_values(header)) for header in stack(opcode, timestamped)}
    headers["bth"] |= {"ts": int(timestamped)}
    payload = draw(st.binary(max_size=40)) if opcode in WITH_PAYLOAD else b""
    return compose(opcode, payload, **headers)


@st.composite
def _values(draw: st.DrawFn, header: Header) -> dict[str, int]:
    values: dict[str, int] = {}
    for field in header.fields:
        if field.sends is not None or (header is BTH and field.name in ("opcode", "pad", "ts")):
            continue
        if not field.signed:
            values[field.name] = draw(_edges(0, (1 << field.width) - 1))
    for field in header.fields:
        if field.signed:
            unsigned = values.get(field.unsigned_when, 0)
            low, high = (
                (0, (1 << field.width) - 1) if unsigned else (-(1 << field.width - 1), (1 << field.width - 1) - 1)
            )
            values[field.name] = draw(_edges(low, high))
    return values


def _edges(low: int, high: int) -> st.SearchStrategy[int]:
    return st.one_of(st.sampled_from((low, high)), st.integers(low, high))
