# Headers, and what a responder does with packets that are not right. The device is the responder.

test 6.2.2/1 wire-order must responder
    A write of one packet reaches memory, is reported by a SACK when it asks for one, and acknowledged.
+0      > WRITE_ONLY psn=0 length=64 a=1
        < SACK cack_psn=0 trigger=0
        < ACKNOWLEDGE syndrome=ACK msn=1
        * memory offset=0..63 fill=1

test 6.2.2/2 wire-order must responder
    A write without timestamp (BTH.ts = 0, no TSETH) is taken as well.
+0      > WRITE_ONLY psn=0 length=64 a=1 ts=0
        < SACK cack_psn=0
        < ACKNOWLEDGE msn=1
        * memory offset=0..63 fill=1

test 6.2.2/3 segmentation must responder
    A message of First, Middle, Middle and Last is placed as a whole.
+0      > WRITE psn=0 length=3500 a=1
        < SACK cack_psn=3
        < ACKNOWLEDGE msn=1
        * memory offset=0..3499 fill=1

test 6.2.2/4 empty-message info responder
    An empty message, where messages may have 1 to 2^32 - 1 bytes: here one packet without payload, which completes.
+0      > WRITE_ONLY psn=0 length=0 a=1
        < SACK cack_psn=0
        < ACKNOWLEDGE msn=1
+0      > WRITE_ONLY psn=1 length=64 offset=0 a=1
        < ACKNOWLEDGE msn=2
        * memory offset=0..63 fill=1

test 6.2.2/5 wire-lengths must responder
    A payload that fills the path MTU is placed.
+0      > WRITE_ONLY psn=0 length=1024 a=1
        < ACKNOWLEDGE msn=1
        * memory offset=0..1023 fill=1

test 6.2.2/6 wire-lengths must responder
    Payloads of 1, 2 and 3 bytes are padded; the pad is not written.
+0      > WRITE_ONLY psn=0..2 length=1..3 offset=0 a=1
        < ACKNOWLEDGE msn=3
        * memory offset=0..2 fill=1
        * memory offset=3..63 fill=0

test 6.2.2/7 wire-lengths must responder
    A packet with bytes too many for whole words is dropped, and nothing is written.
+0      > WRITE_ONLY psn=0 length=64 a=1 grow=2
+30ms   ! ANSWER
        * memory offset=0..63 fill=0
+0      > WRITE_ONLY psn=0 length=64 a=1
        < ACKNOWLEDGE msn=1

test 6.2.2/8 wire-lengths must responder
    A packet whose pad count exceeds its payload is dropped.
+0      > WRITE_ONLY psn=0 length=0 a=1 pad=3
+30ms   ! ANSWER
+0      > WRITE_ONLY psn=0 length=64 a=1
        < ACKNOWLEDGE msn=1

test 6.2.2/9 wire-lengths must responder
    Packets that end within their headers are dropped.
+0      > WRITE_ONLY psn=0 length=64 a=1 cut=11
+0      > WRITE_ONLY psn=0 length=64 a=1 cut=20
+0      > WRITE_ONLY psn=0 length=64 a=1 cut=35
+30ms   ! ANSWER
+0      > WRITE_ONLY psn=0 length=64 a=1
        < ACKNOWLEDGE msn=1

test A17/1 wire-icrc must responder
    A packet with a wrong ICRC is dropped: nothing is written, nothing is answered, the packet is still expected.
+0      > WRITE_ONLY psn=0 length=64 a=1 bad=icrc
+30ms   ! ANSWER
        * memory offset=0..63 fill=0
+0      > WRITE_ONLY psn=0 length=64 a=1
        < SACK cack_psn=0
        * memory offset=0..63 fill=1

test A17/2 wire-icrc must responder
    DSCP and ECN are taken as ones by the ICRC: a packet whose class a switch changed is intact.
+0      > WRITE_ONLY psn=0 length=64 a=1 dscp=0
        < ACKNOWLEDGE msn=1
+0      > WRITE_ONLY psn=1 length=64 a=1 dscp=8
        < ACKNOWLEDGE msn=2

test A17/3 wire-icrc must responder
    Every answer of the device ends with the right ICRC.
+0      > WRITE_ONLY psn=0 length=64 a=1
        < SACK icrc=1
        < ACKNOWLEDGE icrc=1
+0      > PROBE probe_id=9
        < SACK pr=1 icrc=1
+0      > ENDPOINT_REQUEST op=1
        < ENDPOINT_RESPONSE icrc=1

test table-6-3/1 wire-opcodes must responder
    Opcodes that the group does not define are dropped, and the connection lives.
+0      > WRITE_ONLY psn=0 length=64 a=1 opcode=0xdf
+0      > WRITE_ONLY psn=0 length=64 a=1 opcode=0xc0
+0      > WRITE_ONLY psn=0 length=64 a=1 opcode=0xd5
+30ms   ! ANSWER
        * memory offset=0..63 fill=0
+0      > WRITE_ONLY psn=0 length=64 a=1
        < ACKNOWLEDGE msn=1

test table-6-3/2 wire-opcodes must responder
    RoCEv2's own opcodes (Write Only, Send Only, Acknowledge of RC) mean nothing to an MRC queue pair.
+0      > WRITE_ONLY psn=0 length=64 a=1 opcode=0x0a
+0      > WRITE_ONLY psn=0 length=64 a=1 opcode=0x04
+0      > ACKNOWLEDGE opcode=0x11
+30ms   ! ANSWER
        * memory offset=0..63 fill=0
+0      > WRITE_ONLY psn=0 length=64 a=1
        < ACKNOWLEDGE msn=1

test table-6-4/1 wire-layout must responder
    A packet of another transport version is dropped.
+0      > WRITE_ONLY psn=0 length=64 a=1 tver=1
+30ms   ! ANSWER
        * memory offset=0..63 fill=0
+0      > WRITE_ONLY psn=0 length=64 a=1
        < ACKNOWLEDGE msn=1

test table-6-4/2 wire-layout should responder
    Reserved bits of BTH, METH and TSETH are ignored when they are set.
+0      > WRITE_ONLY psn=0 length=64 a=1 reserved=1
        < SACK cack_psn=0
        < ACKNOWLEDGE msn=1
        * memory offset=0..63 fill=1

test table-6-4/3 wire-layout must responder
    A packet to a QPN that does not exist is dropped.
+0      > WRITE_ONLY psn=0 length=64 a=1 dqp=0xfffff0
+30ms   ! ANSWER
        * memory offset=0..63 fill=0

test table-7-10/1 wire-layout must responder
    Answers carry transport version 0, P_Key 0xFFFF, the tester's QPN, and no bit in reserved places.
+0      > WRITE_ONLY psn=0 length=64 a=1
        < SACK tver=0 p_key=0xffff dqp=$qpn
        < ACKNOWLEDGE tver=0 p_key=0xffff dqp=$qpn
+0      > WRITE_ONLY psn=1 length=64 trim=1
        < NACK tver=0 p_key=0xffff dqp=$qpn
        = constants
        = reserved-bits

test table-7-10/3 wire-layout must responder
    rtx, pr, probe_id, m and the reason of a NACK are at their bytes and bits.
+0      > WRITE_ONLY psn=0 length=64 rtx=1
        < SACK rtx=1 pr=0 seth.m=0 cack_psn=0
+0      > PROBE probe_id=0x0102
        < SACK rtx=0 pr=1 ack_psn_offset=0x0102
+0      > WRITE_ONLY psn=1 length=64 ecn=3
        < SACK seth.m=1 pr=0 cack_psn=1
+0      > WRITE_ONLY psn=2 length=64 trim=lasthop
        < NACK nack_reason=2 nack_psn=2

test table-7-10/2 wire-lengths must responder
    SACK, NACK and acknowledgement have the lengths of their headers.
+0      > WRITE_ONLY psn=0 length=64 a=1
        < SACK size=52
        < ACKNOWLEDGE size=20
+0      > WRITE_ONLY psn=1 length=64 trim=1
        < NACK size=36
+0      > ENDPOINT_REQUEST op=1
        < ENDPOINT_RESPONSE size=52

test table-6-4/6 wire-layout must responder
    A packet to QPN 1, which is reserved, is dropped, and so is one whose QPN differs in its upper byte only.
+0      > WRITE_ONLY psn=0 length=64 a=1 dqp=1
+0      > WRITE_ONLY psn=0 length=64 a=1 dqp=$device+65536
+30ms   ! ANSWER
        * memory offset=0..63 fill=0
+0      > WRITE_ONLY psn=0 length=64 a=1
        < ACKNOWLEDGE msn=1
