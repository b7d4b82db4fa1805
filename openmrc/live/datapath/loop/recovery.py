"""Recovery after the loop touched registered memory that the program has unmapped or truncated.

Nothing stops a program from unmapping memory, or truncating a file, that is still registered. The processor's fault is
caught around each half of an iteration, which is then given up where it was: payload is touched at two places only,
where it is sealed and where it is placed, and what was not done counts as lost on the way.
"""

from openmrc.core.jit import entry, kernel
from openmrc.core.serial import PSN_BITS, extend
from openmrc.engine import lifecycle
from openmrc.engine.responder import transport_acks
from openmrc.engine.state.queue_pairs import by_qpn
from openmrc.engine.state.tables import NONE, Cause, CompletionKind, Engine, WcStatus
from openmrc.live.datapath import handles
from openmrc.live.datapath.loop import submission
from openmrc.live.datapath.packets import transmit
from openmrc.live.datapath.rows import IN
from openmrc.wire.codes import Syndrome


@entry
def recover(at: int, address: int, arriving: int) -> int:
    """End the regions with the byte at `address`, and all that is open on them; return how many there were.

    `arriving`: 1 in the first half of an iteration, where a packet was being placed, else 0. The caller holds the loop
    mutex.
    """
    engine = handles.engine_at(at)
    datapath = handles.datapath_at(at)
    nic = datapath.nic[0]
    if arriving == 1:
        nic.trains = 0
        _refuse(engine, nic.now, nic.endpoint)
    else:
        transmit.forget(datapath)
    ended = 0
    node = engine.endpoints[nic.endpoint]
    for row in range(node.region_base, node.region_base + node.region_count):
        region = engine.regions[row]
        if region.r_key != 0 and 0 <= address - region.local < region.length:
            key = region.r_key
            region.r_key = 0
            lifecycle.end_region(engine, nic.now, nic.endpoint, key)
            ended += 1
    submission.publish_completions(engine, datapath)
    nic.wake_at = nic.now
    return ended


@kernel
def _refuse(engine: Engine, now: int, endpoint: int) -> None:
    """Fail the queue pair of the packet that was being placed: the engine has recorded it as arrived.

    Its message may count as complete, too, so what was not acknowledged before, or is not yet reported, never will be.
    """
    arrived = engine.packets[IN]
    qp = by_qpn(engine, endpoint, arrived.dest_qpn)
    if qp == NONE:
        return
    row = engine.qps[qp]
    row.completed_messages = row.acked_messages
    node = engine.endpoints[endpoint]
    for number in range(node.completion_head, node.completion_tail):
        done = engine.completions[node.completion_base + (number & node.completion_mask)]
        if done.qp == qp and done.kind == CompletionKind.RECEIVE:
            done.status = WcStatus.WR_FLUSH_ERR
    psn = extend(arrived.psn, row.expected_psn, PSN_BITS)
    transport_acks.refuse(engine, now, qp, psn, Syndrome.REMOTE_OPERATIONAL_ERROR, Cause.LOCAL_PROTECTION)
