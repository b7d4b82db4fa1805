"""Permutation: every host sends to one other and receives from one other."""

import numpy as np

from openmrc.base.amounts import Bytes, bytes_of, ps_of
from openmrc.sim.workloads.plan import Amount, Count, Parameters, WorkloadGraph, WorkloadHosts, refuse_many


class Permutation(Parameters, frozen=True, kw_only=True, tag="permutation"):
    """Each host sends one message, or several in a row, to its partner."""

    size: Bytes
    messages: Count = 1  # in sequence, each after the previous one is acknowledged
    stride: Amount = 0  # host h sends to h + stride; 0: random partners
    single_path: bool = False  # one path per message, as TCP or plain RoCE

    def plan(self, hosts: WorkloadHosts, seed: int) -> WorkloadGraph:
        """Return the messages; partners form one random cycle through all hosts, so no host sends to itself."""
        made = WorkloadGraph(hosts.count)
        refuse_many(self.messages * hosts.count, "messages")
        everyone = np.arange(hosts.count)
        partner = (everyone + self.stride) % hosts.count if self.stride else _cycle(hosts.count, seed)
        before = None
        for _ in range(self.messages):
            size, start = bytes_of(self.size), ps_of(self.start)
            sent = made.messages(everyone, partner, size, start, single_path=self.single_path)
            if before is not None:
                made.follow(before, sent, acknowledged=True)
            before = sent
        return made


def _cycle(count: int, seed: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    order = np.random.default_rng(seed).permutation(count)
    partner = np.empty(count, np.int64)
    partner[order] = np.roll(order, -1)
    return partner
