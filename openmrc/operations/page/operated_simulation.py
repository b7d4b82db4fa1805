"""A running simulation with its controller: what is drained on its page, or by `mrc drain`, is drained as in a lab.

The controller is that of a lab (`FabricController`), with its folder, its proofs and its stages; it is stepped after
each frame, on the simulation's clock (`simulated_fleet.SPEED`). It sends no probes, so what is undrained is used at
once. It begins with the first drain, or at once if others shall find its folder.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from openmrc.core.arrays import Ints
from openmrc.errors import ConfigError
from openmrc.fabric.addressing.usid import UsidPlan
from openmrc.operations.control.controller import FabricController
from openmrc.operations.control.drain_proof import prove_drain
from openmrc.operations.control.operated import OperatedFabric, ask_drains, ask_undrains
from openmrc.operations.fleets.simulated_fleet import SimulatedFleet
from openmrc.operations.fleets.state_folder import StateFolder
from openmrc.operations.page.pictures import Frame, PageAction
from openmrc.operations.page.simulation_source import SHOWN_HEALTH, SimulationSource
from openmrc.sim.scenario.description import Scenario
from openmrc.sim.scenario.fault_targets import links_at

KEEP = 0.25  # share of its paths that every pair must keep when something is drained by a click


class OperatedSimulation(SimulationSource):
    """A simulation that can be drained if it runs MRC on a fabric with `planes`. Close it: it may have a controller."""

    def __init__(
        self, scenario: Scenario, step_us: float = 20.0, folder: Path | None = None, probe_us: float = 0.0
    ) -> None:
        """Prepare the run; `folder`: where `mrc drain` finds the controller. ConfigError: it cannot be drained."""
        super().__init__(scenario, step_us, probe_us)
        self._held = ExitStack()
        self.controller: FabricController | None = None
        if self.plan is not None and self.engine is not None:
            self.actions = ("break", "degrade", "drain", "repair")
        if folder is not None:
            self._control(folder)

    def frame(self) -> Frame:
        """Advance the simulation, have the controller do what is due, and return what changed."""
        frame = super().frame()
        with self.lock:
            if self.controller is not None:
                for event in self.controller.step(self._fleet.now):
                    self.log("controller", f"{event.part} {event.what}")
        return frame

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
        """Stop being the controller."""
        self._held.close()

    def health(self) -> Ints:
        """Return the health of each upward link's cable: the worse of its directions."""
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
        """Become the controller."""
        plan = self.operated_plan
        if folder is None:
            folder = Path(self._held.enter_context(tempfile.TemporaryDirectory(prefix="openmrc-"))) / "ctl"
        self._held.enter_context(StateFolder(folder).in_charge())
        self._fleet = fleet = SimulatedFleet(self.topology, self.world)
        made = FabricController(plan, folder, fleet.now, packets=fleet.packets, fleet=fleet)
        self.controller = self._held.enter_context(made)
        return made

    @property
    def operated_plan(self) -> UsidPlan:
        """Return the plan of what can be drained; ConfigError."""
        if self.plan is None or self.engine is None:
            raise ConfigError(f"verb: only {', '.join(self.actions)}; only MRC on a fabric with planes can be drained")
        return self.plan
