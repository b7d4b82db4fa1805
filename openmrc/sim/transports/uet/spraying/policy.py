"""What a spraying policy is: two kernels, and the number of notes that it takes on a sender's paths.

A policy may keep what it likes in the sender's row of `Uet.sprayers` and in its `Uet.notes`, from `first_note` on; no
other module writes there.
"""

from collections.abc import Callable
from dataclasses import dataclass

from openmrc.core import rng
from openmrc.core.jit import kernel
from openmrc.sim.transports.uet.tables import Uet


@dataclass(frozen=True)
class SprayingPolicy:
    """One policy; `choose` and `learn` are kernels."""

    choose: Callable[[Uet, int, int, int], int]
    """Return the entropy of the next packet: state, now (ps), NIC, sender."""
    learn: Callable[[Uet, int, int, int, int], None]
    """Process the feedback for a packet: state, now, sender, entropy (NONE: unknown), Feedback."""
    notes: Callable[[int], int]
    """Return the notes that a sender needs for so many entropies."""


@kernel
def first_note(state: Uet, sender: int) -> int:
    """Return the sender's first row of `Uet.notes`."""
    return sender * state.params[0].notes


@kernel
def next_in_round(state: Uet, nic: int, sender: int) -> int:
    """Return each entropy once per round, in a different order each round."""
    row = state.sprayers[sender]
    count = state.params[0].entropies
    if row.cursor == count:
        row.cursor = 0
        row.mask = any_entropy(state, nic)
    row.cursor += 1
    return (row.cursor - 1) ^ row.mask


@kernel
def any_entropy(state: Uet, nic: int) -> int:
    node = state.nics[nic]
    node.random = rng.following(node.random)
    return (node.random >> 8) & (state.params[0].entropies - 1)
