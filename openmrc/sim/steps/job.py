"""Simulate a job of many equal steps, each of them once: `run_steps(scenario)`.

    simulate a step -> its condition at the end
      a fault comes or goes in it, or its condition is new   -> simulate the next one, too
      a step that begins so is known                         -> leave out as many as fit before the next fault
    at the end
      faults cost much, and how much is chance               -> simulate every step instead (`every_step`)

The network's own clock stands while steps are left out: the faults to come are brought forward instead. So every step
that is simulated is a step of one long run, packet by packet, on the queue pairs and paths that the steps before left.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import numpy as np

from openmrc.base.amounts import ps_of
from openmrc.core.rows import column
from openmrc.errors import FieldError
from openmrc.sim.loop.again import StepAgain
from openmrc.sim.loop.failures import why_stopped
from openmrc.sim.loop.run import LoopTransport
from openmrc.sim.network.reach import reaches
from openmrc.sim.scenario.description import Scenario
from openmrc.sim.scenario.transport_options import transport_of
from openmrc.sim.simulate import Prepared, prepare, world_of
from openmrc.sim.steps.course import StepCourse, Stretch
from openmrc.sim.steps.equivalence import ANY, Condition, KnownSteps, PresentFaults
from openmrc.sim.steps.every_step import every_step
from openmrc.sim.transports.next_step import NextStep, next_step_of, state_of
from openmrc.sim.workloads.training_step import TrainingStep, lengths, straggling
from openmrc.units import NEVER, PS_PER_US

ROUND_TRIPS = 10  # that a computation lasts at least: the acknowledgements of the step before arrive in it
SPRAYED = ("mrc", "uet")  # transports whose steps are the same whichever link of a tier fails
DOUBTFUL = 0.005  # of the job's time, lost to faults: more may differ by 1 % if a fault comes elsewhere in its step
MOST_MESSAGES = 500_000  # of jobs that are simulated without a break then: minutes, and less than 1 GB


@dataclass(frozen=True)
class StepsProgress:
    steps: int
    of: int
    job_ps: int
    simulated: int
    wall_s: float


OnStep = Callable[[StepsProgress], None]


def run_steps(
    scenario: Scenario, threads: int = 1, on_step: OnStep | None = None, leave_out: bool = True
) -> StepCourse:
    """Run the training steps of a scenario until its `until`; without `leave_out`, simulate every one."""
    work = _the_steps(scenario)
    prepared = prepare(msgspec.structs.replace(scenario, workloads=(msgspec.structs.replace(work, steps=1),)))
    transport = transport_of(scenario.transport, prepared.topology)
    _refuse_short(work, prepared, transport)
    begun = time.perf_counter()
    job = _Job(scenario, work, prepared, transport, threads, leave_out)
    job.course.setup_s = time.perf_counter() - begun
    job.run(on_step)
    course = job.course
    if course.simulated < course.steps and not job.is_sprayed and course.lost > DOUBTFUL * course.took:
        course = _instead(course, scenario, work, len(prepared.work.traffic.size), threads)
    course.wall_s = time.perf_counter() - begun
    return course


def _instead(course: StepCourse, scenario: Scenario, work: TrainingStep, messages: int, threads: int) -> StepCourse:
    """Return the course with every step simulated if it is not too long for that, and what to think of it."""
    share = (
        f"faults cost {course.lost / course.took:.2%} of the time, and how much depends on where in a step they come"
    )
    if messages * course.steps > MOST_MESSAGES:
        course.note = f"{share}: another seed may differ by as much; more seeds give a mean"
        return course
    whole = every_step(scenario, work, course.steps, threads)
    whole.note = f"{share}: every step was simulated"
    return whole


def _the_steps(scenario: Scenario) -> TrainingStep:
    if len(scenario.workloads) != 1 or not isinstance(scenario.workloads[0], TrainingStep):
        raise FieldError("$.workloads", "workloads: expected one of kind training_step, and nothing beside it")
    work = scenario.workloads[0]
    if ps_of(work.start):
        raise FieldError("$.workloads[0].start", f"start: {work.start!r}: the first step begins at 0us")
    if work.every is not None:
        raise FieldError("$.workloads[0].every", "every: steps follow each other already; `steps` says how many")
    if scenario.capture is not None:
        raise FieldError("$.capture", "capture: steps that are left out have no packets; use mrc sim run")
    return work


def _refuse_short(work: TrainingStep, prepared: Prepared, transport: LoopTransport) -> None:
    settings = transport.network
    least = ROUND_TRIPS * max(port.round_trip for port in reaches(prepared.topology, settings.mtu, settings.header))
    if ps_of(work.compute) * (1 - work.jitter) < least:
        raise FieldError(
            "$.workloads[0].compute",
            f"compute: {work.compute!r} with jitter {work.jitter:g}: expected {ROUND_TRIPS} round trips of the fabric "
            f"at least, {least / PS_PER_US:.4g}us, in which the step before comes to rest",
        )


class _Job:
    def __init__(
        self,
        scenario: Scenario,
        work: TrainingStep,
        prepared: Prepared,
        transport: LoopTransport,
        threads: int,
        leave_out: bool,
    ) -> None:
        topology, traffic = prepared.topology, prepared.work.traffic
        self.wanted, self.until, self.leave_out = work.steps, ps_of(scenario.until), leave_out
        self.work, self.seed = work, scenario.seed
        self.world = world_of(scenario, prepared, transport, threads)
        computing = np.flatnonzero(prepared.work.label == prepared.work.labels.index("step 1: compute"))
        self.slow = straggling(len(computing), work, scenario.seed)
        self.step = StepAgain.of(self.world, traffic, int(prepared.work.marks["step"][0]), computing)
        self.renew: NextStep = next_step_of(transport, topology, traffic, self.world.state, scenario.seed)
        self.transport = transport
        self.is_sprayed = scenario.transport.name in SPRAYED
        self.present = PresentFaults(topology, not self.is_sprayed)
        self.known = KnownSteps()
        self.ahead = 0  # ps: the job's time minus that of the world
        self.repaired_so_far = 0
        self.course = StepCourse(
            scenario.name, scenario.transport.name, topology.nics, scenario.seed, threads, work.steps
        )

    def run(self, on_step: OnStep | None) -> None:
        """Simulate or leave out step after step."""
        begun, done, at = time.perf_counter(), 0, 0
        condition = self._condition(0)
        while done < self.wanted and at + self.ahead < self.until:
            skipped = self._leave_out(condition, self.wanted - done, at)
            done += skipped
            if done == self.wanted or at + self.ahead >= self.until:
                break
            ended, condition = self._simulate(done, at, condition, skipped)
            if ended is None:
                self.course.stopped = why_stopped(self.transport.failures(self.world.state, self.world.network))
                break
            at, done = ended, done + 1
            if on_step is not None:
                spent = time.perf_counter() - begun
                on_step(StepsProgress(done, self.wanted, at + self.ahead, self.course.simulated, spent))
        self.course.calm = self.known.calm()
        self.course.hops = int(column(self.world.network.shards, "hops").sum())

    def _simulate(self, number: int, at: int, before: Condition, skipped: int) -> tuple[int | None, Condition]:
        """Simulate one step that begins at a time of the world (ps); return its end and the condition after it."""
        world, first_fault, present = self.world, self.world.next_fault, self.present.count
        begins, late = at + self.ahead, 0
        if number > 0:
            late = self._begin(number, at, skipped)
        ended = self.step.run()
        if ended is None:
            return None, before
        changes = world.next_fault - first_fault
        self.present.apply(world.faults, first_fault, world.next_fault)
        total = self._retransmitted()
        repaired, self.repaired_so_far = total - self.repaired_so_far, total
        after = self._condition(repaired)
        length = ended - at - late
        if not changes:
            self.known.add(before, after, length)
        self.course.stretches.append(Stretch(begins, 1, length, present, changes, repaired))
        return ended, after

    def _begin(self, number: int, at: int, skipped: int) -> int:
        """Start a step; return how long its messages wait until the network is at rest (ps): no time of the job."""
        world, left_out = self.world, self.course.stretches[-1].took if skipped else 0
        world.state = self.renew(world.state, world.network, world.now, left_out)
        self.repaired_so_far = self._retransmitted()  # its state may have been built anew
        computing = lengths(self.slow, self.work, np.random.default_rng([self.seed, number]))
        late = self.step.begin(at + world.network.config[0].lookahead, computing)
        if late and self._faults_left():
            self.step.bring_faults_forward(-late)
        self.ahead -= late
        self.course.late += late
        return late

    def _leave_out(self, condition: Condition, most: int, at: int) -> int:
        """Leave out the steps that are known, from a time of the world (ps) on; return how many."""
        known = self.known.find(condition) if self.leave_out else None
        if known is None or not known.is_settled():
            return 0
        length = round(known.mean)
        fault = int(self.world.faults.at[self.world.next_fault]) if self._faults_left() else NEVER
        until_end = -(-(self.until - at - self.ahead) // length)
        fits = (fault - max(at, self.world.now)) // length if fault < NEVER else most
        count = int(min(most, until_end, fits))
        if count <= 0:
            return 0
        if fault < NEVER:
            self.step.bring_faults_forward(count * length)
        self.course.stretches.append(Stretch(at + self.ahead, count, count * length, self.present.count, known=known))
        self.ahead += count * length
        return count

    def _faults_left(self) -> bool:
        return self.world.next_fault < len(self.world.faults.at)

    def _condition(self, repaired: int) -> Condition:
        counted = ANY if self.present.are_random else repaired
        return Condition(self.present.digest(), state_of(self.world.state), counted)

    def _retransmitted(self) -> int:
        return int(self.transport.counters(self.world.state)["retransmitted"])
