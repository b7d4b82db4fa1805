# Several queue pairs on a device, both directions at once, many messages, a queue pair that begins again, and answers
# that come too often.

test 6.3.1/17 psn-new must responder
    Two queue pairs count packets and messages each for itself, and write to their own regions.
    device pairs=2
+0      > WRITE_ONLY psn=0..2 length=64
+5ms    > WRITE_ONLY psn=0 length=64 pair=1 fill=9 a=1
        < SACK pair=1 cack_psn=0 trigger=0
        < ACKNOWLEDGE pair=1 msn=1
+5ms    > WRITE_ONLY psn=3 length=64 a=1
        < SACK pair=0 cack_psn=3 trigger=3
        < ACKNOWLEDGE pair=0 msn=4
        * memory offset=0..63 fill=1
        * memory offset=0..63 fill=9 pair=1

test 6.3.1/18 psn-new must responder
    A hole of one queue pair holds up no other.
    device pairs=2
+0      > WRITE_ONLY psn=1 length=64 a=1
        < SACK pair=0 cack_psn=-1 acked=1
+5ms    > WRITE_ONLY psn=0 length=64 pair=1 a=1
        < SACK pair=1 cack_psn=0
        < ACKNOWLEDGE pair=1 msn=1
+20ms   ! ACKNOWLEDGE pair=0

test 6.1/14 wimm-order must responder
    Immediates wait for what was sent before them on their own queue pair only.
    device pairs=2
+0      > WRITE_ONLY_IMM psn=1 rqmsn=0 immediate=1 length=64
+0      > WRITE_ONLY_IMM psn=0 rqmsn=0 immediate=2 length=64 pair=1
        * receives immediate=2 pair=1
+20ms   ! receives
+0      > WRITE_ONLY psn=0 length=64
        * receives immediate=1 pair=0

test 10.6/10 access-checked must responder
    A region is not written through a queue pair of another protection domain, and its own goes on.
    device pairs=2
+0      > WRITE_ONLY psn=0 length=64 a=1 pair=1 va=0 r_key=$key
        < ACKNOWLEDGE syndrome=REMOTE_ACCESS_ERROR pair=1
        * memory offset=0..63 fill=0
+0      > WRITE_ONLY psn=0 length=64 a=1
        < SACK cack_psn=0 pair=0
        < ACKNOWLEDGE syndrome=ACK msn=1 pair=0
        * memory offset=0..63 fill=1

test 10.6/11 access-checked must responder
    A packet with the key and address of the other queue pair's region is refused, though both are of one device.
    device pairs=2
+0      > WRITE_ONLY psn=0 length=64 a=1 pair=1
        < ACKNOWLEDGE syndrome=ACK pair=1
+0      > WRITE_ONLY psn=1 length=64 a=1 pair=1 va=1024 r_key=$key
        < ACKNOWLEDGE syndrome=REMOTE_ACCESS_ERROR pair=1
        * memory offset=1024..1087 fill=0
        * memory offset=1024..1087 fill=0 pair=1

test 7.5.2/13 sack-trigger-probe must responder
    A probe is answered by the queue pair that it is for.
    device pairs=2
+0      > WRITE_ONLY psn=0..1 length=64 a=1
        < SACK pair=0 cack_psn=1
+5ms    > PROBE probe_id=0x2345 pair=1
        < SACK pr=1 ack_psn_offset=0x2345 cack_psn=-1 pair=1

test 10.3.1/2 error-flush must requester
    A refusal ends its own queue pair; the other goes on.
    device pairs=2
+0      * write length=64 count=2
+0      * write length=64 pair=1
        < WRITE_ONLY psn=1 pair=0
        < WRITE_ONLY psn=0 pair=1
+0      > ACKNOWLEDGE syndrome=REMOTE_ACCESS_ERROR msn=0
        * completes status!=SUCCESS pair=0
        * completes status=WR_FLUSH_ERR pair=0
+0      > SACK cack_psn=0 pair=1
+0      > ACKNOWLEDGE msn=1 pair=1
        * completes status=SUCCESS pair=1

test 6.1/15 completion-order must requester
    An acknowledgement completes messages of its own queue pair only.
    device pairs=2
+0      * write length=64 count=2
+0      * write length=64 count=2 pair=1
        < WRITE_ONLY psn=1 pair=0
        < WRITE_ONLY psn=1 pair=1
+0      > SACK cack_psn=1 pair=1
+0      > ACKNOWLEDGE msn=2 pair=1
        * completes status=SUCCESS pair=1
        * completes status=SUCCESS pair=1
+2ms    ! completes

test 8.1/1 qpcc-shared info requester
    Do queue pairs to one destination share a window? Here the second sends one packet while the first has filled it.
    device pairs=2 mtu=4096 mpr=16 timeout=20
+0      * write length=1048576 count=2
        < WRITE psn=8 pair=0
+5ms    * write length=65536 pair=1
+20ms   ! WRITE psn>=2 pair=1

test 6.1/16 completion-order must responder
    Requester and responder at once: the numbers of the two directions have nothing to do with each other.
    device first_psn=0x654321
+0      * write length=3000
        < WRITE_LAST psn=2 meth.msn=0
+0      > WRITE_ONLY psn=0..4 length=64
+5ms    > WRITE_ONLY psn=5 length=64 a=1
        < SACK cack_psn=5 trigger=5
        < ACKNOWLEDGE msn=6
+0      > SACK cack_psn=2
+0      > ACKNOWLEDGE msn=1 psn=2
        * completes status=SUCCESS
        * memory offset=0..63 fill=1

test 6.1/17 completion-order must both
    Two devices that write to each other, both ways with losses: every message completes and every byte arrives.
        : drop WRITE every=5
+0      * write length=20000 fill=3
+0      * write length=20000 fill=4 side=1
+10s    * completes status=SUCCESS side=0
+10s    * completes status=SUCCESS side=1
        * memory offset=0..19999 fill=3 side=1
        * memory offset=0..19999 fill=4 side=0

test 6.1/18 completion-order must both
    Many messages in flight, some of whose packets are lost, complete in order and once each.
        : drop WRITE psn=4 nth=1..2
        : drop WRITE every=9
+0      * write length=3000 count=200
+20s    < ACKNOWLEDGE msn=200
        * memory offset=0..2999 fill=1
        = segmentation
        = message-numbers
        = acknowledgements
        = one-answer

test table-10-1/1 qp-states should responder
    After RESET a queue pair begins as a new one: its first PSN, its count of messages, its immediates.
+0      > WRITE_ONLY psn=0..3 length=64
+5ms    > WRITE_ONLY_IMM psn=4 rqmsn=0 immediate=7 length=64 a=1
        < ACKNOWLEDGE msn=5
        * receives immediate=7
+0      * reset
+0      > WRITE_ONLY_IMM psn=0 rqmsn=0 immediate=8 length=64 offset=8192 a=1
        < SACK cack_psn=0 trigger=0
        < ACKNOWLEDGE msn=1
        * receives immediate=8
        * memory offset=8192..8255 fill=1

test table-10-1/2 qp-states should requester
    A requester that went through RESET numbers packets, messages and writes with immediate from the beginning.
+0      * write length=2048 count=2 immediate=1
        < WRITE psn=3
+0      > SACK cack_psn=3
+0      > ACKNOWLEDGE msn=2
        * completes status=SUCCESS
        * completes status=SUCCESS
+0      * reset
+5ms    * write length=64 immediate=2
        < WRITE_ONLY_IMM psn=0 meth.msn=0 rqmsn=0 rtx=0
+0      > SACK cack_psn=0
+0      > ACKNOWLEDGE msn=1
        * completes status=SUCCESS

test table-10-1/3 error-flush should requester
    A queue pair that went to ERROR works again after RESET.
+0      * write length=64
        < WRITE_ONLY psn=0
+0      > ACKNOWLEDGE syndrome=REMOTE_ACCESS_ERROR msn=0
        * completes status!=SUCCESS
+0      * reset
+5ms    * write length=64
        < WRITE_ONLY psn=0
+0      > SACK cack_psn=0
+0      > ACKNOWLEDGE msn=1
        * completes status=SUCCESS

test table-10-1/4 qp-states should both
    What losses, trims and marks left of a connection is gone after RESET: the next transfer is without a repetition.
    device mpr=1
        : drop WRITE every=7
        : trim WRITE every=5
        : mark WRITE every=3
+0      * write length=40000 immediate=3 count=3
+10s    * completes status=SUCCESS
+10s    * completes status=SUCCESS
+10s    * completes status=SUCCESS
        * receives immediate=3 length=40000
        * receives immediate=3 length=40000
        * receives immediate=3 length=40000
        : nothing
+20ms   * wait
+0      * reset
+0      * write length=20000 fill=5 immediate=9
+5s     * completes status=SUCCESS
        * receives immediate=9 length=20000
        * memory offset=0..19999 fill=5
+5ms    ! WRITE rtx=1
        = segmentation
        = message-numbers
        = new-psns
        = sack-truth
        = acknowledgements
        = received-bytes
        = one-answer

test table-10-1/5 qp-states should requester
    RESET in the middle of a transfer ends it: nothing of it is sent or completed afterwards, and a new one begins.
    device timeout=16
+0      * write length=65536 count=2
        < WRITE psn=20
+0      > SACK cack_psn=3 acked=5,8 trigger=8
+0      > NACK nack_psn=6 nack_reason=TRIMMED
+0      * reset
+0      * write length=2048 fill=5
        < WRITE_FIRST psn=0 meth.msn=0 rtx=0
        < WRITE_LAST psn=1 meth.msn=0 rtx=0
+0      > SACK cack_psn=1
+0      > ACKNOWLEDGE msn=1
        * completes status=SUCCESS
+200ms  ! WRITE psn>=2
        ! completes

test table-10-1/6 qp-states should responder
    RESET in the middle of a message ends it: what had arrived of it, and beyond holes, is not taken for the next one.
    device first_psn=0x700000
+0      > WRITE_FIRST psn=0 msn=0 length=1024 dmalen=3072
+0      > WRITE_ONLY_IMM psn=4 rqmsn=0 immediate=4 length=64 offset=0
+0      > WRITE_ONLY psn=6 length=64 offset=0 ecn=3
        < SACK acked=4,6
+20ms   * wait
+0      * reset
+0      > WRITE_ONLY psn=1..2 length=64
+5ms    > WRITE_ONLY psn=3 length=64 a=1
        < SACK cack_psn=-1 acked=1,2,3 ooo_count=3
+5ms    > WRITE_ONLY psn=0 length=64 a=1
        < SACK cack_psn=3 rcvd_bytes=3
        < ACKNOWLEDGE msn=4
+20ms   ! receives

test table-10-1/7 qp-states should requester
    RESET while the window holds back the rest of a message: the next message begins with its first packet.
    device mpr=1 mtu=256
+0      * write length=65536
        < WRITE psn=127
+0      * reset
+5ms    * write length=512 fill=5
        < WRITE_FIRST psn=0 meth.msn=0 length=256 va=0
        < WRITE_LAST psn=1 meth.msn=0 length=256 va=256
+0      > SACK cack_psn=1
+0      > ACKNOWLEDGE msn=1
        * completes status=SUCCESS

test 10.3/1 reset-number info responder
    Does a queue pair have another number after RESET, so that late packets of its earlier life miss it? Here it has.
+0      > WRITE_ONLY psn=0 length=64 a=1
        < ACKNOWLEDGE msn=1
+0      > PROBE probe_id=1 dqp=$device
        < SACK pr=1
+0      * reset
+0      > WRITE_ONLY psn=0 length=64 offset=8192 a=1 dqp=$device
+30ms   ! ANSWER
        * memory offset=8192..8255 fill=0

test 7.5.2/14 sack-trigger-request should responder
    A packet draws each of its answers once: a SACK, an acknowledgement, a NACK, the SACK of a probe, a response.
+0      > WRITE_ONLY psn=0 length=64 a=1
        < SACK cack_psn=0
        < ACKNOWLEDGE msn=1
+0      > PROBE probe_id=3
        < SACK pr=1
+0      > WRITE_ONLY psn=1 length=64 trim=1
        < NACK nack_psn=1
+0      > ENDPOINT_REQUEST op=1 bth.psn=0x77
        < ENDPOINT_RESPONSE bth.psn=0x77
+20ms   * wait
+20ms   ! NACK
        = one-answer

test 7.5.2/15 sack-trigger-request should responder
    Nor do the packets of a long message: none of their answers comes twice.
+0      > WRITE psn=0 length=32768 a=1
        < SACK cack_psn=31
        < ACKNOWLEDGE msn=1
+20ms   * wait
+1ms    ! NACK
        = one-answer

test 7.5/14 completion-order must both
    Answers that come ten times complete nothing twice, and nothing is sent again for them that had arrived.
        : duplicate ANSWER n=9
+0      * write length=8192 count=3
+5s     * completes status=SUCCESS
+5s     * completes status=SUCCESS
+5s     * completes status=SUCCESS
+20ms   ! completes
        * memory offset=0..8191 fill=1

test 7.5/15 completion-order should both
    Nor do answers that come a thousand times, and the next message completes as well.
        : duplicate ANSWER n=999 nth=1..4
+0      * write length=2048
+5s     * completes status=SUCCESS
+20ms   ! completes
+0      * write length=2048 offset=4096
+5s     * completes status=SUCCESS
        * memory offset=4096..6143 fill=1

# Planes that die and come back.

test 9.3.2/6 port-silent info both
    A plane that was silent and works again carries data again. Here within 10 s.
    device timeout=14 linear=7 exponential=7
        : drop ANY plane=1
+0      * write length=50000 count=2
+10s    < ACKNOWLEDGE msn=2
        : nothing
+2s     * wait
+0      * write length=50000
+10s    < WRITE plane=1 rtx=0
+10s    < ACKNOWLEDGE msn=3

test 9.3.2/7 port-down-remote info both
    A port that was down and is up again carries the same share as before, and nothing was lost for it.
+0      * port plane=1 up=0
+5ms    * write length=40000
+10s    < ACKNOWLEDGE msn=1
+0      * port plane=1 up=1
+2s     * wait
+0      * write length=65536
+10s    < WRITE plane=1 rtx=0
+10s    < ACKNOWLEDGE msn=2

# How long timers and schedules are, and what a receiver asks of the window.

test 7.4.1/5 timer-linear-exponential info requester
    The first repetition comes well before twice the timeout of 16.8 ms. Here within 30 ms.
    device timeout=14
+0      * write length=64
        < WRITE_ONLY psn=0 rtx=0
+30ms   < WRITE_ONLY psn=0 rtx=1

test 7.4.8/7 port-status-schedule info requester
    When are Port Status Updates repeated? Here three times within ten round trips, and then every 100 ms.
+0      * port plane=0 up=0
+1ms    < ENDPOINT_REQUEST op=0 plane=1
+5ms    < ENDPOINT_REQUEST op=0 plane=1
+15ms   < ENDPOINT_REQUEST op=0 plane=1
+60ms   ! ENDPOINT_REQUEST op=0
+130ms  < ENDPOINT_REQUEST op=0
+60ms   ! ENDPOINT_REQUEST op=0
+130ms  < ENDPOINT_REQUEST op=0

test 8.5/1 receiver-penalty info requester
    Does a SACK with the full window penalty keep packets back? Here fewer than 80 have left after it, without it 99.
    device mtu=4096 mpr=16 timeout=20
+0      * write length=1048576
        < WRITE psn=8
+0      > SACK cack_psn=8 rcv_cwnd_pen=127
+20ms   ! WRITE psn>=80 rtx=0

test 7.5.6/5 endpoint-known-peers info responder
    Packets in the name of the peer, and requests, from an address that is not the peer's. Here they are not heard.
+0      > WRITE_ONLY psn=0 length=64 a=1 stranger=1
+0      > PROBE probe_id=6 stranger=1
+0      > ENDPOINT_REQUEST op=1 bth.psn=5 stranger=1
+30ms   ! ANSWER
        * memory offset=0..63 fill=0
+0      > WRITE_ONLY psn=0 length=64 a=1
        < ACKNOWLEDGE msn=1
        * memory offset=0..63 fill=1

test 7.4.8/8 port-down-remote must responder
    After an update that says port 1 is down, answers take port 2: the other one of two.
+0      > ENDPOINT_REQUEST op=0 bth.psn=9 port_status_mask=4 plane=1 ev=4
        < ENDPOINT_RESPONSE bth.psn=9
+0      > WRITE_ONLY psn=0 length=64 a=1 plane=0 ev=0
        < SACK cack_psn=0 plane=1
+0      > WRITE_ONLY psn=1 length=64 a=1 plane=0 ev=1
        < SACK cack_psn=1 plane=1

test 9.3.2/8 port-silent should both
    Either plane may die without a word, and one after the other: each time the other one carries the transfer.
    device timeout=14 linear=7 exponential=7
        : drop ANY plane=0
+0      * write length=50000
+10s    * completes status=SUCCESS
        : nothing
+2s     * wait
        : drop ANY plane=1
+0      * write length=50000 fill=2
+10s    * completes status=SUCCESS
        * memory offset=0..49999 fill=2

# EV profiles of the controller API, and what packets carry for their EVs: here in the UDP source port alone.

test mrc_ctl/1 ev-expansion must requester
    The numbers 0 to 5 are spread over the mask of a field, which is narrower than its part of the format.
    device evs=3
+0      * profile mode=generated widths=4,12 field=4,0xc field=10,0x3bb,0,5,0x111 count=6
+0      * reset
+0      * write length=49152
        < WRITE ev=0xc2aa
        < WRITE ev=0xc2ab
        < WRITE ev=0xc2ba
        < WRITE ev=0xc2bb
        < WRITE ev=0xc3aa
        < WRITE ev=0xc3ab
+1ms    ! WRITE ev<0xc2aa
+1ms    ! WRITE ev>0xc3ab

test mrc_ctl/2 ev-expansion must requester
    The bits of an EV go to the masks of the fields in their order, the most significant first.
    device evs=3
+0      * profile mode=explicit widths=8,8 field=8,0xc0,0,0,0x0f field=8,0,0,0,0xf0 count=6 evs=0x1200,0x3400,0x5600,0x7800,0x9a00,0xbc00
+0      * reset
+0      * write length=49152
        < WRITE ev=0xc120
        < WRITE ev=0xc340
        < WRITE ev=0xc560
        < WRITE ev=0xc780
        < WRITE ev=0xc9a0
        < WRITE ev=0xcbc0

test mrc_ctl/3 ev-modes must requester
    An explicit profile has the EVs that it lists, each on its port, and those that are denied carry nothing.
    device evs=3
+0      * profile mode=explicit widths=16 field=16,0,0,0,0xffff count=6 evs=0x1234,0x9abc,0xc001,0xc002,0xffff,0x8000 denied=0,5
+0      * reset
+0      * write length=49152
        < WRITE ev=0xc001 plane=0
        < WRITE ev=0xffff plane=0
        < WRITE ev=0x9abc plane=1
        < WRITE ev=0xc002 plane=1
+1ms    ! WRITE ev=0x1234
+1ms    ! WRITE ev=0x8000

test mrc_ctl/4 ev-expansion should requester
    Formats that no packet carries, and fields that do not fit their format, are refused, the largest that fit are not.
    device evs=1
+0      * profile mode=generated widths=16 field=16,0xffff,0,0xffff,0xffff count=2
+0      * profile mode=generated widths=17 field=16,0,0,0,0xff count=2 refused=E2BIG
+0      * profile mode=generated widths=8,8,1 field=8,0,0,0,0xff count=2 refused=E2BIG
+0      * profile mode=generated widths=256 field=8,0,0,0,0xff count=2 refused=EINVAL
+0      * profile mode=generated widths=8,0 field=8,0,0,0,0xff count=2 refused=EINVAL
+0      * profile mode=generated widths=8 field=8,0,0,0,0x7f field=1,0,0,0,1 count=2 refused=EINVAL
+0      * profile mode=generated widths=8 count=2 refused=EINVAL
+0      * profile mode=generated widths=8,8 field=0 field=8,0,0,0,0xff count=2 refused=EINVAL
+0      * profile mode=generated widths=8,8 field=33,0,0,0,0xff count=2 refused=EINVAL
+0      * profile mode=generated widths=8,8 field=1,1,0,0,1 field=8,0,0,0,0xff count=2
+0      * profile mode=generated widths=8,8 field=8,0x100,0,0,0xff count=2 refused=EINVAL
+0      * profile mode=generated widths=9,7 field=8,0,0,0,0x1ff count=2 refused=EINVAL
+0      * profile mode=generated widths=8,8 field=8,0,0,8,0x15 count=2 refused=EINVAL
+0      * profile mode=generated widths=8,8 field=8,0,6,7,0x15 count=2
+0      * profile mode=generated widths=8,8 field=8,0,8,0,0x15 count=2 refused=EINVAL
+0      * profile mode=generated widths=8,8 field=8,0,7,6,0x15 count=2 refused=EINVAL
+0      * profile mode=generated widths=8,8 field=8,0,0,0,0x1 field=8,0,1,1,0xff count=2
+0      * profile mode=generated widths=8,8 field=9,0,0,0,0xff field=7,0,0,0,1 count=2 refused=EINVAL
+0      * profile mode=generated widths=8,8 field=16,0,0,0,0xff field=1,0,0,0,1 count=2 refused=EINVAL

test mrc_ctl/5 ev-modes should requester
    As many EVs as the fields allow can be generated, listed or active, and no more; what is refused changes nothing.
    device evs=3
+0      * profile mode=generated widths=16 field=16,0xc100,2,7,7 count=6 min_active=6
+0      * profile mode=generated widths=16 field=16,0xc000,0,5,7 count=7 refused=E2BIG
+0      * profile mode=generated widths=16 field=16,0xc000,2,5,7 count=5 refused=E2BIG
+0      * profile mode=generated widths=16 field=16,0xc000,2,5,7 count=0 refused=EINVAL
+0      * profile mode=generated widths=16 field=16,0xc000,2,5,7 count=4 min_active=5 refused=EINVAL
+0      * profile mode=generated widths=16 field=16,0xc000,2,5,7 count=4 evs=0x4000 refused=EINVAL
+0      * profile mode=explicit widths=16 field=16,0xc000,0,0,0xff count=2 evs=0x1000 refused=EINVAL
+0      * profile mode=explicit widths=16 field=16,0xc000,0,0,0xff count=2 evs=0x1000,0x2000,0x3000 refused=ENOENT
+0      * profile mode=explicit widths=16 field=16,0xc000,0,0,0xff count=2 evs=0x1000,0x2001 refused=EINVAL
+0      * profile mode=explicit widths=16 field=16,0xc000,0,0,0xff count=1 evs=0x1000 refused=EINVAL
+0      * profile mode=explicit widths=16 field=16,0xc000,0,0,0xff count=0 refused=EINVAL
+0      * reset
+0      * write length=49152
        < WRITE ev=0xc102
        < WRITE ev=0xc103
        < WRITE ev=0xc104
        < WRITE ev=0xc105
+1ms    ! WRITE ev<0xc102
        < WRITE ev=0xc106
        < WRITE ev=0xc107
+1ms    ! WRITE ev>0xc107

test mrc_ctl/6 ev-modes should requester
    The device chooses the EVs of an AUTO profile itself, at least as many as are to stay active.
+0      * profile mode=auto count=0 min_active=2
+0      * reset
+0      * write length=4096
        < WRITE psn=0 ev=$first
        < WRITE psn=1 ev!=$first

test A17/5 wire-icrc must requester
    Payloads of every length are padded to a multiple of four, and the ICRC covers the pad.
+0      * write length=61
        < WRITE_ONLY psn=0 length=61 pad=3
+0      * write length=62
        < WRITE_ONLY psn=1 length=62 pad=2
+0      * write length=63
        < WRITE_ONLY psn=2 length=63 pad=1
        = icrc
        = well-formed

test 9.3.2/9 port-down-local must requester
    The second port as well: data leaves it at once, and takes it again when it is up.
+0      * port plane=1 up=0
+5ms    * write length=8192
        < WRITE psn=7
+1ms    ! WRITE plane=1
+0      * port plane=1 up=1
+5ms    * write length=8192
        < WRITE plane=1

test 7.4.8/9 port-down-remote info requester
    Is a port that the peer reports as down probed? Here within 150 ms, and an answer has data take it again.
+0      > ENDPOINT_REQUEST op=0 bth.psn=9 port_status_mask=4 plane=1 ev=4
        < ENDPOINT_RESPONSE bth.psn=9
+150ms  < ENDPOINT_REQUEST op=1 plane=0 bth.psn=$id tx_timestamp=$sent
+0      > ENDPOINT_RESPONSE op=1 bth.psn=$id tx_timestamp=$sent plane=0
+5ms    * write length=8192
        < WRITE plane=0

test 10.3.1/3 error-flush info responder
    Does the application see receive requests that wait when their queue pair fails flushed? Here each of them.
    device receives=3
+0      > WRITE_ONLY psn=0 length=64 r_key=1 a=1
        < ACKNOWLEDGE syndrome=REMOTE_ACCESS_ERROR
        * receives status=WR_FLUSH_ERR
        * receives status=WR_FLUSH_ERR
        * receives status=WR_FLUSH_ERR
+2ms    ! receives

test 6.5.2/2 reverse-probe info responder
    Do two queue pairs test their reverse paths each for itself? Here the second does, and an answer ends it.
    device pairs=2
+0      > WRITE_ONLY psn=0..20 length=64 a=1 pair=1
+200ms  < ENDPOINT_REQUEST op=1 bth.psn=$id tx_timestamp=$sent plane=0
+0      > ENDPOINT_RESPONSE op=1 bth.psn=$id tx_timestamp=$sent plane=0
+5ms    * wait
+100ms  ! ENDPOINT_REQUEST bth.psn=$id

test 9.3.2/10 port-silent info requester
    A plane on which nothing is answered while the other one is: after two losses in a row data leaves it.
    device timeout=18 evs=8
+0      * write length=32768
        < WRITE psn=31
+1ms    > SACK cack_psn=0 acked=2,4,6,8,10,12,14,16,18,20,22,24,26,28,30 trigger=30
+100ms  < WRITE psn=1 rtx=1
+5ms    * wait
+0      * write length=32768
        < WRITE psn=40
+1ms    ! WRITE psn>=33 rtx=0 plane=1

test mrc_ctl/7 ev-expansion must requester
    Fields of unlike widths and masks: each has its own bits of the EV, and a bit that none takes is refused.
    device evs=3
+0      * profile mode=explicit widths=6,10 field=6,0x10,0,0,0x21 field=10,0x200,0,0,0x1f count=2 evs=0x8200,0x8300 refused=EINVAL
+0      * profile mode=explicit widths=6,10 field=6,0x10,0,0,0x21 field=10,0x200,0,0,0x1f count=6 evs=0x8200,0xe000,0xbe00,0xcc00,0x9400,0xc000
+0      * reset
+0      * write length=49152
        < WRITE ev=0xc201
        < WRITE ev=0xc610
        < WRITE ev=0xc21f
        < WRITE ev=0xc606
        < WRITE ev=0xc20a
        < WRITE ev=0xc600

test 9.3.1/10 ev-resurrected info requester
    An EV of the second plane that lost packets is probed as well, and its answers bring it back. Here after three.
    device planes=2 evs=4 timeout=18
+0      * write length=16384
        < WRITE psn=15
        < WRITE psn=5 ev=$bad plane=1
+1ms    > SACK cack_psn=4 acked=6,7,8,9,10,11,12,13,14,15 trigger=15
        < WRITE psn=5 rtx=1 ev!=$bad
+1ms    > SACK cack_psn=15
+0      > ACKNOWLEDGE msn=1
+2s     < PROBE ev=$bad probe_id=$one
+0      > SACK pr=1 ack_psn_offset=$one cack_psn=15
+2s     < PROBE ev=$bad probe_id=$two probe_id!=$one
+0      > SACK pr=1 ack_psn_offset=$two cack_psn=15

# What the window does: how many packets have left after answers at given times. The figures are those of 100 Gb/s.

test table-8-1/2 nscc-decrease info requester
    Answers that are marked and 100 us late shrink the window. Here packet 403 is the last.
    device mpr=16 timeout=20 mtu=4096
+0      * write length=1048576 count=4
        < WRITE psn=8
+100us  > SACK cack_psn=37 seth.m=1
+100us  > SACK cack_psn=75 seth.m=1
+100us  > SACK cack_psn=125 seth.m=1
+100us  > SACK cack_psn=150 seth.m=1
+100us  > SACK cack_psn=175 seth.m=1
+100us  > SACK cack_psn=225 seth.m=1
+100us  > SACK cack_psn=275 seth.m=1
+400ms  < WRITE psn=403 rtx=0
+100us  ! WRITE psn>403 rtx=0

test table-8-1/3 nscc-fair info requester
    Answers that are late and not marked: the window grows by as much for all. Here to packet 494.
    device mpr=16 timeout=20 mtu=4096
+0      * write length=1048576 count=4
        < WRITE psn=8
+100us  > SACK cack_psn=37 seth.m=1
+100us  > SACK cack_psn=75 seth.m=1
+100us  > SACK cack_psn=125 seth.m=1
+100us  > SACK cack_psn=150 seth.m=1
+100us  > SACK cack_psn=175 seth.m=1
+100us  > SACK cack_psn=225 seth.m=1
+100us  > SACK cack_psn=275 seth.m=1
+40us   > SACK cack_psn=330
+40us   > SACK cack_psn=360
+400ms  < WRITE psn=494 rtx=0
+100us  ! WRITE psn>494 rtx=0

test table-8-1/4 nscc-proportional info requester
    Answers that come before the target delay: it grows with the head-room. Here to packet 530.
    device mpr=16 timeout=20 mtu=4096
+0      * write length=1048576 count=4
        < WRITE psn=8
+100us  > SACK cack_psn=37 seth.m=1
+100us  > SACK cack_psn=75 seth.m=1
+100us  > SACK cack_psn=125 seth.m=1
+100us  > SACK cack_psn=150 seth.m=1
+100us  > SACK cack_psn=175 seth.m=1
+100us  > SACK cack_psn=225 seth.m=1
+100us  > SACK cack_psn=275 seth.m=1
+400ms  < WRITE psn=380
+4us    > SACK cack_psn=380
+400ms  < WRITE psn=420
+4us    > SACK cack_psn=420
+400ms  < WRITE psn=460
+4us    > SACK cack_psn=460
+400ms  < WRITE psn=530 rtx=0
+100us  ! WRITE psn>530 rtx=0

test table-8-1/5 nscc-no-change info requester
    Answers that are marked and not late leave the window as it is. Here to packet 517.
    device mpr=16 timeout=20 mtu=4096
+0      * write length=1048576 count=4
        < WRITE psn=8
+100us  > SACK cack_psn=37 seth.m=1
+100us  > SACK cack_psn=75 seth.m=1
+100us  > SACK cack_psn=125 seth.m=1
+100us  > SACK cack_psn=150 seth.m=1
+100us  > SACK cack_psn=175 seth.m=1
+100us  > SACK cack_psn=225 seth.m=1
+100us  > SACK cack_psn=275 seth.m=1
+400ms  < WRITE psn=380
+0      > SACK cack_psn=380 seth.m=1
+400ms  < WRITE psn=420
+0      > SACK cack_psn=420 seth.m=1
+400ms  < WRITE psn=460
+0      > SACK cack_psn=460 seth.m=1
+400ms  < WRITE psn=517 rtx=0
+100us  ! WRITE psn>517 rtx=0

test 8.3/1 nscc-fast info requester
    Answers without any delay: the window grows by a quarter of what they acknowledge. Here to packet 2187.
    device mpr=16 timeout=20
+0      * write length=1048576 count=4
        < WRITE psn=8
+100us  > SACK cack_psn=150 seth.m=1
+100us  > SACK cack_psn=300 seth.m=1
+100us  > SACK cack_psn=500 seth.m=1
+100us  > SACK cack_psn=600 seth.m=1
+100us  > SACK cack_psn=700 seth.m=1
+100us  > SACK cack_psn=900 seth.m=1
+100us  > SACK cack_psn=1100 seth.m=1
+100us  > SACK cack_psn=1300 seth.m=1
+400ms  < WRITE psn=1600
+0      > SACK cack_psn=1600
+400ms  < WRITE psn=1700
+0      > SACK cack_psn=1700
+400ms  < WRITE psn=1800
+0      > SACK cack_psn=1800
+400ms  < WRITE psn=1900
+0      > SACK cack_psn=1900
+400ms  < WRITE psn=2187 rtx=0
+100us  ! WRITE psn>2187 rtx=0

test 8.3/2 nscc-quick-adapt info requester
    When most of what was sent is trimmed, the window becomes what arrived meanwhile. Here packet 358 is the last.
    device mpr=16 timeout=20
+0      * write length=1048576
        < WRITE psn=8
+0      > SACK cack_psn=8 rcvd_bytes=45
+2us    > NACK nack_psn=9..80 nack_reason=TRIMMED
+25us   > SACK cack_psn=8 acked=9,10,11,12 trigger=12 rcvd_bytes=65
+1us    > NACK nack_psn=81..90 nack_reason=TRIMMED
+50us   > SACK cack_psn=12 rcvd_bytes=700
+50us   > SACK cack_psn=150 rcvd_bytes=900
+400ms  < WRITE psn=358 rtx=0
+100us  ! WRITE psn>358 rtx=0

test 8.3/3 nscc-quick-adapt info requester
    A full window that brings nothing but the trim of a packet is closed. Here 32 packets that are acknowledged, late
    and marked, let no new one leave.
    device mpr=16 timeout=20
+0      * write length=64
        < WRITE_ONLY psn=0
+0      > SACK cack_psn=0
+0      > ACKNOWLEDGE msn=1
+1ms    * write length=1048576
        < WRITE psn=8
+20us   > NACK nack_psn=1 nack_reason=TRIMMED
+20us   > SACK cack_psn=0 acked=2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32,33 rcvd_bytes=160 seth.m=1
+20us   ! WRITE psn>=180 rtx=0
