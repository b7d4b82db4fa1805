"""Completion ring of an endpoint. It has room for every request that can be posted, so it cannot overflow.

If it did, the completion would be counted and lost: nothing in compiled code raises, or a mutex would stay locked.

Callers drain it often, so it is emptied long before it is full: it then begins again at its first row, and the rest of
a ring for a thousand queue pairs, 80 MB, is never touched.
"""

from openmrc.core.jit import kernel
from openmrc.engine.state.tables import NONE, CompletionKind, Engine


@kernel
def push(engine: Engine, kind: int, qp: int, wr_id: int, status: int, length: int) -> int:
    """Append a completion without immediate data and return its row; NONE if the ring is full."""
    node = engine.endpoints[engine.qps[qp].endpoint]
    if node.completion_tail - node.completion_head > node.completion_mask:
        node.completions_lost += 1
        return NONE
    row = node.completion_base + (node.completion_tail & node.completion_mask)
    node.completion_tail += 1
    completion = engine.completions[row]
    completion.kind = kind
    completion.qp = qp
    completion.wr_id = wr_id
    completion.status = status
    completion.length = length
    completion.immediate = 0
    completion.has_immediate = 0
    completion.solicited = 0
    return row


@kernel
def push_receive(engine: Engine, qp: int, wr_id: int, length: int, immediate: int, solicited: int) -> None:
    """Append the completion of a WriteIMM at the responder."""
    row = push(engine, CompletionKind.RECEIVE, qp, wr_id, 0, length)
    if row == NONE:
        return
    completion = engine.completions[row]
    completion.immediate = immediate
    completion.has_immediate = 1
    completion.solicited = solicited


@kernel
def take(engine: Engine, endpoint: int) -> int:
    """Remove the oldest completion and return its row, or NONE. The row is valid until the next `push`."""
    node = engine.endpoints[endpoint]
    if node.completion_head == node.completion_tail:
        return NONE
    row = node.completion_base + (node.completion_head & node.completion_mask)
    node.completion_head += 1
    if node.completion_head == node.completion_tail:
        node.completion_head = node.completion_tail = 0
    return row
