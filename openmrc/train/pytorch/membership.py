"""Unique names for the rendezvous of process groups: a process may create one again under the same name of torch.

Groups of different ranks may have one torch name too: their ranks tell them apart. Two processes that claim the same
rank are an error, unless torchrun started the second one after a failure: all restarts of a job share a store.
"""

import hashlib
import os
import socket
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from openmrc.train.errors import RendezvousError
from openmrc.train.links.mesh import report_failure
from openmrc.train.links.store import Store

RESTART_VARIABLE = "TORCHELASTIC_RESTART_COUNT"


@dataclass(frozen=True)
class Membership:
    """The part that a process takes in a process group which is to be made."""

    store: Store
    rank: int  # in the group
    size: int
    torch_name: str
    timeout: float  # seconds, of the rendezvous and of each collective
    ranks: Sequence[int] = ()  # in the job, of the group's members; none: the whole job


def name_of(torch_name: str, ranks: Sequence[int]) -> str:
    """Return the name of a group: torch's, with a digest of its ranks in the job; none are given for the whole job."""
    if not ranks:
        return torch_name
    return f"{torch_name}-{hashlib.sha256(repr(list(ranks)).encode()).hexdigest()[:8]}"


def join(store: Store, name: str, rank: int) -> str:
    """Return the unique name of the group to join; RendezvousError if another process has claimed this rank."""
    name = f"{name}/{os.environ.get(RESTART_VARIABLE, '0')}"
    prefix = f"mrc/{name}/members/{rank}"
    generation = store.add(f"{prefix}/joined", 1)
    own = _identity(os.getpid())
    store.set(f"{prefix}/{generation}", own)
    if generation > 1:
        earlier = store.get(f"{prefix}/{generation - 1}").decode()
        if earlier != own:
            reason = f"rank {rank} joined twice, as {_process(earlier)} and as {_process(own)} (group {name!r})"
            report_failure(store, f"mrc/{name}/{generation - 1}", rank, reason)
            raise RendezvousError(reason)
    return f"{name}/{generation}"


@lru_cache(maxsize=1)
def _identity(pid: int) -> str:
    """Return a token, because process numbers are reused, and the process in words; a fork has one of its own."""
    return f"{uuid.uuid4().hex} process {pid} on {socket.gethostname()}"


def _process(identity: str) -> str:
    return identity.partition(" ")[2]
