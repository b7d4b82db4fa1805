"""Unique names for the rendezvous of process groups.

A process may destroy its groups and create them again over the same store with the same torch name, so each creation
gets its own name. Two processes that claim the same rank are an error, unless torchrun started the second one after a
failure: it counts its restarts, and all restarts of a job share a store.
"""

from __future__ import annotations

import os
import socket
import uuid

from openmrc.train.errors import RendezvousError
from openmrc.train.membership.mesh import report_failure
from openmrc.train.membership.store import Store

RESTART_VARIABLE = "TORCHELASTIC_RESTART_COUNT"
_PROCESS = f"process {os.getpid()} on {socket.gethostname()}"
_TOKEN = uuid.uuid4().hex  # identifies the process, since process numbers are reused


def join(store: Store, name: str, rank: int) -> str:
    """Return the unique name of the group to join; RendezvousError if another process has claimed this rank."""
    name = f"{name}/{os.environ.get(RESTART_VARIABLE, '0')}"
    prefix = f"mrc/{name}/members/{rank}"
    generation = store.add(f"{prefix}/joined", 1)
    store.set(f"{prefix}/{generation}", f"{_TOKEN} {_PROCESS}")
    if generation > 1:
        token, _, process = store.get(f"{prefix}/{generation - 1}").decode().partition(" ")
        if token != _TOKEN:
            reason = f"rank {rank} joined twice, as {process} and as {_PROCESS} (group {name!r})"
            report_failure(store, f"mrc/{name}/{generation - 1}", rank, reason)
            raise RendezvousError(reason)
    return f"{name}/{generation}"
