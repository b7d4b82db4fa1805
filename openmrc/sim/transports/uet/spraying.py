"""Entropy selection: oblivious, bitmap, REPS and mixed spraying (uet-htsim, sim/uec_mp.cpp)."""

from __future__ import annotations

from openmrc.core import rng
from openmrc.core.jit import kernel
from openmrc.sim.transports.uet.uet_tables import FIFO_SLOTS, GOOD_SLOTS, NONE, Feedback, Spraying, Uet

LARGEST_PENALTY = 15
EXPLORATIONS = 16  # random picks of REPS after it was frozen


@kernel
def choose(state: Uet, now: int, nic: int, sender: int) -> int:
    """Return the entropy of the next packet."""
    match state.params[0].spraying:
        case Spraying.OBLIVIOUS:
            return _next_in_round(state, nic, sender)
        case Spraying.BITMAP:
            return _unpenalised(state, nic, sender)
        case Spraying.REPS:
            return _recycled(state, now, nic, sender)
    row = state.senders[sender]
    if row.fifo_head < row.fifo_tail:
        row.fifo_head += 1
        return state.fifo[sender * FIFO_SLOTS + (row.fifo_head - 1) % FIFO_SLOTS].value
    return _unpenalised(state, nic, sender)


@kernel
def learn(state: Uet, now: int, sender: int, entropy: int, feedback: int) -> None:
    """Process the feedback for a packet on this entropy; NONE: unknown."""
    match state.params[0].spraying:
        case Spraying.BITMAP:
            _penalise(state, sender, entropy, feedback)
        case Spraying.REPS:
            _record(state, now, sender, entropy, feedback)
        case Spraying.MIXED:
            _penalise(state, sender, entropy, feedback)
            row = state.senders[sender]
            if feedback == Feedback.GOOD and row.fifo_tail - row.fifo_head < FIFO_SLOTS:
                state.fifo[sender * FIFO_SLOTS + row.fifo_tail % FIFO_SLOTS].value = entropy
                row.fifo_tail += 1


@kernel
def _next_in_round(state: Uet, nic: int, sender: int) -> int:
    """Return each entropy once per round, in a different order each round."""
    row = state.senders[sender]
    count = state.params[0].entropies
    if row.cursor == count:
        row.cursor = 0
        row.mask = _random(state, nic) & (count - 1)
    row.cursor += 1
    return (row.cursor - 1) ^ row.mask


@kernel
def _unpenalised(state: Uet, nic: int, sender: int) -> int:
    """Skip penalised entropies; reduce the penalty of the first one skipped."""
    count = state.params[0].entropies
    forgiven = False
    entropy = 0
    for _ in range(count):
        entropy = _next_in_round(state, nic, sender)
        path = state.penalties[sender * count + entropy]
        if path.value == 0:
            return entropy
        if not forgiven:
            path.value -= 1
            forgiven = True
    return entropy


@kernel
def _penalise(state: Uet, sender: int, entropy: int, feedback: int) -> None:
    if feedback == Feedback.GOOD or entropy == NONE:
        return
    penalty = 15 if feedback == Feedback.TIMED_OUT else 4 if feedback == Feedback.NACKED else 1
    path = state.penalties[sender * state.params[0].entropies + entropy]
    path.value = min(path.value + penalty, LARGEST_PENALTY)


@kernel
def _recycled(state: Uet, now: int, nic: int, sender: int) -> int:
    """REPS: the oldest good entropy not used since, else a random one; when frozen, the good ones round-robin."""
    row = state.senders[sender]
    if row.frozen_until > 0 and now >= row.frozen_until:
        row.frozen_until = 0
        row.good_count = 0
        row.explore = EXPLORATIONS
    if row.explore > 0:
        row.explore -= 1
        return _random(state, nic) & (state.params[0].entropies - 1)
    if row.frozen_until > 0 and row.good_count > 0:
        row.good_head += 1
        return state.good[sender * GOOD_SLOTS + row.good_head % row.good_count].value
    for step in range(row.good_count):
        slot = state.good[sender * GOOD_SLOTS + (row.good_head + step) % row.good_count]
        if slot.fresh == 1:
            slot.fresh = 0
            return slot.value
    return _random(state, nic) & (state.params[0].entropies - 1)


@kernel
def _record(state: Uet, now: int, sender: int, entropy: int, feedback: int) -> None:
    row = state.senders[sender]
    if feedback == Feedback.TIMED_OUT and row.explore == 0 and row.frozen_until == 0:
        row.frozen_until = now + state.params[0].freeze
    if feedback != Feedback.GOOD or row.frozen_until > 0:
        return
    if row.good_count < GOOD_SLOTS:
        place = row.good_count
        row.good_count += 1
    else:
        place = row.good_head % GOOD_SLOTS
        row.good_head += 1
    slot = state.good[sender * GOOD_SLOTS + place]
    slot.value = entropy
    slot.fresh = 1


@kernel
def _random(state: Uet, nic: int) -> int:
    node = state.nics[nic]
    node.random = rng.following(node.random)
    return node.random >> 8
