"""A row that is used again is as good as a new one: what the life before left in it changes nothing.

The oracle is an endpoint whose queue pair had no life before. Both connect at the same moment; then every field of the
rows of the queue pair is compared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openmrc.engine import endpoint as doors
from openmrc.engine import lifecycle
from openmrc.engine.paths import last_probe
from openmrc.engine.responder import regions
from openmrc.engine.state import control_queue
from openmrc.engine.state.tables import NONE, Engine, SentState
from openmrc.wire.codes import NackReason, Opcode, PathMark, Trim
from tests.draws import examples
from tests.engine.scripted_peer import (
    MTU,
    Endpoint,
    ack,
    data,
    nack,
    probe,
    sack,
    steady,
    us,
    write_imm,
)

SECOND_LIFE = us(5_000_000)
LAYOUT = {
    "endpoint",
    "peer",
    "state",
    "next_ready",
    "listed",
    "deadline",
    "deadlines",
    "qp",
    "port",
    "value",
    "rotation",
}
LAYOUT |= {"rotation_count", "ev_count", "total", "evs", "params", "address", "ready_tail", "ready_count", "ev"}
ATTRIBUTES = {"dynamic_mpr", "user_timeout", "sq_signal_all"}  # of a queue pair: a reset does not change them
KEPT = {"qpn"}  # a queue pair that is used again has another number


def names_of(rows: Any) -> tuple[str, ...]:
    """Return the fields of a table."""
    return tuple(rows.dtype.names)


def is_layout(field: str) -> bool:
    """Whether a field says where rows are, or is set by whoever connects."""
    return field in LAYOUT | ATTRIBUTES or field.endswith(("_base", "_mask"))


def connected_again(life: Callable[[Endpoint], None]) -> Endpoint:
    """Return an endpoint whose queue pair had a life before, and was reset and connected again."""
    endpoint = Endpoint(
        settings=steady(
            tail_probe=True, reverse_probe_interval_us=10.0, probe_interval_us=50.0, algorithm="uet-1.0-nscc"
        ),
        layout={"tracked": 1024},
    )
    life(endpoint)
    endpoint.now = SECOND_LIFE
    lifecycle.reset(endpoint.engine, 0)
    endpoint.engine.qps[0].peer = NONE
    lifecycle.open_peer(endpoint.engine, endpoint.now, 0, 100)
    endpoint.engine.endpoints[0].random = 7  # the shuffle of paths
    endpoint.connect(0)
    return endpoint


def no_life(endpoint: Endpoint) -> None:
    """Leave it as new."""


def poisoned(endpoint: Endpoint) -> None:
    """Write into every field that is not layout or an attribute; more than any life would."""
    for name, (begin, count) in spans(endpoint).items():
        rows = np.asarray(getattr(endpoint.engine, name))[begin : begin + count]
        for field in names_of(rows):
            if not is_layout(field):
                rows[field] = 3 if rows[field].dtype != bool else True


def live(endpoint: Endpoint) -> None:
    """Send and receive with losses, trims, marks and probes, and end with as much unfinished as there can be."""
    for number in range(4):
        doors.post_receive(endpoint.engine, 0, number)
    for number in range(3):
        endpoint.write(40 * MTU, immediate=number, wr_id=number)
    endpoint.all_sent()
    endpoint.receives(sack(3, (5, 7, 9, 30), path_mark=PathMark.SKIP_ONCE), at_us=15)
    endpoint.receives(nack(4, NackReason.TRIMMED), at_us=16)
    endpoint.receives(nack(6, NackReason.NO_RESOURCE), at_us=17)
    endpoint.all_sent()
    endpoint.receives(sack(20), at_us=40)
    endpoint.set_port(1, 0)
    for at_us in range(50, 5000, 50):
        endpoint.waits(at_us)
        endpoint.all_sent()
    endpoint.set_port(1, 1)
    endpoint.receives(sack(59, (61, 62)), at_us=5100)
    endpoint.receives(ack(1), at_us=5101)
    endpoint.all_sent()
    for psn in range(10):
        endpoint.receives(data(psn, marked=psn & 1, ack_request=psn & 1))
    endpoint.receives(data(3))
    endpoint.receives(data(5000))
    endpoint.receives(data(12, trimmed=Trim.TRIMMED))
    endpoint.receives(probe(7))
    for psn in range(11, 400):
        endpoint.receives(data(psn, marked=1, port=psn & 3))
    for number in range(3):
        endpoint.receives(write_imm(400 + number, number, immediate=number))
    endpoint.receives(data(403, opcode=Opcode.WRITE_FIRST, dma_length=2 * MTU))


def spans(endpoint: Endpoint) -> dict[str, tuple[int, int]]:
    """Return first and number of the rows of the first queue pair and its peer, by table."""
    row = endpoint.engine.qps[0]
    rotations, evs = (row.rotation_base, row.rotation_count), (row.ev_base, row.ev_count)
    return {
        "qps": (0, 1),
        "peers": (0, 1),
        **dict.fromkeys(("rotations", "port_returns", "port_shares"), rotations),
        **dict.fromkeys(("evs", "ev_failures", "slots"), evs),
        "tracker": (row.tracker_base, (row.tracker_mask + 1) // 32),
        "mark_stats": (row.mark_stats_base, row.mark_stats_mask + 1),
        "sent": (row.sent_base, row.sent_mask + 1),
        "pending_immediates": (row.pending_base, row.pending_mask + 1),
    }


def fields_of(endpoint: Endpoint) -> dict[str, list[Any]]:
    """Return every field of these rows, those of free rows as zero."""
    found = {}
    for name, (begin, count) in spans(endpoint).items():
        rows = np.array(np.asarray(getattr(endpoint.engine, name))[begin : begin + count])
        if name == "sent":
            rows[rows["state"] == SentState.FREE] = 0
        if name == "pending_immediates":
            rows[rows["present"] == 0] = 0
        for field in set(names_of(rows)) - KEPT:
            found[f"{name}.{field}"] = rows[field].tolist()
    return found


@pytest.mark.parametrize("life", [live, poisoned])
def test_a_queue_pair_connected_again_is_a_new_one(life: Callable[[Endpoint], None]) -> None:
    again, new = fields_of(connected_again(life)), fields_of(connected_again(no_life))
    assert {name: value for name, value in again.items() if value != new[name]} == {}


def filled(table: str, value: int) -> tuple[Engine, Any]:
    """Return a new engine, and a table of it with this value in every field of every row."""
    engine = Endpoint().engine
    rows = np.asarray(getattr(engine, table))
    for field in names_of(rows):
        rows[field] = value
    return engine, rows


def test_a_region_registered_again_is_a_new_one() -> None:
    """Whatever the region before allowed, the row is found by the new key alone, and says what was asked for."""
    left = []
    for value in (0, 3):
        engine, rows = filled("regions", value)
        for key in set(rows["r_key"].tolist()) - {0}:
            for _ in range(len(rows)):
                regions.deregister(engine, 0, key)
        index = regions.register(engine, 0, 0x77, 1 << 30, 4096, regions.Access.REMOTE_WRITE, 5, 1 << 20)
        left.append({field: rows[field][index].tolist() for field in names_of(rows)})
        assert regions.deregister(engine, 0, 0x77) == index
    assert left[0] == left[1]


def test_a_control_packet_begins_empty() -> None:
    """Every field but those that its maker names is as in a row that was never used."""
    claimed = []
    for value in (0, 3):
        engine, rows = filled("control", value)
        index = control_queue.claim(engine, 0, Opcode.SACK, 0, 0)
        claimed.append({field: rows[field][index].tolist() for field in names_of(rows)})
    assert claimed[0] == claimed[1]
    assert (claimed[1]["port"], claimed[1]["ev"]) == (NONE, NONE)


PROBE_STEPS = st.lists(st.tuples(st.sampled_from(["sent", "answered", "settle"]), st.integers(0, 3)), max_size=40)


@given(steps=PROBE_STEPS)
@settings(max_examples=examples(200), deadline=None)
def test_the_last_probe_is_known_wherever_it_is_kept(steps: list[tuple[str, int]]) -> None:
    """The oracle keeps for each EV how many probes it has carried, when the last one left, and whether it is out."""
    engine = Endpoint().engine
    counts, sent_at, out = [0] * 4, [0] * 4, [False] * 4
    for now, (step, ev) in enumerate(steps, 1):
        if step == "sent":
            last_probe.on_sent(engine, now, 0, ev)
            counts[ev], sent_at[ev], out[ev] = counts[ev] + 1, now, True
        elif step == "answered":
            assert last_probe.on_answered(engine, 0, ev) == sent_at[ev]
            out[ev] = False
        else:
            last_probe.settle(engine, 0)
        assert [last_probe.count(engine, 0, each) for each in range(4)] == counts
        assert [last_probe.is_out(engine, 0, each) for each in range(4)] == out
