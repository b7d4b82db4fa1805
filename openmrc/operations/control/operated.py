"""What commands of operators work on: a lab that is up, or the endpoints of this host on a described fabric."""

import re
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from openmrc.base.documents import read_text
from openmrc.base.shipped import find
from openmrc.core.arrays import Ints
from openmrc.errors import ConfigError, MrcError
from openmrc.fabric.addressing.usid import UsidPlan, usid_plan
from openmrc.fabric.model.build import build, load_placed
from openmrc.fabric.model.naming import links_at
from openmrc.lab import record
from openmrc.lab.lifetime import up_now
from openmrc.lab.namespaces import of_lab
from openmrc.lab.run import sockets_of
from openmrc.operations.control.controller import DRY_RUN, FabricController
from openmrc.operations.control.controllers import host_controller, lab_controller
from openmrc.operations.control.drain_proof import DrainProof, prove_drain
from openmrc.operations.diagnosis.denial import DenialLimits
from openmrc.operations.diagnosis.elements import PlaneParts
from openmrc.operations.fleets.state_folder import DrainEntry, StateFolder
from openmrc.sim.scenario import description
from openmrc.sim.simulate import prepare

WAIT_S = 30.0  # for a controller to carry out a command
_POLL_S = 0.05


@dataclass(frozen=True)
class OperatedFabric:
    """A fabric with a folder of controller sockets; `lab` is empty on a host."""

    plan: UsidPlan
    sockets: Path
    lab: str = ""

    def controller(
        self, limits: DenialLimits = DRY_RUN, probes: bool = True
    ) -> AbstractContextManager[FabricController]:
        """Acquire control of the fabric. Raises ConfigError if another controller holds it."""
        if self.lab:
            return lab_controller(self.lab, self.sockets, limits, probes)
        return host_controller(self.plan, self.sockets, limits)

    def is_up(self) -> bool:
        """Whether all nodes of the lab are there, and its management; a described fabric is."""
        return not self.lab or len(of_lab(self.lab)) > self.plan.topology.nodes

    def out_of_use(self, but: Sequence[str] = ()) -> Ints:
        """Return the links of what is drained, but for these targets, and of what is denied as faulty.

        A proof about more has to count them, too.
        """
        state, topology = StateFolder(self.sockets), self.plan.topology
        parts = [PlaneParts(topology, shape) for shape in topology.planes]
        faulty = [parts[each.plane].links_of(each.part) for each in state.faults()]
        drained = [each.links for each in state.drains() if each.stage != "refused" and each.target not in but]
        return np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *drained, *faulty]))


def operated(name: str, sockets: Path | None, made_later: bool = False) -> OperatedFabric:
    """Return the lab of this name, else the fabric of this file; ConfigError if it is neither, or has no sockets.

    `made_later`: the folder of the sockets need not exist yet.
    """
    if name in {each["name"] for each in up_now()}:
        lab = record.plan(name, record.read(name))
        return OperatedFabric(lab.plan, sockets_of(name) if sockets is None else sockets, name)
    if sockets is None:
        raise ConfigError(f"{name}: no lab that is up; give --ctl, the folder of the endpoints' sockets")
    if not made_later and not sockets.is_dir():
        raise ConfigError(f"--ctl: there is no folder {sockets}")
    return OperatedFabric(plan_of(name), sockets)


def surveyed(name: str, sockets: Path | None) -> tuple[UsidPlan, Ints]:
    """Return the plan of a lab or file, and the links that are out of use already where a controller's folder says."""
    if sockets is None and name not in {each["name"] for each in up_now()}:
        return plan_of(name), np.zeros(0, dtype=np.int64)
    found = operated(name, sockets)
    return found.plan, found.out_of_use()


def plan_of(name: str) -> UsidPlan:
    """Return the plan of a fabric file, or of the fabric in a scenario; ConfigError."""
    path = find(name)
    if path.suffix != ".topo" and re.search(r"(?m)^workloads:", read_text(path)):
        return usid_plan(prepare(description.load(path)).topology)
    described, where = load_placed(name)
    return usid_plan(build(described), where)


def ask_drains(state: StateFolder, plan: UsidPlan, targets: Sequence[str], why: str = "") -> None:
    """Ask the controller to drain targets, for the audit log why; those that are already drained stay as they are."""
    wanted = {target: both_ways(plan, target) for target in targets}

    def change(entries: list[DrainEntry]) -> list[DrainEntry]:
        kept = [entry for entry in entries if entry.target not in wanted or entry.stage in ("draining", "drained")]
        known = {entry.target for entry in kept}
        new = (DrainEntry(target=target, links=links) for target, links in wanted.items() if target not in known)
        return [*kept, *new]

    for target in targets:
        state.record("drain", target, why=why)
    state.change_drains(change)


def undrain_proof(found: OperatedFabric, targets: Sequence[str]) -> DrainProof:
    """Prove what every pair keeps once these are used again; ConfigError names one that is not drained."""
    entries = StateFolder(found.sockets).drains()
    _drained(entries, targets)
    kept = [entry.target for entry in entries if entry.target not in targets and entry.stage != "refused"]
    return prove_drain(found.plan, kept, found.out_of_use(targets))


def ask_undrains(state: StateFolder, targets: Sequence[str], why: str = "") -> None:
    """Ask the controller to use targets again. Raises ConfigError for one that is not drained."""
    _drained(state.drains(), targets)
    for target in targets:
        state.record("undrain", target, why=why)

    def change(entries: list[DrainEntry]) -> list[DrainEntry]:
        return [
            msgspec.structs.replace(entry, stage="undraining", note="") if entry.target in targets else entry
            for entry in entries
            if entry.target not in targets or entry.stage != "refused"
        ]

    state.change_drains(change)


def await_drained(state: StateFolder, targets: Sequence[str]) -> None:
    """Wait until the running controller has drained targets. Raises MrcError with the reason if it does not."""

    def is_done() -> bool:
        entries = {entry.target: entry for entry in state.drains()}
        for target in targets:
            if target in entries and entries[target].stage == "refused":
                state.change_drains(lambda left: [entry for entry in left if entry.target not in targets])
                raise MrcError(f"{target}: not drained, and nothing stays denied: it {entries[target].note}")
        return all(target in entries and entries[target].stage == "drained" for target in targets)

    _await(state, is_done, f"{', '.join(targets)}: not drained yet", WAIT_S)


def await_undrained(state: StateFolder, targets: Sequence[str]) -> None:
    """Wait until targets are used again. Raises MrcError with the reason if they are not."""

    def is_done() -> bool:
        left = [entry for entry in state.drains() if entry.target in targets]
        for entry in left:
            if entry.stage == "drained":
                raise MrcError(f"{entry.target}: stays drained: {entry.note}")
        return not left

    _await(state, is_done, f"{', '.join(targets)}: not in use yet", 3 * WAIT_S)


def _drained(entries: Sequence[DrainEntry], targets: Sequence[str]) -> None:
    known = [entry.target for entry in entries]
    for target in targets:
        if target not in known:
            raise ConfigError(f"{target!r} is not drained; drained are {', '.join(known) or 'none'}")


def both_ways(plan: UsidPlan, target: str) -> tuple[int, ...]:
    """Return the links of a target with their other directions: a cable is taken out as a whole."""
    return tuple(plan.topology.both_ways(links_at(plan.topology, target)).tolist())


def _await(state: StateFolder, is_done: Callable[[], bool], what: str, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not is_done():
        if time.monotonic() > end:
            raise MrcError(f"{what} after {seconds:g} s; it goes on")
        if not state.has_controller():
            raise MrcError(f"{what}: the controller has ended; the next one goes on")
        time.sleep(_POLL_S)
