"""All spraying policies, and the two kernels that lead to the one that a transport has chosen."""

from collections.abc import Callable, Mapping

from openmrc.core.jit import kernel
from openmrc.sim.transports.uet.spraying import bitmap, mixed, oblivious, reps
from openmrc.sim.transports.uet.spraying.names import LoadBalancing
from openmrc.sim.transports.uet.spraying.policy import SprayingPolicy
from openmrc.sim.transports.uet.tables import Uet

POLICIES: dict[LoadBalancing, SprayingPolicy] = {
    "oblivious": oblivious.POLICY,
    "bitmap": bitmap.POLICY,
    "reps": reps.POLICY,
    "mixed": mixed.POLICY,
}  # a policy's number in `UetParams.spraying` is its place here

Choose = Callable[[Uet, int, int, int], int]
Learn = Callable[[Uet, int, int, int, int], None]


def chooser(policies: Mapping[LoadBalancing, SprayingPolicy]) -> Choose:
    """Return the kernel that calls `choose` of the state's policy."""
    first, *others = policies.values()
    chosen = first.choose
    for number, policy in enumerate(others, 1):
        chosen = _or_choose(number, policy.choose, chosen)
    return chosen


def learner(policies: Mapping[LoadBalancing, SprayingPolicy]) -> Learn:
    """Return the kernel that calls `learn` of the state's policy."""
    first, *others = policies.values()
    learns = first.learn
    for number, policy in enumerate(others, 1):
        learns = _or_learn(number, policy.learn, learns)
    return learns


def _or_choose(number: int, own: Choose, others: Choose) -> Choose:
    def choose(state: Uet, now: int, nic: int, sender: int) -> int:
        if state.params[0].spraying == number:
            return own(state, now, nic, sender)
        return others(state, now, nic, sender)

    return kernel(choose)


def _or_learn(number: int, own: Learn, others: Learn) -> Learn:
    def learn(state: Uet, now: int, sender: int, entropy: int, feedback: int) -> None:
        if state.params[0].spraying == number:
            own(state, now, sender, entropy, feedback)
        else:
            others(state, now, sender, entropy, feedback)

    return kernel(learn)


choose, learn = chooser(POLICIES), learner(POLICIES)
