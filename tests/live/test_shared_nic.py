"""Two jobs on the same two NICs: each process has its ports, and a peer finds the right one."""

from __future__ import annotations

import threading
from contextlib import ExitStack

from harness.live_pair import SMALL
from openmrc.verbs import Connection, ConnectionOptions, Context, Listener, MemoryRegion, connect

NICS = (["127.56.1.1", "127.56.2.1"], ["127.56.1.2", "127.56.2.2"])
OPTIONS = ConnectionOptions(mpr=4, max_wimm=16, max_recv_wr=64, timeout=13, linear_count=7, exponential_count=7)
SIZE = 1 << 16


def job(stack: ExitStack, fill: int) -> tuple[Connection, MemoryRegion, MemoryRegion]:
    """Return one job's connection from the first NIC to the second, and its memory at both."""
    here, there = (stack.enter_context(Context(nic, SMALL)) for nic in NICS)
    ours = here.alloc_pd().reg_mr(bytearray([fill]) * SIZE)
    theirs = there.alloc_pd().reg_mr(bytearray(SIZE))
    listener = stack.enter_context(Listener(there, "127.0.0.1", 0))
    accepting = threading.Thread(
        target=listener.accept, kwargs={"regions": [theirs], "options": OPTIONS, "timeout": 20}
    )
    accepting.start()
    connection = connect(here, "127.0.0.1", listener.port, regions=[ours], options=OPTIONS, timeout=20)
    accepting.join()
    return connection, ours, theirs


def test_two_jobs_on_the_same_nics_write_into_their_own_memory() -> None:
    with ExitStack() as stack:
        jobs = [job(stack, fill) for fill in (1, 2)]
        writers = [
            threading.Thread(target=connection.write, args=[ours, connection.remote.regions[0]], kwargs={"timeout": 20})
            for connection, ours, _ in jobs
        ]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        assert [set(theirs.bytes.tobytes()) for _, _, theirs in jobs] == [{1}, {2}]
