"""The name under which a process group meets: one for each time that its ranks join under the same torch name.

A process may destroy its groups and make them again over the same store, with the same name; two processes that
claim one rank are an error.
"""

from __future__ import annotations

import os
import socket
import uuid

from openmrc.train.errors import RendezvousError
from openmrc.train.mesh import tell_failure
from openmrc.train.store import Store

_PROCESS = f"process {os.getpid()} on {socket.gethostname()}"
_TOKEN = uuid.uuid4().hex  # a process number may return


def join(store: Store, name: str, rank: int) -> str:
    """Return the name of the group that this rank joins now; RendezvousError if another process has its rank."""
    prefix = f"mrc/{name}/members/{rank}"
    turn = store.add(f"{prefix}/joined", 1)
    store.set(f"{prefix}/{turn}", f"{_TOKEN} {_PROCESS}")
    if turn > 1:
        token, _, process = store.get(f"{prefix}/{turn - 1}").decode().partition(" ")
        if token != _TOKEN:
            reason = f"rank {rank} joined twice, as {process} and as {_PROCESS} (group {name!r})"
            tell_failure(store, f"mrc/{name}/{turn - 1}", rank, reason)
            raise RendezvousError(reason)
    return f"{name}/{turn}"
