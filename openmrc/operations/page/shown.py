"""What a page lists: queue pairs of endpoints, the one whose EVs it shows, and the verdicts of a controller."""

from collections.abc import Sequence

from openmrc.errors import ConfigError
from openmrc.operations.control.controller import ControllerEvent, ControllerEventKind
from openmrc.operations.diagnosis.verdicts import FaultVerdict
from openmrc.operations.page.pictures import EvCell, PairLine, VerdictLine
from openmrc.telemetry.rates import HostRates
from openmrc.telemetry.snapshots import EndpointSnapshot, QpSnapshot

_ALARMS = (ControllerEventKind.NAMED, ControllerEventKind.FENCED, ControllerEventKind.LAST_PATH)


class ShownPairs:
    """The queue pairs at the last look; hold the page's lock for each call."""

    def __init__(self) -> None:
        self.name = ""  # of the one that is shown
        self._pairs: dict[str, QpSnapshot] = {}

    def look(self, snapshots: Sequence[EndpointSnapshot]) -> None:
        """Update the list of queue pairs; if the one that was shown is gone, show the first."""
        self._pairs = {_name(each, qp): qp for each in snapshots for qp in each.queue_pairs}
        if self.name not in self._pairs:
            self.name = next(iter(self._pairs), self.name)

    def choose(self, name: str) -> None:
        """Show this one; ConfigError: there is none of this name."""
        if name not in self._pairs:
            raise ConfigError(f"queue pair: there is no {name!r}")
        self.name = name

    def evs(self) -> list[EvCell]:
        """Return the EVs of the one that is shown."""
        pair = self._pairs.get(self.name)
        return [
            EvCell(
                plane=ev.port - 1, ev=ev.ev, state=ev.state, active=ev.active, path=ev.path, sent=ev.sent, lost=ev.lost
            )
            for ev in (pair.evs if pair is not None else ())
        ]

    def lines(self, rates: HostRates) -> list[PairLine]:
        speeds = {f"{each.device} {each.qpn:#x}": each.transmit_gbps for each in rates.queue_pairs}
        return [
            PairLine(
                name=name,
                state=qp.state,
                gbps=round(speeds.get(name.partition(" > ")[0], 0.0), 2),
                window=qp.cwnd_bytes,
                rtt_us=round(qp.srtt_us, 1),
                bad=qp.ev_states[2] + qp.ev_states[3],
            )
            for name, qp in self._pairs.items()
        ]


def _name(each: EndpointSnapshot, pair: QpSnapshot) -> str:
    return f"{each.device} {pair.qpn:#x} > {pair.peer[0] if pair.peer else 'nobody'}"


class ShownVerdicts:
    """What a controller says of faulty parts, and what is done about each."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[FaultVerdict | None, str]] = {}

    def take(self, event: ControllerEvent) -> tuple[str, str]:
        """Take in an event; return kind and text of its line in the log."""
        if event.what == ControllerEventKind.REPAIRED:
            self._known.pop(event.part, None)
        elif event.verdict is not None or event.part in self._known:
            verdict, outcome = self._known.get(event.part, (event.verdict, ""))
            self._known[event.part] = event.verdict or verdict, event.outcome or outcome
        said = event.outcome or (event.verdict.effect if event.verdict is not None else "")
        kind = "fault" if event.what in _ALARMS else "controller"
        return kind, f"{event.part} {event.what}" + (f": {said}" if said else "")

    def lines(self) -> list[VerdictLine]:
        """Return the parts that are named and not repaired."""
        return [
            VerdictLine(suspect=found.part, confidence=found.confidence,
                        votes=f"{found.effect}: {found.lost} of {found.sent} packets lost, {outcome}")
            for found, outcome in self._known.values() if found is not None
        ]  # fmt: skip
