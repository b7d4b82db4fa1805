# SACKs, NACKs, acknowledgements and answers to endpoint requests. The device is the responder.

test 7.5.2/1 sack-trigger-request must responder
    A packet that requests a report (BTH.A) draws a SACK; its reaction time is measured.
+0      > WRITE_ONLY psn=0..1 length=64
+5ms    > WRITE_ONLY psn=2 length=64 a=1
        < SACK cack_psn=2 trigger=2

test 7.5.2/2 sack-trigger-request should responder
    A request that finds a hole is answered at once, and once more when the hole closes.
+0      > WRITE_ONLY psn=1 length=64 a=1
        < SACK cack_psn=-1 acked=1 trigger=1
+5ms    > WRITE_ONLY psn=0 length=64
        < SACK cack_psn=1

test 7.5.2/3 sack-trigger-ecn must responder
    A packet marked by a switch (ECN) draws a SACK that marks its EV: skip it once.
+0      > WRITE_ONLY psn=0 length=64 ecn=3 ev=1
        < SACK seth.m=1 entropy=1 trigger=0
        = marks-answered

test 7.5.2/4 sack-trigger-ecn must responder
    A packet that is not marked marks no EV.
+0      > WRITE_ONLY psn=0 length=64 ecn=2 a=1
        < SACK seth.m=0

test 7.5.2/5 sack-trigger-ecn must responder
    Each of two marked packets on two paths has its own EV marked.
+0      > WRITE_ONLY psn=0..1 ev=0..1 length=64 ecn=3
        < SACK seth.m=1 entropy=0
        < SACK seth.m=1 entropy=1

test 7.5.2/6 sack-trigger-retransmission must responder
    A packet that says it is a retransmission draws a SACK that says so too.
+0      > WRITE_ONLY psn=0..1 length=64
+5ms    > WRITE_ONLY psn=2 length=64 rtx=1
        < SACK rtx=1 trigger=2

test 7.5.2/7 sack-trigger-retransmission must responder
    The SACK of a packet that was not repeated does not say rtx.
+0      > WRITE_ONLY psn=0 length=64 a=1
        < SACK rtx=0

test 7.5.2/8 sack-trigger-probe must responder
    A reliability probe draws a SACK with pr = 1 and its probe_id.
+0      > PROBE probe_id=0x1234
        < SACK pr=1 ack_psn_offset=0x1234 cack_psn=-1

test 7.5.2/9 sack-trigger-probe must responder
    A probe consumes no PSN: the write after it has the first.
+0      > PROBE probe_id=1
        < SACK pr=1
+0      > WRITE_ONLY psn=0 length=64 a=1
        < SACK pr=0 cack_psn=0

test 7.5.2/10 sack-trigger-probe must responder
    probe_ids are 16 bits, without sign.
+0      > PROBE probe_id=0xffff
        < SACK pr=1 ack_psn_offset=0xffff

test 7.5.2/11 sack-trigger-bytes info responder
    Without a request a SACK is due when enough bytes have arrived: at which packet of 1 KiB after the first? Here 17.
+0      > WRITE_ONLY psn=0 length=1024 a=1
        < SACK trigger=0
+5ms    > WRITE_ONLY psn=1..160 length=1024 offset=0..159
        < SACK pr=0 trigger=$packet

test 7.5.2.1/1 wire-entropy must responder
    A SACK reflects the EV of the packet that made it due.
+0      > WRITE_ONLY psn=0 length=64 a=1 ev=3
        < SACK entropy=3
+0      > WRITE_ONLY psn=1 length=64 a=1 ev=4
        < SACK entropy=4
+0      > WRITE_ONLY psn=2 length=64 trim=1 ev=2
        < NACK entropy=2
        = reflected

test 7.5.2.1/2 wire-entropy-ipv4 must responder
    What the request's headers do not carry is zero in the reflected EV: over IPv4 the upper half.
+0      > WRITE_ONLY psn=0 length=64 a=1
        < SACK seth.entropy<=0xffff

test 7.5.2.1/3 wire-entropy must responder
    SACK and NACK reflect the timestamp of the packet, as it was sent.
+0      > WRITE_ONLY psn=0 length=64 a=1 tx_timestamp=0xbeef
        < SACK tx_timestamp=0xbeef
+0      > WRITE_ONLY psn=1 length=64 trim=1 tx_timestamp=0xcafe
        < NACK tx_timestamp=0xcafe
+0      > PROBE probe_id=3 tx_timestamp=0x1d0a
        < SACK pr=1 tx_timestamp=0x1d0a

test 7.5.2.2/1 sack-bitmap must responder
    Bit i says that PSN cack_psn + sack_offset + i has arrived, holes are zero; the offset names the packet that asked.
+0      > WRITE_ONLY psn=0 length=64
+0      > WRITE_ONLY psn=2..4 length=64
+0      > WRITE_ONLY psn=6 length=64
+5ms    > WRITE_ONLY psn=9 length=64 a=1
        < SACK cack_psn=0 acked=2,3,4,6,9 ooo_count=5 trigger=9
        = sack-truth

test 7.5.2.2/2 sack-bitmap-base must responder
    A bitmap begins behind cack_psn and never before.
+0      > WRITE_ONLY psn=1..39 length=64
+5ms    > WRITE_ONLY psn=40 length=64 a=1
        < SACK cack_psn=-1
        = sack-base
        = sack-truth

test 7.5.2.2/3 sack-bitmap must responder
    cack_psn moves over everything that arrived when a hole closes.
+0      > WRITE_ONLY psn=1..5 length=64
+0      > WRITE_ONLY psn=7 length=64 a=1
        < SACK cack_psn=-1 acked=1,2,3,4,5,7
+5ms    > WRITE_ONLY psn=0 length=64 a=1
        < SACK cack_psn=5 acked=7 ooo_count=1

test 7.5.2.2/4 sack-bitmap-base must responder
    A PSN more than 64 beyond the left edge is within the bitmap of some SACK.
+0      > WRITE_ONLY psn=200 length=64 offset=0 a=1
        < SACK acked=200

test 7.4.6/1 sack-say-again info responder
    A probe makes the responder report again what it reported before. Here everything beyond the left edge.
+0      > WRITE_ONLY psn=1 length=64
+0      > WRITE_ONLY psn=100 length=64 offset=0 a=1
        < SACK acked=100
+5ms    > PROBE probe_id=5
        < SACK pr=1 acked=1

test 7.5.5.5/1 oob-attributes must responder
    With Dynamic MPR off on either side, the MPR of a SACK is 0.
+0      > WRITE_ONLY psn=0 length=64 a=1
        < SACK mpr=0

test 7.5.5.5/2 dynamic-mpr must responder
    With Dynamic MPR on both sides, every SACK carries the window, in units of 128 PSNs.
    device dynamic_mpr=1 mpr=8
+0      > WRITE_ONLY psn=0 length=64 a=1
        < SACK mpr=8

test 7.5.5.5/3 receiver-penalty info responder
    The window penalty of a SACK and whether windows return after it. Here 0.
+0      > WRITE_ONLY psn=0 length=64 a=1
        < SACK rcv_cwnd_pen=0 r_c=0

test 7.5.5.5/4 cc-state-rcvd-bytes info responder
    rcvd_bytes in units of 256 counts payload and overhead: what one packet of 1,024 bytes adds. Here 5, then 9 for two.
+0      > WRITE_ONLY psn=0 length=1024 a=1
        < SACK rcvd_bytes=5
+0      > WRITE_ONLY psn=1 length=1024 a=1
        < SACK rcvd_bytes=9

test 7.5.5.5/5 cc-state-rcvd-bytes should responder
    rcvd_bytes counts at least the payload, each packet once.
+0      > WRITE_ONLY psn=0 length=1024 a=1
        < SACK rcvd_bytes>=4 rcvd_bytes=$first
+0      > WRITE_ONLY psn=0 length=1024 a=1
        < SACK rcvd_bytes=$first
+0      > WRITE_ONLY psn=1..8 length=1024
+0      > WRITE_ONLY psn=9 length=1024 a=1
        < SACK cack_psn=9 rcvd_bytes>=40
        = received-bytes

test 7.5.5.5/6 wire-context-ids info responder
    What stands in spdcid and dpdcid, of which only the names are public. Here the low 16 bits of the QPNs.
+0      > WRITE_ONLY psn=0 length=64 a=1
        < SACK dpdcid=$context spdcid=$spdcid

test 7.5/1 transport-ack should responder
    A transport ACK waits for the left edge, counts whole messages, and has no credits.
+0      > WRITE psn=1 length=2048 msn=1 offset=1024
+20ms   ! ACKNOWLEDGE
+0      > WRITE_ONLY psn=0 length=64 a=1
        < ACKNOWLEDGE syndrome=ACK msn=2
        = acknowledgements

test 7.5/11 transport-ack should responder
    A request that finds a hole draws no transport ACK: the left edge has not closed.
+0      > WRITE_ONLY psn=1 length=64 a=1
        < SACK acked=1
+20ms   ! ACKNOWLEDGE

test 7.5/2 transport-ack info responder
    A message that completes is acknowledged though nobody asked. Here at once.
+0      > WRITE_ONLY psn=0 length=64
        < ACKNOWLEDGE msn=1

test 7.5/3 control-class must responder
    SACK, NACK, ACK and endpoint responses travel in one class, which is not that of data.
+0      > WRITE_ONLY psn=0 length=64 a=1
        < SACK dscp=$control
        < ACKNOWLEDGE dscp=$control
+0      > WRITE_ONLY psn=1 length=64 trim=1
        < NACK dscp=$control
+0      > ENDPOINT_REQUEST op=1 bth.psn=7
        < ENDPOINT_RESPONSE dscp=$control
        = control-class

test 7.5/4 sack-not-completion must responder
    SACKs tell of packets, not of messages: the first packet of two is reported, nothing is acknowledged.
+0      > WRITE_FIRST psn=0 msn=0 length=1024 dmalen=2048 rtx=1
        < SACK cack_psn=0
+20ms   ! ACKNOWLEDGE msn=1

test table-7-3/1 trim-nack must responder
    A trimmed packet is refused by TRIMMED, with its PSN, EV and timestamp; its data is still expected.
+0      > WRITE_ONLY psn=0 length=64 trim=1 ev=2 tx_timestamp=0x0bad
        < NACK nack_reason=TRIMMED nack_psn=0 entropy=2 tx_timestamp=0x0bad
        * memory offset=0..63 fill=0
+0      > WRITE_ONLY psn=0 length=64 rtx=1 a=1
        < SACK cack_psn=0
        < ACKNOWLEDGE msn=1
        * memory offset=0..63 fill=1
        = trims-answered

test table-7-3/2 trim-nack must responder
    A packet trimmed on the last hop is refused by TRIMMED_LASTHOP.
+0      > WRITE_ONLY psn=0 length=64 trim=lasthop
        < NACK nack_reason=TRIMMED_LASTHOP nack_psn=0

test table-7-3/3 trim-duplicate info responder
    A trimmed packet whose data has arrived already. Here answered by a SACK, not refused.
+0      > WRITE_ONLY psn=0 length=64 a=1
        < SACK cack_psn=0
+5ms    > WRITE_ONLY psn=0 length=64 trim=1
        < SACK cack_psn=0 trigger=0
+20ms   ! NACK

test table-7-3/4 trim-nack must responder
    Trimmed packets do not count as arrived: SACKs report the others only.
+0      > WRITE_ONLY psn=0 length=64 trim=1
        < NACK nack_psn=0
+0      > WRITE_ONLY psn=1 length=64 a=1
        < SACK cack_psn=-1 acked=1

test table-7-3/5 sack-trigger-trimmed info responder
    A trimmed packet that requests a report, after others have arrived. Here the SACK follows the NACK.
+0      > WRITE_ONLY psn=0..1 length=64
+5ms    > WRITE_ONLY psn=2 length=64 trim=1 a=1
        < NACK nack_psn=2
        < SACK cack_psn=1

test table-7-3/6 nack-codes must responder
    A NACK has cc_type 2.
+0      > WRITE_ONLY psn=0 length=64 trim=1
        < NACK neth.cc_type=2

test 7.5.6/1 endpoint-response must responder
    An EV probe to QPN 2 is answered with its probe_id, its timestamp and its operation.
+0      > ENDPOINT_REQUEST op=1 bth.psn=0x4321 tx_timestamp=0x77
        < ENDPOINT_RESPONSE bth.psn=0x4321 tx_timestamp=0x77
        = endpoint-answers

test 7.5.6/2 endpoint-response must responder
    The answer comes on the plane that the request came by.
+0      > ENDPOINT_REQUEST op=1 bth.psn=1 plane=1
        < ENDPOINT_RESPONSE bth.psn=1 plane=1
+0      > ENDPOINT_REQUEST op=1 bth.psn=2 plane=0
        < ENDPOINT_RESPONSE bth.psn=2 plane=0

test 7.5.6/3 wire-eeth-op info responder
    Where EETH.op stands: readers differ between bits 3:2 and 5:4. Here 3:2.
+0      > ENDPOINT_REQUEST op=1 bth.psn=1
        < ENDPOINT_RESPONSE op=1

test 7.4.8/1 port-status-answered must responder
    A Port Status Update is answered.
+0      > ENDPOINT_REQUEST op=0 bth.psn=9 port_status_mask=6
        < ENDPOINT_RESPONSE bth.psn=9

test 7.4.8/2 port-down-remote must responder
    After an update that says port 2 is down, answers take port 1.
+0      > ENDPOINT_REQUEST op=0 bth.psn=9 port_status_mask=2 plane=0
        < ENDPOINT_RESPONSE bth.psn=9
+0      > WRITE_ONLY psn=0 length=64 a=1 plane=1 ev=4
        < SACK cack_psn=0 plane=0
+0      > WRITE_ONLY psn=1 length=64 a=1 plane=1 ev=5
        < SACK cack_psn=1 plane=0

test 6.5.2/1 reverse-probe info responder
    A responder that receives and sends nothing tests its reverse paths by EV probes. Here within 200 ms.
+0      > WRITE_ONLY psn=0..20 length=64 a=1
+200ms  < ENDPOINT_REQUEST op=1

test 7.5/5 transport-ack info responder
    How many packets of one long message go by before a transport ACK. Here 64.
+0      > WRITE_FIRST psn=0 msn=0 length=1024 dmalen=102400
+0      > WRITE_MIDDLE psn=1..80 length=1024 dmalen=102400 fill=1
        < ACKNOWLEDGE msn=0 bth.psn=$last

test 7.5.2.2/5 sack-bitmap must responder
    All 64 bits report: PSNs in the lower and the upper half, and the last.
+0      > WRITE_ONLY psn=1 length=64
+0      > WRITE_ONLY psn=31..33 length=64
+0      > WRITE_ONLY psn=62 length=64
+5ms    > WRITE_ONLY psn=63 length=64 a=1
        < SACK cack_psn=-1 acked=1,31,32,33,62,63 ooo_count=6
        = sack-truth

test 7.5/12 transport-ack should responder
    A transport ACK names the newest PSN of those that arrived without a hole.
+0      > WRITE_ONLY psn=0..2 length=64
+0      > WRITE_ONLY psn=4 length=64
+5ms    > WRITE_ONLY psn=3 length=64 a=1
        < ACKNOWLEDGE syndrome=ACK msn=5 psn=4

test 7.5.2/16 sack-trigger-request must responder
    A mark draws a SACK of its own and stands for no other: a later packet that requests a report draws one as well.
+0      > WRITE_ONLY psn=0 length=64 ecn=3 ev=1
        < SACK seth.m=1 entropy=1 trigger=0
+5ms    > WRITE_ONLY psn=1 length=64 a=1 ev=2
        < SACK seth.m=0 entropy=2 trigger=1

test 7.5.6/6 endpoint-response should responder
    Answers to requests that the device never sent, of paths and planes that it may not have, change nothing.
+0      > WRITE_ONLY psn=0 length=64 a=1
        < SACK cack_psn=0
+0      > ENDPOINT_RESPONSE op=1 bth.psn=0..70
+0      > ENDPOINT_RESPONSE op=0 bth.psn=0..10
+5ms    > WRITE_ONLY psn=1 length=64 a=1
        < SACK cack_psn=1
        < ACKNOWLEDGE msn=2
