"""An endpoint's snapshot: ports, EVs by state, queue pairs, totals that outlive them, events with their cause."""

import os
from pathlib import Path

from openmrc.telemetry import snapshot_ops
from tests.ctl.endpoints import connected
from tests.ctl.test_endpoint_control import send


def test_a_snapshot_has_every_port_queue_pair_and_ev(tmp_path: Path) -> None:
    with connected(tmp_path) as (pair, client):
        send(pair)
        found = client.call(snapshot_ops.snapshot, with_evs=True)
        assert [port.port for port in found.ports] == [1, 2]
        assert sum(port.transmitted_bytes for port in found.ports) >= 40 * 4096
        assert [port.evs for port in found.ports] == [[3, 0, 0, 0], [3, 0, 0, 0]]
        (queue_pair,) = found.queue_pairs
        assert queue_pair.state == "RTS"
        assert queue_pair.sent_bytes >= 40 * 4096
        assert queue_pair.ev_states == [6, 0, 0, 0]
        assert {(ev.port, ev.state) for ev in queue_pair.evs} == {(1, "GOOD"), (2, "GOOD")}
        assert all(ev.path for ev in queue_pair.evs)
        assert found.pid == os.getpid()


def test_a_port_that_goes_down_is_counted_and_logged_with_its_cause(tmp_path: Path) -> None:
    with connected(tmp_path) as (pair, client):
        pair.contexts[0].set_plane(1, False)
        pair.contexts[0].get_async_event(5.0)
        pair.contexts[0].set_plane(1, True)
        pair.contexts[0].get_async_event(5.0)
        found = client.call(snapshot_ops.snapshot)
        events = client.call(snapshot_ops.events).events
        ports = [(event.port, event.state, event.cause) for event in events if event.kind == "port"]
        assert ports == [(2, "DOWN", "DISABLED"), (2, "UP", "")]
        assert found.ports[1].downs == 1
        assert [event.number for event in events] == list(range(1, len(events) + 1))
        assert client.call(snapshot_ops.events, since=events[-1].number).events == []
