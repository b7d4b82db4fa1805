"""Run the traffic of a world again: its messages are as before they were posted, everything else is as it was left.

A plan of a million equal steps would need memory for each. Here one step is planned; when all of it is done and no
packet is in flight, `StepAgain.begin` starts it anew at a given time, on the same links, queue pairs and paths.

The end of a step is when its last node, a gate, has its predecessors; the acknowledgements of the last messages are
still in flight then. The computation of the next step begins at that time, too. It outlasts them, unless some are lost
and a sender's timeout is longer: then the step waits, and `begin` says how long.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from openmrc.core.arrays import Ints
from openmrc.core.rows import column
from openmrc.sim.loop.run import World
from openmrc.sim.network.network_tables import NONE
from openmrc.sim.workloads.traffic import Traffic
from openmrc.units import NEVER


@dataclass
class StepAgain:
    """A world whose traffic is one step, and what it needs to start that again."""

    world: World
    gate: int  # the flow at the end of the step
    computing: Ints  # flows without bytes that represent computations, one at most for each NIC
    nics: Ints  # where they are
    timed: Ints  # releases whose delay is the length of a computation, and what the host takes before a message
    whose: Ints  # of each of them: index of `computing`
    more: Ints  # what the host takes before its message (ps)
    flows: NDArray[np.void]  # as they were before the first step
    pending: Ints  # by NIC: the first flow that waits

    @staticmethod
    def of(world: World, traffic: Traffic, gate: int, computing: Ints) -> StepAgain:
        """Return the world of a step that has not begun."""
        counts = np.diff(traffic.first_release)[computing]
        whose = np.repeat(np.arange(len(computing)), counts)
        offset = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        timed = traffic.first_release[computing][whose] + offset
        flows, pending = np.array(world.network.flows), column(world.network.nics, "pending").copy()
        more = traffic.release_delay[timed] - traffic.computed()[computing][whose]
        return StepAgain(world, gate, computing, traffic.source[computing], timed, whose, more, flows, pending)

    def run(self) -> int | None:
        """Run the step until its packets are gone; return when it ended (ps), None if it cannot end any more."""
        self.world.run(NEVER, lambda: None)
        ended = int(self.world.network.flows[self.gate].sent_at)
        return ended if ended < NEVER else None

    def begin(self, at: int, lengths: Ints) -> int:
        """Start the step again with computations of these lengths from `at` (ps) on.

        A computation that is over before the network is empty ends then, and all others as much later. Return by how
        much (ps): it is not the job's time, whose messages would not wait for acknowledgements that were lost.
        """
        network, now = self.world.network, self.world.now
        starts = max(at, now)
        np.asarray(network.flows)[:] = self.flows
        column(network.flows, "start")[self.computing] = starts
        column(network.nics, "pending")[:] = self.pending
        for rows, name in ((network.nics, "wake"), (network.nodes, "next_at")):
            column(rows, name)[self.nics] = np.minimum(column(rows, name)[self.nics], starts)
        left = lengths - (starts - at)
        late = max(0, -int(left.min(initial=0)))
        column(network.releases, "delay")[self.timed] = (left + late)[self.whose] + self.more
        column(network.shards, "finished")[:] = 0
        self.world.flows_done_at, self.world.standstill, self.world.finished_before = NEVER, False, NONE
        return late

    def bring_faults_forward(self, by: int) -> None:
        """Let all faults to come happen earlier (ps), because as much time is left out; less than 0: later."""
        world = self.world
        at = world.faults.at.copy()
        at[world.next_fault :] -= by
        world.faults = replace(world.faults, at=at)
