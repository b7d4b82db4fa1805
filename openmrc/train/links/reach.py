"""Whether packets cross every plane to every rank, tried while a group meets: a firewall may drop UDP but not TCP.

Each rank writes to the ranks before and after it over the network, and looks from which planes that was acknowledged.
A rank whose own look is over may be gone before another begins: that it looked is in the store, and proof enough.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence

from openmrc.train.errors import RendezvousError
from openmrc.train.links.mailbox import RankLink
from openmrc.verbs import QpState

log = logging.getLogger("openmrc.train")
REACH_SECONDS = 4.0  # without an acknowledgement from a rank that has joined: no plane reaches it
_ROUNDS = 3  # of writes over all planes, before one without acknowledgement is named
_WRITES = 4  # a plane, of 64 KiB each: some four times what follows on one EV (`ev_burst`)
_FIRST_PAUSE, _PAUSE_SECONDS = 0.0005, 0.02  # s between looks: at first, at most
_CAUSE = "the ranks meet over TCP, so a firewall that drops UDP is likely, or an address of another network"


class _Reach:
    """The planes of one link."""

    def __init__(self, link: RankLink, planes: int) -> None:
        self.link, self.planes, self.rounds = link, planes, 0

    def is_known(self) -> bool:
        """Whether all planes were crossed, or enough was sent over those that were not."""
        states = self.link.qp.ev_states()
        self.crossed = {each.plane for each in states if each.acked}
        if self.link.qp.state != QpState.RTS:
            return True
        if self.link.qp.outstanding():  # a write that is sent again may arrive after later ones, in the same place
            return False
        if len(self.crossed) == self.planes or self.rounds == _ROUNDS:
            return True
        self.rounds += 1
        self.link.fill_planes(_WRITES * self.planes)
        return False


def check_planes(
    links: Sequence[RankLink],
    ours: Sequence[str],
    theirs: Mapping[int, Sequence[str]],
    has_checked: Callable[[int], bool],
) -> None:
    """Log planes that nothing crosses to a rank; RendezvousError if none is crossed, after REACH_SECONDS.

    `links` have no messages yet; `ours` and `theirs` (by rank) are the addresses of the planes; `has_checked` tells
    whether a rank has crossed planes to this one itself.
    """
    deadline = time.monotonic() + REACH_SECONDS
    unknown = [_Reach(link, len(ours)) for link in links]
    known: list[_Reach] = []
    pause = _FIRST_PAUSE
    while unknown and time.monotonic() < deadline:
        known += (done := [each for each in unknown if each.is_known()])
        unknown = [each for each in unknown if each not in done]
        if unknown:
            time.sleep(pause)
            pause = min(2 * pause, _PAUSE_SECONDS)
            if pause == _PAUSE_SECONDS:
                unknown = [each for each in unknown if not has_checked(each.link.rank)]
    for reach in (*known, *unknown):
        rank = reach.link.rank
        missing = [
            f"plane {plane} ({ours[plane]} to {theirs[rank][plane]})"
            for plane in range(len(ours))
            if plane not in reach.crossed
        ]
        if len(missing) == len(ours):
            if has_checked(rank):
                continue
            raise RendezvousError(f"no packet reaches rank {rank} over {', '.join(missing)}: {_CAUSE}")
        if missing:
            log.warning("mrc: no packet reaches rank %d over %s: %s", rank, ", ".join(missing), _CAUSE)
