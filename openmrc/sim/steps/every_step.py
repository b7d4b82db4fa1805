"""A job whose every step is planned and simulated, as `mrc sim run` does it, told as a course of steps.

The fallback for jobs whose time is decided by where in its step a fault comes: steps that are left out move that place.
"""

import time
from collections.abc import Callable

import msgspec
import numpy as np
from numpy.typing import NDArray

from openmrc.core.rows import column
from openmrc.sim.loop.failures import why_stopped
from openmrc.sim.loop.run import World
from openmrc.sim.scenario.description import Scenario
from openmrc.sim.scenario.transport_options import transport_of
from openmrc.sim.simulate import prepare, world_of
from openmrc.sim.steps.course import StepCourse, Stretch
from openmrc.sim.steps.equivalence import Condition, KnownStep, PresentFaults
from openmrc.sim.transports.next_step import TransportState
from openmrc.sim.workloads.training_step import TrainingStep
from openmrc.units import NEVER


def every_step(scenario: Scenario, work: TrainingStep, steps: int, threads: int) -> StepCourse:
    """Simulate so many steps of a job without a break, and return each with its faults and repairs."""
    begun = time.perf_counter()
    planned = msgspec.structs.replace(scenario, workloads=(msgspec.structs.replace(work, steps=steps),))
    prepared = prepare(planned)
    topology, transport = prepared.topology, transport_of(scenario.transport, prepared.topology)
    world = world_of(scenario, prepared, transport, threads)
    course = StepCourse(scenario.name, transport.name, topology.nics, scenario.seed, threads, work.steps)
    course.setup_s = time.perf_counter() - begun

    def repaired() -> int:
        return int(transport.counters(world.state)["retransmitted"])

    world.run(
        NEVER, _Watch(world, course, prepared.work.marks["step"], PresentFaults(topology, by_link=True), repaired)
    )
    if course.steps < steps:
        course.stopped = why_stopped(transport.failures(world.state, world.network))
    calm = [each.took for each in course.stretches if not (each.present or each.changes or each.repaired)]
    course.calm = KnownStep(Condition((), TransportState(), 0), calm) if calm else None
    course.hops = int(column(world.network.shards, "hops").sum())
    return course


class _Watch:
    """Notes each step when it is over."""

    def __init__(
        self,
        world: World,
        course: StepCourse,
        gates: NDArray[np.int64],
        present: PresentFaults,
        repaired: Callable[[], int],
    ) -> None:
        """Count packets that were sent again with `repaired`, which reads every queue pair."""
        self._world, self._course, self._gates, self._present, self._count = world, course, gates, present, repaired
        self._fault, self._repaired, self._begins = 0, 0, 0

    def __call__(self) -> None:
        """Note the steps that the last window ended; packets sent again are counted to the end of the window."""
        flows, done = self._world.network.flows, self._course.simulated
        while done < len(self._gates) and int(flows[self._gates[done]].sent_at) < NEVER:
            ended = int(flows[self._gates[done]].sent_at)
            repaired = self._count()
            fault = int(np.searchsorted(self._world.faults.at, ended))
            made = Stretch(
                self._begins, 1, ended - self._begins, self._present.count, fault - self._fault,
                repaired - self._repaired,
            )  # fmt: skip
            self._course.stretches.append(made)
            self._present.apply(self._world.faults, self._fault, fault)
            self._fault, self._repaired, self._begins = fault, repaired, ended
            done += 1
