# What a requester sends, and how it takes answers. The device is the requester: it writes to the tester.

test 6.2.2/10 segmentation must requester
    A message is cut at the path MTU into First, Middles and Last; lengths add up to the message.
+0      * write length=3500
        < WRITE_FIRST  psn=0 length=1024
        < WRITE_MIDDLE psn=1 length=1024
        < WRITE_MIDDLE psn=2 length=1024
        < WRITE_LAST   psn=3 length=428
        = segmentation
        = well-formed
        = icrc
        = constants
        = reserved-bits

test 6.2.2/11 segmentation must requester
    A message that fits one packet is an Only.
+0      * write length=1024
        < WRITE_ONLY psn=0 length=1024 dmalen=1024

test 6.2.2/12 empty-message info requester
    An empty message. Here one packet without payload.
+0      * write length=0
        < WRITE_ONLY psn=0 length=0 dmalen=0
+0      > SACK cack_psn=0
+0      > ACKNOWLEDGE msn=1
        * completes status=SUCCESS

test 6.2.2/13 wimm-opcodes must requester
    The immediate is in the last packet of its message only.
+0      * write length=2500 immediate=0x11223344
        < WRITE_FIRST psn=0
        < WRITE_MIDDLE psn=1
        < WRITE_LAST_IMM psn=2 immediate=0x11223344

test 6.2.2/14 wimm-opcodes must requester
    A short write with immediate is an Only with Immediate.
+0      * write length=10 immediate=7
        < WRITE_ONLY_IMM psn=0 length=10 immediate=7

test table-6-5/1 reth-in-every-packet must requester
    Every packet has a RETH: the address advances by the MTU, the length stays that of the message.
+0      * write length=3000 offset=4096
        < WRITE_FIRST  psn=0 va=4096 dmalen=3000
        < WRITE_MIDDLE psn=1 va=5120 dmalen=3000
        < WRITE_LAST   psn=2 va=6144 dmalen=3000
        = reth

test table-6-8/1 message-numbers must requester
    All packets of a message carry its MSN; MSNs count messages from 0.
+0      * write length=2048 count=3
        < WRITE_LAST psn=1 meth.msn=0
        < WRITE_LAST psn=3 meth.msn=1
        < WRITE_LAST psn=5 meth.msn=2
        = message-numbers

test table-6-8/2 message-numbers must requester
    RQMSN counts writes with immediate, and is the same in all packets of one.
    device max_wimm=4
+0      * write length=2048 immediate=1 count=2
        < WRITE_FIRST psn=0 rqmsn=$first
        < WRITE_LAST_IMM psn=1 rqmsn=$first
        < WRITE_FIRST psn=2 rqmsn=$first+1
        < WRITE_LAST_IMM psn=3 rqmsn=$first+1
        = message-numbers

test table-6-4/4 message-numbers must requester
    PSNs are 24 bits and wrap.
    device first_psn=0xfffffe
+0      * write length=4096
        < WRITE_FIRST bth.psn=0xfffffe
        < WRITE_MIDDLE bth.psn=0xffffff
        < WRITE_MIDDLE bth.psn=0
        < WRITE_LAST bth.psn=1
        = new-psns
+0      > SACK cack_psn=3
+0      > ACKNOWLEDGE msn=1
        * completes status=SUCCESS

test table-6-4/5 wire-opcodes must requester
    The first transmission of a packet does not say rtx.
+0      * write length=2048
        < WRITE_FIRST psn=0 rtx=0
        < WRITE_LAST psn=1 rtx=0

test 7.5.2/12 ack-request must requester
    The last packet before the sender goes idle requests a report.
+0      * write length=2048
        < WRITE_LAST psn=1 a=1 rtx=0
        = ends-with-request

test table-6-6/1 wire-layout should requester
    The timestamp of packets advances with time: 20 ms are some 156,250 units of 128 ns or 20,000 of 1 us.
+0      * write length=64
        < WRITE_ONLY psn=0 ts=1 tx_timestamp=$first tsr=$unit
+20ms   * write length=64
        < WRITE_ONLY psn=1 ts=1 tx_timestamp!=$first tsr=$unit

test 7.5/6 sack-not-completion must requester
    A SACK completes no request: the transport ACK does.
+0      * write length=64
        < WRITE_ONLY psn=0
+0      > SACK cack_psn=0
+20ms   ! completes
+0      > ACKNOWLEDGE msn=1
        * completes status=SUCCESS

test 6.1/8 completion-order must requester
    One acknowledgement completes all messages that it counts.
+0      * write length=64 count=3
        < WRITE psn=2
+0      > SACK cack_psn=2
+0      > ACKNOWLEDGE msn=3
        * completes status=SUCCESS
        * completes status=SUCCESS
        * completes status=SUCCESS

test 6.1/9 completion-order must requester
    An acknowledgement of two of three messages completes two.
+0      * write length=64 count=3
        < WRITE psn=2
+0      > SACK cack_psn=2
+0      > ACKNOWLEDGE msn=2
        * completes status=SUCCESS
        * completes status=SUCCESS
+2ms    ! completes

test 6.3.1/11 mpr-requester must requester
    Without answers the device sends no PSN beyond the window that the responder grants.
    device mpr=1 mtu=256
+0      * write length=65536
        < WRITE psn=0
+20ms   ! WRITE psn>=128
        = window

test 6.3.1/12 mpr-requester must requester
    The window opens as cack_psn advances.
    device mpr=1 mtu=256
+0      * write length=16384
        < WRITE psn=10
+0      > SACK cack_psn=10
        < WRITE psn>=11
        = window

test 6.3.1/16 mpr-requester must requester
    The window is the one that the responder grants, though the device itself grants a larger one.
    device mpr=4 granted=1 mtu=256
+0      * write length=65536
        < WRITE psn=0
+20ms   ! WRITE psn>=128

test 6.1/10 wimm-limit must requester
    No more writes with immediate are in flight than the responder accepts.
    device max_wimm=2
+0      * write length=64 immediate=1 count=4
        < WRITE_ONLY_IMM psn=1
+2ms    ! WRITE_ONLY_IMM psn>=2
+0      > SACK cack_psn=1
+0      > ACKNOWLEDGE msn=2
        < WRITE_ONLY_IMM psn=2
        < WRITE_ONLY_IMM psn=3

test 7.5/7 trim-class should requester
    Data to a responder that does not answer trimmed packets travels in another class than to one that does.
    device trim_nack=0
+0      * write length=64
        < WRITE_ONLY psn=0 rtx=0 dscp!=4

test 9.3.1/1 spray-rotation info requester
    All active EVs are used about equally often. Here once per rotation.
+0      * write length=32768
        < WRITE psn=31
        = rotation

test 9.3.2/5 spray-planes must requester
    Both planes carry data of a transfer of 64 packets, though nobody answers.
+0      * write length=65536
        < WRITE plane=0 rtx=0
        < WRITE plane=1 rtx=0

test table-7-3/10 trim-nack must requester
    What is refused as TRIMMED is sent again at once, well before the timeout of 268 ms.
    device timeout=18
+0      * write length=64
        < WRITE_ONLY psn=0
+0      > NACK nack_reason=TRIMMED nack_psn=0
+100ms  < WRITE_ONLY psn=0 rtx=1

test table-7-3/11 trim-nack must requester
    So is what is refused as TRIMMED_LASTHOP.
    device timeout=18
+0      * write length=64
        < WRITE_ONLY psn=0
+0      > NACK nack_reason=TRIMMED_LASTHOP nack_psn=0
+100ms  < WRITE_ONLY psn=0 rtx=1

test 9.7.5/1 error-status info requester
    A refusal for access ends the request. Here with remote access error.
+0      * write length=64
        < WRITE_ONLY psn=0
+0      > ACKNOWLEDGE syndrome=REMOTE_ACCESS_ERROR msn=0
        * completes status=REM_ACCESS_ERR

test 9.7.5/2 error-status info requester
    An invalid request ends the request. Here with remote invalid request.
+0      * write length=64
        < WRITE_ONLY psn=0
+0      > ACKNOWLEDGE syndrome=INVALID_REQUEST msn=0
        * completes status=REM_INV_REQ_ERR

test 9.7.5/3 error-status info requester
    A remote operational error ends the request. Here with the status of that name.
+0      * write length=64
        < WRITE_ONLY psn=0
+0      > ACKNOWLEDGE syndrome=REMOTE_OPERATIONAL_ERROR msn=0
        * completes status=REM_OP_ERR

test 10.3.1/1 error-flush must requester
    After a failure every posted request completes: one with the reason, the others flushed; nothing more is sent.
+0      * write length=64 count=3
        < WRITE psn=2
+0      > ACKNOWLEDGE syndrome=REMOTE_ACCESS_ERROR msn=0
        * completes status!=SUCCESS
        * completes status=WR_FLUSH_ERR
        * completes status=WR_FLUSH_ERR
+5ms    > PROBE probe_id=0
+50ms   ! WRITE

test 7.4.4/1 retransmission must requester
    A packet that is refused as trimmed is sent again: same PSN and content, rtx set, another EV, and a report requested.
+0      * write length=4096
        < WRITE psn=3
        < WRITE psn=1 ev=$first
+0      > NACK nack_psn=1 nack_reason=TRIMMED
        < WRITE psn=1 rtx=1 ev!=$first a=1
        = retransmissions
        = other-path

test 7.4.4/2 retransmission must requester
    A packet trimmed on the last hop is sent again.
+0      * write length=2048
        < WRITE psn=1
+0      > NACK nack_psn=0 nack_reason=TRIMMED_LASTHOP
        < WRITE psn=0 rtx=1

test 7.4.4/3 nack-codes must requester
    A packet that is refused for NO_BITMAP is sent again, long before its timeout.
    device timeout=18
+0      * write length=4096
        < WRITE psn=3
+0      > NACK nack_psn=1 nack_reason=NO_BITMAP
+100ms  < WRITE psn=1 rtx=1
        = retransmissions

test 7.4.4/6 nack-codes must requester
    A packet that is refused for NO_PKT_BUFFER is sent again, long before its timeout.
    device timeout=18
+0      * write length=4096
        < WRITE psn=3
+0      > NACK nack_psn=1 nack_reason=NO_PKT_BUFFER
+100ms  < WRITE psn=1 rtx=1
        = retransmissions

test 7.4.4/7 nack-codes must requester
    A packet that is refused for NO_RESOURCE is sent again, long before its timeout.
    device timeout=18
+0      * write length=4096
        < WRITE psn=3
+0      > NACK nack_psn=1 nack_reason=NO_RESOURCE
+100ms  < WRITE psn=1 rtx=1
        = retransmissions

test 7.4.4/8 nack-codes must requester
    A packet that is refused for PSN_OOR_WINDOW is sent again, long before its timeout.
    device timeout=18
+0      * write length=4096
        < WRITE psn=3
+0      > NACK nack_psn=1 nack_reason=PSN_OOR_WINDOW
+100ms  < WRITE psn=1 rtx=1
        = retransmissions

test 7.4.4/4 nack-codes must requester
    UNEXP_EVENT is not retried: the request fails.
+0      * write length=64
        < WRITE_ONLY psn=0
+0      > NACK nack_psn=0 nack_reason=UNEXP_EVENT
        * completes status!=SUCCESS
+5ms    > PROBE probe_id=0
+50ms   ! WRITE

test 7.4.4/5 retransmission-order must requester
    Of two packets that are refused, the older is sent again first, before new data.
+0      * write length=6144
        < WRITE psn=5
+0      > NACK nack_psn=3 nack_reason=NO_RESOURCE
        < WRITE psn=3 rtx=1
+0      > NACK nack_psn=1 nack_reason=NO_RESOURCE
        < WRITE psn=1 rtx=1

test 7.4.5/1 loss-gap should requester
    Of packets that a SACK reports as a hole, only those are sent again, each with rtx and on another EV, well before
    the timeout of 2.1 s.
    device timeout=21
+0      * write length=16384
        < WRITE psn=15
        < WRITE psn=5 ev=$lost
+1ms    > SACK cack_psn=4 acked=6,7,8,9,10,11,12,13,14,15 trigger=15
+1500ms < WRITE psn=5 rtx=1 ev!=$lost
+5ms    ! WRITE psn>=6 rtx=1

test 7.4.5/2 sack-not-completion should requester
    A SACK of packets that were never sent moves nothing: they are still sent.
    device mpr=1 mtu=256
+0      * write length=65536
        < WRITE psn=20
+0      > SACK cack_psn=5000
+2ms    ! completes
        = window

test 7.4.5/3 retransmission must requester
    A SACK that is older than one before it takes nothing back.
+0      * write length=4096
        < WRITE psn=3
+0      > SACK cack_psn=3
+0      > SACK cack_psn=1
+0      > ACKNOWLEDGE msn=1
        * completes status=SUCCESS

test 7.4.1/1 retry-budget should requester
    A responder that never answers ends in an error after the retries that were asked for.
    device timeout=10 linear=1 exponential=1
+0      * write length=64
        < WRITE_ONLY psn=0
        < WRITE_ONLY psn=0 rtx=1
+10s    * completes status!=SUCCESS

test 7.4.1/2 error-status info requester
    The status of a request whose retries are spent. Here retry exceeded.
    device timeout=10 linear=1 exponential=1
+0      * write length=64
+10s    * completes status=RETRY_EXC_ERR

test 7.4.1/3 timer-linear-exponential info requester
    Unanswered packets are repeated after the timeout; 14 is 16.8 ms. Here not before it, and within four of them.
    device timeout=14
+0      * write length=64
        < WRITE_ONLY psn=0
+15ms   ! WRITE_ONLY psn=0 rtx=1
+200ms  < WRITE_ONLY psn=0 rtx=1

test 7.4.1/4 timer-linear-exponential info requester
    Exponential retries double the time: 1 ms, then seven times twice as long, are 268 ms. Here a request that nobody
    answers fails after 100 ms at the earliest, and within 2 s.
    device timeout=10 linear=0 exponential=7
+0      * write length=64
        < WRITE_ONLY psn=0
+100ms  ! completes
+2s     * completes status=RETRY_EXC_ERR

test 7.4.6/2 tail-probe info requester
    When answers stop after the last packet, a reliability probe asks. Here within 100 ms.
    device timeout=18
+0      * write length=64
        < WRITE_ONLY psn=0
+100ms  < PROBE probe_id=$id

test 7.4.6/3 tail-probe info requester
    The answer to a probe is evidence: what it does not report is sent again.
    device timeout=18
+0      * write length=64
        < WRITE_ONLY psn=0
+100ms  < PROBE probe_id=$id
+0      > SACK pr=1 ack_psn_offset=$id cack_psn=-1
        < WRITE_ONLY psn=0 rtx=1

test 7.5/8 transport-ack-lost info requester
    When only the transport ACK is missing, the newest packet is repeated. Here long before the timeout of 268 ms.
    device timeout=18
+0      * write length=64
        < WRITE_ONLY psn=0
+0      > SACK cack_psn=0
+100ms  < WRITE_ONLY psn=0 rtx=1
+0      > ACKNOWLEDGE msn=1
        * completes status=SUCCESS

test 7.5.1/1 dynamic-mpr must requester
    With Dynamic MPR off, the MPR of a SACK is ignored: a smaller one closes no window.
    device mpr=4 mtu=256
+0      * write length=65536
        < WRITE psn=20
+0      > SACK cack_psn=20 mpr=1
+0      > SACK cack_psn=40 mpr=1
        < WRITE psn>=41

test 7.5.1/3 dynamic-mpr must requester
    Nor does one that comes before a transfer: more than 128 packets are in flight.
    device mpr=8 mtu=256
+0      * write length=256
        < WRITE psn=0
+0      > SACK cack_psn=0 mpr=1
+0      > ACKNOWLEDGE msn=1
+5ms    * write length=131072
        < WRITE psn>=140

test 7.5.1/2 dynamic-mpr should requester
    With Dynamic MPR on both sides, the requester obeys the window that a SACK tells.
    device mpr=8 mtu=256 dynamic_mpr=1
+0      * write length=256
        < WRITE psn=0
+0      > SACK cack_psn=0 mpr=1
+0      > ACKNOWLEDGE msn=1
+5ms    * write length=131072
        < WRITE psn=20
+2ms    ! WRITE psn>=129

test 7.5.6/4 endpoint-response must requester
    A requester answers endpoint requests as well.
+0      > ENDPOINT_REQUEST op=1 bth.psn=0x55 tx_timestamp=0x1234
        < ENDPOINT_RESPONSE bth.psn=0x55 tx_timestamp=0x1234

test 7.4.8/3 port-down-remote must requester
    After an update that says port 1 of the responder is down, data takes plane 1 only.
+0      > ENDPOINT_REQUEST op=0 bth.psn=9 port_status_mask=4 plane=1 ev=4
        < ENDPOINT_RESPONSE bth.psn=9
+0      * write length=8192
        < WRITE psn=7
+1ms    ! WRITE plane=0

test 7.4.8/4 port-down-remote must requester
    When the port is up again, data takes it again.
+0      > ENDPOINT_REQUEST op=0 bth.psn=9 port_status_mask=4 plane=1 ev=4
        < ENDPOINT_RESPONSE bth.psn=9
+5ms    > ENDPOINT_REQUEST op=0 bth.psn=10 port_status_mask=6 plane=1 ev=4
        < ENDPOINT_RESPONSE bth.psn=10
+0      * write length=8192
        < WRITE plane=0

test 9.3.2/2 port-down-local must requester
    Data leaves a local port that goes down at once.
+0      * port plane=0 up=0
+5ms    * write length=8192
        < WRITE psn=7
+1ms    ! WRITE plane=0

test 7.4.8/5 port-status-schedule info requester
    The peer of a port that goes down is told by Port Status Updates. Here on the other plane, within 100 ms.
+0      * port plane=0 up=0
+100ms  < ENDPOINT_REQUEST op=0 port_status_mask=4 plane=1

test 7.4.8/6 port-status-answered info requester
    The answer ends the updates. Here three may have left before it.
+0      * port plane=0 up=0
        < ENDPOINT_REQUEST op=0 plane=1 bth.psn=$id tx_timestamp=$sent
+0      > ENDPOINT_RESPONSE op=0 bth.psn=$id tx_timestamp=$sent plane=1 ev=4
+5ms    * wait
+300ms  ! ENDPOINT_REQUEST op=0

test 9.3.1/7 ev-skip-once should requester
    An EV that a SACK marks (skip once) is left out when its turn comes: four packets do not take it.
    device planes=1 evs=4
+0      * write length=64
        < WRITE_ONLY psn=0 ev=$marked
+0      > SACK cack_psn=0 seth.m=1
+0      > ACKNOWLEDGE msn=1
        * completes status=SUCCESS
+0      * write length=4096
        < WRITE psn=4
        ! WRITE psn>=1 psn<=4 ev=$marked

test 9.3.1/8 ev-skip-restored info requester
    A mark takes an EV out for one turn, not for good. Here it is used again within 32 packets, unless many go in a row.
    device planes=1 evs=4
+0      * write length=64
        < WRITE_ONLY psn=0 ev=$marked
+0      > SACK cack_psn=0 seth.m=1
+0      > ACKNOWLEDGE msn=1
        * completes status=SUCCESS
+0      * write length=32768
        < WRITE psn>=1 rtx=0 ev=$marked

test 9.3.1/9 ev-always-skip must requester
    An EV that a SACK marks as always to be skipped carries no more data.
    device planes=1 evs=4
+0      * write length=64
        < WRITE_ONLY psn=0 ev=$marked
+0      > SACK cack_psn=0 seth.m=2
+0      > ACKNOWLEDGE msn=1
        * completes status=SUCCESS
+0      * write length=32768
        < WRITE psn=32
+1ms    ! WRITE psn>=1 rtx=0 ev=$marked

test 7.5/13 wire-layout must requester
    Counts of messages are 24 bits: the 256th message of one packet ends by a count of 256.
+0      * write length=64 count=256
        < WRITE_ONLY psn=255
+0      > SACK cack_psn=255
+0      > ACKNOWLEDGE msn=256 psn=255
        * completes status=SUCCESS

test 10.6/9 reth-in-every-packet must requester
    Address and key of the tester's region have all their bits in every packet.
+0      * write length=3000 offset=64
        < WRITE_FIRST psn=0 va=64 r_key=$key
        < WRITE_MIDDLE psn=1 va=1088 r_key=$key
        < WRITE_LAST psn=2 va=2112 r_key=$key

test 9.3.1/11 ev-replacement info requester
    Does an EV that returns carry data again, though another one took its place meanwhile? Here after three answers.
    device planes=1 evs=4 timeout=18
+0      * write length=64
        < WRITE_ONLY psn=0 ev=$bad
+0      > SACK cack_psn=0 seth.m=2
+0      > ACKNOWLEDGE msn=1
+2s     < PROBE ev=$bad probe_id=$one
+0      > SACK pr=1 ack_psn_offset=$one cack_psn=0
+2s     < PROBE ev=$bad probe_id=$two probe_id!=$one
+0      > SACK pr=1 ack_psn_offset=$two cack_psn=0
+2s     < PROBE ev=$bad probe_id=$three probe_id!=$one probe_id!=$two
+0      > SACK pr=1 ack_psn_offset=$three cack_psn=0
+5ms    * write length=8192
        < WRITE psn>=1 rtx=0 ev=$bad

test 9.3.1/12 ev-min-active info requester
    When every EV is to be skipped for good, which one carries data? Here the one that has been bad for longest.
    device evs=2 timeout=18
+0      * write length=65536
        < WRITE plane=1 ev=$first
        < WRITE plane=0 ev=$second
        < WRITE plane=1 ev=$third ev!=$first
        < WRITE plane=0 ev=$fourth ev!=$second
        < WRITE psn=63
+1ms    > SACK cack_psn=63 seth.m=2 entropy=$first
+1ms    > SACK cack_psn=63 seth.m=2 entropy=$second
+1ms    > SACK cack_psn=63 seth.m=2 entropy=$third
+1ms    > SACK cack_psn=63 seth.m=2 entropy=$fourth
+0      > ACKNOWLEDGE msn=1
        * completes status=SUCCESS
+0      * write length=4096
        < WRITE psn=67 ev=$first
+1ms    ! WRITE psn>=64 ev!=$first

test 9.3.2/11 probe-port-down info requester
    Are bad EVs of a port that is down probed? Here not, and within 60 ms once it is up again.
    device timeout=18
+0      * write length=65536
        < WRITE psn=63
        < WRITE plane=1 ev=$bad
+0      > SACK cack_psn=63 seth.m=2 entropy=$bad
+0      > ACKNOWLEDGE msn=1
+0      * port plane=1 up=0
+5ms    * wait
+400ms  ! PROBE ev=$bad
+0      * port plane=1 up=1
+60ms   < PROBE ev=$bad

test 7.4.1/6 rtt-smoothing info requester
    How long is the timeout where a round trip takes 40 ms? Here three times as long (RFC 6298, 2.2), not 67 ms.
    device timeout=16 first_psn=0
+0      * write length=64
        < WRITE_ONLY psn=0
+40ms   > SACK cack_psn=0
+0      > ACKNOWLEDGE msn=1
        * completes status=SUCCESS
+5ms    * write length=64
        < WRITE_ONLY psn=1 rtx=0
+115ms  ! WRITE_ONLY psn=1 rtx=1
+40ms   < WRITE_ONLY psn=1 rtx=1

test 7.4.6/5 tail-probe info requester
    From when does a probe of the tail wait? Here from the newest packet (RFC 8985, 7.2), where a round trip is 20 ms.
    device timeout=18
+0      * write length=64
        < WRITE_ONLY psn=0
+20ms   > SACK cack_psn=0
+0      > ACKNOWLEDGE msn=1
        * completes status=SUCCESS
+5ms    * write length=64
        < WRITE_ONLY psn=1
+40ms   * write length=64
        < WRITE_ONLY psn=2
+40ms   ! PROBE
+100ms  < PROBE
