"""Make the controller of a lab, of this host, or of a fabric whose hosts have agents, and run it.

In a lab all endpoints, probes and counters of links are within reach. On a host of a real fabric there are the votes of
its own endpoints only. Agents bring votes and probes of all hosts, over TLS.
"""

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from openmrc.fabric.addressing.usid import UsidPlan
from openmrc.lab import record
from openmrc.lab.layout import Lab
from openmrc.lab.run import sockets_of
from openmrc.lab.status import counters
from openmrc.operations.control.controller import DRY_RUN, ControllerEvent, FabricController
from openmrc.operations.control.drains import Packets
from openmrc.operations.diagnosis.denial import DenialLimits
from openmrc.operations.fleets.agents.certificates import ControllerTls
from openmrc.operations.fleets.agents.messages import fabric_digest
from openmrc.operations.fleets.agents.port import AgentPort
from openmrc.operations.fleets.agents.remote_fleet import RemoteFleet
from openmrc.operations.fleets.lab_prober import LabProber, hurry
from openmrc.operations.fleets.state_folder import StateFolder

IDLE_STEP_S = 0.02  # between two steps of a controller that does not probe


def packets_of(name: str, lab: Lab) -> Packets:
    """Return the function that counts the packets that links were given since the lab came up."""
    written, ports = record.read(name), {port.link: port for port in lab.ports()}
    return lambda links: sum(counters(written, ports[link]).offered for link in links)


@contextmanager
def lab_controller(
    name: str, sockets: Path | None = None, limits: DenialLimits = DRY_RUN, probes: bool = True
) -> Iterator[FabricController]:
    """Acquire control of a lab. Raises ConfigError if another controller holds it."""
    lab = record.plan(name, record.read(name))
    folder = sockets_of(name) if sockets is None else sockets
    with (
        StateFolder(folder).in_charge(),
        closing(LabProber(lab)) if probes else nullcontext() as prober,
        FabricController(lab.plan, folder, time.monotonic(), limits, prober, packets_of(name, lab)) as controller,
    ):
        yield controller


@contextmanager
def host_controller(plan: UsidPlan, sockets: Path, limits: DenialLimits = DRY_RUN) -> Iterator[FabricController]:
    """Acquire control of the endpoints with sockets in a folder. Raises ConfigError if another controller holds it."""
    with StateFolder(sockets).in_charge(), FabricController(plan, sockets, time.monotonic(), limits) as controller:
        yield controller


def run(controller: FabricController, on_event: Callable[[ControllerEvent], None], is_over: Callable[[], bool]) -> None:
    """Step until it is over, or a newer controller has taken over."""
    if controller.probes:
        hurry()
    while not (is_over() or controller.is_fenced):
        begun = time.monotonic()
        for event in controller.step(begun):
            on_event(event)
        time.sleep(max(0.0, (0.0 if controller.probes else IDLE_STEP_S) - (time.monotonic() - begun)))


HEAR_S = 3.0  # for agents to report the epochs of their endpoints, before a new one is chosen


@dataclass(frozen=True)
class AgentsOptions:
    """Where and how a controller hears agents."""

    certificates: Path  # folder with ca.pem, controller.pem, controller.key
    listen: tuple[str, int]
    absent: Collection[str] = ()  # hosts that are off
    probes: bool = True  # whether agents probe


@contextmanager
def agents_controller(
    plan: UsidPlan, state: Path, options: AgentsOptions, limits: DenialLimits = DRY_RUN
) -> Iterator[FabricController]:
    """Acquire control of a fabric's agents. Raises ConfigError: certificates, address, or another controller here."""
    fleet = RemoteFleet(plan, options.absent)
    tls = ControllerTls(options.certificates)
    with StateFolder(state).in_charge(), closing(AgentPort(fleet, fabric_digest(plan.topology), tls, options.listen)):
        end = time.monotonic() + HEAR_S
        while fleet.waiting_for(time.monotonic()) and time.monotonic() < end:
            time.sleep(0.05)
        prober = fleet if options.probes else None
        with FabricController(plan, state, time.monotonic(), limits, prober, None, fleet) as controller:
            yield controller
