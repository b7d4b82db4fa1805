"""A real endpoint under control, through its socket."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from harness.live_pair import Pair
from openmrc.ctl import endpoint_ops
from openmrc.ctl.client import CtlClient, endpoint, local_endpoints
from openmrc.ctl.denials import Denial
from openmrc.ctl.errors import FencedError
from openmrc.engine.state.machines import EvState, QpState
from openmrc.errors import BusyError, ConfigError, InvalidArgumentError
from tests.ctl.endpoints import connected, opened


def send(pair: Pair, count: int = 40) -> None:
    here = pair.ends[0]
    for _ in range(count):
        here.write(pair.regions[0][:4096], here.remote.regions[0][:4096], timeout=10)


def states(pair: Pair) -> dict[tuple[int, int], EvState]:
    return {(ev.plane + 1, ev.ev): ev.state for ev in pair.ends[0].qp.ev_states()}


def test_device_and_ports(tmp_path: Path) -> None:
    with opened(tmp_path / "ctl", 231) as (context, client):
        report = client.call(endpoint_ops.device)
        assert report.planes == list(context.query_device().planes)
        assert report.port_mask == 0b110
        down = client.call(endpoint_ops.set_port, port=2, enabled=False).ports[1]
        assert (down.enabled, down.up, down.faults) == (False, False, ["DISABLED"])
        assert not context.plane_counters()[1].up
        assert client.call(endpoint_ops.set_port, port=2, enabled=True).ports[1].up
        with pytest.raises(InvalidArgumentError, match="port: 3 is not in"):
            client.call(endpoint_ops.set_port, port=3, enabled=True)
        with endpoint("", str(tmp_path / "ctl")) as other:  # a second controller
            assert other.call(endpoint_ops.device) == report
    assert local_endpoints(str(tmp_path / "ctl")) == []
    with pytest.raises(ConfigError, match="MRC_CTL=on"), endpoint("", str(tmp_path / "ctl")):
        pass


def test_votes_add_up_what_was_sent_and_delivered(tmp_path: Path) -> None:
    with connected(tmp_path / "ctl") as (pair, client):
        send(pair)
        votes = client.call(endpoint_ops.votes).votes
        assert sum(vote.sent for vote in votes) >= 40
        assert sum(vote.acked for vote in votes) >= 40
        assert {vote.port for vote in votes} == {1, 2}
        assert all(vote.peer == vote.path for vote in votes)
        (report,) = client.call(endpoint_ops.paths).queue_pairs
        assert len(report.evs) == len(votes) == 6


def test_votes_outlive_the_queue_pairs_that_cast_them(tmp_path: Path) -> None:
    with connected(tmp_path / "ctl") as (pair, client):
        send(pair)
        before = client.call(endpoint_ops.votes).votes
        pair.ends[0].qp.modify(state=QpState.RESET)
        after = client.call(endpoint_ops.votes).votes
        assert {(v.peer, v.port, v.ev, v.path): v.acked for v in after} == {
            (v.peer, v.port, v.ev, v.path): v.acked for v in before if v.sent
        }


def test_a_denied_ev_carries_nothing_until_it_is_lifted(tmp_path: Path) -> None:
    with connected(tmp_path / "ctl") as (pair, client):
        send(pair, 10)
        one = client.call(endpoint_ops.votes, port=1).votes[0]
        denial = Denial(port=1, ev=one.ev, peer=one.peer)
        client.call(endpoint_ops.deny, denials=[denial])
        assert states(pair)[1, one.ev] == EvState.DENIED
        before = {ev.ev: ev.sent for ev in pair.ends[0].qp.ev_states()}[one.ev]
        send(pair)
        assert {ev.ev: ev.sent for ev in pair.ends[0].qp.ev_states()}[one.ev] == before
        assert client.call(endpoint_ops.lift).denied == []
        assert states(pair)[1, one.ev] == EvState.GOOD


def test_replies_to_values_of_peers_keep_off_a_denied_path(tmp_path: Path) -> None:
    with connected(tmp_path / "ctl") as (pair, client):
        runtime = pair.contexts[0].nic.runtime
        one = client.call(endpoint_ops.votes, port=1).votes[0]
        ours = runtime.datapath.ev_values[0].tolist()
        mine, others = (
            runtime.datapath.sender_of[0],
            [v for v in range(1 << 16) if v not in {ev & 0xFFFF for ev in ours}],
        )
        assert set(mine[others]) == {0, 1, 2}
        client.call(endpoint_ops.deny, denials=[Denial(port=1, ev=one.ev, peer=one.peer)])
        assert set(mine[others]) == {0, 1, 2} - {ours.index(one.ev)}
        assert [mine[ev & 0xFFFF] for ev in ours] == [0, 1, 2]
        client.call(endpoint_ops.lift)
        assert set(mine[others]) == {0, 1, 2}


def test_the_last_path_is_never_denied(tmp_path: Path) -> None:
    with connected(tmp_path / "ctl") as (pair, client):
        all_evs = [Denial(port=vote.port, ev=vote.ev) for vote in client.call(endpoint_ops.votes).votes]
        with pytest.raises(BusyError, match="would keep no path") as refused:
            client.call(endpoint_ops.deny, denials=all_evs)
        assert refused.value.done == len(all_evs) - 1
        assert list(states(pair).values()).count(EvState.DENIED) == len(all_evs) - 1
        send(pair, 4)


def test_an_entry_that_matches_a_plane_takes_all_its_evs_but_not_the_last_plane(tmp_path: Path) -> None:
    with connected(tmp_path / "ctl") as (pair, client):
        ports = sorted({port for port, _ in states(pair)})
        client.call(endpoint_ops.deny, denials=[Denial(port=1, ev=0, mask=0)])
        assert {port for (port, _), state in states(pair).items() if state == EvState.DENIED} == {1}
        assert {state for (port, _), state in states(pair).items() if port == 1} == {EvState.DENIED}
        send(pair, 4)
        rest = [Denial(port=port, ev=0, mask=0) for port in ports[1:]]
        with pytest.raises(BusyError, match="would keep no path"):
            client.call(endpoint_ops.deny, denials=rest)
        client.call(endpoint_ops.lift)
        assert EvState.DENIED not in states(pair).values()


def test_a_lease_that_nobody_renews_lapses(tmp_path: Path) -> None:
    with connected(tmp_path / "ctl") as (pair, client):
        one = client.call(endpoint_ops.votes).votes[0]
        client.call(endpoint_ops.deny, denials=[Denial(port=one.port, ev=one.ev)], lease=0.2)
        client.call(endpoint_ops.renew, lease=0.7)
        assert states(pair)[one.port, one.ev] == EvState.DENIED
        deadline = time.monotonic() + 5
        while states(pair)[one.port, one.ev] == EvState.DENIED:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert client.call(endpoint_ops.lift).denied == []


def test_a_controller_with_an_older_epoch_is_fenced_off(tmp_path: Path) -> None:
    with connected(tmp_path / "ctl") as (pair, client), CtlClient(client.path) as successor:
        one = client.call(endpoint_ops.votes).votes[0]
        denial = Denial(port=one.port, ev=one.ev)
        assert client.call(endpoint_ops.deny, denials=[denial], epoch=1).epoch == 1
        assert successor.call(endpoint_ops.renew, epoch=2).epoch == 2
        for late in (
            partial(client.call, endpoint_ops.deny, denials=[denial], epoch=1),
            partial(client.call, endpoint_ops.renew, epoch=1),
            partial(client.call, endpoint_ops.lift, epoch=1),
        ):
            with pytest.raises(FencedError, match="epoch 2 has taken over"):
                late()
        assert states(pair)[one.port, one.ev] == EvState.DENIED


def test_connections_that_begin_later_find_the_denial(tmp_path: Path) -> None:
    with connected(tmp_path / "ctl") as (pair, client):
        one = client.call(endpoint_ops.votes).votes[0]
        client.call(endpoint_ops.deny, denials=[Denial(port=one.port, ev=one.ev)])
        qp = pair.ends[0].qp
        attr, _ = qp.query()
        qp.modify(state=QpState.RESET)
        qp.modify(replace(attr, state=QpState.INIT))
        qp.modify(replace(attr, state=QpState.RTR))
        assert states(pair)[one.port, one.ev] == EvState.DENIED


def test_a_denial_that_names_no_port_of_this_endpoint_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path / "ctl", 232) as (_, client), pytest.raises(InvalidArgumentError, match=r"denials\[0\].port"):
        client.call(endpoint_ops.deny, denials=[Denial(port=3, ev=1)])
