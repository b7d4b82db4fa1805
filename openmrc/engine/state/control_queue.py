"""Ring of control packets to send. A full ring drops new packets: the protocol tolerates the loss of any of them."""

from openmrc.core.jit import kernel
from openmrc.engine.state.tables import NONE, Engine


@kernel
def claim(engine: Engine, endpoint: int, opcode: int, qp: int, peer: int) -> int:
    """Append a control packet and return its row, cleared, for the caller to fill; NONE if the ring is full."""
    node = engine.endpoints[endpoint]
    if node.control_tail - node.control_head > node.control_mask:
        node.control_dropped += 1
        return NONE
    index = node.control_base + (node.control_tail & node.control_mask)
    node.control_tail += 1
    row = engine.control[index]
    row.opcode = opcode
    row.qp = qp
    row.peer = peer
    row.psn = 0
    row.entropy = 0
    row.port = NONE
    row.mark = 0
    row.retransmitted = 0
    row.tx_timestamp = 0
    row.timestamp_unit = 0
    row.reason = 0
    row.mask = 0
    row.ev = NONE
    return index


@kernel
def take(engine: Engine, endpoint: int) -> int:
    """Remove the oldest control packet and return its row, or NONE. The row is valid until the next `claim`."""
    node = engine.endpoints[endpoint]
    if node.control_head == node.control_tail:
        return NONE
    index = node.control_base + (node.control_head & node.control_mask)
    node.control_head += 1
    return index
