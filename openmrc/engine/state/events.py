"""Event ring of an endpoint: state changes of paths, ports and queue pairs. A full ring counts and drops new events."""

from openmrc.core.jit import kernel
from openmrc.engine.state.tables import NONE, Engine


@kernel
def claim(engine: Engine, now: int, endpoint: int, kind: int) -> int:
    """Append an event and return its row, cleared, for the caller to fill; NONE, and a count, if the ring is full."""
    node = engine.endpoints[endpoint]
    if node.event_tail - node.event_head > node.event_mask:
        node.events_dropped += 1
        return NONE
    index = node.event_base + (node.event_tail & node.event_mask)
    node.event_tail += 1
    event = engine.events[index]
    event.kind = kind
    event.at = now
    event.qp = NONE
    event.peer = NONE
    event.port = NONE
    event.entropy = 0
    event.state = 0
    event.cause = 0
    return index


@kernel
def take(engine: Engine, endpoint: int) -> int:
    """Remove the oldest event and return its row, or NONE. The row is valid until the next `claim`."""
    node = engine.endpoints[endpoint]
    if node.event_head == node.event_tail:
        return NONE
    row = node.event_base + (node.event_head & node.event_mask)
    node.event_head += 1
    return row
