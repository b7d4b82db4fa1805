"""A packet as a row of the engine: all header fields that it uses, in host byte order.

`codec` decodes bytes into such a row and encodes it. The table in `headers` maps header fields to columns.

Columns are 64-bit, so that the codec can treat a table of packets as a matrix. They are ordered so that a data packet
uses the first cache lines only.
"""

from openmrc.core.rows import Int


class Packet:
    """A packet to send or received."""

    # Written by the engine on transmission, by the caller on receipt.
    opcode: Int  # codes.Opcode
    dest_qpn: Int  # 24 bits
    psn: Int  # 24 bits; probe_id in the low 16 of an endpoint operation
    payload_length: Int  # bytes, without pad
    entropy: Int  # the EV of this packet itself, 32 bits
    port: Int  # local port = plane, from 0
    source: Int  # sender: the caller's number of the remote address; -1: unknown
    destination: Int  # outgoing: the caller's number of the remote address
    payload: Int  # out: where to gather the payload; in: where to place it, NOWHERE for none
    # State of the network, and traffic class.
    marked: Int  # 1: ECN congestion experienced
    trimmed: Int  # codes.Trim
    traffic_class: Int  # codes.TrafficClass, outgoing
    # BTH
    solicited: Int  # SE
    ack_request: Int  # A
    retransmitted: Int  # rtx
    timestamped: Int  # ts: a TSETH follows
    # METH, TSETH, RETH, ImmDt
    msn: Int  # METH: 16 bits
    rqmsn: Int  # METH: 16 bits
    tx_timestamp: Int  # TSETH, or reflected by CC_STATE, NETH, EETH; or sent by PETH, ERTH: 16 bits
    timestamp_unit: Int  # tsr: 0 counts 128 ns, 1 counts 1 us
    va: Int  # address in the remote region, as a signed bit pattern
    r_key: Int  # 32 bits
    dma_length: Int  # bytes of the whole message
    immediate: Int  # 32 bits
    # AETH
    syndrome: Int  # codes.Syndrome
    acked_messages: Int  # AETH.MSN: completed messages, 24 bits
    # SETH and CC_STATE
    path_mark: Int  # SETH.m, codes.PathMark
    is_probe_answer: Int  # SETH.pr: ack_psn_offset holds a probe_id
    ack_psn_offset: Int  # signed 16 bits; or the probe_id, 0..65535
    reflected_entropy: Int  # SETH, NETH: the EV of the packet that this one answers
    cack_psn: Int  # 24 bits
    mpr: Int  # unit 128 PSNs; 0: Dynamic MPR is off
    sack_offset: Int  # signed 16 bits
    sack_bitmap: Int  # bit i: PSN cack_psn + sack_offset + i was received; a signed bit pattern
    ooo_count: Int  # packets received beyond the first hole
    restore_cwnd: Int
    rcv_cwnd_pen: Int  # 0..127
    rcvd_bytes: Int  # unit 256 B, 24 bits, wraps
    # NETH
    nack_reason: Int  # codes.NackReason
    nack_psn: Int  # 24 bits
    # PETH
    probe_id: Int  # 16 bits
    # ERTH, EETH
    endpoint_op: Int  # codes.EndpointOp
    port_status_mask: Int  # bit n: port n (from 1) works
    # Carried in headers, not used by the engine
    spdcid: Int  # low 16 bits of the sender's QPN
    dpdcid: Int  # low 16 bits of the receiver's QPN
    vendor_info: Int  # 8 bits
    cc_type: Int  # received SETH: 0: the CC_STATE columns are NSCC's; otherwise they are undefined


NOWHERE = -1
