"""A thread that comes back late from the scheduler reads what has arrived before it serves its deadlines."""

from __future__ import annotations

from openmrc.engine.state.build import TableSizes, build
from openmrc.engine.state.params import Settings
from openmrc.live.datapath.loop import iteration
from openmrc.live.datapath.rows import build_datapath
from openmrc.units import NEVER, PS_PER_MS


def test_deadlines_wait_for_the_backlog_from_when_it_was_found_however_late() -> None:
    engine = build(TableSizes(ports=1), Settings())
    datapath = build_datapath(engine, 1, 1, 1, 1, 0, 0)
    nic, node = datapath.nic[0], engine.endpoints[0]
    node.deadline = PS_PER_MS
    nic.now = 500 * PS_PER_MS
    iteration._expire(engine, datapath, False)
    assert node.deadline == PS_PER_MS, "there are arrivals still to be read"
    nic.now += iteration.BACKLOG
    iteration._expire(engine, datapath, False)
    assert node.deadline == NEVER, "reading takes too long"
    node.deadline = nic.now
    iteration._expire(engine, datapath, True)
    assert node.deadline == NEVER
