"""Counters of queue pair, value and port add up to what happened."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from harness.engine_pair import NetworkConditions, Pair
from openmrc.engine.paths import ev_states, last_probe
from openmrc.engine.state.queue_pairs import sent_row
from openmrc.engine.state.tables import SentState
from openmrc.wire.codes import Opcode

WEATHER = NetworkConditions(loss=0.05, duplicate=0.05, mark=0.1, trim=0.05, jitter_us=20.0)


@pytest.fixture(scope="module")
def pair() -> Pair:
    pair = Pair(conditions=WEATHER, seed=11, exponential=25)
    for wr_id in range(16):
        pair.receive(wr_id)
        assert pair.write(wr_id, 0, 9000, wr_id * 10_000, immediate=wr_id) == 0
    pair.run(until_us=60e6, stop=pair.is_done)
    assert pair.is_done()
    return pair


@pytest.mark.clause("counters")
def test_packets_sent_are_new_ones_and_repeats_on_every_level(pair: Pair) -> None:
    row, node = pair.row(0), pair.engine.endpoints[0]
    sent = Counter(opcode for _, endpoint, opcode, _ in pair.diary if endpoint == 0)
    of_data = sum(count for opcode, count in sent.items() if opcode <= Opcode.WRITE_ONLY_IMM)
    assert of_data == row.sent_packets + row.retransmitted
    assert row.sent_bytes == 16 * 9000
    ports = [pair.engine.ports[node.port_base + port] for port in range(4)]
    assert sum(port.sent_packets for port in ports) == sum(sent.values())
    assert sum(port.sent_packets - port.control_sent for port in ports) == of_data
    assert sum(port.retransmitted for port in ports) <= row.retransmitted
    assert sum(ev.sent for ev in pair.evs_of()) == of_data + sent[Opcode.PROBE]


@pytest.mark.clause("counters")
def test_control_packets_are_counted_by_kind(pair: Pair) -> None:
    row = pair.row(1)
    sent = Counter(opcode for _, endpoint, opcode, _ in pair.diary if endpoint == 1)
    assert sent[Opcode.SACK] == row.sacks_sent
    assert sent[Opcode.NACK] == row.nacks_sent
    assert sent[Opcode.ACKNOWLEDGE] == row.acks_sent


@pytest.mark.clause("counters")
def test_every_arrival_is_new_duplicate_trimmed_or_out_of_window(pair: Pair) -> None:
    row, node = pair.row(1), pair.engine.endpoints[1]
    ports = [pair.engine.ports[node.port_base + port] for port in range(4)]
    arrived = sum(port.received_packets for port in ports)
    assert row.received_packets == pair.row(0).sent_packets
    refused = row.duplicates + row.trimmed_arrivals + row.out_of_window
    assert arrived == row.received_packets + refused
    assert 0 < row.marked_arrivals <= sum(port.marked for port in ports)


@pytest.mark.clause("counters")
def test_losses_are_counted_where_they_happened(pair: Pair) -> None:
    row, node = pair.row(0), pair.engine.endpoints[0]
    by_port = sum(pair.engine.ports[node.port_base + port].lost for port in range(4))
    by_ev = sum(failure.lost for failure in pair.engine.ev_failures)
    assert by_port == by_ev >= row.inferred_losses > 0
    assert sum(ev.trimmed for ev in pair.evs_of()) <= row.nacks_received
    probes = [last_probe.count(pair.engine, 0, ev) for ev in range(row.ev_base, row.ev_base + row.ev_count)]
    assert row.probes_answered <= row.probes_sent == sum(probes)


def balance(pair: Pair) -> tuple[int, int]:
    """Return what was lost or asked for again, and what became of it."""
    row, node = pair.row(0), pair.engine.endpoints[0]
    ports = [pair.engine.ports[node.port_base + port] for port in range(4)]
    again = sum(port.retransmitted + port.false_losses for port in ports)
    return sum(port.lost + port.requeued for port in ports), again + row.lost_count + node.abandoned


@pytest.mark.clause("counters")
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.needs("jit")  # thousands of packets
def test_what_is_lost_or_requeued_is_sent_again_had_arrived_waits_or_ended_at_every_moment(seed: int) -> None:
    conditions = NetworkConditions(loss=0.1, duplicate=0.05, trim=0.1, jitter_us=40.0, silences=((1, 100, 400),))
    pair = Pair(conditions=conditions, seed=seed, exponential=25)
    for wr_id in range(16):
        assert pair.write(wr_id, 0, 9000, wr_id * 10_000) == 0
    at = 0.0
    while not pair.is_done():
        at += 20.0
        pair.run(until_us=at, stop=pair.is_done)
        assert balance(pair)[0] == balance(pair)[1]
        row, states = pair.row(0), states_of_sent(pair)
        assert row.sent_packets == states.total() == row.next_psn - row.first_psn
        assert states[SentState.ACKED] == row.unack_psn - row.first_psn + row.sacked_beyond
        assert states[SentState.LOST] == row.lost_count
    assert balance(pair)[0] > 0


def states_of_sent(pair: Pair) -> Counter[int]:
    """Return how many packets sent are in each state, those that left the window as acknowledged."""
    row = pair.row(0)
    window = (sent_row(pair.engine, 0, psn).state for psn in range(row.unack_psn, row.next_psn))
    return Counter([*window, *[SentState.ACKED] * (row.unack_psn - row.first_psn)])


@pytest.mark.clause("counters")
def test_as_many_packets_are_lost_as_the_network_drops_and_none_falsely_where_nothing_is_late() -> None:
    dropped, seen = Counter[str](), Counter[str]()

    def take_some(row: Any, endpoint: int) -> bool:
        kind = "data" if endpoint == 0 and row["opcode"] <= Opcode.WRITE_ONLY_IMM else "other"
        seen[kind] += 1
        dropped[kind] += kind == "data" and seen[kind] % 9 == 0
        return not (kind == "data" and seen[kind] % 9 == 0)

    pair = Pair(seed=5, filter=take_some, exponential=25)
    for wr_id in range(16):
        assert pair.write(wr_id, 0, 9000, wr_id * 10_000) == 0
    pair.run(until_us=60e6, stop=pair.is_done)
    row, node = pair.row(0), pair.engine.endpoints[0]
    ports = [pair.engine.ports[node.port_base + port] for port in range(4)]
    assert sum(port.lost for port in ports) == dropped["data"] > 0
    assert sum(port.retransmitted for port in ports) == dropped["data"]
    assert (sum(port.false_losses + port.requeued for port in ports), row.spurious) == (0, 0)


@pytest.mark.clause("counters")
def test_what_waits_when_a_queue_pair_ends_is_abandoned() -> None:
    pair = Pair(conditions=NetworkConditions(loss=1.0), seed=2, linear=1, exponential=1, timeout_us=32.0)
    assert pair.write(0, 0, 9000, 0) == 0
    pair.run(until_us=60e6, stop=pair.is_in_error)
    assert pair.is_in_error()
    assert balance(pair)[0] == balance(pair)[1] > 0


@pytest.mark.clause("counters")
def test_counts_of_an_ev_outgrow_16_bits() -> None:
    pair = Pair(seed=3)
    for ev in pair.evs_of():
        ev.sent, ev.acked = ev_states.CARRY_AT - 1, ev_states.CARRY_AT - 2
    assert pair.write(0, 0, 9000, 0) == 0
    pair.run(until_us=1e6, stop=pair.is_done)
    row = pair.row(0)
    rows = range(row.ev_base, row.ev_base + row.ev_count)
    carried = [pair.engine.ev_failures[ev].sent + pair.engine.evs[ev].sent for ev in rows]
    assert sum(carried) == len(rows) * (ev_states.CARRY_AT - 1) + row.sent_packets
    assert all(ev.sent < ev_states.CARRY_AT for ev in pair.evs_of())
