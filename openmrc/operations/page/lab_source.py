"""A lab on the live page: load and health of its links by the kernel's counters, the endpoints in it, its controller.

The page's process is the lab's controller: it probes, names, carries out drains, and with `apply` denies what it names.
A click breaks, degrades, drains and repairs what a command could.
"""

import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np

from openmrc.base.faults import Schedule
from openmrc.core.arrays import Ints
from openmrc.errors import ConfigError, MrcError
from openmrc.fabric.model.naming import links_at
from openmrc.lab import record
from openmrc.lab.faults import Breaker
from openmrc.lab.run import sockets_of
from openmrc.lab.status import status
from openmrc.operations.control.controller import ControllerEvent
from openmrc.operations.control.controllers import lab_controller, run
from openmrc.operations.control.drain_proof import prove_drain
from openmrc.operations.control.operated import OperatedFabric, ask_drains, ask_undrains
from openmrc.operations.diagnosis.denial import DenialLimits
from openmrc.operations.page.cell_layout import cells_of
from openmrc.operations.page.host_source import event_line
from openmrc.operations.page.pictures import Frame, LinkDetail, LogLine, PageAction, Picture
from openmrc.operations.page.shown import ShownPairs, ShownVerdicts
from openmrc.telemetry.rates import HostWatch
from openmrc.telemetry.snapshot_ops import host_events, host_snapshots

FRAME_SECONDS = 0.5  # between two readings of the counters
GOING_SECONDS = 5.0  # in which a lab whose counters cannot be read must begin to go down: its processes are ended first
ACTIONS = ("break", "degrade", "drain", "repair")
KEEP = 0.25  # share of its paths that every pair must keep when something is drained by a click
MOST_DETAILS = 24
_UP, _DEGRADED, _DRAINED, _DOWN = range(4)  # as in `pictures.HEALTHS`
_WORDS = {"break": "down: {0}", "degrade": "loss: 1%, on: {0}", "repair": "up: {0}; loss: 0%, on: {0}"}


class LabSource:
    """A lab that is up. Close it: it is the lab's controller."""

    def __init__(self, name: str, apply: bool = False) -> None:
        """Begin to control the lab; ConfigError: there is another controller, or no such lab."""
        self._breaker = Breaker(name)
        self._lab = self._breaker.lab
        self._operated = OperatedFabric(self._lab.plan, sockets_of(name), name)
        self._layout = cells_of(self._lab.topology)
        self._begun = time.monotonic()
        self._wall = time.time()
        self._lock = threading.Lock()  # of what follows
        self._log: list[LogLine] = []
        self._verdicts = ShownVerdicts()
        self._pairs, self._frames = ShownPairs(), 0
        self._watch, self._seen = HostWatch(), dict[str, int]()
        self._read_at, self._bytes = self._begun, np.zeros(self._lab.topology.links, dtype=np.int64)
        self._fault_losses = self._bytes.copy()
        self._health, self._lost = np.zeros(self._lab.topology.links, dtype=np.int64), self._bytes.copy()
        self._stop = threading.Event()
        self._held = ExitStack()
        self._controller = self._held.enter_context(lab_controller(name, limits=DenialLimits(dry_run=not apply)))
        self._thread = threading.Thread(
            target=run, args=(self._controller, self._on_event, self._stop.is_set), name="mrc controller", daemon=True
        )
        self._thread.start()
        self._read_counters()  # what went before the page is not its first load

    def picture(self) -> Picture:
        topology = self._lab.topology
        planes = len(topology.planes)
        return Picture(
            title=f"lab {self._lab.name}", kind="lab", nics=topology.nics, switches=topology.nodes - topology.nics,
            links=len(self._layout.links), planes=planes, grids=self._layout.grids,
            plane_names=[f"plane {plane}" for plane in range(planes)], actions=list(ACTIONS),
            verdicts_from="probes through the lab, and votes of its endpoints",
        )  # fmt: skip

    def frame(self) -> Frame:
        """Wait until the next reading is due, and read."""
        time.sleep(FRAME_SECONDS)
        snapshots = host_snapshots(str(self._operated.sockets), with_evs=True)
        events = host_events(self._seen, str(self._operated.sockets))
        try:
            goodput, load = self._read_counters()
        except (OSError, subprocess.CalledProcessError, MrcError):
            if not self._is_going_down():
                raise
            return self._last()
        with self._lock:
            rates = self._watch.look(snapshots)
            self._frames += 1
            self._pairs.look(snapshots)
            log, self._log = self._log, []
            return Frame(
                number=self._frames, at=time.monotonic() - self._begun, goodput=goodput, load=load,
                health=self._by_cell(self._health).tolist(), lost=int(self._lost.sum()), pair=self._pairs.name,
                evs=self._pairs.evs(), pairs=self._pairs.lines(rates),
                events=[*(event_line(event, self._wall) for event in events), *log],
                verdicts=self._verdicts.lines(),
            )  # fmt: skip

    def _is_going_down(self) -> bool:
        """Whether the lab is not complete, or soon not: what it had may be gone before the first of its namespaces."""
        deadline = time.monotonic() + GOING_SECONDS
        while self._operated.is_up():
            if time.monotonic() >= deadline:
                return False
            time.sleep(GOING_SECONDS / 100)
        return True

    def _last(self) -> Frame:
        """Return the last frame, which says that the lab is down, and end the controller."""
        self._stop.set()
        self._say("fault", f"lab {self._lab.name} is down; the page keeps what it has shown")
        with self._lock:
            self._frames += 1
            cells = len(self._layout.counts)
            return Frame(
                number=self._frames, at=time.monotonic() - self._begun, goodput=[0.0] * len(self._lab.topology.planes),
                load=[0] * cells, health=[_DOWN] * cells, lost=int(self._lost.sum()), events=self._log, finished=True,
            )  # fmt: skip

    def cell(self, number: int) -> list[LinkDetail]:
        """Return the links of a cell, the worst first."""
        if not 0 <= number < len(self._layout.counts):
            raise ConfigError(f"cell: {number} is not in 0..{len(self._layout.counts) - 1}")
        links = self._layout.links[self._layout.of_cell(number)]
        worst_first = links[np.argsort(-self._worse(self._health)[links], kind="stable")][:MOST_DETAILS]
        return [self._detail(int(link)) for link in worst_first]

    def act(self, action: PageAction) -> str:
        """Break, degrade, drain or repair a link, a switch or a plane."""
        links = links_at(self._lab.topology, action.target)
        if action.verb not in ACTIONS:
            raise ConfigError(f"verb: {action.verb!r} is not one of {', '.join(ACTIONS)}")
        if action.verb == "drain":
            self._drain(action.target, links)
        else:
            steps = Schedule.parse(_WORDS[action.verb].format(action.target)).steps
            with self._lock:
                for step in steps:
                    self._breaker.apply(step)
            if action.target in {entry.target for entry in self._controller.state.drains()}:
                ask_undrains(self._controller.state, [action.target], "on the page")
        text = f"{action.target}: {action.verb}"
        self._say("action", text)
        return text

    def choose(self, pair: str) -> None:
        with self._lock:
            self._pairs.choose(pair)

    def close(self) -> None:
        """Release control of the lab; drains and denials pass to the next controller, or lapse."""
        self._stop.set()
        self._thread.join(10.0)
        self._held.close()

    # Internals

    def _drain(self, target: str, links: Ints) -> None:
        out = np.concatenate([links, self._operated.out_of_use()])
        proof = prove_drain(self._lab.plan, [target], out, KEEP)
        if not proof.allowed:
            raise ConfigError(f"{target} cannot be drained: {proof.why}")
        ask_drains(self._controller.state, self._lab.plan, [target], "on the page")

    def _on_event(self, event: ControllerEvent) -> None:
        with self._lock:
            kind, text = self._verdicts.take(event)
        self._say(kind, text)

    def _say(self, kind: str, text: str) -> None:
        with self._lock:
            self._log.append(LogLine(at=time.monotonic() - self._begun, kind=kind, text=text))

    def _read_counters(self) -> tuple[list[float], list[int]]:
        """Return the goodput of the planes and the load of the cells since the last reading; keep the health."""
        topology, found = self._lab.topology, status(self._lab.name, with_sids=False)
        now = time.monotonic()  # bytes are read last
        order = [end.link for cable in self._lab.cables for end in (cable.lower, cable.upper)]
        numbers = np.zeros((3, topology.links), dtype=np.int64)
        numbers[:, order] = [
            [link.bytes for link in found.links],
            [link.losses.total for link in found.links],
            [link.losses.faults for link in found.links],
        ]
        delta, span = numbers[0] - self._bytes, max(now - self._read_at, 1e-3)
        struck = numbers[2] > self._fault_losses
        self._bytes, self._lost, self._fault_losses, self._read_at = numbers[0], numbers[1], numbers[2], now
        self._health = self._health_of(dict(zip(order, [link.state for link in found.links], strict=True)), struck)
        share = delta * 8 / (topology.link_rate.astype(np.float64) * span)
        to_nic = topology.link_destination < topology.nics
        planes = np.bincount(topology.link_plane[to_nic], delta[to_nic] * 8e-9 / span, len(topology.planes))
        cells = np.bincount(self._layout.cell_of, self._worse(share)[self._layout.links], len(self._layout.counts))
        load = np.minimum(np.rint(100 * cells / np.maximum(self._layout.counts, 1)), 100)
        return [round(float(each), 4) for each in planes], load.astype(int).tolist()

    def _health_of(self, states: dict[int, str], struck: Ints) -> Ints:
        health = np.where(struck, _DEGRADED, _UP).astype(np.int64)
        for link, fault in record.read(self._lab.name).impairments.items():
            health[link] = _DOWN if fault.get("down") or fault.get("loss") == 1 else _DEGRADED
        drained = sorted(self._controller.drains.denied())
        health[drained] = np.maximum(health[drained], _DRAINED)
        for link, state in states.items():
            if state != "up":
                health[link] = _DOWN
        return health

    def _worse(self, values: Ints) -> Ints:
        """Return the greater value of both directions, for every link."""
        found: Ints = np.maximum(values, values[self._lab.topology.link_reverse])
        return found

    def _by_cell(self, health: Ints) -> Ints:
        worst = np.zeros(len(self._layout.counts), dtype=np.int64)
        np.maximum.at(worst, self._layout.cell_of, self._worse(health)[self._layout.links])
        return worst

    def _detail(self, link: int) -> LinkDetail:
        topology = self._lab.topology
        ends: Sequence[int] = (int(topology.link_source[link]), int(topology.link_destination[link]))
        plane, names = int(topology.link_plane[link]), [topology.name(end) for end in ends]
        health = ("up", "degraded", "drained", "down")[int(self._worse(self._health)[link])]
        lost = int(self._lost[link] + self._lost[topology.link_reverse[link]])
        known = [
            f"{topology.name(end)} {self._lab.plan.nic_address(plane, end)}" for end in ends if end < topology.nics
        ]
        return LinkDetail(name="<>".join(names), ends=names, health=health, lost=lost, addresses=known)
