"""What a group raises. Every error says which rank, which collective and which sequence number it is about."""

from __future__ import annotations

from openmrc.errors import MrcError


class TrainError(MrcError, RuntimeError):
    """Base of the errors of a group; a RuntimeError, which is what trainers of torch catch."""


class UnsupportedError(TrainError):
    """An argument that no collective takes: element type, shape, rank, device. Nothing was sent."""


class RendezvousError(TrainError):
    """The ranks could not meet: one is missing, joined twice, or differs in what must be equal."""


class CollectiveError(TrainError):
    """A collective failed; the group is aborted, and every later call raises the same."""

    def __init__(self, text: str, *, is_from_peer: bool = False) -> None:
        super().__init__(text)
        self.is_from_peer = is_from_peer  # another rank reported it, to all others too


class MismatchError(CollectiveError):
    """Two ranks called different collectives, or the same one with other sizes, types or roots."""


class RankLostError(CollectiveError):
    """A rank is gone: its process ended, or no plane leads to it any more."""


class CollectiveTimeoutError(CollectiveError, TimeoutError):
    """A collective was not done within the group's time-out."""


class AbortedError(CollectiveError):
    """The group was aborted, here or by another rank, or closed while calls were waiting."""


_KINDS = {kind.__name__: kind for kind in (MismatchError, RankLostError, CollectiveTimeoutError, AbortedError)}


def error_text(error: CollectiveError) -> str:
    """Return an error as it is sent to other ranks."""
    return f"{type(error).__name__}: {error}"


def from_peer(rank: int, text: str) -> CollectiveError:
    """Return the error that another rank reported, of the same kind."""
    name, _, rest = text.partition(": ")
    return _KINDS.get(name, AbortedError)(f"{rest or text} (reported by rank {rank})", is_from_peer=True)
