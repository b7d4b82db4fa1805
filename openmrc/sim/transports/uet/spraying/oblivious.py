"""Oblivious spraying: all entropies in turn, whatever comes back (uet-htsim, sim/uec_mp.cpp)."""

from openmrc.core.jit import kernel
from openmrc.sim.transports.uet.spraying.policy import SprayingPolicy, next_in_round
from openmrc.sim.transports.uet.tables import Uet


@kernel
def choose(state: Uet, now: int, nic: int, sender: int) -> int:
    """Return the next entropy of the round."""
    return next_in_round(state, nic, sender)


@kernel
def learn(state: Uet, now: int, sender: int, entropy: int, feedback: int) -> None:
    """Learn nothing."""


POLICY = SprayingPolicy(choose, learn, notes=lambda entropies: 0)
