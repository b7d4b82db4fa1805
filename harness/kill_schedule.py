"""A minute of kills and partitions of agents and controllers, drawn from a seed, in virtual time."""

from __future__ import annotations

import random
from pathlib import Path

from harness.agent_hosts import NICS, ModelEndpoints
from openmrc.ctl.denials import MOST_LEASE
from openmrc.fabric.addressing.usid import UsidPlan
from openmrc.operations.control.controller import FabricController
from openmrc.operations.diagnosis.denial import DenialLimits
from openmrc.operations.diagnosis.path_index import PathIndex
from openmrc.operations.fleets.agents.host_agent import HostAgent
from openmrc.operations.fleets.agents.remote_fleet import RemoteFleet


def run_schedule(plan: UsidPlan, index: PathIndex, folder: Path, seed: int) -> None:
    """Run one schedule; AssertionError if a pair ever lost its last path, or a denial outlived its lease.

    Two controllers at once, agents that change between them and are restarted, clocks that differ by minutes.
    """
    draw = random.Random(seed)
    hosts = [ModelEndpoints(plan, nic, index, packets=4) for nic in range(0, NICS, 2)]
    offset = [draw.uniform(-600, 600) for _ in hosts]
    agents = [HostAgent(host) for host in hosts]
    limits = DenialLimits(dry_run=False, per_minute=100, plane_share=1.0)
    absent = [f"h{nic}" for nic in range(1, NICS, 2)]
    controllers: dict[int, tuple[RemoteFleet, FabricController | None]] = {}
    last_heard, links = [0.0] * len(hosts), plan.topology.links

    def reported(which: int, number: int, now: float) -> None:
        fleet, nic = controllers[number][0], hosts[which].nic
        orders = fleet.take(nic, agents[which].report(now + offset[which]), now)
        if draw.random() < 0.9:  # else the answer is lost
            agents[which].obey(orders, now + offset[which] + draw.uniform(0, 40) * (draw.random() < 0.1))
            last_heard[which] = now

    for tick in range(60):
        now = tick * 1.0
        if draw.random() < 0.1 or not controllers:  # one begins, beside those that are there
            controllers[tick] = (RemoteFleet(plan, absent), None)
            for which in range(len(hosts)):
                if draw.random() < 0.7:
                    reported(which, tick, now)
            state = folder / f"state{tick % 2}"
            made = FabricController(plan, state, now, limits, None, None, controllers[tick][0])
            controllers[tick] = (controllers[tick][0], made)
        if draw.random() < 0.08:
            del controllers[draw.choice(list(controllers))]
        if draw.random() < 0.2:
            which = draw.randrange(len(agents))
            agents[which] = HostAgent(hosts[which])
        if draw.random() < 0.2:
            broken = frozenset(draw.sample(range(links), draw.choice([0, 1, 2, 8])))
            for host in hosts:
                host.broken = broken
        for which in range(len(hosts)):
            if controllers and draw.random() < 0.8:  # the partition of this moment
                agents[which].begin() if draw.random() < 0.2 else None
                reported(which, draw.choice(list(controllers)), now)
        for number, (_, controller) in list(controllers.items()):
            if controller is not None:
                controller.step(now)
                if controller.is_fenced:
                    del controllers[number]
        assert all(host.every_pair_has_a_path(now + at) for host, at in zip(hosts, offset, strict=True))
    for host, at, heard in zip(hosts, offset, last_heard, strict=True):  # all controllers are gone
        assert not host.denied(heard + 40 + MOST_LEASE + at)
