"""Carry out drains and undrains: deny the EVs over the links and wait until these are idle; probe, then lift.

    draining --denied everywhere, no packet for `IDLE_S`--> drained --command--> undraining --probes pass--> (gone)
        |                                                      ^                      |
        '--a pair would lose its last path--> refused          '---- still faulty ----'

The stages are in `drains.json`, from which the next controller goes on. Traffic leaves a link because senders
choose other paths; what is under way arrives, so nothing is lost. A drained part may be switched off.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec

from openmrc.operations.fleets.state_folder import DrainEntry, DrainStage, StateFolder

IDLE_S = 0.5  # without a packet
SETTLE_S = 2.0  # where packets cannot be counted: longer than any packet is under way
CHECK_S = 1.0  # of probes over links that shall be used again
MOST_CHECK_S = 30.0  # then they are still faulty
MOST_STEP_S = 1.0  # that a step adds to it: a controller that seldom runs has seen few probes

Packets = Callable[[frozenset[int]], int]  # that have been given to these links, ever


@dataclass
class _DrainProgress:
    """How far a target is in its stage."""

    stage: DrainStage
    since: float  # when the stage began, or packets were last seen
    checked: float = 0.0  # s for which probes of an undrain have been looked at
    packets: int | None = None  # when they were last counted


class Drains:
    def __init__(self, state: StateFolder, packets: Packets | None, probes: bool) -> None:
        """`packets` counts the packets on links, if anything does; `probes`: links are probed before they return."""
        self._state, self._packets, self._probes = state, packets, probes
        self.entries = state.drains()
        self._progress: dict[str, _DrainProgress] = {}  # by target
        self._stepped_at = 0.0

    def denied(self) -> frozenset[int]:
        """Return the links that no traffic shall use."""
        return _union(entry.links for entry in self.entries if entry.stage != "refused")

    def unprobed(self) -> frozenset[int]:
        """Return the links that nothing at all shall cross."""
        return _union(entry.links for entry in self.entries if entry.stage in ("draining", "drained"))

    def reload(self) -> None:
        """Read what commands have asked for since."""
        self.entries = self._state.drains()
        known = {entry.target for entry in self.entries}
        self._progress = {target: each for target, each in self._progress.items() if target in known}

    def step(
        self, now: float, told: frozenset[int], kept: list[str], faulty: frozenset[int]
    ) -> list[tuple[DrainEntry, str]]:
        """Advance; return the entries that changed, each with its new stage.

        `told`: links that all endpoints avoid; `kept`: pairs that keep a last path over them; `faulty`: links of parts
        that are named.
        """
        changed = []
        for entry in self.entries:
            progress = self._progress.get(entry.target)
            if progress is None or progress.stage != entry.stage:
                progress = self._progress[entry.target] = _DrainProgress(entry.stage, now)
            progress.checked += min(now - self._stepped_at, MOST_STEP_S)
            after = self._after(entry, progress, now, told, kept, faulty)
            if after is not entry:
                changed.append((entry, after))
        self._stepped_at = now
        if changed:
            self._write(dict(changed))
        return [(entry, "undrained" if after is None else after.stage) for entry, after in changed]

    def _after(
        self,
        entry: DrainEntry,
        progress: _DrainProgress,
        now: float,
        told: frozenset[int],
        kept: list[str],
        faulty: frozenset[int],
    ) -> DrainEntry | None:
        if entry.stage == "draining" and told.issuperset(entry.links):
            if kept:
                return _changed(entry, "refused", f"would take the last path of {', '.join(kept[:3])}")
            if self._is_idle(entry, progress, now):
                return _changed(entry, "drained")
        if entry.stage == "undraining":
            still = self._probes and bool(faulty.intersection(entry.links))
            if still and progress.checked > MOST_CHECK_S:
                return _changed(entry, "drained", "still faulty")
            if not still and (not self._probes or now - progress.since >= CHECK_S):
                return None
        return entry

    def _is_idle(self, entry: DrainEntry, progress: _DrainProgress, now: float) -> bool:
        if self._packets is None:
            return now - progress.since >= SETTLE_S
        count = self._packets(frozenset(entry.links))
        if count != progress.packets:
            progress.packets, progress.since = count, now
        return now - progress.since >= IDLE_S

    def _write(self, changes: dict[DrainEntry, DrainEntry | None]) -> None:
        def change(entries: list[DrainEntry]) -> list[DrainEntry]:
            after = (changes.get(entry, entry) for entry in entries)
            return [entry for entry in after if entry is not None]

        self.entries = self._state.change_drains(change)


def _changed(entry: DrainEntry, stage: DrainStage, note: str = "") -> DrainEntry:
    return msgspec.structs.replace(entry, stage=stage, note=note)


def _union(links: Iterable[Iterable[int]]) -> frozenset[int]:
    return frozenset().union(*links)
