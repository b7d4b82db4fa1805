"""Controllers of this machine's endpoints: those of a lab, whose hosts are namespaces here, or those of this host.

In a lab all endpoints, probes and counters of links are within reach. On a host of a real fabric there are the votes of
its own endpoints only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from openmrc.fabric.addressing.usid import UsidPlan
from openmrc.lab import record
from openmrc.lab.layout import Lab
from openmrc.lab.run import sockets_of
from openmrc.lab.status import counters
from openmrc.operations.control.controller import DRY_RUN, ControllerEvent, FabricController
from openmrc.operations.diagnosis.denial import DenialLimits
from openmrc.operations.fleets.lab_prober import PACE_S, LabProber, hurry
from openmrc.operations.fleets.state_folder import StateFolder

IDLE_STEP_S = 0.02  # between two steps of a controller that does not probe


class LabTraffic:
    """Counts the packets that were given to links of a lab."""

    def __init__(self, name: str, lab: Lab) -> None:
        self._record = record.read(name)
        self._ports = {port.link: port for port in lab.ports()}

    def packets(self, links: Iterable[int]) -> int:
        """Return how many packets these links were given since the lab came up."""
        return sum(counters(self._record, self._ports[link]).offered for link in links)


@contextmanager
def lab_controller(
    name: str, sockets: Path | None = None, limits: DenialLimits = DRY_RUN, pace_s: float = PACE_S, probes: bool = True
) -> Iterator[FabricController]:
    """Be the controller of a lab; ConfigError if there is one already."""
    lab = record.plan(name, record.read(name))
    folder = sockets_of(name) if sockets is None else sockets
    traffic = LabTraffic(name, lab).packets
    with (
        StateFolder(folder).in_charge(),
        _prober(lab, pace_s, probes) as prober,
        FabricController(lab.plan, folder, time.monotonic(), limits, prober, traffic) as controller,
    ):
        yield controller


@contextmanager
def host_controller(plan: UsidPlan, sockets: Path, limits: DenialLimits = DRY_RUN) -> Iterator[FabricController]:
    """Be the controller of the endpoints with sockets in a folder; ConfigError if there is one already."""
    with (
        StateFolder(sockets).in_charge(),
        FabricController(plan, sockets, time.monotonic(), limits) as controller,
    ):
        yield controller


@contextmanager
def _prober(lab: Lab, pace_s: float, wanted: bool) -> Iterator[LabProber | None]:
    prober = LabProber(lab, pace_s) if wanted else None
    try:
        yield prober
    finally:
        if prober is not None:
            prober.close()


def run(controller: FabricController, on_event: Callable[[ControllerEvent], None], is_over: Callable[[], bool]) -> None:
    """Step until it is over, or a newer controller has taken over."""
    if controller.probes:
        hurry()
    while not (is_over() or controller.is_fenced):
        begun = time.monotonic()
        for event in controller.step(begun):
            on_event(event)
        time.sleep(max(0.0, (0.0 if controller.probes else IDLE_STEP_S) - (time.monotonic() - begun)))
