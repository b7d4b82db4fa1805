"""The EVs of a profile with their states, and the operations on them.

An EV is a value and a port; the array may contain the same EV several times. The API leaves open which copy an
operation selects; here it is the last one in an index, so that replacing thousands one by one takes linear time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from openmrc.ctl.profiles import ev_rules
from openmrc.ctl.profiles.ev_format import EV_BYTES, EvExpansion
from openmrc.ctl.profiles.ev_rules import EvEntryState, EvOp
from openmrc.ctl.profiles.refusals import ProfileRefusal, parts
from openmrc.errors import CallError, InvalidArgumentError, NotFoundError


@dataclass(frozen=True)
class EvEntry:
    """An EV: 32 bytes, and its port counted from 1."""

    value: bytes
    port: int

    def __str__(self) -> str:
        return "an unpopulated entry" if self == UNPOPULATED else f"EV {self.value.hex()} on port {self.port}"


UNPOPULATED = EvEntry(bytes(EV_BYTES), 0)  # of an explicit array before it is filled


@dataclass(frozen=True)
class EvOpEntry:
    ev: EvEntry
    state: EvEntryState
    ev_new: EvEntry | None = None  # REPLACE_EV
    all_copies: bool = False


NewEvCheck = Callable[[EvEntry, str], None]  # raises EINVAL under this name for an EV that cannot be used


class EvArray:
    """The EVs of the array by position, with their states."""

    def __init__(self, evs: Sequence[EvEntry] = (), made_from: object = None) -> None:
        """`made_from` are the attributes that these EVs follow from."""
        unknown = EvEntryState.UNKNOWN
        self.made_from = made_from
        self._evs = list(evs)
        self._states = [unknown if ev == UNPOPULATED else EvEntryState.GOOD for ev in self._evs]
        self._places: dict[EvEntry, list[int]] = {}
        for position in reversed(range(len(self._evs))):
            self._places.setdefault(self._evs[position], []).append(position)
        self.good = self._states.count(EvEntryState.GOOD)

    def __len__(self) -> int:
        return len(self._evs)

    def entries(self) -> list[tuple[EvEntry, EvEntryState]]:
        """Return all EVs with their states, in the order of the array, which is that of EV indices."""
        return list(zip(self._evs, self._states, strict=True))

    def state_of(self, ev: EvEntry, name: str) -> EvEntryState:
        """Return the state of one EV, or raise ENOENT under `name`."""
        return self._states[self._at(ev, name)[-1]]

    def set_state(self, ev: EvEntry, state: EvEntryState, every: bool) -> None:
        """Set the state of one copy of an EV, or of all copies."""
        for position in self._copies(ev, every, "ev"):
            self._put_state(position, state)

    def apply(self, op: EvOp, batch: Sequence[EvOpEntry], check: NewEvCheck) -> None:
        """Apply a batch in order up to the first entry that fails; earlier entries stay applied (`done`)."""
        for index, entry in enumerate(batch):
            try:
                self._apply_one(op, entry, check, f"entries[{index}]")
            except CallError as error:
                error.done = index
                raise

    def copies(self, ev: EvEntry) -> int:
        return len(self._places.get(ev, ()))

    def check(self, expansion: EvExpansion | None) -> None:
        """Raise EINVAL for an array with unpopulated entries, or with EVs that the fields cannot expand."""
        left = self.copies(UNPOPULATED)
        if left:
            raise InvalidArgumentError(f"state: {left} of {len(self)} entries are unpopulated; REPLACE_EV them first")
        for index, ev in enumerate(self._evs):
            if expansion is not None:
                check_value(ev, expansion, f"EV {index}")

    def _apply_one(self, op: EvOp, entry: EvOpEntry, check: NewEvCheck, name: str) -> None:
        found = ev_rules.entry_verdict(op, entry.state, entry.ev != UNPOPULATED, entry.ev_new is not None)
        match parts(found)[0]:
            case ProfileRefusal.ENTRY_STATE:
                raise InvalidArgumentError(f"{name}.state: {entry.state!r}; allowed: GOOD, ASSUMED_BAD, DENIED")
            case ProfileRefusal.ENTRY_UNPOPULATED:
                raise InvalidArgumentError(f"{name}.ev: {entry.ev} has no state; REPLACE_EV it")
            case ProfileRefusal.ENTRY_NEW_EV:
                raise InvalidArgumentError(f"{name}.ev_new: missing; REPLACE_EV needs it")
        copies = self._copies(entry.ev, entry.all_copies, name)
        if op == EvOp.REPLACE_EV and entry.ev_new is not None:
            check(entry.ev_new, f"{name}.ev_new")
            for position in copies:
                self._put_ev(position, entry.ev_new)
        for position in copies:
            self._put_state(position, entry.state)

    def _copies(self, ev: EvEntry, every: bool, name: str) -> list[int]:
        places = self._at(ev, name)
        return list(places) if every else places[-1:]

    def _at(self, ev: EvEntry, name: str) -> list[int]:
        places = self._places.get(ev)
        if not places:
            raise NotFoundError(f"{name}.ev: {ev} is not in the profile")
        return places

    def _put_ev(self, position: int, new: EvEntry) -> None:
        places = self._places[self._evs[position]]
        if places[-1] == position:
            places.pop()
        else:
            places.remove(position)
        self._evs[position] = new
        self._places.setdefault(new, []).append(position)

    def _put_state(self, position: int, state: EvEntryState) -> None:
        self.good += (state == EvEntryState.GOOD) - (self._states[position] == EvEntryState.GOOD)
        self._states[position] = state


def check_value(ev: EvEntry, expansion: EvExpansion, name: str) -> None:
    """Raise EINVAL under `name` for an EV that these fields cannot expand."""
    try:
        expansion.check(ev.value)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{name}: {error.reason}") from error
