"""Event ring of an endpoint: state changes of paths, ports and queue pairs. A full ring counts and drops new events."""

from openmrc.core.jit import kernel
from openmrc.engine.state.tables import NONE, Engine


@kernel
def push(
    engine: Engine,
    now: int,
    endpoint: int,
    kind: int,
    qp: int,
    peer: int,
    port: int,
    entropy: int,
    state: int,
    cause: int,
) -> None:
    """Append one event; drop and count it if the ring is full."""
    node = engine.endpoints[endpoint]
    if node.event_tail - node.event_head > node.event_mask:
        node.events_dropped += 1
        return
    event = engine.events[node.event_base + (node.event_tail & node.event_mask)]
    node.event_tail += 1
    event.kind = kind
    event.at = now
    event.qp = qp
    event.peer = peer
    event.port = port
    event.entropy = entropy
    event.state = state
    event.cause = cause


@kernel
def take(engine: Engine, endpoint: int) -> int:
    """Remove the oldest event and return its row, or NONE. The row is valid until the next `push`."""
    node = engine.endpoints[endpoint]
    if node.event_head == node.event_tail:
        return NONE
    row = node.event_base + (node.event_head & node.event_mask)
    node.event_head += 1
    return row
