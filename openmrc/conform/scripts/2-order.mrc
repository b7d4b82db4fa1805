# Packets in and out of order, twice, too old, too new. The device is the responder.

test 6.3.1/1 psn-new must responder
    Packets of a message that arrive in reverse are placed; the left edge closes with the last of them.
+0      > WRITE_LAST   psn=3 msn=0 length=1024 dmalen=4096
+0      > WRITE_MIDDLE psn=2 msn=0 length=1024 dmalen=4096
+0      > WRITE_MIDDLE psn=1 msn=0 length=1024 dmalen=4096
        * memory offset=1024..4095 fill=1
+20ms   ! ACKNOWLEDGE
+0      > WRITE_FIRST  psn=0 msn=0 length=1024 dmalen=4096 a=1
        < SACK cack_psn=3
        < ACKNOWLEDGE msn=1
        * memory offset=0..4095 fill=1

test 6.3.1/2 psn-new must responder
    Messages that arrive in reverse are placed, and acknowledged together.
+0      > WRITE_ONLY psn=3..1 length=64
        * memory offset=1024..1087 fill=1
+20ms   ! ACKNOWLEDGE
+0      > WRITE_ONLY psn=0 length=64 a=1
        < ACKNOWLEDGE msn=4

test 6.3.1/3 psn-old must responder
    A duplicate behind the left edge is not written, and is answered by a SACK and a transport ACK.
+0      > WRITE_ONLY psn=0..1 length=64 a=1
        < SACK cack_psn=1
        < ACKNOWLEDGE msn=2
+5ms    > WRITE_ONLY psn=0 length=64 fill=9
        < SACK cack_psn=1 trigger=0
        < ACKNOWLEDGE msn=2
        * memory offset=0..63 fill=1

test 6.3.1/4 psn-duplicate-ahead must responder
    A duplicate beyond the left edge is not written, and is answered by a SACK only.
+0      > WRITE_ONLY psn=1 length=64 a=1
        < SACK cack_psn=-1 acked=1
+5ms    > WRITE_ONLY psn=1 length=64 fill=9
        < SACK cack_psn=-1 acked=1 trigger=1
+20ms   ! ACKNOWLEDGE
        * memory offset=1024..1087 fill=1

test 6.3.1/5 psn-old info responder
    A PSN half the ring behind the left edge is neither old nor new: here it is dropped silently.
+0      > WRITE_ONLY psn=0 length=64 a=1
        < ACKNOWLEDGE msn=1
+5ms    > WRITE_ONLY psn=-8388607 length=64 offset=2048 a=1
+30ms   ! ANSWER
        * memory offset=2048..2111 fill=0

test 6.3.1/6 psn-new must responder
    A PSN well inside the window that the device grants (MPR x 128) is taken.
    device mpr=8
+0      > WRITE_ONLY psn=1000 length=64 offset=0 a=1
        < SACK cack_psn=-1 trigger=1000
        * memory offset=0..63 fill=1

test 6.3.1/7 psn-window info responder
    The last PSN of the window: readers differ by one on its right edge. Here it is taken.
    device mpr=8
+0      > WRITE_ONLY psn=1023 length=64 offset=0 a=1
        < SACK cack_psn=-1 trigger=1023
        * memory offset=0..63 fill=1

test 6.3.1/8 psn-out-of-window should responder
    A PSN beyond the window is not written.
    device mpr=8
+0      > WRITE_ONLY psn=1040 length=64 offset=0 a=1
+30ms   ! SACK trigger=1040
        * memory offset=0..63 fill=0

test 6.3.1/9 psn-out-of-window info responder
    A PSN beyond the window: dropped silently, as the acceptance rules say, or refused as the table of NACKs does?
    device mpr=8
+0      > WRITE_ONLY psn=1040 length=64 offset=0 a=1
+30ms   ! NACK

test 6.3.1/10 psn-wrap must responder
    PSNs count on a ring of 24 bits: a message across the end of it is placed, in any order.
    device first_psn=0xfffffe
+0      > WRITE_LAST   psn=3 msn=0 length=1024 dmalen=4096 a=1
        < SACK cack_psn=-1 acked=3
+0      > WRITE_MIDDLE psn=1..2 msn=0 length=1024 dmalen=4096
+0      > WRITE_FIRST  psn=0 msn=0 length=1024 dmalen=4096 a=1
        < SACK cack_psn=3
        < ACKNOWLEDGE msn=1
        * memory offset=0..4095 fill=1

test 6.1/1 wimm-order must responder
    An immediate is handed over once everything before it has arrived, though its data lands at once.
+0      > WRITE_ONLY_IMM psn=1 rqmsn=0 immediate=0xabcd length=64
        * memory offset=1024..1087 fill=1
+20ms   ! receives
+0      > WRITE_ONLY psn=0 length=64 a=1
        * receives immediate=0xabcd length=64

test 6.1/2 wimm-order must responder
    Immediates that arrive in reverse are handed over in order.
+0      > WRITE_ONLY_IMM psn=2..0 rqmsn=2..0 immediate=2..0 length=64
        * receives immediate=0
        * receives immediate=1
        * receives immediate=2

test 6.1/3 empty-message info responder
    An empty write with immediate. Here handed over with length 0.
+0      > WRITE_ONLY_IMM psn=0 rqmsn=0 immediate=7 length=0 a=1
        * receives immediate=7 length=0
        < ACKNOWLEDGE msn=1

test 6.1/4 wimm-order must responder
    The length handed over is that of the whole message.
+0      > WRITE psn=0 length=3000 immediate=5 rqmsn=0 a=1
        * receives immediate=5 length=3000

test 6.1/5 wimm-order must responder
    A duplicate of a write with immediate hands over nothing a second time.
+0      > WRITE_ONLY_IMM psn=0 rqmsn=0 immediate=7 length=64 a=1
        * receives immediate=7
+5ms    > WRITE_ONLY_IMM psn=0 rqmsn=0 immediate=7 length=64 a=1
        < SACK cack_psn=0
+20ms   ! receives

test 6.1/6 wimm-overflow info responder
    A write with immediate beyond what the device accepts in flight: here an invalid request.
    device max_wimm=2
+0      > WRITE_ONLY_IMM psn=1 rqmsn=7 immediate=1 length=64 a=1
        < ACKNOWLEDGE syndrome=INVALID_REQUEST

test 6.1/7 wimm-no-receive info responder
    A write with immediate for which no receive is posted: here a remote operational error.
    device receives=0
+0      > WRITE_ONLY_IMM psn=0 rqmsn=0 immediate=1 length=64 a=1
        < ACKNOWLEDGE syndrome=REMOTE_OPERATIONAL_ERROR

test 10.6/1 access-checked must responder
    A write with another R_Key is refused by a remote access error and writes nothing.
+0      > WRITE_ONLY psn=0 length=64 a=1 r_key=0x0badbeef
        < ACKNOWLEDGE syndrome=REMOTE_ACCESS_ERROR
        * memory offset=0..63 fill=0

test 10.6/7 access-checked must responder
    Nor is a key accepted that differs from the right one in its upper bits only.
+0      > WRITE_ONLY psn=0 length=64 a=1 r_key=$key+65536
        < ACKNOWLEDGE syndrome=REMOTE_ACCESS_ERROR
        * memory offset=0..63 fill=0

test 10.6/2 access-checked must responder
    A write beyond the end of the region is refused, and writes nothing of it.
    device bytes=4096
+0      > WRITE_ONLY psn=0 length=128 offset=4032 a=1
        < ACKNOWLEDGE syndrome=REMOTE_ACCESS_ERROR
        * memory offset=4032..4095 fill=0

test 10.6/3 access-checked must responder
    A write before the start of the region is refused.
+0      > WRITE_ONLY psn=0 length=128 va=-64 a=1
        < ACKNOWLEDGE syndrome=REMOTE_ACCESS_ERROR
        * memory offset=0..63 fill=0

test 10.6/4 access-checked must responder
    A write to a region registered without the right of remote write is refused.
    device writable=0
+0      > WRITE_ONLY psn=0 length=64 a=1
        < ACKNOWLEDGE syndrome=REMOTE_ACCESS_ERROR
        * memory offset=0..63 fill=0

test 10.6/5 access-checked must responder
    An address near the top of 64 bits does not wrap into the region.
+0      > WRITE_ONLY psn=0 length=64 va=-32 a=1
        < ACKNOWLEDGE syndrome=REMOTE_ACCESS_ERROR
        * memory offset=0..63 fill=0

test 10.6/6 access-checked must responder
    After a refusal nothing more is written.
+0      > WRITE_ONLY psn=0 length=64 a=1 r_key=0x0badbeef
        < ACKNOWLEDGE syndrome=REMOTE_ACCESS_ERROR
+5ms    > WRITE_ONLY psn=1 length=64 offset=2048 a=1
+30ms   ! SACK
        * memory offset=2048..2111 fill=0

test 9.7.4/1 length-checked must responder
    A payload longer than the path MTU is an invalid request.
+0      > WRITE_ONLY psn=0 length=1028 a=1
        < ACKNOWLEDGE syndrome=INVALID_REQUEST
        * memory offset=0..1027 fill=0

test 9.7.4/2 length-checked must responder
    A payload longer than its message (DMALEN) is an invalid request.
+0      > WRITE_ONLY psn=0 length=128 dmalen=64 a=1
        < ACKNOWLEDGE syndrome=INVALID_REQUEST
        * memory offset=0..127 fill=0

test 9.7.4/3 length-checked should responder
    A First that does not fill the path MTU is an invalid request.
+0      > WRITE_FIRST psn=0 length=512 dmalen=2048 a=1
        < ACKNOWLEDGE syndrome=INVALID_REQUEST
        * memory offset=0..511 fill=0

test 9.7.4/4 length-checked should responder
    A Middle that does not fill the path MTU is an invalid request.
+0      > WRITE_FIRST psn=0 msn=0 length=1024 dmalen=3072
+5ms    > WRITE_MIDDLE psn=1 msn=0 length=512 dmalen=3072 a=1
        < ACKNOWLEDGE syndrome=INVALID_REQUEST
        * memory offset=1024..1535 fill=0

test 9.7.4/5 length-checked should responder
    A Last that does not bring its message to its length is an invalid request.
+0      > WRITE_FIRST psn=0 msn=0 length=1024 dmalen=1536
+5ms    > WRITE_LAST psn=1 msn=0 length=256 dmalen=1536 a=1
        < ACKNOWLEDGE syndrome=INVALID_REQUEST
        * memory offset=1024..1279 fill=0

test 10.6/8 access-checked should responder
    A refusal names the PSN of the write that it refuses, and counts the messages before it.
+0      > WRITE_ONLY psn=0..1 length=64
+5ms    > WRITE_ONLY psn=2 length=64 a=1 r_key=0x0badbeef
        < ACKNOWLEDGE syndrome=REMOTE_ACCESS_ERROR psn=2 msn=2

test 6.1/12 wimm-numbers must responder
    As many writes with immediate may be in flight as the device accepts: the last of them is placed before the first.
    device max_wimm=3
+0      > WRITE_ONLY_IMM psn=2 rqmsn=2 immediate=2 length=64 a=1
        < SACK cack_psn=-1 acked=2
        * memory offset=2048..2111 fill=1
+0      > WRITE_ONLY_IMM psn=0..1 rqmsn=0..1 immediate=0..1 length=64
        * receives immediate=0
        * receives immediate=1
        * receives immediate=2

test 6.1/13 wimm-overflow info responder
    One more write with immediate than the device accepts in flight. Here an invalid request.
    device max_wimm=3
+0      > WRITE_ONLY_IMM psn=3 rqmsn=3 immediate=3 length=64 a=1
        < ACKNOWLEDGE syndrome=INVALID_REQUEST
