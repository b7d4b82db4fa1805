# Two devices, and the tester between them: it drops, trims, marks, delays, duplicates, reorders and corrupts.

test 6.2.2/15 wire-order must both
    A message passes through the relay unharmed: every byte arrives, the request completes, all packets are well-formed.
+0      * write length=20000
        * completes status=SUCCESS
        * memory offset=0..19999 fill=1
        = well-formed
        = icrc
        = constants
        = reserved-bits
        = segmentation
        = reth
        = message-numbers
        = new-psns
        = sack-truth
        = acknowledgements
        = received-bytes
        = control-class

test 7.4.4/9 retransmission must both
    A dropped packet is sent again on another EV, and the message arrives whole.
        : drop WRITE psn=7 nth=1
+0      * write length=20000
+5s     * completes status=SUCCESS
        * memory offset=0..19999 fill=1
        = retransmissions
        = other-path

test 7.4.4/10 retransmission must both
    A packet whose first three transmissions are lost arrives with the fourth.
        : drop WRITE psn=3 nth=1..3
+0      * write length=8192
+5s     * completes status=SUCCESS
        * memory offset=0..8191 fill=1
        = retransmissions

test 7.4.4/11 retransmission must both
    The first packet of a connection may be lost.
        : drop WRITE psn=0 nth=1
+0      * write length=64
+5s     * completes status=SUCCESS
        * memory offset=0..63 fill=1

test 7.4.4/12 retransmission must both
    The last packet of a message may be lost.
        : drop WRITE psn=7 nth=1
+0      * write length=8192
+5s     * completes status=SUCCESS
        * memory offset=0..8191 fill=1
        = retransmissions

test A17/4 wire-icrc must both
    A packet that is corrupted on the way is as good as lost: it is sent again and nothing wrong is written.
        : corrupt WRITE psn=2 nth=1
+0      * write length=8192
+5s     * completes status=SUCCESS
        * memory offset=0..8191 fill=1
        = retransmissions

test table-7-3/7 trim-nack must both
    A packet that a switch trims is refused and sent again, well before the timeout of 268 ms.
    device timeout=18
        : trim WRITE psn=3 nth=1
+0      * write length=8192
+100ms  < NACK nack_reason=TRIMMED nack_psn=3
+100ms  < WRITE psn=3 rtx=1
+1s     * completes status=SUCCESS
        * memory offset=0..8191 fill=1
        = trims-answered
        = retransmissions
        = other-path

test table-7-3/8 trim-nack must both
    So is one that the last switch trims.
    device timeout=18
        : trim-last WRITE psn=3 nth=1
+0      * write length=8192
+100ms  < NACK nack_reason=TRIMMED_LASTHOP nack_psn=3
+1s     * completes status=SUCCESS
        * memory offset=0..8191 fill=1

test 9.3.1/2 ev-trimmed must both
    The EV of a trimmed packet is skipped: the next packet does not take it.
    device timeout=18 planes=1
        : trim WRITE psn=0 nth=1
+0      * write length=64
        < WRITE psn=0 ev=$trimmed
        < NACK nack_reason=TRIMMED
        < WRITE psn=0 rtx=1 ev!=$trimmed
        * completes status=SUCCESS

test 9.3.1/3 ev-skip-once must both
    Every mark is answered by a SACK that names its EV.
        : mark WRITE psn=4..6
+0      * write length=20000
+5s     * completes status=SUCCESS
        * memory offset=0..19999 fill=1
        = marks-answered

test 9.3.1/4 ev-lost must both
    A path on which everything vanishes carries no more than a few packets before it is left alone.
    device planes=1 evs=8
        : drop WRITE nth=1 ev=$bad
        : drop WRITE ev=$bad
        : drop PROBE ev=$bad
+0      * write length=1024 count=200
+20s    * completes status=SUCCESS
+20s    < ACKNOWLEDGE msn=200
        * memory offset=0..1023 fill=1

test 9.3.1/6 ev-lost info both
    A path on which everything vanished is left alone. Here not used by the next transfer, for 40 ms.
    device planes=1 evs=8
        : drop WRITE nth=1 ev=$bad
        : drop WRITE ev=$bad
        : drop PROBE ev=$bad
+0      * write length=1024 count=200
+20s    < ACKNOWLEDGE msn=200
+0      * write length=1024 count=40
+40ms   ! WRITE ev=$bad

test 6.3.1/13 psn-new must both
    Packets that overtake each other are placed; the message completes once.
        : hold WRITE every=3 n=4
+0      * write length=30000
+5s     * completes status=SUCCESS
        * memory offset=0..29999 fill=1
+20ms   ! completes

test 6.3.1/14 psn-old must both
    Packets that arrive twice change nothing: one completion, the right bytes, one immediate.
        : duplicate WRITE every=2
+0      * write length=20000 immediate=9
+5s     * completes status=SUCCESS
        * receives immediate=9 length=20000
        * memory offset=0..19999 fill=1
+50ms   ! receives

test 6.3.1/15 psn-wrap must both
    A message across the end of the ring of PSNs survives a loss.
    device first_psn=0xfffffc
        : drop WRITE psn=5 nth=1
+0      * write length=20000
+5s     * completes status=SUCCESS
        * memory offset=0..19999 fill=1

test 7.4.6/4 sack-trigger-probe must both
    Lost SACKs are made up for: all are dropped for a while, and the message completes.
        : drop SACK nth=1..20
+0      * write length=20000
+10s    * completes status=SUCCESS
        * memory offset=0..19999 fill=1

test 7.5/9 transport-ack should both
    A lost transport ACK is made up for.
        : drop ACKNOWLEDGE nth=1
+0      * write length=2048
+5s     * completes status=SUCCESS

test 7.5/10 transport-ack should both
    Acknowledgements that come twice complete nothing twice.
        : duplicate ANSWER
+0      * write length=8192 count=2
+5s     * completes status=SUCCESS
        * completes status=SUCCESS
+20ms   ! completes

test table-7-3/9 nack-codes should both
    A NACK that comes twice is acted on once: one retransmission, or one more that is harmless.
        : trim WRITE psn=3 nth=1
        : duplicate NACK
+0      * write length=8192
+5s     * completes status=SUCCESS
        * memory offset=0..8191 fill=1

test 6.1/11 wimm-order must both
    Immediates arrive in order though packets are lost.
        : drop WRITE psn=2 nth=1
        : drop WRITE psn=5 nth=1
+0      * write length=3000 immediate=1
+0      * write length=3000 immediate=2
+0      * write length=3000 immediate=3
+5s     * receives immediate=1 length=3000
+5s     * receives immediate=2 length=3000
+5s     * receives immediate=3 length=3000

test 9.3.2/3 port-all-down should both
    When everything is lost for 100 ms on all planes, the transfer continues afterwards.
    device timeout=14 linear=7 exponential=7
        : drop ANY
+0      * write length=20000
+100ms  * wait
        : nothing
+20s    * completes status=SUCCESS
        * memory offset=0..19999 fill=1

test 9.3.2/4 port-silent should both
    When one plane dies without a word, the other carries the transfer.
    device timeout=14 linear=7 exponential=7
        : drop ANY plane=1
+0      * write length=50000
+10s    * completes status=SUCCESS
        * memory offset=0..49999 fill=1

test table-8-1/1 nscc-decrease should both
    Marks with delay are answered by less: of a long transfer whose packets are all marked and late, fewer are in flight.
    device mpr=16
        : mark WRITE us=3000
        : delay PROBE us=3000
+0      * write length=1024
+2s     < ACKNOWLEDGE msn=1
+0      * write length=65536 count=8
+20s    < ACKNOWLEDGE msn=9
        = window-shrinks

test 7.4.5/4 loss-gap should both
    Every tenth packet of a long message is lost once: all of it arrives.
        : drop WRITE every=10
+0      * write length=60000
+20s    * completes status=SUCCESS
        * memory offset=0..59999 fill=1
        = retransmissions

test 7.4.5/5 rtt-smoothing info both
    Packets that are late by 2 ms now and then are not lost. Here the transfer completes.
        : delay WRITE every=7 us=2000
+0      * write length=30000
+10s    * completes status=SUCCESS
        * memory offset=0..29999 fill=1

test 9.3.1/5 ev-resurrected info both
    A path that lost packets and works again carries data again after probes. Here within 10 s.
    device planes=1 evs=4
        : drop WRITE nth=1 ev=$bad
        : drop PROBE nth=1 ev=$bad
+0      * write length=1024 count=40
+20s    < ACKNOWLEDGE msn=40
+10s    < PROBE ev=$bad

test 9.3.2/1 spray-planes must both
    Both planes carry the same share of a long transfer.
+0      * write length=65536 count=16
+20s    < ACKNOWLEDGE msn=16
        = plane-shares
