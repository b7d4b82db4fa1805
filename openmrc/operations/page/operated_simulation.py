"""A running simulation with its controller: faults are named and parts are drained as in a lab.

The controller is that of a lab (`FabricController`), with its folder, its proofs and its stages; it is stepped after
each frame, on the simulation's clock (`simulated_fleet.SPEED`). It denies nothing but drains. Without probes, what is
undrained is used at once, and a part is named only where enough connections cross it, and cross others without it.
"""

import tempfile
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from openmrc.core.arrays import Ints
from openmrc.errors import ConfigError
from openmrc.fabric.addressing.usid import UsidPlan
from openmrc.fabric.model.naming import links_at
from openmrc.operations.control.controller import FabricController
from openmrc.operations.control.drain_proof import prove_drain
from openmrc.operations.control.operated import OperatedFabric, ask_drains, ask_undrains
from openmrc.operations.fleets.simulated_fleet import SimulatedFleet, SimulatedProber
from openmrc.operations.fleets.state_folder import StateFolder
from openmrc.operations.page.pictures import PageAction, VerdictLine
from openmrc.operations.page.shown import ShownVerdicts
from openmrc.operations.page.simulation_source import SHOWN_HEALTH, SimulationSource
from openmrc.sim.scenario.description import Scenario
from openmrc.units import PS_PER_US

KEEP = 0.25  # share of its paths that every pair must keep when something is drained by a click


class OperatedSimulation(SimulationSource):
    """A simulation that can be drained if it runs MRC on a fabric with `planes`. Close it: it may have a controller."""

    def __init__(
        self, scenario: Scenario, step_us: float = 20.0, folder: Path | None = None, probe_us: float = 0.0
    ) -> None:
        """Prepare the run; `folder`: where `mrc drain` finds the controller. ConfigError: it cannot be drained."""
        super().__init__(scenario, step_us)
        self._held, self._verdicts = ExitStack(), ShownVerdicts()
        self.controller: FabricController | None = None
        self.prober: SimulatedProber | None = None
        self._fleet: SimulatedFleet | None = None
        if self.plan is not None and self.engine is not None:
            self.actions = ("break", "degrade", "drain", "repair")
            self._fleet = SimulatedFleet(self.topology, self.world)
            if probe_us > 0:
                self.prober = SimulatedProber(self.topology, self.world, round(probe_us * PS_PER_US))
        if folder is not None or self.verdicts_from:
            self._control(folder)

    @property
    def verdicts_from(self) -> str:
        """Return what verdicts rest on; nothing without `planes`, or with too many EVs and no probes."""
        votes = ["votes of entropy values"] if self._fleet is not None and self._fleet.votes else []
        return " and ".join([*votes, *(["probes"] if self.prober is not None else [])])

    def operate(self) -> list[VerdictLine]:
        """Have the controller do what is due; return what it has named."""
        if self.controller is not None and self._fleet is not None:
            for event in self.controller.step(self._fleet.now):
                self.log(*self._verdicts.take(event))
        return self._verdicts.lines()

    def act(self, action: PageAction) -> str:
        """Break, degrade, drain or repair a link, a switch or a plane."""
        if action.verb == "drain":
            return self._drain(action.target)
        text = super().act(action)
        if action.verb == "repair" and self.controller is not None:
            state = self.controller.state
            if action.target in {entry.target for entry in state.drains()}:
                ask_undrains(state, [action.target])
        return text

    def close(self) -> None:
        """Release control."""
        self._held.close()

    def health(self) -> Ints:
        found, gone = super().health(), np.zeros(self.topology.links, dtype=bool)
        if self.controller is not None:
            gone[sorted(self.controller.drains.denied())] = True
        worse: Ints = np.maximum(found, np.where(gone[self.layout.links], SHOWN_HEALTH["drained"], 0))
        return worse

    def _drain(self, target: str) -> str:
        if self.finished:
            raise ConfigError("the run has ended: nothing can be drained any more")
        links = links_at(self.topology, target)
        with self.lock:
            controller = self.controller or self._control(None)
        fabric = OperatedFabric(self.operated_plan, controller.state.path.parent)
        proof = prove_drain(fabric.plan, [target], np.concatenate([links, fabric.out_of_use()]), KEEP)
        if not proof.allowed:
            raise ConfigError(f"{target} cannot be drained: {proof.why}")
        ask_drains(controller.state, fabric.plan, [target])
        self.log("action", f"{target}: drain")
        return f"{target}: drain"

    def _control(self, folder: Path | None) -> FabricController:
        plan = self.operated_plan
        if folder is None:
            folder = Path(self._held.enter_context(tempfile.TemporaryDirectory(prefix="openmrc-"))) / "ctl"
        self._held.enter_context(StateFolder(folder).in_charge())
        fleet = self._fleet
        assert fleet is not None
        made = FabricController(plan, folder, fleet.now, prober=self.prober, packets=fleet.packets, fleet=fleet)
        self.controller = self._held.enter_context(made)
        return made

    @property
    def operated_plan(self) -> UsidPlan:
        """Return the plan of what can be drained; ConfigError."""
        if self.plan is None or self.engine is None:
            raise ConfigError(f"verb: only {', '.join(self.actions)}; only MRC on a fabric with planes can be drained")
        return self.plan
