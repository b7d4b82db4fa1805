"""Batches of endpoint requests: answers in order of arrival, time-outs, and what is refused."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.live_pair import Pair
from openmrc.ctl import endpoint_ops
from openmrc.ctl.endpoint_requests import STATUS, EpRequest, check_batch
from openmrc.errors import InvalidArgumentError, NotFoundError, TooBigError
from openmrc.live.host.addresses import host_of
from tests.ctl.endpoints import connected


def requests(pair: Pair, count: int = 1) -> list[EpRequest]:
    """Return probes of every EV."""
    peer = [host_of(address) for address in pair.contexts[1].address.planes]
    evs = [(ev.plane, ev.ev) for ev in pair.ends[0].qp.ev_states()] * count
    return [EpRequest(req_id=n, peer=peer[plane], port=plane + 1, ev=ev) for n, (plane, ev) in enumerate(evs)]


def test_every_probe_is_answered_with_its_round_trip(tmp_path: Path) -> None:
    with connected(tmp_path / "ctl") as (pair, client):
        wanted = requests(pair, 4)
        found = client.call_within(5.0, endpoint_ops.ep_batch, requests=wanted, timeout=5.0).responses
        assert sorted(each.req_id for each in found) == [each.req_id for each in wanted]
        assert all(0 <= each.rtt < 5_000_000_000 for each in found)
        assert {each.port for each in found} == {1, 2}
        assert not pair.contexts[0].nic.controlled.requests._waiting


def test_a_batch_ends_in_time_with_the_answers_that_came(tmp_path: Path) -> None:
    with connected(tmp_path / "ctl") as (pair, client):
        pair.contexts[1].impair("down: plane 1")
        began = time.monotonic()
        found = client.call_within(1.0, endpoint_ops.ep_batch, requests=requests(pair), timeout=0.5).responses
        assert time.monotonic() - began < 3
        assert {each.port for each in found} == {1}
        assert len(found) == 3


def test_a_peer_believes_a_port_status_update(tmp_path: Path) -> None:
    with connected(tmp_path / "ctl") as (pair, client):
        one = requests(pair)[0]
        update = EpRequest(req_id=1, peer=one.peer, port=1, ev=one.ev, status_mask=0b010)
        found = client.call_within(5.0, endpoint_ops.ep_batch, requests=[update], kind=STATUS, timeout=5.0)
        assert found.responses[0].req_id == 1
        runtime = pair.contexts[1].nic.runtime
        peer = runtime.engine.qps[pair.ends[1].qp.row].peer
        assert runtime.engine.peers[peer].ports_up in (0b01, 0b11)  # a probe may have found the port working since


def test_requests_that_cannot_be_sent_are_refused_before_any_is(tmp_path: Path) -> None:
    with connected(tmp_path / "ctl") as (pair, client):
        good = requests(pair)[0]

        def refused(error: type[Exception], text: str, **changes: object) -> None:
            bad = msgspec.structs.replace(good, **changes)
            with pytest.raises(error, match=text):
                client.call(endpoint_ops.ep_batch, requests=[bad])

        refused(NotFoundError, r"requests\[0\].peer", peer="192.0.2.99")
        refused(InvalidArgumentError, r"requests\[0\].port: 3", port=3)
        refused(InvalidArgumentError, r"requests\[0\].ev", ev=7)
        refused(InvalidArgumentError, "unknown ports", status_mask=0b1000)
        with pytest.raises(InvalidArgumentError, match="kind: 'fly'"):
            client.call(endpoint_ops.ep_batch, requests=[good], kind="fly")


def test_a_batch_has_unique_numbers_and_a_limit() -> None:
    one = EpRequest(req_id=1, peer="a", port=1, ev=1)
    with pytest.raises(InvalidArgumentError, match="comes twice"):
        check_batch([one, one], 1.0)
    with pytest.raises(TooBigError, match=r"1\.\.1024"):
        check_batch([], 1.0)
    with pytest.raises(InvalidArgumentError, match="timeout"):
        check_batch([one], 0.0)
    with pytest.raises(InvalidArgumentError, match="65535"):
        check_batch([EpRequest(req_id=1 << 16, peer="a", port=1, ev=1)], 1.0)


def test_an_answer_that_nobody_waits_for_or_that_comes_twice_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connected(tmp_path / "ctl") as (pair, client):
        sent = pair.contexts[0].nic.controlled.requests
        answered = sent.on_response

        def twice(record: Any) -> None:
            answered(record)
            answered(record)
            other = record.copy()
            other.state += 1
            answered(other)

        monkeypatch.setattr(sent, "on_response", twice)
        wanted = requests(pair)
        found = client.call_within(5.0, endpoint_ops.ep_batch, requests=wanted, timeout=5.0).responses
        assert sorted(each.req_id for each in found) == [each.req_id for each in wanted]
