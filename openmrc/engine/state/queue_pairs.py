"""Lookups and predicates of queue pairs that several modules use."""

from openmrc.core.jit import kernel
from openmrc.core.rows import column
from openmrc.engine.state.build import MPR_UNIT
from openmrc.engine.state.machines import QpState
from openmrc.engine.state.params import NOMINAL_OVERHEAD
from openmrc.engine.state.tables import NONE, Engine, Message, Params, Sent
from openmrc.wire.codes import FIRST_USER_QPN

QPN_MASK = (1 << 24) - 1
INFINITE_RETRIES = 25  # exponential_count without a limit (mrc_qp_attr.retry)


@kernel
def by_qpn(engine: Engine, endpoint: int, qpn: int) -> int:
    """Return the row of a queue pair that is not in RESET, or NONE."""
    qp = place_of(engine, endpoint, qpn)
    if qp == NONE or engine.qps[qp].qpn != qpn or engine.qps[qp].state == QpState.RESET:
        return NONE
    return qp


@kernel
def place_of(engine: Engine, endpoint: int, qpn: int) -> int:
    """Return the row that a queue pair with this QPN would have, or NONE."""
    node = engine.endpoints[endpoint]
    slot = (qpn & node.qpn_slot_mask) - FIRST_USER_QPN
    return node.qp_base + slot if 0 <= slot < node.qp_count else NONE


@kernel
def params_of(engine: Engine, qp: int) -> Params:
    """Return the tunables of the endpoint that a queue pair belongs to."""
    return engine.params[engine.endpoints[engine.qps[qp].endpoint].params]


@kernel
def params_of_peer(engine: Engine, peer: int) -> Params:
    """Return the tunables of a peer: those of its endpoint, but for what a congestion control profile sets."""
    return engine.params[engine.peers[peer].params]


@kernel
def round_trip(engine: Engine, peer: int) -> int:
    """Return the smoothed round trip of a peer (ps), or its base round trip if that is longer or none was measured."""
    row = engine.peers[peer]
    return int(max(row.srtt, row.base_rtt))


@kernel
def sent_row(engine: Engine, qp: int, psn: int) -> Sent:
    """Return the requester's record of a PSN, valid from the lowest unacknowledged to the highest sent PSN."""
    return engine.sent[sent_index(engine, qp, psn)]


@kernel
def sent_index(engine: Engine, qp: int, psn: int) -> int:
    """Return the place of `sent_row`."""
    row = engine.qps[qp]
    return row.sent_base + (psn & row.sent_mask)


@kernel
def message_row(engine: Engine, qp: int, number: int) -> Message:
    """Return a write of the send queue by its number, from `message_head` to `message_tail` - 1."""
    return engine.messages[message_index(engine, qp, number)]


@kernel
def message_index(engine: Engine, qp: int, number: int) -> int:
    """Return the place of `message_row`."""
    row = engine.qps[qp]
    return row.message_base + (number & row.message_mask)


@kernel
def nominal_size(payload: int) -> int:
    """Return the size of a data packet for windows, in bytes (MRC §8.3.1): UDP length + 40."""
    return ((payload + 3) & ~3) + NOMINAL_OVERHEAD


@kernel
def receives_data(state: int) -> bool:
    return state == QpState.RTR or state == QpState.RTS


@kernel
def last_sent(engine: Engine, qp: int) -> int:
    """Return the time (ps) of the last transmission of the newest packet."""
    return sent_row(engine, qp, engine.qps[qp].next_psn - 1).sent_at


@kernel
def window_end(engine: Engine, qp: int) -> int:
    """Return the first PSN beyond the window of the responder (MRC §6.3.1)."""
    row = engine.qps[qp]
    return row.unack_psn + min(row.mpr_dest * MPR_UNIT, row.sent_mask + 1)


@kernel
def may_be_answered(engine: Engine, qp: int, psn: int) -> bool:
    """Return whether feedback for `psn` is plausible: sent, and at most two windows behind the left edge.

    Forged feedback has to guess the 24-bit PSN. InfiniBand drops acknowledgements outside the window too (IBTA 9.7.5).
    """
    row = engine.qps[qp]
    return row.unack_psn - 2 * (row.sent_mask + 1) <= psn + 1 <= row.next_psn


@kernel
def tracked_psns(engine: Engine, qp: int) -> int:
    """Return the number of PSNs, from ePSN on, that the responder accepts."""
    row = engine.qps[qp]
    return min(row.mpr * MPR_UNIT, row.tracker_mask + 1)


@kernel
def working_ports(engine: Engine, qp: int) -> int:
    """Return the mask of ports that are up here and at the peer."""
    row = engine.qps[qp]
    return engine.endpoints[row.endpoint].ports_up & engine.peers[row.peer].ports_up


@kernel
def usable_ports(engine: Engine, qp: int) -> int:
    """Return the mask of working ports with EVs in rotation; 0: no data packet can be sent."""
    row = engine.qps[qp]
    mask = 0
    for index in range(row.rotation_base, row.rotation_base + row.rotation_count):
        if engine.rotations[index].active > 0:
            mask |= 1 << engine.rotations[index].port
    return mask & working_ports(engine, qp)


def active_rows(engine: Engine, qp: int) -> set[int]:
    """Return the rows of the EVs that a queue pair has in rotation; for programs, not for kernels."""
    row, offsets = engine.qps[qp], column(engine.slots, "ev")
    found: set[int] = set()
    for index in range(row.rotation_base, row.rotation_base + row.rotation_count):
        rotation = engine.rotations[index]
        active = offsets[rotation.ev_base : rotation.ev_base + rotation.active]
        found.update(rotation.ev_base + offset for offset in active.tolist())  # rows need more bits than offsets
    return found


@kernel
def wants_to_send(engine: Engine, qp: int) -> bool:
    """Return whether there is a data packet to send, path windows aside (states Active and Ready of Figure 4)."""
    row = engine.qps[qp]
    return row.state == QpState.RTS and (row.lost_count > 0 or row.solicit_psn != NONE or has_new(engine, qp))


@kernel
def has_new(engine: Engine, qp: int) -> bool:
    """Return whether there is a new packet and the windows of the responder allow it."""
    row = engine.qps[qp]
    if row.message_current == row.message_tail or row.next_psn >= window_end(engine, qp):
        return False
    if row.packets_cut > 0:
        return True
    message = message_row(engine, qp, row.message_current)
    return message.has_immediate == 0 or row.wimm_next - row.wimm_done < row.max_wimm
