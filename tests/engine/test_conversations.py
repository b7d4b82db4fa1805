"""Two endpoints that talk, while the test interferes with single packets."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from harness.engine_pair import HEADERS, REGION_AT, NetworkConditions, Pair
from openmrc.engine.responder.sacks import RCVD_UNIT
from openmrc.engine.state.machines import EvState, QpState
from openmrc.engine.state.params import NOMINAL_OVERHEAD, Settings
from openmrc.engine.state.tables import Cause, EventKind, WcStatus
from openmrc.wire.codes import Opcode, Trim

WRITES = range(Opcode.WRITE_FIRST, Opcode.WRITE_ONLY_IMM + 1)


def over_sockets(conditions: NetworkConditions, look: Callable[[Any, int], bool] | None = None, **fields: Any) -> Pair:
    """Return a pair with a path of unknown length and rate between its ends, as endpoints over sockets are."""
    mtu = fields.setdefault("mtu", 1024)
    settings = Settings(
        mtu=mtu, base_rtt_us=100.0, base_rtt_measured=False, base_rtt_followed=True, trimming=False, link_gbps=100.0,
        bound_by_delivery=True, target_delay_us=2_000.0, initial_cwnd=1 << 17, max_cwnd=3 << 20, silent_timeouts=4,
        loss_threshold=2, loss_delay_floor_us=1_000.0, timestamp_unit=1, reverse_probe_interval_us=5_000.0,
        ev_burst=30 * (mtu + NOMINAL_OVERHEAD),
    )  # fmt: skip
    return Pair(conditions, settings=settings, timeout_us=16_777.0, linear=7, exponential=7, filter=look, **fields)


def first(
    opcodes: range | tuple[Opcode, ...], act: Callable[[Any], bool], count: int = 1
) -> Callable[[Any, int], bool]:
    """Interfere with the first packets of these opcodes; the others fly."""
    left = [count]

    def look(row: Any, endpoint: int) -> bool:
        if int(row["opcode"]) in opcodes and left[0] > 0:
            left[0] -= 1
            return act(row)
        return True

    return look


def drop(row: Any) -> bool:
    return False


def trim(row: Any) -> bool:
    row["trimmed"] = Trim.TRIMMED
    return True


def mark(row: Any) -> bool:
    row["marked"] = 1
    return True


def conversation(act: Callable[[Any, int], bool] | None, length: int = 5000, **fields: Any) -> Pair:
    pair = Pair(filter=act, timeout_us=5000.0, **fields)
    assert pair.receive(1) == 0
    assert pair.write(1, 0, length, 0, immediate=7) == 0
    pair.run(until_us=2e6, stop=lambda: pair.is_done() or pair.is_in_error(0))
    return pair


def assert_arrived(pair: Pair, length: int = 5000) -> None:
    assert [c.status for c in pair.sends()] == [WcStatus.SUCCESS]
    assert [c.immediate for c in pair.receives()] == [7]
    assert pair.memory[1][REGION_AT : REGION_AT + length] == pair.memory[0][:length]


@pytest.mark.clause("segmentation")
@pytest.mark.clause("empty-message")
@pytest.mark.parametrize("length", [0, 1, 255, 256, 257, 512, 100_000])
def test_messages_of_every_length_arrive(length: int) -> None:
    pair = conversation(None, length)
    assert_arrived(pair, length)
    assert pair.row(0).retransmitted == 0
    assert -RCVD_UNIT <= pair.row(0).inflight <= 0 == pair.peer(0).inflight, (
        "what SACKs round up is owed by the queue pair alone"
    )


@pytest.mark.clause("loss-gap")
def test_lost_packet_is_repaired_long_before_the_timeout_and_its_path_is_left() -> None:
    pair = conversation(first(WRITES, drop))
    assert_arrived(pair)
    assert pair.now < 200e6, "a few round trips, not the timeout of 5 ms"
    assert pair.row(0).timeouts == 0
    assert [ev.state for ev in pair.evs_of()].count(EvState.ASSUMED_BAD) == 1


@pytest.mark.clause("round-trip-beyond-the-timeout")
@pytest.mark.parametrize("path_ms", [20.0, 70.0, 100.0, 250.0, 600.0])
def test_a_path_longer_than_the_timeout_is_learned_from_what_was_sent_again(path_ms: float) -> None:
    """Each packet is sent again before its answer comes, until a round trip is known; the timeout is 16.8 ms.

    20 writes of 48 packets, in slow start from the packets of the least window: ten round trips at most, and the first
    flight alone is sent again.
    """
    pair = over_sockets(NetworkConditions(delay_us=path_ms * 500))
    for number in range(20):
        assert pair.write(number, 0, 48 << 10, 0) == 0
    pair.run(until_us=60 * path_ms * 1e3, stop=pair.is_done)
    assert [c.status for c in pair.sends()] == 20 * [WcStatus.SUCCESS]
    assert max(c.at for c in pair.sends()) < 10 * path_ms * 1e9
    assert pair.row(0).retransmitted <= 2 * path_ms / 67 + 1
    assert pair.peer().base_rtt == path_ms * 1e9
    assert not any(ev.state == EvState.ASSUMED_BAD for ev in pair.evs_of())


@pytest.mark.clause("loss-overtaken")
@pytest.mark.parametrize("path_ms", [2.0, 20.0, 60.0])
def test_a_packet_lost_on_a_long_path_is_sent_again_when_rack_would(path_ms: float) -> None:
    """A quarter of the round trip later than its answer would have come (RFC 8985, 6.2): ten leave in it."""
    sendings: dict[int, list[int]] = {}

    def look(row: Any, endpoint: int) -> bool:
        if endpoint == 0 and int(row["opcode"]) in WRITES:
            sendings.setdefault(int(row["psn"]), []).append(pair.now)
            return len(sendings) != 31 or len(sendings[int(row["psn"])]) > 1
        return True

    pair = over_sockets(NetworkConditions(delay_us=path_ms * 500), look)
    for number in range(60):
        pair.write(number, 0, 1024, 0)
        pair.run(until_us=(number + 1) * path_ms * 1e3 / 10)
    pair.run(until_us=10 * path_ms * 1e3, stop=pair.is_done)
    repeated = [times for times in sendings.values() if len(times) > 1]
    assert len(repeated) == 1
    assert 1.0 <= (repeated[0][1] - repeated[0][0]) / (path_ms * 1e9) <= 1.25 + 2 / 10


@pytest.mark.clause("sack-trigger-request")
@pytest.mark.parametrize("path_ms", [0.2, 20.0])
@pytest.mark.parametrize(("threshold", "mtu"), [(16_384, 4096), (131_072, 1024)])
def test_a_window_leaves_in_each_round_trip_however_few_packets_it_has(
    path_ms: float, threshold: int, mtu: int
) -> None:
    """The closed form. Where nothing but the threshold made reports due, windows below it would stand still."""
    carried = []
    for window in (2, 5, 20):
        settings = Settings(
            mtu=mtu, link_gbps=1e6, base_rtt_us=path_ms * 1e3, base_rtt_measured=False, trimming=False,
            sack_threshold=threshold, max_cwnd=window * (mtu + NOMINAL_OVERHEAD), loss_delay_floor_us=1_000.0,
            silent_timeouts=4, answers_together=True, ack_every=256,
        )  # fmt: skip
        pair = Pair(NetworkConditions(delay_us=path_ms * 500), settings=settings, mtu=mtu, timeout_us=16_777.0)
        for number in range(9):
            pair.write(number, 0, 20 * mtu, 0)
        before = 0
        for rounds in (2, 8):
            pair.run(until_us=(rounds + 0.5) * path_ms * 1e3)
            before, left = pair.row(0).unack_psn, pair.row(0).unack_psn - before
        carried.append(left / 6 / window)
    assert carried == pytest.approx(3 * [1], rel=0.01)


@pytest.mark.exhaustive
def test_two_slow_planes_with_short_queues_are_both_full() -> None:
    """A queue holds four packets, which one plane sends in 6 ms: the rates of both planes, but for headers and 5 %."""
    rate = 2 * 22 * 4096 / (4096 + HEADERS)
    conditions = NetworkConditions(mbps=22.0, queue=16_384, delay_us=50.0, jitter_us=30.0)
    pair = over_sockets(conditions, mtu=4096, planes=2, active=2, min_active=1)
    arrived = []
    for number in range(1, 201):
        while pair.write(number, 0, 1 << 18, 0) == 0:
            pass
        pair.run(until_us=number * 10_000)
        if number % 50 == 0:
            arrived.append(int(pair.row(0).unack_psn))
    mbps = [(after - before) * 4096 * 8 / 0.5e6 for before, after in pairwise(arrived)]
    assert mbps == pytest.approx(3 * [rate], rel=0.05)


@pytest.mark.clause("trim-nack")
def test_trimmed_packet_costs_one_round_trip_and_no_timeout() -> None:
    pair = conversation(first(WRITES, trim))
    assert_arrived(pair)
    assert pair.now < 50e6
    assert (pair.row(0).nacks_received, pair.row(0).retransmitted, pair.row(0).timeouts) == (1, 1, 0)
    assert sum(ev.trimmed for ev in pair.evs_of()) == 1
    assert not any(ev.state == EvState.ASSUMED_BAD for ev in pair.evs_of())


@pytest.mark.clause("sack-trigger-ecn")
def test_marked_packet_has_its_path_skipped() -> None:
    pair = conversation(first(WRITES, mark), length=256)
    assert_arrived(pair, 256)
    assert [ev.state for ev in pair.evs_of()].count(EvState.SKIP) == 1


@pytest.mark.clause("tail-probe")
def test_lost_sacks_do_not_cause_retransmissions() -> None:
    pair = conversation(first((Opcode.SACK, Opcode.ACKNOWLEDGE), drop, count=3), length=512)
    assert_arrived(pair, 512)
    assert pair.row(0).probes_sent >= 1
    assert pair.row(0).timeouts <= 1


@pytest.mark.clause("transport-ack-lost")
def test_lost_transport_ack_is_solicited_and_the_message_completes_once() -> None:
    pair = conversation(first((Opcode.ACKNOWLEDGE,), drop, count=2), length=512)
    assert_arrived(pair, 512)
    assert pair.row(0).retransmitted >= 2
    assert pair.now < 500e6, "long before the timeout"


@pytest.mark.clause("access-checked")
def test_refused_write_ends_both_sides_with_their_reasons() -> None:
    pair = Pair()
    pair.write(1, 0, 1000, (1 << 20) + 5)
    pair.run(until_us=1e5)
    assert (pair.row(0).cause, pair.row(1).cause) == (Cause.REMOTE_ACCESS, Cause.ACCESS_VIOLATION)
    assert [c.status for c in pair.sends()] == [WcStatus.REM_ACCESS_ERR]
    assert not any(pair.memory[1])


@pytest.mark.clause("access-checked")
def test_lost_refusal_is_repeated_when_the_requester_asks_again() -> None:
    pair = Pair(filter=first((Opcode.ACKNOWLEDGE,), drop, count=2))
    pair.write(1, 0, 100, (1 << 20) + 5)
    pair.run(until_us=1e5)
    assert [c.status for c in pair.sends()] == [WcStatus.REM_ACCESS_ERR]


@pytest.mark.clause("wimm-no-receive")
def test_missing_receive_ends_both_sides() -> None:
    pair = Pair()
    pair.write(1, 0, 1000, 0, immediate=5)
    pair.run(until_us=1e5)
    assert (pair.row(0).cause, pair.row(1).cause) == (Cause.REMOTE_OPERATIONAL, Cause.NO_RECEIVE)
    assert [c.status for c in pair.sends()] == [WcStatus.REM_OP_ERR]


@pytest.mark.clause("wimm-overflow")
def test_requester_that_ignores_the_limit_is_refused() -> None:
    pair = Pair(filter=lambda row, endpoint: endpoint == 0 or int(row["opcode"]) != Opcode.ACKNOWLEDGE)
    pair.row(0).max_wimm = 100
    pair.row(1).max_wimm_dest = 2
    pair.filter = first(WRITES, drop)
    for wr_id in range(6):
        pair.receive(wr_id)
        pair.write(wr_id, 0, 10, 0, immediate=wr_id)
    pair.run(until_us=1e5)
    assert (pair.row(0).cause, pair.row(1).cause) == (Cause.REMOTE_INVALID_REQUEST, Cause.WIMM_OVERFLOW)


@pytest.mark.clause("port-down-remote")
def test_port_that_fails_in_the_middle_is_left_by_both_sides_and_used_again() -> None:
    ports: list[tuple[int, int]] = []

    def look(row: Any, endpoint: int) -> bool:
        if endpoint == 0 and int(row["opcode"]) in WRITES:
            ports.append((pair.now, int(row["port"])))
        return True

    pair = Pair(filter=look, timeout_us=5000.0)
    pair.set_port(1, 2, 0)  # the receiver's
    pair.run(until_us=50)
    left = pair.now
    pair.write(1, 0, 50_000, 0)
    pair.run(until_us=3000)
    assert {port for at, port in ports if at >= left} == {0, 1, 3}
    assert [event.state for event in pair.events(0) if event.kind == EventKind.PEER_PORTS] == [0b1011]
    pair.set_port(1, 2, 1)
    pair.run(until_us=4000)
    back = pair.now
    pair.write(2, 0, 50_000, 0)
    pair.run(until_us=6000)
    assert {port for at, port in ports if at >= back} == {0, 1, 2, 3}
    assert pair.row(0).state == QpState.RTS


@pytest.mark.clause("ev-lost")
def test_silent_plane_is_left_within_tens_of_microseconds() -> None:
    quiet_from = 1000
    summary: list[Any] = []

    def look(row: Any, endpoint: int) -> bool:
        if int(row["opcode"]) in WRITES and pair.now >= quiet_from * 1e6 and int(row["port"]) == 1:
            summary.append(pair.now)
        return True

    settings = Settings(link_gbps=10.0, base_rtt_us=12.0, algorithm="uet-1.0-nscc", mtu=256)
    pair = Pair(
        filter=look,
        settings=settings,
        conditions=NetworkConditions(silences=((1, quiet_from, 10**9),)),
        timeout_us=5000.0,
    )
    pair.run(until_us=quiet_from)
    pair.write(1, 0, 500_000, 0)
    pair.run(until_us=5e6, stop=pair.is_done)
    assert pair.is_done()
    assert summary[-1] - summary[0] < 150e6
    assert pair.row(0).timeouts == 0
