"""The controller of a fabric whose hosts have agents: the same as of a lab, with a fleet that is elsewhere."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from openmrc.fabric.addressing.usid import UsidPlan
from openmrc.operations.control.controller import DRY_RUN, FabricController
from openmrc.operations.diagnosis.denial import DenialLimits
from openmrc.operations.fleets.agents.certificates import controller_tls
from openmrc.operations.fleets.agents.messages import fabric_digest
from openmrc.operations.fleets.agents.port import AgentPort
from openmrc.operations.fleets.agents.remote_fleet import RemoteFleet
from openmrc.operations.fleets.state_folder import StateFolder

HEAR_S = 3.0  # for agents to say which epochs their endpoints have seen, before ours is taken


@dataclass(frozen=True)
class AgentsOptions:
    """Where and how a controller hears agents."""

    certificates: Path  # folder with ca.pem, controller.pem, controller.key
    listen: tuple[str, int]
    absent: Collection[str] = ()  # hosts that are off
    probes: bool = True  # whether agents probe
    hear_s: float = HEAR_S


@contextmanager
def agents_controller(
    plan: UsidPlan, state: Path, options: AgentsOptions, limits: DenialLimits = DRY_RUN
) -> Iterator[tuple[FabricController, AgentPort]]:
    """Be the controller of a fabric's agents; ConfigError: certificates, address, or another controller here."""
    fleet = RemoteFleet(plan, options.absent)
    tls = controller_tls(options.certificates)
    with StateFolder(state).in_charge():
        port = AgentPort(fleet, fabric_digest(plan.topology), tls, options.listen)
        try:
            _hear(fleet, options.hear_s)
            prober = fleet if options.probes else None
            with FabricController(plan, state, time.monotonic(), limits, prober, None, fleet) as controller:
                yield controller, port
        finally:
            port.close()


def _hear(fleet: RemoteFleet, seconds: float) -> None:
    """Wait until all hosts that are expected have reported, at most so long."""
    end = time.monotonic() + seconds
    while fleet.waiting_for(time.monotonic()) and time.monotonic() < end:
        time.sleep(0.05)
