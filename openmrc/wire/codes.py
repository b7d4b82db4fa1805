"""Code points of MRC: opcodes, NACK reasons, syndromes, path marks.

Values: OCP MRC 1.0 Tables 6-3, 7-3, 7-10; AETH syndromes from the InfiniBand Architecture
Specification volume 1, 9.7.5.2.4.
"""

from enum import IntEnum

ENDPOINT_QPN = 2  # endpoint operations (MRC §7.5.6); 0 and 1 are reserved too
FIRST_USER_QPN = 3
MRC_OPCODE_GROUP = 0b110  # opcode bits 7:5
UDP_PORT = 4791  # as RoCEv2; some readers of the specification report 4971, so both are accepted
UDP_PORTS_ACCEPTED = (4791, 4971)


class Opcode(IntEnum):
    """BTH opcodes of MRC."""

    WRITE_FIRST = 0xC6
    WRITE_MIDDLE = 0xC7
    WRITE_LAST = 0xC8
    WRITE_LAST_IMM = 0xC9
    WRITE_ONLY = 0xCA
    WRITE_ONLY_IMM = 0xCB
    ACKNOWLEDGE = 0xD1
    ENDPOINT_REQUEST = 0xD8
    ENDPOINT_RESPONSE = 0xD9
    SACK = 0xDC
    NACK = 0xDD
    PROBE = 0xDE


class NackReason(IntEnum):
    """Reason of a NACK (MRC Table 7-3)."""

    TRIMMED = 0x01
    TRIMMED_LASTHOP = 0x02
    NO_BITMAP = 0x06
    NO_PKT_BUFFER = 0x07
    NO_RESOURCE = 0x0A
    PSN_OOR_WINDOW = 0x0B
    UNEXP_EVENT = 0x19


class Syndrome(IntEnum):
    """AETH syndromes of a transport acknowledgement; MRC has no credits, so ACK is always 0x1F."""

    ACK = 0x1F
    INVALID_REQUEST = 0x61
    REMOTE_ACCESS_ERROR = 0x62
    REMOTE_OPERATIONAL_ERROR = 0x63


class PathMark(IntEnum):
    """SETH.m: the responder's mark for the path of the triggering packet (MRC §7.5.5.5)."""

    NONE = 0
    SKIP_ONCE = 1
    ALWAYS_SKIP = 2


class EndpointOp(IntEnum):
    """ERTH.op (MRC §7.5.6)."""

    PORT_STATUS_UPDATE = 0
    EV_PROBE = 1


class Trim(IntEnum):
    """Whether a switch has trimmed a packet, by its DSCP."""

    WHOLE = 0
    TRIMMED = 1
    TRIMMED_LASTHOP = 2


class TrafficClass(IntEnum):
    """DSCP class of a packet (MRC: DSCP_CONTROL and so on); the code points are configuration."""

    CONTROL = 0
    TRIMMABLE = 1
    TRIMMABLE_RETX = 2
    NO_TRIM = 3


# MRC leaves the values to deployments; these are those of public examples.
DSCP = {TrafficClass.CONTROL: 46, TrafficClass.TRIMMABLE: 4, TrafficClass.TRIMMABLE_RETX: 8, TrafficClass.NO_TRIM: 0}
DSCP_TRIMMED, DSCP_TRIMMED_LASTHOP = 12, 16
ECT0, CONGESTED = 2, 3  # ECN codepoints (RFC 3168): capable transport, congestion experienced


class WireStatus(IntEnum):
    """Result of decoding a packet."""

    OK = 0
    TRUNCATED = 1  # the bytes end before the packet does
    NOT_MRC = 2  # opcode bits 7:5 are not 0b110: RoCEv2 of another kind
    UNKNOWN_OPCODE = 3  # in MRC's group, but unknown
    BAD_VERSION = 4  # BTH.tver is not 0
    BAD_LENGTH = 5  # not whole words, or bytes after a packet that has no payload
    BAD_PAD = 6  # more pad than payload
    BAD_ICRC = 7
