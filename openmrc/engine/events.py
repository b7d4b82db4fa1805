"""The ring of events: paths, ports and queue pairs that changed. When it is full, events are counted and dropped."""

from openmrc.core.jit import kernel
from openmrc.engine.tables import NONE, Engine


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
    """Append one event, unless nobody took the earlier ones."""
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
    """Return the row of the oldest event, or NONE; it stays valid until the next push."""
    node = engine.endpoints[endpoint]
    if node.event_head == node.event_tail:
        return NONE
    row = node.event_base + (node.event_head & node.event_mask)
    node.event_head += 1
    return row
