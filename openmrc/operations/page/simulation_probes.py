"""Probe a simulated fabric: the plan of `mrc map`, as packets beside the data, on the simulation's clock."""

from __future__ import annotations

import numpy as np

from openmrc.core.arrays import Ints
from openmrc.fabric.model.topology import Topology
from openmrc.operations.diagnosis.probe_plan import (
    COPIES,
    PERIOD_PS,
    PROBE_BYTES,
    Links,
    ProbeKind,
    plan_fabric,
)
from openmrc.sim.loop.probe_times import ProbeTimes
from openmrc.sim.loop.run import World
from openmrc.units import PS_PER_US

LATE_PS = 100 * PS_PER_US  # a probe that has not come by then is lost: it waits behind control packets only
LEAST_PERIOD_PS = 2 * LATE_PS
PROBE_CHANCE = 1e-5  # of a probe to be lost without a fault; an assumption: control queues seldom overflow


class SimulatedProbes:
    """The probes of all planes of a run."""

    def __init__(self, topology: Topology, world: World, period: int = PERIOD_PS) -> None:
        """Send them from now on, a loop over each cable every `period` ps; ConfigError: no plan, or several threads."""
        self._world, self.period = world, max(period, LEAST_PERIOD_PS)
        self.links: list[Links] = []  # by plane, numbered from the plane's first
        self.rows: list[Ints] = []  # by plane, of `counts`
        links, turns, at, first = [], [], [], 0
        for probes in plan_fabric(topology):
            rows = first + np.arange(len(probes))
            self.links.append(probes.links)
            self.rows.append(rows)
            links.append(np.where(probes.links >= 0, probes.links + probes.shape.host_up, -1).astype(np.int64))
            phase = (probes.phase * (self.period / PERIOD_PS)).astype(np.int64)
            often = probes.kind == ProbeKind.LOOP_T0  # once a period, the others take turns
            turns += [rows, rows[often]]
            at += [phase, phase[often] + self.period]
            first += len(probes)
        self._times = ProbeTimes(
            _stacked(links), np.concatenate(turns), np.concatenate(at), COPIES * self.period, PROBE_BYTES
        )
        world.probe(self._times)

    def counts(self) -> tuple[Ints, Ints]:
        """Return (those whose fate is known, lost) of each probe so far."""
        return self._times.outcomes(self._world.network, self._world.now, LATE_PS)


def _stacked(links: list[Ints]) -> Ints:
    """Return rows of several planes under each other, as wide as the widest."""
    width = max(each.shape[1] for each in links)
    padded = [np.pad(each, ((0, 0), (0, width - each.shape[1])), constant_values=-1) for each in links]
    return np.concatenate(padded)
