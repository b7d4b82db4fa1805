"""Bitmap: entropies in turn, except those with a penalty for a mark, a trim or a timeout (uet-htsim, sim/uec_mp.cpp).

A sender has a note for every entropy: its penalty.
"""

from openmrc.core.jit import kernel
from openmrc.sim.transports.uet.spraying.policy import SprayingPolicy, first_note, next_in_round
from openmrc.sim.transports.uet.tables import NONE, Feedback, Uet

LARGEST_PENALTY = 15


@kernel
def choose(state: Uet, now: int, nic: int, sender: int) -> int:
    """Skip penalised entropies; reduce the penalty of the first one skipped."""
    penalties = first_note(state, sender)
    forgiven = False
    entropy = 0
    for _ in range(state.params[0].entropies):
        entropy = next_in_round(state, nic, sender)
        path = state.notes[penalties + entropy]
        if path.value == 0:
            return entropy
        if not forgiven:
            path.value -= 1
            forgiven = True
    return entropy


@kernel
def learn(state: Uet, now: int, sender: int, entropy: int, feedback: int) -> None:
    if feedback == Feedback.GOOD or entropy == NONE:
        return
    penalty = 15 if feedback == Feedback.TIMED_OUT else 4 if feedback == Feedback.NACKED else 1
    path = state.notes[first_note(state, sender) + entropy]
    path.value = min(path.value + penalty, LARGEST_PENALTY)


POLICY = SprayingPolicy(choose, learn, notes=lambda entropies: entropies)
