"""Mixed: entropies whose feedback was unmarked first, in its order; else bitmap (uet-htsim, sim/uec_mp.cpp).

Behind the penalties of `bitmap`, a sender has notes for FIFO_SLOTS good entropies, from `Sprayer.head` up to `tail`.
"""

from openmrc.core.jit import kernel
from openmrc.sim.transports.uet.spraying import bitmap
from openmrc.sim.transports.uet.spraying.policy import SprayingPolicy, first_note
from openmrc.sim.transports.uet.tables import Feedback, Uet

FIFO_SLOTS = 256


@kernel
def choose(state: Uet, now: int, nic: int, sender: int) -> int:
    """Return the oldest good entropy, or as `bitmap` does."""
    row = state.sprayers[sender]
    if row.head == row.tail:
        return bitmap.choose(state, now, nic, sender)
    row.head += 1
    return state.notes[_slot(state, sender, row.head - 1)].value


@kernel
def learn(state: Uet, now: int, sender: int, entropy: int, feedback: int) -> None:
    """Penalise an entropy as `bitmap` does, or queue a good one while there is room."""
    bitmap.learn(state, now, sender, entropy, feedback)
    row = state.sprayers[sender]
    if feedback == Feedback.GOOD and row.tail - row.head < FIFO_SLOTS:
        state.notes[_slot(state, sender, row.tail)].value = entropy
        row.tail += 1


@kernel
def _slot(state: Uet, sender: int, number: int) -> int:
    return first_note(state, sender) + state.params[0].entropies + number % FIFO_SLOTS


POLICY = SprayingPolicy(choose, learn, notes=lambda entropies: entropies + FIFO_SLOTS)
