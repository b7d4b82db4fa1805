"""Whatever rows a peer, or somebody in its name, sends: no crash, nothing outside the regions, sane state."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from openmrc.engine import endpoint as doors
from openmrc.engine.paths import ev_states
from openmrc.engine.state import tracker
from openmrc.engine.state.machines import EvState, QpState
from openmrc.engine.state.params import Settings
from openmrc.engine.state.queue_pairs import nominal_size, tracked_psns
from openmrc.engine.state.tables import SentState
from openmrc.wire.codes import Opcode
from openmrc.wire.packet import NOWHERE
from tests.draws import examples
from tests.engine.scripted_peer import MTU, QPN, R_KEY, REGION_LENGTH, REGION_LOCAL, REGION_VA, Endpoint, entropy_of, us

NEAR = st.integers(-3, 40)
PSN = st.one_of(NEAR.map(lambda n: n & 0xFFFFFF), st.integers(0, 0xFFFFFF))
U16 = st.one_of(st.integers(0, 40), st.integers(0, 0xFFFF))
I16 = st.one_of(st.integers(-70, 70), st.integers(-(1 << 15), (1 << 15) - 1))
BIT = st.integers(0, 1)
EV = st.one_of(
    st.sampled_from([entropy_of(rotation, k) for rotation in range(4) for k in range(4)]), st.integers(0, 2**32 - 1)
)
SIGNED = st.one_of(st.integers(-(1 << 63), (1 << 63) - 1), st.integers(0, 255))

ROWS = st.fixed_dictionaries(
    {
        "opcode": st.sampled_from(Opcode),
        "dest_qpn": st.sampled_from([QPN] * 8 + [2, 4, QPN + (1 << 16)]),
        "psn": PSN,
        "payload_length": st.sampled_from([0, 1, MTU - 1, MTU, MTU + 1, 9000]),
        "dma_length": st.sampled_from([0, 1, MTU, 10 * MTU, 2**32 - 1]),
        "entropy": EV,
        "marked": BIT,
        "trimmed": st.sampled_from([0, 0, 0, 1, 2]),
        "solicited": BIT,
        "ack_request": BIT,
        "retransmitted": BIT,
        "msn": U16,
        "rqmsn": U16,
        "tx_timestamp": U16,
        "timestamp_unit": BIT,
        "va": st.one_of(st.integers(-2 * MTU, REGION_LENGTH + MTU).map(lambda at: REGION_VA + at), SIGNED),
        "r_key": st.sampled_from([R_KEY] * 6 + [0, 1, 2**32 - 1]),
        "immediate": U16,
        "syndrome": st.sampled_from([0x1F] * 6 + [0x61, 0x62, 0x63, 0x20, 0xFF]),
        "acked_messages": PSN,
        "path_mark": st.integers(0, 3),
        "is_probe_answer": BIT,
        "ack_psn_offset": I16,
        "reflected_entropy": EV,
        "cack_psn": PSN,
        "mpr": st.integers(0, 255),
        "sack_offset": I16,
        "sack_bitmap": SIGNED,
        "ooo_count": U16,
        "restore_cwnd": BIT,
        "rcv_cwnd_pen": st.integers(0, 127),
        "rcvd_bytes": PSN,
        "nack_reason": st.sampled_from([0x01, 0x02, 0x06, 0x07, 0x0A, 0x0B, 0x19, 0x00, 0xFF]),
        "nack_psn": PSN,
        "probe_id": U16,
        "endpoint_op": st.integers(0, 3),
        "port_status_mask": st.integers(0, 2**32 - 1),
    }
)
STEPS = st.lists(st.tuples(ROWS, st.sampled_from([0.0, 1.0, 50.0, 3000.0]), st.integers(0, 3)), max_size=40)


@settings(max_examples=examples(120), deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=STEPS, trimming=BIT, always=st.sampled_from([0, 2]), dynamic=BIT)
def test_no_packet_breaks_an_endpoint(
    steps: list[tuple[dict[str, Any], float, int]], trimming: int, always: int, dynamic: int
) -> None:
    summary = Settings(link_gbps=100.0, trimming=bool(trimming), always_skip_packets=always, refuse_out_of_window=True)
    endpoint = Endpoint(settings=summary, attributes={"dynamic_mpr": dynamic}, layout={"mark_rows": 2, "controls": 16})
    for wr_id in range(8):
        endpoint.write(3 * MTU, immediate=wr_id if wr_id % 2 else None, wr_id=wr_id)
        doors.post_receive(endpoint.engine, 0, wr_id)
    done = []
    for packet, wait, port in steps:
        place = endpoint.receives(packet, at_us=endpoint.now / us(1) + wait, port=port)
        check_place(place, packet)
        for sent in endpoint.all_sent():
            check_sent(sent)
        done += endpoint.completions()
        check_state(endpoint)
    check_completions(endpoint, done)


def check_place(place: int, packet: dict[str, Any]) -> None:
    if place != NOWHERE:
        assert packet["r_key"] == R_KEY
        assert packet["trimmed"] == 0
        assert REGION_LOCAL <= place <= REGION_LOCAL + REGION_LENGTH - packet["payload_length"]


def check_sent(sent: Any) -> None:
    """What leaves lies inside what was posted, and fits its fields."""
    assert 0 <= sent.port < 4
    assert 0 <= sent.psn < 1 << 24
    if sent.opcode <= Opcode.WRITE_ONLY_IMM:
        assert 0x9000 <= sent.payload <= 0x9000 + 3 * MTU - sent.payload_length
        assert 0 <= sent.payload_length <= MTU
    if sent.opcode == Opcode.SACK:
        assert -(1 << 15) <= sent.sack_offset < 1 << 15
        assert 0 <= sent.rcvd_bytes < 1 << 24
        assert 0 <= sent.ooo_count < 1 << 15


def check_state(endpoint: Endpoint) -> None:
    """Counts agree with what they count."""
    row = endpoint.qp()
    assert row.state in (QpState.RTS, QpState.ERROR)
    assert row.unack_psn <= row.next_psn <= row.unack_psn + row.sent_mask + 1
    assert row.message_head <= row.message_current <= row.message_tail
    most = (row.sent_mask + 1) * nominal_size(row.path_mtu)
    assert -most <= row.inflight <= most, "below 0 as SACKs round up and count lost packets"
    assert endpoint.peer().inflight == max(row.inflight, 0)
    assert endpoint.peer().cwnd >= 1
    if row.state == QpState.RTS:
        waiting = [
            psn
            for psn in range(row.unack_psn, row.next_psn)
            if endpoint.engine.sent[row.sent_base + (psn & row.sent_mask)].state == SentState.LOST
        ]
        assert row.lost_count == len(waiting)
        assert not waiting or row.lost_cursor <= waiting[0]
    window = range(row.expected_psn, row.expected_psn + tracked_psns(endpoint.engine, 0))
    if row.state == QpState.RTS and not row.dynamic_mpr:
        assert row.ooo_count == sum(tracker.has(endpoint.engine, 0, psn) for psn in window)
    check_rotations(endpoint)


def check_rotations(endpoint: Endpoint) -> None:
    """Every value has one slot, the rotation holds usable ones only, and the count of those is right."""
    for rotation in endpoint.engine.rotations:
        slots = [endpoint.engine.slots[rotation.ev_base + position].ev for position in range(rotation.total)]
        assert sorted(slots) == list(range(rotation.total))
        for position, slot in enumerate(slots):
            ev = endpoint.engine.evs[rotation.ev_base + slot]
            assert ev_states.position_of(endpoint.engine, rotation.ev_base + slot) == position
            assert position >= rotation.active or ev.state <= EvState.SKIP
    assert endpoint.qp().good_evs == sum(ev.state <= EvState.SKIP for ev in endpoint.engine.evs)


def check_completions(endpoint: Endpoint, done: list[Any]) -> None:
    """Each request completes once, in order, and all of them after a failure."""
    for kind in range(2):
        finished = [completion.wr_id for completion in done if completion.kind == kind]
        assert finished == list(range(len(finished)))
        assert endpoint.qp().state == QpState.RTS or len(finished) == 8
