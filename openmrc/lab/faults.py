"""Faults of a lab's cables, in the syntax of live impairments and the simulator (`openmrc.base.faults`).

Targets are named as in the simulator: `plane 1`, `p0-t1-03`, `h7 port 2`, `p0-t0-00<>p0-t1-01`, one direction with `>`.

down        both directions of a cable: pulled. The programs at both ends drop immediately, then the upper end is set
            down, so that the lower one loses carrier. One direction alone: only the program drops.
loss, trim, corruption   shares of packets, by the program at the sending end
rate        of the qdisc and of the virtual queue at the sending end
delay, jitter, duplicate, reorder, bit_errors   refused: they need netem, which the lab does not use
mtu, data_loss   refused: for simulations
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from openmrc.base.faults import Impairment, OverlappingImpairments, Schedule, Step
from openmrc.errors import ConfigError
from openmrc.fabric.export.view import Views
from openmrc.fabric.model.naming import links_at
from openmrc.lab import commands, kernel_maps, namespaces, record
from openmrc.lab.layout import EXPORT, Cable, CableEnd, Lab
from openmrc.lab.namespaces import batch, namespace
from openmrc.lab.port import packed
from openmrc.units import PS_PER_S

POSSIBLE = ("down", "loss", "trim", "corruption", "rate")
_HEALTHY = Impairment()


@dataclass(frozen=True)
class ExecutedStep:
    at_s: float  # actual time after the start of the schedule
    late_ms: float  # delay against the schedule
    where: str
    change: dict[str, Any]
    links: int  # directed
    monotonic_ns: int  # time of the first change


class Breaker:
    """Injects and clears faults of a lab's cables."""

    def __init__(self, name: str) -> None:
        """Open a lab that is up."""
        namespaces.require_root()
        self.name = name
        self.record = record.read(name)
        self.lab: Lab = record.plan(name, self.record)
        self._cable_of: dict[int, Cable] = {}
        for cable in self.lab.cables:
            self._cable_of[cable.lower.link] = self._cable_of[cable.upper.link] = cable
        self._ports = {port.link: port for port in self.lab.ports()}
        self._views = Views(self.lab.plan, EXPORT)
        self._now = {link: Impairment(**fields) for link, fields in self.record.impairments.items()}
        self._layers: dict[int, OverlappingImpairments] = {}

    def check(self, schedule: Schedule) -> None:
        """Refuse actions that a lab does not support, and unknown targets."""
        for step in schedule.steps:
            for word, value in step.change.items():
                if word not in POSSIBLE and value != getattr(_HEALTHY, word):
                    raise ConfigError(f"{step.source}: a lab does not support {word!r}; use {', '.join(POSSIBLE)}")
            links_at(self.lab.topology, step.where)

    def run(
        self, schedule: Schedule, on_done: Callable[[ExecutedStep], None] = lambda done: None
    ) -> list[ExecutedStep]:
        """Execute a schedule from now on and return after its last step."""
        self.check(schedule)
        began, done = time.monotonic(), []
        for step in schedule.steps:
            due = step.at / PS_PER_S
            time.sleep(max(0.0, began + due - time.monotonic()))
            done.append(self.apply(step, began))
            on_done(done[-1])
        return done

    def apply(self, step: Step, began: float | None = None) -> ExecutedStep:
        """Execute one step now."""
        links = [int(link) for link in links_at(self.lab.topology, step.where)]
        now = time.monotonic_ns()
        at = now / 1e9 - began if began is not None else 0.0
        before = {link: self._now.get(link, _HEALTHY) for link in links}
        for link in links:
            layers = self._layers.setdefault(link, OverlappingImpairments(before[link]))
            layers.apply(step)
            self._now[link] = layers.now
        changed = [link for link in links if self._now[link] != before[link]]
        self._settle(changed)
        self._set_rates([link for link in changed if self._now[link].rate != before[link].rate])
        self._remember()
        late = (at - step.at / PS_PER_S) * 1e3 if began is not None else 0.0
        return ExecutedStep(round(at, 6), round(late, 3), step.where, dict(step.change), len(links), now)

    def clear(self) -> None:
        broken = list(self._now)
        self._now = dict.fromkeys(broken, _HEALTHY)
        self._layers.clear()
        self._settle(broken)
        self._set_rates(broken)
        self._remember()

    def _settle(self, links: list[int]) -> None:
        """Apply the requested state to these links: programs first, they take effect immediately.

        A carrier follows its programs, also when it returns: an endpoint uses a port as soon as it has one.
        """
        pulled = {
            cable.name
            for cable in self.lab.cables
            if all(self._now.get(port.link, _HEALTHY).down for port in (cable.lower, cable.upper))
        }
        back = [self._cable_of[link] for link in links if self._cable_of[link].name in self.record.down]
        for link in links:
            port, impairment = self._ports[link], self._now[link]
            kernel_maps.write(self.record.maps.settings, self._told(port, impairment), port.link)
        self._carriers(self._set_up, [cable for cable in dict.fromkeys(back) if cable.name not in pulled])
        gone = [self._cable_of[link] for link in links if self._cable_of[link].name in pulled]
        self._carriers(self._set_down, [cable for cable in dict.fromkeys(gone) if cable.name not in self.record.down])
        self.record.down = sorted(pulled)
        self.record.was_down = sorted(pulled.union(self.record.was_down))

    def _set_rates(self, links: list[int]) -> None:
        lines: dict[str, list[str]] = {}
        for port in (self._ports[link] for link in links):
            lines.setdefault(port.node, []).extend(commands.rate_lines("change", port.interface, self._rate(port)))
        for node, these in lines.items():
            batch("tc", these, namespace(self.name, node))

    def _rate(self, port: CableEnd) -> int:
        limit = self._now.get(port.link, _HEALTHY).rate
        return min(limit, port.rate) if limit else port.rate

    def _told(self, port: CableEnd, impairment: Impairment) -> bytes:
        healthy = commands.settings(replace(port, rate=self._rate(port)), self.record.trimming)
        impaired = replace(
            healthy, down=impairment.down, loss=impairment.loss, trim=impairment.trim, corruption=impairment.corruption
        )
        return packed(impaired)

    def _carriers(self, change: Callable[[Iterable[Cable]], None], cables: list[Cable]) -> None:
        # The programs have taken effect; the carrier may follow at low priority, without disturbing the measurement.
        if cables:
            with namespaces.gently():
                change(cables)

    def _set_down(self, cables: Iterable[Cable]) -> None:
        for node, these in _by_upper(cables).items():
            batch("ip", [f"link set dev {cable.upper.interface} down" for cable in these], namespace(self.name, node))

    def _set_up(self, cables: Iterable[Cable]) -> None:
        for node, these in _by_upper(cables).items():
            switch = self._views.of(self.lab.topology.node_named(node))
            lines = [line for each in these for line in commands.port_back(switch, each.upper.interface)]
            batch("ip", lines, namespace(self.name, node))

    def _remember(self) -> None:
        self._now = {link: impairment for link, impairment in self._now.items() if impairment != _HEALTHY}
        self.record.impairments = {link: _changed(impairment) for link, impairment in self._now.items()}
        record.write(self.name, self.record)


def _changed(impairment: Impairment) -> dict[str, Any]:
    return {name: value for name, value in asdict(impairment).items() if value != getattr(_HEALTHY, name)}


def _by_upper(cables: Iterable[Cable]) -> dict[str, list[Cable]]:
    found: dict[str, list[Cable]] = {}
    for cable in cables:
        found.setdefault(cable.upper.node, []).append(cable)
    return found
