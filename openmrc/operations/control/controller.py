"""The running controller of a fabric: reads votes and probes, names faulty parts, has them denied, and lifts them.

    sockets of endpoints --votes--.
                                   >-- PlaneWatch (a plane) --verdict--> DenialController --links--> endpoints
    probes of a lab --------------'          repaired ----------------------'    |
    drains.json  ----------------------------------------------------------------'

A dry run unless `DenialLimits` says otherwise: it names, and says what it would do. Drains are an operator's command
and always carried out: their links are denied like those of faults, and nothing probes them. All that is denied has a
lease, and is denied again every `TELL_S`, which also reaches connections that are new.

Everything is done in `step`, by one thread, with the clock handed in.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Self

import msgspec

from openmrc.ctl.errors import FencedError
from openmrc.fabric.addressing.usid import UsidPlan
from openmrc.operations.control.drain_proof import keeps_every_pair
from openmrc.operations.control.drains import Drains, Packets
from openmrc.operations.diagnosis.denial import DenialController, DenialLimits, DenialOutcome
from openmrc.operations.diagnosis.elements import PlaneParts
from openmrc.operations.diagnosis.fault_life import FaultEvent, FaultState
from openmrc.operations.diagnosis.localise import Named
from openmrc.operations.diagnosis.path_index import PathIndex
from openmrc.operations.diagnosis.plane_watch import PlaneWatch
from openmrc.operations.diagnosis.verdicts import FaultVerdict, WorkOrder, work_order
from openmrc.operations.diagnosis.witnesses import LateHosts
from openmrc.operations.fleets.fleet import Fleet, Prober, TellableFleet
from openmrc.operations.fleets.state_folder import HeldFault, NotedChange, StateFolder, last_change
from openmrc.units import PS_PER_S

REFRESH_S = 0.5  # between two looks for new endpoints, new commands, and faults that a budget refused
TELL_S = 1.0
ORDER_S = 1.0  # after a verdict comes its work order: endpoints have said by then what they lost
ORDER_KEPT_S = 3600.0  # in which a part that is named again has the same order
EXCHANGED_S = 10.0  # within which two directions die whose plugs were exchanged
WAITS_S = 3.0  # after which a host that has not applied an update is reported

DRY_RUN = DenialLimits()

Part = tuple[int, int]  # plane, part of `PlaneParts`


class ControllerEventKind(StrEnum):
    """What a controller did or saw."""

    NAMED = "named"
    WORK_ORDER = "work order"
    ORDER_AGAIN = "work order again"  # the part was named again: the order is brought up to date
    REFINED = "refined"
    REPAIRED = "repaired"
    LIFTED = "lifted"
    ADOPTED = "adopted"
    DOUBTED = "doubted"  # a host
    HOST_LATE = "host late"
    HOST_IN_TIME = "host in time"
    ENDPOINT = "endpoint"
    LAST_PATH = "last path"  # which a pair keeps
    WAITING_FOR = "waiting for"
    FENCED = "fenced"
    DRAINED = "drained"
    UNDRAINED = "undrained"
    REFUSED = "refused"  # a drain


_AUDITED = frozenset((
    ControllerEventKind.NAMED, ControllerEventKind.LIFTED, ControllerEventKind.ADOPTED, ControllerEventKind.DRAINED,
    ControllerEventKind.UNDRAINED, ControllerEventKind.REFUSED, ControllerEventKind.FENCED,
    ControllerEventKind.LAST_PATH,
))  # fmt: skip


class ControllerEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a controller did or saw."""

    at: float  # s of the controller's clock
    what: ControllerEventKind
    part: str
    outcome: str = ""  # of a verdict: a `DenialOutcome`; of a host: the reason
    verdict: FaultVerdict | None = None
    order: WorkOrder | None = None


@dataclass
class _Told:
    waits_at: float  # when to report the hosts that have not applied the last update
    asked: frozenset[int] = frozenset()
    done: frozenset[int] = frozenset()  # by all
    kept: frozenset[str] = frozenset()  # pairs that keep a last path over it


@dataclass
class _Ordered:
    """A work order, and how often its part was named since."""

    first: float
    last: float = 0.0
    times: int = 0


def _exchanged(watch: PlaneWatch, part: int, verdict: FaultVerdict) -> str:
    """Return the one other direction or cable at the same switch that died at the same time; else nothing.

    What a switch sends into exchanged cables arrives at switches that do not know it; the other way it passes, but for
    the time in which the plugs were out. So the directions out of the switch are dead, or the cables as a whole.
    """
    mine, cable = _dead_at(verdict), watch.parts.cable
    others = {
        cable(other): fault.verdict.part
        for other, fault in watch.faults.items()
        if fault.verdict is not None
        and cable(other) != cable(part)
        and mine & _dead_at(fault.verdict)
        and abs(fault.verdict.at_ps - verdict.at_ps) <= EXCHANGED_S * PS_PER_S
    }
    return next(iter(others.values())) if len(others) == 1 else ""


def _dead_at(verdict: FaultVerdict) -> set[str]:
    """Return the nodes that send into a dead part, none for other parts."""
    if verdict.effect != "dead" or verdict.kind not in ("link", "cable"):
        return set()
    ends = verdict.part.replace("<>", ">").split(">")
    return set(ends[:1] if verdict.kind == "link" else ends)


class FabricController:
    """The controller of one fabric; use it as a context manager, or close it."""

    def __init__(
        self,
        plan: UsidPlan,
        sockets: Path,
        now: float,
        limits: DenialLimits = DRY_RUN,
        prober: Prober | None = None,
        packets: Packets | None = None,
        fleet: TellableFleet | None = None,
    ) -> None:
        """Find the endpoints and read the state of an earlier controller; nothing is denied yet.

        `fleet`: else that of the sockets, all of this machine.
        """
        topology = plan.topology
        self.state, self._prober = StateFolder(sockets), prober
        self.fleet: TellableFleet = Fleet(sockets, PathIndex(plan)) if fleet is None else fleet
        self.fleet.refresh()
        self.planes = [
            PlaneWatch(
                PlaneParts(topology, shape),
                None if prober is None else prober.plans[plane],
                now,
                self.fleet.one_is_enough,
                self.fleet.vote_chance,
                self.fleet.vote_burst,
            )
            for plane, shape in enumerate(topology.planes)
        ]
        self.drains = Drains(self.state, packets, prober is not None)
        keeps = keeps_every_pair(plan)
        links = {plane: watch.parts.links for plane, watch in enumerate(self.planes)}
        epoch = self.state.take_epoch(self.fleet.epoch())
        self.denials: DenialController[Part] = DenialController(
            epoch, links, lambda denied: keeps(denied | self.drains.denied()), limits
        )
        self.is_fenced = False
        self._told = _Told(now)
        self._doubted: list[set[int]] = [set() for _ in self.planes]
        self._late = LateHosts()
        self._look_at = self._refresh_at = self._tell_at = now
        self._orders: list[tuple[float, PlaneWatch, int, FaultVerdict]] = []  # due, of which part
        self._ordered: dict[tuple[int, ...], _Ordered] = {}  # by the links of its cables
        self._adopted = list(self._adopt(now))  # said by the first step

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect from the endpoints; denials lapse with their lease unless another controller renews them."""
        self.fleet.close()

    def step(self, now: float) -> list[ControllerEvent]:
        """Do what is due; return what happened. `is_fenced` is set when a newer controller has taken over."""
        adopted, self._adopted = self._adopted, []
        events = [*adopted, *self._step(now)]
        for event in events:
            if event.what in _AUDITED and event.outcome != DenialOutcome.DRY_RUN:
                evidence = "" if event.verdict is None else f"{event.verdict.lost} of {event.verdict.sent} lost"
                self.state.record(event.what, event.part, event.outcome, evidence)
        return events

    def _step(self, now: float) -> Iterator[ControllerEvent]:
        if self._prober is not None:
            for done in self._prober.step():
                self.planes[done.plane].probed(now, done)
            for plane, rows in enumerate(self._prober.doubts()):
                self._prober.recheck(plane, self.planes[plane].around(rows))
        if now >= self._look_at:
            self._look_at = now + self.fleet.look_s
            yield from self._take_votes(now)
        for plane, watch in enumerate(self.planes):
            yield from self._judge(plane, watch, now)
        yield from self._lift(now)
        if now >= self._refresh_at:
            self._refresh_at = now + REFRESH_S
            yield from self._refresh(now)
        yield from self._tell(now)
        faulty = frozenset(int(link) for _, watch, part in self.known() for link in watch.parts.links_of(part))
        for entry, word in self.drains.step(now, self._told.done, sorted(self._told.kept), faulty):
            yield _event(now, ControllerEventKind(word), entry.target)
            self.state.note(NotedChange(at=time.time(), target=entry.target, links=entry.links, what=word))

    @property
    def probes(self) -> bool:
        """Whether a step sends probes, and so takes its time by itself."""
        return self._prober is not None and self._prober.paces

    @property
    def is_settled(self) -> bool:
        """Whether all endpoints were told what is to be denied now."""
        return self._told.done == self.denials.denied() | self.drains.denied()

    def known(self) -> list[tuple[int, PlaneWatch, int]]:
        """Return (plane, its watch, part) of every part that is named and not repaired."""
        return [(plane, watch, part) for plane, watch in enumerate(self.planes) for part in watch.faults]

    # Internals

    def _take_votes(self, now: float) -> Iterator[ControllerEvent]:
        votes = self.fleet.look()
        for plane, paths in votes.by_plane.items():
            self.planes[plane].voted(now, paths)
        late, over = self._late.look(now, votes.late)
        for nic in late:
            yield _event(now, ControllerEventKind.HOST_LATE, self._name(nic), "not the network")
        for nic, seconds in over:
            yield _event(now, ControllerEventKind.HOST_IN_TIME, self._name(nic), f"was late for {seconds:.1f} s")

    def _judge(self, plane: int, watch: PlaneWatch, now: float) -> Iterator[ControllerEvent]:
        for part, verdict in watch.judge(now, any(each.faults for each in self.planes)):
            outcome = self.denials.fault((plane, part), watch.parts.links_of(part).tolist(), plane, now)
            yield _event(now, ControllerEventKind.NAMED, verdict.part, outcome, verdict)
            self._orders.append((now + ORDER_S, watch, part, verdict))
            self._remember(now)
        doubted = set(watch.doubted(now))
        for nic in doubted - self._doubted[plane]:
            yield _event(now, ControllerEventKind.DOUBTED, self._name(nic))
        self._doubted[plane] = doubted
        self._suspect(plane, watch.lone_words(now), doubted)
        for part in watch.repaired(now):
            watch.forget(part)
            self.denials.repaired((plane, part))
            yield _event(now, ControllerEventKind.REPAIRED, watch.parts.name(part))

    def _suspect(self, plane: int, words: Sequence[tuple[int, int]], doubted: set[int]) -> None:
        """Update which parts are reported by one host alone, and by which."""
        spoken = {(plane, part): host in doubted for host, part in words}
        for part, is_doubted in spoken.items():
            self.denials.move(part, FaultEvent.CONTRADICTED if is_doubted else FaultEvent.LONE_WORD)
        unnamed = (FaultState.SUSPECTED, FaultState.DOUBTED)
        for part in [part for part, state in self.denials.states.items() if part[0] == plane and state in unnamed]:
            if part not in spoken:
                self.denials.move(part, FaultEvent.FORGOTTEN)

    def _name(self, nic: int) -> str:
        return self.planes[0].parts.topology.name(nic)

    def _order_work(self, now: float) -> Iterator[ControllerEvent]:
        """Write the work orders of the parts that were named a moment ago."""
        due = [each for each in self._orders if each[0] <= now]
        self._orders = [each for each in self._orders if each[0] > now]
        for _, watch, part, verdict in due:
            links = watch.parts.links_of(part)
            own = frozenset((links - watch.parts.shape.host_up).tolist())
            cables = tuple(watch.parts.topology.both_ways(links).tolist())
            before = self._ordered.get(cables)
            if before is None or now - before.last > ORDER_KEPT_S:
                before = self._ordered[cables] = _Ordered(now)
            before.times, before.last = before.times + 1, now
            order = msgspec.structs.replace(
                work_order(watch.parts, part, verdict),
                hit=tuple(self.fleet.hit_by(watch.parts.shape.plane, own)),
                last_change=last_change(self.state.changes(), cables),
                times=before.times,
                over_s=now - before.first,
                exchanged=_exchanged(watch, part, verdict),
            )
            what = ControllerEventKind.WORK_ORDER if before.times == 1 else ControllerEventKind.ORDER_AGAIN
            yield ControllerEvent(at=now, what=what, part=verdict.part, order=order)

    def _lift(self, now: float) -> Iterator[ControllerEvent]:
        lifted = self.denials.lift(now)
        for plane, part in lifted:
            yield _event(now, ControllerEventKind.LIFTED, self.planes[plane].parts.name(part))
        if lifted:
            self._remember(now)

    def _refresh(self, now: float) -> Iterator[ControllerEvent]:
        for name in self.fleet.refresh():
            yield _event(now, ControllerEventKind.ENDPOINT, name)
            self._tell_at = now
        yield from self._order_work(now)
        for plane, watch in enumerate(self.planes):
            if self._prober is not None:
                self._prober.recheck(plane, watch.unproven(now))
            for _, verdict in watch.refined(now):
                yield _event(now, ControllerEventKind.REFINED, verdict.part, verdict=verdict)
        self.drains.reload()
        if self._prober is not None:
            self._prober.avoid(self.drains.unprobed())
        for plane, watch, part in self.known():
            if (plane, part) not in self.denials.held:
                links = watch.parts.links_of(part).tolist()
                outcome = self.denials.fault((plane, part), links, plane, now, again=True)
                if outcome in (DenialOutcome.DENIED, DenialOutcome.DRY_RUN):
                    yield _event(now, ControllerEventKind.NAMED, watch.parts.name(part), outcome)
                    self._remember(now)

    def _tell(self, now: float) -> Iterator[ControllerEvent]:
        wanted, told = self.denials.denied() | self.drains.denied(), self._told
        if (wanted or told.asked) and (wanted != told.asked or now >= self._tell_at):
            self._tell_at = now + TELL_S
            try:
                self.fleet.tell(self.denials.epoch, wanted, self.denials.limits.lease, now)
            except FencedError as error:
                self.is_fenced = True
                yield _event(now, ControllerEventKind.FENCED, str(error))
                return
            if wanted != told.asked:
                told.asked, told.waits_at = wanted, now + WAITS_S
        yield from self._await_hosts(now)
        kept = frozenset(self.fleet.last_paths())
        for pair in sorted(kept - told.kept):
            yield _event(now, ControllerEventKind.LAST_PATH, pair)
        told.kept = kept

    def _await_hosts(self, now: float) -> Iterator[ControllerEvent]:
        told = self._told
        if told.done == told.asked:
            return
        missing = self.fleet.waiting_for(now)
        if not missing:
            told.done = told.asked
        elif now >= told.waits_at:
            told.waits_at = now + 10 * WAITS_S
            names = ", ".join(missing[:8]) + (", ..." if len(missing) > 8 else "")
            yield _event(now, ControllerEventKind.WAITING_FOR, names)

    def _adopt(self, now: float) -> Iterator[ControllerEvent]:
        """Take over the faults of the previous controller: they stay denied until they are seen to be repaired."""
        for each in () if self.denials.limits.dry_run else self.state.faults():
            watch = self.planes[each.plane]
            watch.know(Named(each.part, each.rate, 0.0, 1.0, 0, 0, ()), now)
            links = watch.parts.links_of(each.part).tolist()
            self.denials.adopt((each.plane, each.part), links, each.plane, each.penalty, now)
            yield _event(now, ControllerEventKind.ADOPTED, each.name)

    def _remember(self, now: float) -> None:
        if self.denials.limits.dry_run:
            return
        rates = {(plane, part): watch.faults[part].named.rate for plane, watch, part in self.known()}
        self.state.write_faults([
            HeldFault(plane=plane, part=part, name=self.planes[plane].parts.name(part),
                      rate=rates.get((plane, part), 0.5), penalty=self.denials.penalty((plane, part), now))
            for plane, part in self.denials.held
        ])  # fmt: skip


def _event(
    now: float, what: ControllerEventKind, part: str, outcome: str = "", verdict: FaultVerdict | None = None
) -> ControllerEvent:
    return ControllerEvent(at=now, what=what, part=part, outcome=outcome, verdict=verdict)
