"""Layout of all MRC headers.

The codec of the data path, `message`, the JSON of `mrc decode`, the Wireshark plugin, docs/wire.md and the tests are
generated from this table, so a correction of the specification is a change of one line.

Bits without a field are reserved: sent as zero, ignored on receipt. Section and table numbers
are those of OCP MRC 1.0; RETH, ImmDt and AETH are InfiniBand's own (IBTA volume 1, chapter 9).
"""

from dataclasses import dataclass

from openmrc.wire.codes import Opcode


def at(byte: int, bit: int = 7) -> int:
    """Return the bit offset of a field that starts in `byte` at bit `bit` (7 is the most significant)."""
    return 8 * byte + 7 - bit


@dataclass(frozen=True)
class HeaderField:
    """A field of a header, big-endian."""

    name: str
    offset: int  # bits from the start of the header to the field's highest bit
    width: int  # bits
    meaning: str
    column: str = ""  # column of the row type Packet; empty: not used by the engine
    sends: int | None = None  # always sent as this constant
    signed: bool = False
    unsigned_when: str = ""  # a one-bit field of this header that makes this one unsigned when set
    listed: bool = True  # False: omitted from JSON, no public source defines its values


@dataclass(frozen=True)
class Header:
    """A header: its fields in order."""

    name: str  # key in JSON
    title: str
    size: int  # bytes
    source: str
    fields: tuple[HeaderField, ...]

    def field(self, name: str) -> HeaderField:
        """Return the field called `name`."""
        return next(field for field in self.fields if field.name == name)


BTH = Header(
    "bth",
    "Base Transport Header",
    12,
    "Tables 6-3, 6-4, 7-10, 7-11",
    (
        HeaderField("opcode", at(0), 8, "what the packet is; bits 7:5 are 0b110", "opcode"),
        # InfiniBand's order; one reader of the specification reports the opposite.
        HeaderField("se", at(1, 7), 1, "solicited event", "solicited"),
        HeaderField("m", at(1, 6), 1, "migration state of InfiniBand, unused", sends=0),
        HeaderField(
            "pad", at(1, 5), 2, "bytes that fill the payload up to a multiple of 4"
        ),  # derived from the payload
        HeaderField("tver", at(1, 3), 4, "transport version", sends=0),
        HeaderField("p_key", at(2), 16, "partition key", sends=0xFFFF),
        HeaderField("dqp", at(5), 24, "destination QPN", "dest_qpn"),
        HeaderField("a", at(8, 7), 1, "acknowledge request", "ack_request"),
        HeaderField("rtx", at(8, 5), 1, "retransmission; on a SACK: of its trigger", "retransmitted"),
        HeaderField("ts", at(8, 4), 1, "a TSETH follows", "timestamped"),
        HeaderField("psn", at(9), 24, "packet number, of a write; see the numbers of other packets below", "psn"),
    ),
)

METH = Header(
    "meth",
    "Message Extended Transport Header",
    4,
    "Tables 6-8, 6-9",
    (
        HeaderField("rqmsn", at(0), 16, "number of the write with immediate", "rqmsn"),
        HeaderField("msn", at(2), 16, "number of the message", "msn"),
    ),
)

TSETH = Header(
    "tseth",
    "Timestamp Extended Transport Header",
    4,
    "Tables 6-6, 6-7",
    (
        HeaderField("tx_timestamp", at(0), 16, "when it was sent, in the sender's clock", "tx_timestamp"),
        HeaderField("tsr", at(2, 7), 1, "unit of the timestamp: 0 is 128 ns, 1 is 1 us", "timestamp_unit"),
        HeaderField("ftype", at(3, 3), 4, "format", sends=1),
    ),
)

RETH = Header(
    "reth",
    "RDMA Extended Transport Header",
    16,
    "Table 6-5",
    (
        HeaderField("va", at(0), 64, "remote address of this packet's payload", "va"),
        HeaderField("r_key", at(8), 32, "key of the remote memory region", "r_key"),
        HeaderField("dmalen", at(12), 32, "bytes of the whole message", "dma_length"),
    ),
)

IMMDT = Header(
    "immdt",
    "Immediate Data",
    4,
    "section 6.2.2",
    (HeaderField("immediate", at(0), 32, "handed to the receiver's completion", "immediate"),),
)

AETH = Header(
    "aeth",
    "Acknowledge Extended Transport Header",
    4,
    "section 7.5.5",
    (
        HeaderField("syndrome", at(0), 8, "0x1F is ACK; 0x61-0x63 are the NAKs", "syndrome"),
        HeaderField("msn", at(1), 24, "messages completed", "acked_messages"),
    ),
)

# `type` and `next` start every control header; no public source defines their values.
_TYPE = HeaderField("type", at(0, 7), 4, "no public values", sends=0, listed=False)
_NEXT = HeaderField("next", at(0, 3), 5, "no public values", sends=0, listed=False)

SETH = Header(
    "seth",
    "SACK Extended Transport Header",
    28,
    "Tables 7-12, 7-13",
    (
        _TYPE,
        _NEXT,
        HeaderField("m", at(1, 6), 2, "path mark: 0 none, 1 skip once, 2 always skip", "path_mark"),
        HeaderField("pr", at(1, 1), 1, "answers a probe", "is_probe_answer"),
        HeaderField(
            "ack_psn_offset",
            at(2),
            16,
            "PSN of the trigger less cack_psn; the probe_id if pr",
            "ack_psn_offset",
            signed=True,
            unsigned_when="pr",
        ),
        HeaderField("entropy", at(4), 32, "EV of the trigger, reflected", "reflected_entropy"),
        HeaderField("spdcid", at(8), 16, "low 16 bits of the sender's QPN, by default", "spdcid"),
        HeaderField("dpdcid", at(10), 16, "low 16 bits of the receiver's QPN, by default", "dpdcid"),
        HeaderField("cack_psn", at(13), 24, "this PSN and all before it were received", "cack_psn"),
        HeaderField("cc_type", at(16, 7), 4, "kind of the CC_STATE that follows", "cc_type", sends=0),
        HeaderField("cc_fl", at(16, 3), 4, "flags of the CC_STATE", sends=0),
        HeaderField("mpr", at(17), 8, "receive window, unit 128 PSNs; 0: not dynamic", "mpr"),
        HeaderField("sack_offset", at(18), 16, "first PSN of the bitmap less cack_psn", "sack_offset", signed=True),
        HeaderField("sack_bitmap", at(20), 64, "bit i: cack_psn + sack_offset + i was received", "sack_bitmap"),
    ),
)

CC_STATE = Header(
    "cc_state",
    "Congestion Control State",
    8,
    "Tables 7-14, 7-15",
    (
        HeaderField("tx_timestamp", at(0), 16, "of the trigger, reflected", "tx_timestamp"),
        HeaderField("ooo_count", at(2, 6), 15, "packets received beyond the first hole", "ooo_count"),
        HeaderField("r_c", at(4, 7), 1, "restore the congestion window", "restore_cwnd"),
        HeaderField("rcv_cwnd_pen", at(4, 6), 7, "penalty on the congestion window", "rcv_cwnd_pen"),
        HeaderField("rcvd_bytes", at(5), 24, "received so far, unit 256 B, wraps", "rcvd_bytes"),
    ),
)

NETH = Header(
    "neth",
    "NACK Extended Transport Header",
    20,
    "Tables 7-16, 7-17",
    (
        _TYPE,
        _NEXT,
        HeaderField("nack_reason", at(2), 8, "why the packet was refused (Table 7-3)", "nack_reason"),
        HeaderField("vendor_info", at(3), 8, "free for the vendor", "vendor_info"),
        HeaderField("entropy", at(4), 32, "EV of the refused packet, reflected", "reflected_entropy"),
        HeaderField("spdcid", at(8), 16, "low 16 bits of the sender's QPN, by default", "spdcid"),
        HeaderField("dpdcid", at(10), 16, "low 16 bits of the receiver's QPN, by default", "dpdcid"),
        HeaderField("nack_psn", at(13), 24, "PSN of the refused packet", "nack_psn"),
        HeaderField("cc_type", at(16, 7), 4, "2 in a NACK", "cc_type", sends=2),
        HeaderField("cc_fl", at(16, 3), 4, "flags", sends=0),
        HeaderField("tx_timestamp", at(18), 16, "of the refused packet, reflected", "tx_timestamp"),
    ),
)

PETH = Header(
    "peth",
    "Probe Extended Transport Header",
    16,
    "Tables 7-18, 7-19",
    (
        _TYPE,
        _NEXT,
        HeaderField("vendor_info", at(3), 8, "free for the vendor", "vendor_info"),
        HeaderField("probe_id", at(4), 16, "returned by the answer", "probe_id"),
        HeaderField("spdcid", at(8), 16, "low 16 bits of the sender's QPN, by default", "spdcid"),
        HeaderField("dpdcid", at(10), 16, "low 16 bits of the receiver's QPN, by default", "dpdcid"),
        HeaderField("tx_timestamp", at(12), 16, "when it was sent, in the sender's clock", "tx_timestamp"),
        HeaderField("tsr", at(14, 7), 1, "unit of the timestamp: 0 is 128 ns, 1 is 1 us", "timestamp_unit"),
        HeaderField("ftype", at(15, 3), 4, "format", sends=1),
    ),
)

ERTH = Header(
    "erth",
    "Endpoint Request Transport Header",
    16,
    "Tables 7-20, 7-21",
    (
        _TYPE,
        _NEXT,
        HeaderField("op", at(1, 1), 2, "0 port status update, 1 EV probe", "endpoint_op"),
        HeaderField("vendor_info", at(3), 8, "free for the vendor", "vendor_info"),
        HeaderField("port_status_mask", at(4), 32, "bit n: port n (from 1) works", "port_status_mask"),
        HeaderField("tx_timestamp", at(12), 16, "when it was sent, in the sender's clock", "tx_timestamp"),
        HeaderField("tsr", at(14, 7), 1, "unit of the timestamp: 0 is 128 ns, 1 is 1 us", "timestamp_unit"),
        HeaderField("ftype", at(15, 3), 4, "format", sends=1),
    ),
)

EETH = Header(
    "eeth",
    "Endpoint Response Transport Header",
    36,
    "Tables 7-22, 7-23",
    (
        _TYPE,
        _NEXT,
        # Readers disagree: bits 3:2 or 5:4. With 3:2 the header can be parsed as a SETH, whose m is at 6:5.
        HeaderField("op", at(1, 3), 2, "of the request", "endpoint_op"),
        HeaderField("tx_timestamp", at(28), 16, "of the request, reflected", "tx_timestamp"),
    ),
)

HEADERS = (BTH, METH, TSETH, RETH, IMMDT, AETH, SETH, CC_STATE, NETH, PETH, ERTH, EETH)

_WRITE = (BTH, METH, TSETH, RETH)
_WRITE_IMM = (*_WRITE, IMMDT)

STACKS: dict[Opcode, tuple[Header, ...]] = {
    Opcode.WRITE_FIRST: _WRITE,
    Opcode.WRITE_MIDDLE: _WRITE,
    Opcode.WRITE_LAST: _WRITE,
    Opcode.WRITE_LAST_IMM: _WRITE_IMM,
    Opcode.WRITE_ONLY: _WRITE,
    Opcode.WRITE_ONLY_IMM: _WRITE_IMM,
    Opcode.ACKNOWLEDGE: (BTH, AETH),
    Opcode.ENDPOINT_REQUEST: (BTH, ERTH),
    Opcode.ENDPOINT_RESPONSE: (BTH, EETH),
    Opcode.SACK: (BTH, SETH, CC_STATE),
    Opcode.NACK: (BTH, NETH),
    Opcode.PROBE: (BTH, PETH),
}

WITH_PAYLOAD = frozenset(opcode for opcode, headers in STACKS.items() if RETH in headers)
NEEDED_OF_A_TRIMMED_PACKET = (BTH, METH, TSETH)  # switches trim no further than this


def stack(opcode: Opcode, timestamped: bool) -> tuple[Header, ...]:
    """Return the headers of a packet in order; TSETH is present only if BTH.ts is set."""
    return tuple(header for header in STACKS[opcode] if timestamped or header is not TSETH)


def length(headers: tuple[Header, ...]) -> int:
    """Return the total length of these headers in bytes."""
    return sum(header.size for header in headers)
