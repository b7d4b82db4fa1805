"""Errors of a group. Each names the rank, the collective and its sequence number."""

from openmrc.errors import MrcError


class TrainError(MrcError, RuntimeError):
    """Base class of a group's errors; also a RuntimeError, which training programs for torch catch."""


class UnsupportedError(TrainError):
    """Invalid argument of a collective: element type, shape, rank, device. Nothing was sent."""


class RendezvousError(TrainError):
    """The ranks could not connect: one is missing, joined twice, or has different attributes."""


class CollectiveError(TrainError):
    """A collective failed; the group is aborted, and every later call raises the same error."""

    def __init__(self, text: str, *, is_from_peer: bool = False) -> None:
        super().__init__(text)
        self.is_from_peer = is_from_peer  # another rank reported it to all ranks


class CollectiveMismatchError(CollectiveError):
    """Two ranks called different collectives, or the same one with other sizes, types or roots."""


class RankLostError(CollectiveError):
    """A rank is lost: its process ended, or no plane reaches it."""


class CollectiveTimeoutError(CollectiveError, TimeoutError):
    """A collective did not finish within the group's timeout."""


class AbortedError(CollectiveError):
    """The group was aborted, here or by another rank, or closed while calls were in progress."""


_KINDS = {
    kind.__name__: kind for kind in (CollectiveMismatchError, RankLostError, CollectiveTimeoutError, AbortedError)
}


def error_text(error: CollectiveError) -> str:
    """Return an error in the form sent to other ranks."""
    return f"{type(error).__name__}: {error}"


def from_peer(rank: int, text: str) -> CollectiveError:
    """Return the error that another rank reported, of the same kind."""
    name, _, rest = text.partition(": ")
    return _KINDS.get(name, AbortedError)(f"{rest or text} (reported by rank {rank})", is_from_peer=True)
