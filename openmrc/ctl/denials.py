"""EVs that a controller has denied: each with a lease, all under an epoch (decision 25).

Whoever comes with an older epoch than the greatest before is fenced off. The clock is the endpoint's own and is handed
in: clocks of hosts may differ.
"""

import math
from collections.abc import Iterable, Sequence

import msgspec

from openmrc.ctl.errors import FencedError
from openmrc.errors import InvalidArgumentError, NotFoundError, TooBigError

MOST_LEASE = 60.0  # s: so long at most, paths stay denied after the controller has died
MOST_DENIALS = 1 << 16
MOST_EPOCH = (1 << 63) - 1
ALL_BITS = (1 << 32) - 1  # of an EV


class Denial(msgspec.Struct, frozen=True, kw_only=True):
    """EVs of one port, towards one peer or all: those that agree with `ev` in the bits of `mask`."""

    port: int
    ev: int
    peer: str = ""  # the peer's address on that port; empty: every peer
    mask: int = ALL_BITS  # one EV; 0: the whole plane


class Denials:
    def __init__(self) -> None:
        self.epoch = 0  # the greatest that was seen
        self._until: dict[Denial, float] = {}  # s of the endpoint's clock
        self._wide: set[Denial] = set()  # those of more than one EV

    def __len__(self) -> int:
        return len(self._until)

    def __contains__(self, denial: Denial) -> bool:
        return denial in self._until

    def check(self, epoch: int | None, lease: float = MOST_LEASE) -> int:
        """Return the epoch of a call, the present one if it names none; ESTALE, EINVAL. Nothing changes."""
        if not (math.isfinite(lease) and 0 < lease <= MOST_LEASE):
            raise InvalidArgumentError(f"lease: {lease} s is not above 0 and at most {MOST_LEASE:g}")
        if epoch is None:
            return self.epoch
        if not 0 <= epoch <= MOST_EPOCH:
            raise InvalidArgumentError(f"epoch: {epoch} is not in 0..2**63 - 1")
        if epoch < self.epoch:
            raise FencedError(f"epoch: {epoch}; a controller with epoch {self.epoch} has taken over")
        return epoch

    def check_room(self, added: Iterable[Denial]) -> None:
        """Raise E2BIG if these denials are more than fit."""
        count = len(self._until.keys() | set(added))
        if count > MOST_DENIALS:
            raise TooBigError(f"denials: {count}; an endpoint holds {MOST_DENIALS}", MOST_DENIALS)

    def add(self, denial: Denial, until: float) -> None:
        """Deny until this time (s), or extend what is denied already."""
        self._until[denial] = until
        if denial.mask != ALL_BITS:
            self._wide.add(denial)

    def extend(self, until: float) -> int:
        """Extend every denial until this time (s); return how many there are."""
        self._until = dict.fromkeys(self._until, until)
        return len(self._until)

    def remove(self, denials: Sequence[Denial] | None) -> list[Denial]:
        """Remove denials, None: all, and return them; ENOENT names the first that is not in force, nothing changes."""
        gone = list(self._until) if denials is None else list(denials)
        for index, denial in enumerate(gone):
            if denial not in self._until:
                raise NotFoundError(f"denials[{index}]: {text(denial)} is not denied")
        for denial in gone:
            self._until.pop(denial, None)
        self._wide.difference_update(gone)
        return gone

    def lapsed(self, now: float) -> list[Denial]:
        """Remove and return the denials whose lease is over at `now` (s)."""
        over = [denial for denial, until in self._until.items() if until <= now]
        return self.remove(over)

    def left(self, now: float) -> list[tuple[Denial, float]]:
        """Return each denial with the seconds that its lease has left."""
        return [(denial, until - now) for denial, until in self._until.items()]

    def covers(self, port: int, ev: int, peer: str) -> bool:
        """Whether an EV of a port towards a peer is denied."""
        return any(Denial(port=port, ev=ev, peer=who) in self._until for who in ("", peer)) or any(
            each.port == port and each.peer in ("", peer) and (each.ev ^ ev) & each.mask == 0 for each in self._wide
        )


def text(denial: Denial) -> str:
    mask = "" if denial.mask == ALL_BITS else f"/{denial.mask:#x}"
    return f"EV {denial.ev:#x}{mask} on port {denial.port} to {denial.peer or 'every peer'}"
