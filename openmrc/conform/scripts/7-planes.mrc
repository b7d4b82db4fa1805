# Four planes: what two do not show of masks, turns and shares.

test 9.3.2/12 spray-planes must both
    Four planes carry the same share of a transfer, and all of it arrives.
    device planes=4
+0      * write length=65536 count=4
+20s    < ACKNOWLEDGE msn=4
        * memory offset=0..65535 fill=1
        = plane-shares

test 9.3.2/13 port-silent should both
    Two of four planes die without a word, then the other two instead: each time what is left carries the transfer.
    device planes=4 timeout=14 linear=7 exponential=7
        : drop ANY plane=1
        : drop ANY plane=2
+0      * write length=50000
+10s    * completes status=SUCCESS
        : nothing
+2s     * wait
        : drop ANY plane=0
        : drop ANY plane=3
+0      * write length=50000 fill=2
+10s    * completes status=SUCCESS
        * memory offset=0..49999 fill=2

test 7.4.8/10 port-down-remote must requester
    Of four ports the peer reports two as down: data takes the other two, and all of them once they are up again.
    device planes=4 evs=2
+0      > ENDPOINT_REQUEST op=0 bth.psn=9 port_status_mask=20 plane=1 ev=2
        < ENDPOINT_RESPONSE bth.psn=9 plane=1
+0      * write length=65536
        < WRITE psn=63
        < WRITE plane=1
        < WRITE plane=3
+1ms    ! WRITE plane=0
        ! WRITE plane=2
+0      > SACK cack_psn=63 plane=1 ev=2
+0      > ACKNOWLEDGE msn=1 plane=1 ev=2
        * completes status=SUCCESS
+5ms    > ENDPOINT_REQUEST op=0 bth.psn=10 port_status_mask=30 plane=3 ev=6
        < ENDPOINT_RESPONSE bth.psn=10 plane=3
+0      * write length=65536
        < WRITE plane=0
        < WRITE plane=1
        < WRITE plane=2
        < WRITE plane=3

test 7.4.8/11 port-down-remote must responder
    Answers leave by the ports of four that the peer has reported as up: by the third, then by the first and the fourth.
    device planes=4 evs=1
+0      > ENDPOINT_REQUEST op=0 bth.psn=9 port_status_mask=8 plane=2 ev=2
        < ENDPOINT_RESPONSE bth.psn=9 plane=2
+0      > WRITE_ONLY psn=0 length=64 a=1 plane=0 ev=0
        < SACK cack_psn=0 plane=2
        < ACKNOWLEDGE msn=1 plane=2
+5ms    > ENDPOINT_REQUEST op=0 bth.psn=10 port_status_mask=18 plane=3 ev=3
        < ENDPOINT_RESPONSE bth.psn=10 plane=3
+0      > WRITE_ONLY psn=1..6 length=64 a=1 plane=1 ev=1
        < ACKNOWLEDGE msn=7 plane!=1
+5ms    ! ANSWER plane=1
        ! ANSWER plane=2

test 9.3.2/14 port-down-local must requester
    Data leaves the third and the fourth of four ports as they go down, and takes the third again when it is up.
    device planes=4 evs=2
+0      * port plane=2 up=0
+0      * port plane=3 up=0
+5ms    * write length=65536
        < WRITE psn=63
        < WRITE plane=0
        < WRITE plane=1
+1ms    ! WRITE plane=2
        ! WRITE plane=3
+0      > SACK cack_psn=63
+0      > ACKNOWLEDGE msn=1
        * completes status=SUCCESS
+0      * port plane=2 up=1
+5ms    * write length=65536
        < WRITE psn=127
        < WRITE plane=2
+1ms    ! WRITE plane=3

test 7.4.8/12 port-status-schedule info requester
    Which ports does an update name, and on which does it leave? Here those that are up, bit n for port n, in turn.
    device planes=4 evs=1
+0      * port plane=2 up=0
        < ENDPOINT_REQUEST op=0 port_status_mask=22 plane=0
        < ENDPOINT_REQUEST op=0 port_status_mask=22 plane=1
        < ENDPOINT_REQUEST op=0 port_status_mask=22 plane=3
+5ms    * port plane=0 up=0
        < ENDPOINT_REQUEST op=0 port_status_mask=20 plane=1
        < ENDPOINT_REQUEST op=0 port_status_mask=20 plane=3
+5ms    * port plane=2 up=1
        < ENDPOINT_REQUEST op=0 port_status_mask=28 plane=1
        < ENDPOINT_REQUEST op=0 port_status_mask=28 plane=2

test 7.4.8/13 port-down-remote info requester
    Which of several ports that the peer reports as down are probed? Here each in turn, 100 ms apart; an answer brings
    back one of them.
    device planes=4 evs=2
+0      > ENDPOINT_REQUEST op=0 bth.psn=9 port_status_mask=4 plane=1 ev=2
        < ENDPOINT_RESPONSE bth.psn=9
+90ms..110ms < ENDPOINT_REQUEST op=1 plane=0
+90ms..110ms < ENDPOINT_REQUEST op=1 plane=2 bth.psn=$id tx_timestamp=$sent
+0      > ENDPOINT_RESPONSE op=1 bth.psn=$id tx_timestamp=$sent plane=2 ev=4
+5ms    * write length=65536
        < WRITE psn=63
        < WRITE plane=1
        < WRITE plane=2
+1ms    ! WRITE plane=0
        ! WRITE plane=3

test 7.5/16 reverse-planes info responder
    On which planes do answers leave, where packets arrive on several? Here each SACK on that of its packet at first.
    device planes=4 evs=1
+0      > WRITE_ONLY psn=0 ev=2 length=64 a=1
        < SACK cack_psn=0 plane=2
        < ACKNOWLEDGE msn=1 plane=2
+0      > WRITE_ONLY psn=1 ev=1 length=64 a=1
        < SACK cack_psn=1 plane=1
        < ACKNOWLEDGE msn=2 plane=1
+0      > WRITE_ONLY psn=2 ev=3 length=64 a=1
        < SACK cack_psn=2 plane=3
        < ACKNOWLEDGE msn=3 plane=3
+1ms    > WRITE_ONLY psn=3..4 ev=0..1 length=64
+0      > WRITE_ONLY psn=5 ev=2 length=64 a=1
        < SACK cack_psn=5 plane=$first
        < ACKNOWLEDGE msn=6 plane=$second
+0      > PROBE probe_id=1 ev=3
        < SACK pr=1 plane=$third

test 6.5.2/3 reverse-probe info responder
    Which planes does a responder that sends nothing test? Here all of four, and ends when nothing more arrives.
    device planes=4 evs=2
+0      > WRITE_ONLY psn=0..20 length=64 a=1
+200ms  < ENDPOINT_REQUEST op=1 plane=0
+200ms  < ENDPOINT_REQUEST op=1 plane=1
+200ms  < ENDPOINT_REQUEST op=1 plane=2
+200ms  < ENDPOINT_REQUEST op=1 plane=3
+300ms  * wait
+100ms  ! ENDPOINT_REQUEST

test 6.5.2/4 reverse-probe info responder
    Which EV do answers take after the answer to an EV probe? Here the one that was probed.
    device planes=1 evs=8
+0      > WRITE_ONLY psn=0 length=64 a=1
        < SACK cack_psn=0 ev=$before
+200ms  < ENDPOINT_REQUEST op=1 ev=$path ev!=$before bth.psn=$id tx_timestamp=$sent
+0      > ENDPOINT_RESPONSE op=1 bth.psn=$id tx_timestamp=$sent
+0      > WRITE_ONLY psn=1 length=64 a=1
        < SACK cack_psn=1 ev=$path

test 9.3.2/16 port-silent info requester
    How often is a plane probed on which nothing is answered, within 5 ms?
    device timeout=20 evs=8
+0      * write length=32768
        < WRITE psn=31
+1ms    > SACK cack_psn=0 acked=2,4,6,8,10,12,14,16,18,20,22,24,26,28,30 trigger=30
+100ms  < WRITE psn=1 rtx=1
+1ms    > SACK cack_psn=31
+0      > ACKNOWLEDGE msn=1
+5ms    * wait
        ? PROBE plane=1 count=$probes
        ? PROBE plane=0 count=$others

# What repair costs: how many packets two devices send for a transfer with losses. None of it is published.

test 7.4.4/14 retransmission info both
    How much is sent again where every tenth packet is lost once, on four planes?
    device planes=4 timeout=18
        : drop WRITE every=10
+0      * write length=65536 count=4
+20s    < ACKNOWLEDGE msn=4
        ? WRITE rtx=1 count=$again
        ? PROBE count=$probes
        ? SACK count=$sacks
        ? ACKNOWLEDGE count=$acknowledgements
        ? WRITE plane=0 count=$first
        ? WRITE plane=3 count=$fourth

test 9.3.1/16 ev-lost info both
    How many packets does a path take that loses everything, and how many probes until it is used again?
    device planes=1 evs=8 timeout=18
        : drop WRITE nth=1 ev=$bad
        : drop WRITE ev=$bad
        : drop PROBE nth=1..3 ev=$bad
+0      * write length=1024 count=200
+20s    < ACKNOWLEDGE msn=200
        : nothing
+50ms   * wait
+0      * write length=1024 count=100
+20s    < ACKNOWLEDGE msn=300
        ? WRITE ev=$bad count=$taken
        ? PROBE ev=$bad count=$probes
        ? WRITE rtx=1 count=$again

test 9.3.2/15 port-silent info both
    What does a plane cost that dies without a word, and comes back?
    device planes=4 timeout=18
        : drop ANY plane=2
+0      * write length=65536 count=4
+20s    < ACKNOWLEDGE msn=4
        ? WRITE plane=2 count=$lost
        ? PROBE count=$probes
        ? WRITE rtx=1 count=$again
        : nothing
+50ms   * wait
+0      * write length=65536 count=4
+20s    < ACKNOWLEDGE msn=8
        ? WRITE plane=2 count=$used
        ? ENDPOINT_REQUEST count=$requests

test table-7-3/12 trim-nack info both
    What do trims cost? Every seventh packet is trimmed, every eleventh on the last hop, and each third is marked.
    device timeout=18
        : trim WRITE every=7
        : trim-last WRITE every=11
        : mark WRITE every=3
+0      * write length=65536 count=4
+20s    < ACKNOWLEDGE msn=4
        ? WRITE rtx=1 count=$again
        ? NACK nack_reason=TRIMMED count=$trimmed
        ? SACK seth.m=1 count=$marked
        ? PROBE count=$probes

test 7.4.5/7 loss-overtaken info both
    What do packets cost that are late by 18 us: how many are sent again, how many reports are asked for?
    device timeout=18 planes=4
        : delay WRITE every=6 us=18
        : drop WRITE every=31
+0      * write length=65536 count=4
+20s    < ACKNOWLEDGE msn=4
        ? WRITE rtx=1 count=$again
        ? PROBE count=$probes
        ? SACK count=$sacks
