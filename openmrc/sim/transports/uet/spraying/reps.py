"""REPS: reuse entropies whose packets came through unmarked (uet-htsim, sim/uec_mp.cpp).

A sender has a note for each of the last GOOD_SLOTS good entropies: `Sprayer.held` of them, the oldest at `head`. After
a timeout it is frozen `until` a time: it uses only these, in turn. Then it forgets them, and explores: the entropies of
the next packets, as many as are `left`, are random.
"""

from openmrc.core.jit import kernel
from openmrc.sim.transports.uet.spraying.policy import SprayingPolicy, any_entropy, first_note
from openmrc.sim.transports.uet.tables import Feedback, Uet
from openmrc.units import PS_PER_MS

GOOD_SLOTS = 8
EXPLORATIONS = 16  # random picks after it was frozen
FROZEN = 10 * PS_PER_MS  # after a timeout


@kernel
def choose(state: Uet, now: int, nic: int, sender: int) -> int:
    """Return the oldest good entropy not used since, else a random one; when frozen, the good ones round-robin."""
    row, good = state.sprayers[sender], first_note(state, sender)
    if row.until > 0 and now >= row.until:
        row.until = 0
        row.held = 0
        row.left = EXPLORATIONS
    if row.left > 0:
        row.left -= 1
        return any_entropy(state, nic)
    if row.until > 0 and row.held > 0:
        row.head += 1
        return state.notes[good + row.head % row.held].value
    for step in range(row.held):
        slot = state.notes[good + (row.head + step) % row.held]
        if slot.fresh:
            slot.fresh = False
            return slot.value
    return any_entropy(state, nic)


@kernel
def learn(state: Uet, now: int, sender: int, entropy: int, feedback: int) -> None:
    """Keep a good entropy, in place of the oldest; freeze after a timeout."""
    row = state.sprayers[sender]
    if feedback == Feedback.TIMED_OUT and row.left == 0 and row.until == 0:
        row.until = now + FROZEN
    if feedback != Feedback.GOOD or row.until > 0:
        return
    if row.held < GOOD_SLOTS:
        place = row.held
        row.held += 1
    else:
        place = row.head % GOOD_SLOTS
        row.head += 1
    slot = state.notes[first_note(state, sender) + place]
    slot.value = entropy
    slot.fresh = True


POLICY = SprayingPolicy(choose, learn, notes=lambda entropies: GOOD_SLOTS)
