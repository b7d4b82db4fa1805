# Edges of regions, rings and bitmaps; how timers grow; what a path is blamed for.

test 10.6/12 access-checked must responder
    The first and the last byte of a region may be written, the one behind it may not.
    device bytes=4096
+0      > WRITE_ONLY psn=0 length=64 offset=0 a=1
+0      > WRITE_ONLY psn=1 length=64 offset=4032 a=1
        < ACKNOWLEDGE syndrome=ACK msn=2
        * memory offset=0..63 fill=1
        * memory offset=4032..4095 fill=1
+5ms    > WRITE_ONLY psn=2 length=64 offset=4033 fill=9 a=1
        < ACKNOWLEDGE syndrome=REMOTE_ACCESS_ERROR
        * memory offset=4032..4095 fill=1

test 10.6/13 access-checked info responder
    Is a refused write refused again when it is repeated, as the refusal may be lost? Here it is.
+0      > WRITE_ONLY psn=0 length=64 a=1 r_key=0x0badbeef
        < ACKNOWLEDGE syndrome=REMOTE_ACCESS_ERROR psn=0
+5ms    > WRITE_ONLY psn=0 length=64 a=1 r_key=0x0badbeef rtx=1
        < ACKNOWLEDGE syndrome=REMOTE_ACCESS_ERROR psn=0

test 6.3.1/19 psn-wrap must responder
    The record of what arrived is used again and again: windows full of packets in reverse, one after the other.
    device mpr=1
+0      > WRITE_ONLY psn=126..1 length=64 offset=126..1
+1ms    > WRITE_ONLY psn=0 length=64 offset=0 a=1
        < SACK cack_psn=126 ooo_count=0
+1ms    > WRITE_ONLY psn=253..128 length=64 offset=253..128
+1ms    > WRITE_ONLY psn=127 length=64 offset=127 a=1
        < SACK cack_psn=253 ooo_count=0
+1ms    > WRITE_ONLY psn=286..255 length=64 offset=286..255
+1ms    > WRITE_ONLY psn=288..380 length=64 offset=288..380
+1ms    > WRITE_ONLY psn=254 length=64 offset=254 a=1
        < SACK cack_psn=286
+1ms    > WRITE_ONLY psn=287 length=64 offset=287 a=1
        < SACK cack_psn=380 ooo_count=0
        < ACKNOWLEDGE msn=381

test 6.1/19 wimm-order must responder
    Immediates that wait are handed over in order, however often their ring has gone round.
    device max_wimm=4 receives=12
+0      > WRITE_ONLY_IMM psn=3..0 rqmsn=3..0 immediate=3..0 length=64
+1ms    > WRITE_ONLY_IMM psn=7..4 rqmsn=7..4 immediate=7..4 length=64
+1ms    > WRITE_ONLY_IMM psn=11..8 rqmsn=11..8 immediate=11..8 length=64
        * receives immediate=0
        * receives immediate=1
        * receives immediate=2
        * receives immediate=3
        * receives immediate=4
        * receives immediate=5
        * receives immediate=6
        * receives immediate=7
        * receives immediate=8
        * receives immediate=9
        * receives immediate=10
        * receives immediate=11

test 7.4.5/6 loss-gap should requester
    Holes in both halves of a bitmap are found, and nothing else is sent again.
    device timeout=21
+0      * write length=75776
        < WRITE psn=73
+1ms    > SACK cack_psn=9 acked=11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32,33,34,35,36,37,38,39,40,42,43,44,45,46,47,48,49,50,51,52,53,54,55,56,57,58,59,60,61,62,63,64,65,66,67,68,69,70,71,72,73 trigger=73
+1500ms < WRITE psn=10 rtx=1
+1500ms < WRITE psn=41 rtx=1
+2ms    ! WRITE rtx=1

test 6.3.1/20 mpr-requester info requester
    Which is the last PSN that a requester sends into a window of 128 after cack_psn? Here cack_psn + 128, which requests
    a report.
    device mpr=1 mtu=256 timeout=21
+0      * write length=65536
        < WRITE psn=10
+0      > SACK cack_psn=10
        < WRITE psn=138 a=1
+5ms    ! WRITE psn>138 rtx=0

test 7.4.1/7 timer-linear-exponential info requester
    How long are the timeouts? Here two of 4.2 ms, of which one is linear, then each is twice the one before it.
    device timeout=12 linear=1 exponential=3
+0      * write length=64
        < WRITE_ONLY psn=0 rtx=0
+4ms    ! WRITE_ONLY psn=0 rtx=1
+1ms    < WRITE_ONLY psn=0 rtx=1
+4ms    ! WRITE_ONLY psn=0 rtx=1
+1ms    < WRITE_ONLY psn=0 rtx=1
+8ms    ! WRITE_ONLY psn=0 rtx=1
+1ms    < WRITE_ONLY psn=0 rtx=1
+16ms   ! WRITE_ONLY psn=0 rtx=1
+2ms    < WRITE_ONLY psn=0 rtx=1
+32ms   ! completes
+4ms    * completes status=RETRY_EXC_ERR

test 7.4.1/8 timer-restart info requester
    Does progress end the growth of timeouts? Here the next request has the first one again (RFC 6298, 5.3).
    device timeout=12 linear=0 exponential=7
+0      * write length=64
        < WRITE_ONLY psn=0 rtx=0
        < WRITE_ONLY psn=0 rtx=1
        < WRITE_ONLY psn=0 rtx=1
        < WRITE_ONLY psn=0 rtx=1
+0      > SACK cack_psn=0 rtx=1
+0      > ACKNOWLEDGE msn=1
        * completes status=SUCCESS
+0      * write length=64
        < WRITE_ONLY psn=1 rtx=0
+4ms    ! WRITE_ONLY psn=1 rtx=1
+1ms    < WRITE_ONLY psn=1 rtx=1

test 7.4.6/6 tail-probe info requester
    How often is the tail asked for that nobody reports? Here after 24 us, again after 24, then each time after twice
    as long.
    device timeout=20 linear=1
+0      * write length=64
        < WRITE_ONLY psn=0
+20us..30us < PROBE
+20us..30us < PROBE
+40us   ! PROBE
+15us   < PROBE
+85us   ! PROBE
+20us   < PROBE

test 7.4.6/7 probe-backoff info requester
    How often is an EV probed that answers nothing? Here after 1 ms, again after 1, then each time after twice as long.
    device planes=1 evs=4 timeout=20
+0      * write length=64
        < WRITE_ONLY psn=0 ev=$bad
+0      > SACK cack_psn=0 seth.m=2
+0      > ACKNOWLEDGE msn=1
+0.9ms  ! PROBE ev=$bad
+0.3ms  < PROBE ev=$bad
+0.9ms  ! PROBE ev=$bad
+0.3ms  < PROBE ev=$bad
+1.8ms  ! PROBE ev=$bad
+0.4ms  < PROBE ev=$bad
+3.8ms  ! PROBE ev=$bad
+0.6ms  < PROBE ev=$bad
+7.7ms  ! PROBE ev=$bad
+0.8ms  < PROBE ev=$bad

test 7.4.4/13 nack-codes info requester
    Of two NACKs of one copy of a packet the second comes when it has been sent again. Here it is not sent once more.
    device timeout=20
+0      * write length=64
        < WRITE_ONLY psn=0
+0      > SACK cack_psn=0
+0      > ACKNOWLEDGE msn=1
        * completes status=SUCCESS
+0      * write length=4096
        < WRITE psn=4
        < WRITE psn=2 rtx=0 tx_timestamp=$first
+0      > NACK nack_psn=2 nack_reason=TRIMMED tx_timestamp=$first
+2us    > NACK nack_psn=2 nack_reason=TRIMMED tx_timestamp=$first
        < WRITE psn=2 rtx=1
+30us   ! WRITE psn=2 rtx=1

test 9.3.1/13 ev-trimmed should requester
    An EV on which a switch trimmed a packet is left out when its turn comes: three packets do not take it.
    device planes=1 evs=4 timeout=20
+0      * write length=64
        < WRITE_ONLY psn=0 ev=$trimmed
+0      > NACK nack_psn=0 nack_reason=TRIMMED
        < WRITE_ONLY psn=0 rtx=1 ev!=$trimmed
+0      > SACK cack_psn=0 rtx=1
+0      > ACKNOWLEDGE msn=1
        * completes status=SUCCESS
+0      * write length=3072
        < WRITE psn=3
        ! WRITE psn>=1 ev=$trimmed

test 9.3.1/14 ev-lasthop info requester
    Is an EV used on whose last hop a packet was trimmed? Here among the next three packets.
    device planes=1 evs=4 timeout=20
+0      * write length=64
        < WRITE_ONLY psn=0 ev=$trimmed
+0      > NACK nack_psn=0 nack_reason=TRIMMED_LASTHOP
        < WRITE_ONLY psn=0 rtx=1
+0      > SACK cack_psn=0 rtx=1
+0      > ACKNOWLEDGE msn=1
        * completes status=SUCCESS
+0      * write length=3072
        < WRITE psn>=1 ev=$trimmed

test 9.3.1/15 ev-probe-marked info requester
    An EV whose probes are answered with marks. Here it is usable after three answers, and skipped once.
    device planes=1 evs=4 timeout=20
+0      * write length=64
        < WRITE_ONLY psn=0 ev=$bad
+0      > SACK cack_psn=0 seth.m=2
+0      > ACKNOWLEDGE msn=1
+2s     < PROBE ev=$bad probe_id=$one
+0      > SACK pr=1 ack_psn_offset=$one cack_psn=0 seth.m=1
+2s     < PROBE ev=$bad probe_id=$two probe_id!=$one
+0      > SACK pr=1 ack_psn_offset=$two cack_psn=0 seth.m=1
+2s     < PROBE ev=$bad probe_id=$three probe_id!=$one probe_id!=$two
+0      > SACK pr=1 ack_psn_offset=$three cack_psn=0 seth.m=1
+100ms  ! PROBE ev=$bad
+0      * write length=16384
        < WRITE psn>=4 ev=$bad

test 7.5.2/17 sack-trigger-ecn info responder
    Is a probe that a switch marked answered with a mark? Here it is.
+0      > PROBE probe_id=7 ecn=3
        < SACK pr=1 ack_psn_offset=7 seth.m=1
+0      > PROBE probe_id=8
        < SACK pr=1 ack_psn_offset=8 seth.m=0

test 7.5.2/18 ack-request info requester
    Which packets of a long transfer request a report?
    device mpr=16 timeout=20
+0      * write length=1048576
        < WRITE a=1 rtx=0 psn=$first
        < WRITE a=1 rtx=0 psn=$second
        < WRITE a=1 rtx=0 psn=$third
        < WRITE a=1 rtx=0 psn=$fourth
+5us    > SACK cack_psn=100
        < WRITE a=1 rtx=0 psn>100 psn=$fifth

test 8.1/2 scheduler-drr info requester
    How do two queue pairs share the window of their destination? Here half each.
    device pairs=2 mpr=16 timeout=20
+0      * write length=1048576
+0      * write length=1048576 pair=1
        < WRITE psn=8 pair=0
        < WRITE psn=8 pair=1
+10us   * wait
        ? WRITE pair=0 count=$one
        ? WRITE pair=1 count=$other

test 7.5.2.2/6 sack-bitmap-base info responder
    Which SACKs report 150 packets beyond a hole?
+0      > WRITE_ONLY psn=1..149 length=64 offset=1..149
+1ms    > WRITE_ONLY psn=150 length=64 offset=150 a=1
        < SACK cack_psn=-1 trigger=150 sack_offset=$first sack_bitmap=$bits
+1ms    > WRITE_ONLY psn=40 length=64 offset=40 a=1
        < SACK cack_psn=-1 trigger=40 sack_offset=$again
+1ms    > PROBE probe_id=1
        < SACK pr=1 sack_offset=$one
        < SACK sack_offset=$two
        < SACK sack_offset=$three

test 8.5/2 receiver-penalty-obeyed info requester
    What does half of the largest window penalty do, and does the window come back after it (r_c)? How many packets have
    left before it, under it, and after it?
    device mtu=4096 mpr=16 timeout=20
+0      * write length=1048576 count=2
        < WRITE psn=8
+0      > SACK cack_psn=8 rcv_cwnd_pen=64 r_c=1
+0      > SACK cack_psn=12 rcv_cwnd_pen=64 r_c=1
        ? WRITE count=$before
+50us   * wait
        ? WRITE count=$under
+0      > SACK cack_psn=20
+50us   * wait
        ? WRITE count=$after

test 7.5/17 sack-not-completion should requester
    Answers that fit nothing that was sent - packets and messages ahead, old packets, unknown probes - change nothing.
    device timeout=20
+0      * write length=64
        < WRITE_ONLY psn=0
+0      > SACK cack_psn=0
+0      > ACKNOWLEDGE msn=1
        * completes status=SUCCESS
+1ms    * write length=4096
        < WRITE psn=4
+0      > SACK cack_psn=100
+0      > NACK nack_psn=200
+0      > NACK nack_psn=-3
+0      > NACK nack_psn=2 nack_reason=99
+0      > ACKNOWLEDGE msn=3
+0      > ACKNOWLEDGE msn=2 psn=90
+0      > SACK pr=1 ack_psn_offset=0x7777 cack_psn=0
+2ms    ! completes
+0      > SACK cack_psn=4
+0      > ACKNOWLEDGE msn=2
        * completes status=SUCCESS
