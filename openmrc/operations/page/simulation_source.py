"""A simulation that runs while the page looks at it, slowed down to what an eye can follow."""

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from openmrc.base.amounts import ps_of
from openmrc.core.arrays import Ints
from openmrc.core.rows import column
from openmrc.engine.state.machines import EvState, QpState
from openmrc.engine.state.queue_pairs import active_rows
from openmrc.errors import ConfigError
from openmrc.fabric.addressing.usid import UsidPlan, identity, prefix_text, usid_plan
from openmrc.fabric.model.naming import links_at
from openmrc.fabric.model.topology import LinkTier
from openmrc.operations.page.cell_layout import cells_of
from openmrc.operations.page.pictures import (
    EvCell,
    Frame,
    LinkDetail,
    LogLine,
    PageAction,
    PairLine,
    Picture,
    VerdictLine,
)
from openmrc.sim.loop import window
from openmrc.sim.loop.fault_actions import PORTS_PER_NIC
from openmrc.sim.loop.fault_events import FaultKind
from openmrc.sim.network import impairments
from openmrc.sim.scenario.description import Scenario
from openmrc.sim.scenario.transport_options import transport_of
from openmrc.sim.simulate import prepare, world_of
from openmrc.sim.transports.mrc.transport import Mrc
from openmrc.units import NEVER, PS_PER_S, PS_PER_US, us_from_ps

MOST_DETAILS = 24  # links of a cell that are described
MOST_PAIRS = 12  # queue pairs in the list: those that sent most since the frame before
DEGRADED = 10_000_000  # 1e-9: `degrade` loses 1 % of the packets
_DONE = {"break": "broken", "degrade": "degraded: 1 % lost", "repair": "repaired"}
SHOWN_HEALTH = {"up": 0, "degraded": 1, "drained": 2, "down": 3}


class SimulationSource:
    """Advances a simulation by `step_us` simulated microseconds a frame.

    `operations.page.operated_simulation` adds verdicts and drains: `topology`, `plan`, `world`, `layout`, `lock` and
    `finished` are its too.
    """

    actions: Sequence[str] = tuple(_DONE)

    def __init__(self, scenario: Scenario, step_us: float = 20.0) -> None:
        """Build the run. ConfigError as of `mrc sim run`."""
        prepared = prepare(scenario)
        self.topology = prepared.topology
        transport = transport_of(scenario.transport, prepared.topology)
        self.world = world_of(scenario, prepared, transport)
        self._until = ps_of(scenario.until)
        self._step = int(step_us * PS_PER_US)
        self._title = scenario.name
        self.layout = cells_of(prepared.topology)
        self.plan = _plan(prepared.topology)
        self._events = list(prepared.events)
        self._lines: list[LogLine] = []
        self.lock = threading.Lock()  # of the world
        self._chosen = -1
        self._frames = 0
        self._bytes = self._column("ports", "data_bytes")
        self._pair_bytes = self._pairs_sent()
        self.finished = False
        down = prepared.topology.link_destination < prepared.topology.nics
        self._to_nics = np.flatnonzero(down & (prepared.topology.link_tier == LinkTier.HOST))

    @property
    def engine(self) -> Any:
        """Return the tables of MRC; None for another transport."""
        return self.world.state.engine if isinstance(self.world.state, Mrc) else None

    def picture(self) -> Picture:
        topology = self.topology
        return Picture(
            title=self._title,
            kind="simulation",
            nics=topology.nics,
            switches=topology.nodes - topology.nics,
            links=len(self.layout.links),
            planes=int(topology.link_plane.max()) + 1,
            grids=self.layout.grids,
            plane_names=[f"plane {plane}" for plane in range(int(topology.link_plane.max()) + 1)],
            actions=list(self.actions),
            time_unit="us",
            verdicts_from=self.verdicts_from,
        )

    def frame(self) -> Frame:
        with self.lock:
            before = self.world.now
            if not self.finished:
                end = min((before // self._step + 1) * self._step, self._until)
                while self.world.now < end and not self.world.is_done() and not self.world.standstill:
                    self.world.run(end, lambda: None)
                self.finished = self.world.is_done() or self.world.standstill or self.world.now >= self._until
                while self._events and self._events[0].at <= self.world.now:
                    event = self._events.pop(0)
                    self._lines.append(LogLine(at=us_from_ps(event.at), kind="fault", text=event.text))
            return self._frame(max(self.world.now - before, 1))

    @property
    def verdicts_from(self) -> str:
        """Return what verdicts rest on; nothing here."""
        return ""

    def operate(self) -> list[VerdictLine]:
        """Do what an operator's programs do between two frames; return the faults that they name."""
        return []

    def cell(self, number: int) -> list[LinkDetail]:
        if not 0 <= number < len(self.layout.counts):
            raise ConfigError(f"cell: {number} is not in 0..{len(self.layout.counts) - 1}")
        with self.lock:
            health = self.health()
        found = self.layout.of_cell(number)
        worst_first = found[np.argsort(-health[found], kind="stable")][:MOST_DETAILS]
        return [self._detail(int(self.layout.links[at]), int(health[at])) for at in worst_first]

    def act(self, action: PageAction) -> str:
        """Break, degrade or repair a link, a switch or a plane."""
        if action.verb not in _DONE:
            raise ConfigError(f"verb: {action.verb!r} is not one of {', '.join(self.actions)}")
        links = links_at(self.topology, action.target)
        with self.lock:
            for link in links.tolist():
                self._apply(action.verb, link)
            text = f"{action.target} {_DONE[action.verb]}"
            self.log("action", text)
        return text

    def choose(self, pair: str) -> None:
        engine = self.engine
        known = {} if engine is None else {self._pair_name(row): row for row in self._busiest(10**9)}
        if pair not in known:
            raise ConfigError(f"queue pair: there is no {pair!r} that has sent anything")
        self._chosen = known[pair]

    def close(self) -> None:
        """Nothing is open."""

    def health(self) -> Ints:
        """Return the health of each upward link's cable: the worse of its directions."""
        alive, impaired = self._column("wires", "alive_from"), self._column("wires", "impaired")
        dead = (alive >= NEVER) | (self._column("link_impairments", "loss") >= impairments.ONE)
        one = np.where(dead, SHOWN_HEALTH["down"], np.where(impaired != 0, SHOWN_HEALTH["degraded"], 0))
        found: Ints = np.maximum(one[self.layout.links], one[self.topology.link_reverse[self.layout.links]])
        return found

    def log(self, kind: str, text: str) -> None:
        """Show a line with the next frame."""
        self._lines.append(LogLine(at=us_from_ps(self.world.now), kind=kind, text=text))

    # Internals

    def _column(self, table: str, name: str) -> Ints:
        found: Ints = column(getattr(self.world.network, table), name)[: self.topology.links].copy()
        return found

    def _apply(self, verb: str, link: int) -> None:
        world, topology = self.world, self.topology
        kinds = {
            "break": [(FaultKind.LINK_DOWN, 1)],
            "degrade": [(FaultKind.LINK_LOSS, DEGRADED)],
            "repair": [(FaultKind.LINK_LOSS, 0)],
        }[verb]
        if verb == "repair" and int(column(world.network.wires, "alive_from")[link]) >= NEVER:
            kinds = [*kinds, (FaultKind.LINK_DOWN, 0)]
        for kind, value in kinds:
            window.apply_fault(world.state, world.network, world.now, int(kind), link, value)
        source = int(topology.link_source[link])
        if source < topology.nics and verb != "degrade":
            port, subject = int(FaultKind.PORT_DOWN), source * PORTS_PER_NIC + int(topology.link_port[link])
            window.apply_fault(world.state, world.network, world.now, port, subject, int(verb == "break"))

    def _frame(self, span: int) -> Frame:
        sent = self._column("ports", "data_bytes")
        delta, self._bytes = sent - self._bytes, sent
        share = delta.astype(np.float64) * 8 * PS_PER_S / (self.topology.link_rate.astype(np.float64) * span)
        both = np.maximum(share[self.layout.links], share[self.topology.link_reverse[self.layout.links]])
        cells = len(self.layout.counts)
        load = np.bincount(self.layout.cell_of, weights=both, minlength=cells) / np.maximum(self.layout.counts, 1)
        health = np.zeros(cells, np.int64)
        np.maximum.at(health, self.layout.cell_of, self.health())
        planes = self.topology.link_plane[self._to_nics]
        goodput = np.bincount(planes, weights=delta[self._to_nics], minlength=int(planes.max()) + 1) * 8e3 / span
        verdicts = self.operate()
        events, self._lines = self._lines, []
        self._frames += 1
        pairs = self._pair_lines(span)
        return Frame(
            number=self._frames,
            at=us_from_ps(self.world.now),
            goodput=[round(float(each), 3) for each in goodput],
            load=np.minimum(np.rint(load * 100), 100).astype(int).tolist(),
            health=health.tolist(),
            lost=int(self._column("wires", "lost").sum() + self._column("ports", "dropped").sum()),
            pair=self._pair_name(self._chosen) if self._chosen >= 0 else "",
            evs=self._evs(),
            pairs=pairs,
            events=events,
            verdicts=verdicts,
            finished=self.finished,
        )

    def _pairs_sent(self) -> Ints:
        engine = self.engine
        found: Ints = np.zeros(0, np.int64) if engine is None else column(engine.qps, "sent_bytes").copy()
        return found

    def _busiest(self, most: int) -> list[int]:
        sent = self._pairs_sent()
        rows = np.flatnonzero(sent > 0)
        delta = (sent - self._pair_bytes)[rows]
        order = rows[np.lexsort((rows, -delta))]
        return [int(row) for row in order[:most]]

    def _pair_name(self, row: int) -> str:
        engine = self.engine
        qp = engine.qps[row]
        source, peer = int(qp.endpoint), int(engine.peers[qp.peer].address)
        return f"{self.topology.name(source)} > {self.topology.name(peer)} #{row}"

    def _pair_lines(self, span: int) -> list[PairLine]:
        engine = self.engine
        if engine is None:
            return []
        rows = self._busiest(MOST_PAIRS)
        if self._chosen < 0 and rows:
            self._chosen = rows[0]
        sent = self._pairs_sent()
        delta, self._pair_bytes = sent - self._pair_bytes, sent
        lines = []
        for row in dict.fromkeys([*([self._chosen] if self._chosen >= 0 else []), *rows]):
            qp = engine.qps[row]
            peer = engine.peers[qp.peer]
            states = column(engine.evs, "state")[qp.ev_base : qp.ev_base + qp.ev_count]
            lines.append(
                PairLine(
                    name=self._pair_name(row),
                    state=QpState(qp.state).name,
                    gbps=round(float(delta[row]) * 8e3 / span, 2),
                    window=int(peer.cwnd),
                    rtt_us=round(us_from_ps(peer.srtt), 1),
                    bad=int((states >= EvState.ASSUMED_BAD).sum()),
                )
            )
        return lines

    def _evs(self) -> list[EvCell]:
        engine = self.engine
        if engine is None or self._chosen < 0:
            return []
        qp, active = engine.qps[self._chosen], active_rows(engine, self._chosen)
        return [
            EvCell(
                plane=int(ev.port),
                ev=int(ev.value),
                state=EvState(ev.state).name,
                active=index in active,
                sent=int(record.sent + ev.sent),
                lost=int(record.lost),
            )
            for index in range(qp.ev_base, qp.ev_base + qp.ev_count)
            for ev, record in ((engine.evs[index], engine.ev_failures[index]),)
        ]

    def _detail(self, link: int, health: int) -> LinkDetail:
        topology = self.topology
        ends = int(topology.link_source[link]), int(topology.link_destination[link])
        names = [topology.name(node) for node in ends]
        lost = self._column("wires", "lost")
        return LinkDetail(
            name="<>".join(names),
            ends=names,
            health={value: name for name, value in SHOWN_HEALTH.items()}[health],
            lost=int(lost[link] + lost[topology.link_reverse[link]]),
            addresses=[text for node in ends if (text := self._address(int(topology.link_plane[link]), node))],
        )

    def _address(self, plane: int, node: int) -> str:
        """Return the uSID prefix of a switch, or the address of a NIC on a plane."""
        if self.plan is None:
            return ""
        topology = self.topology
        if node < topology.nics:
            return f"{topology.name(node)} {identity(plane, node)}, uSID {self.plan.nic_address(plane, node)}"
        sids, index = self.plan.planes[plane], int(topology.node_index[node])
        number = sids.sid(int(topology.node_tier[node]), index, 0)
        return f"{topology.name(node)} {prefix_text(sids.block, int(number))}"


def _plan(topology: Any) -> UsidPlan | None:
    """Return the address plan; None for a fabric that has none, such as an irregular one."""
    try:
        return usid_plan(topology)
    except ConfigError:
        return None
