"""Kinds of faults that devices have, each made in the engine, and the test that notices it."""

from __future__ import annotations

import pytest

from openmrc.conform.catalogue import chosen, shipped_tests
from spec.mutation import HANGS, Mutant, outcome, outcomes_of

# Test, module, what stands there, and the fault.
FAULTS = {
    "upper half of a SACK's bitmap": (
        "7.5.2.2/5",
        "engine.responder.sacks",
        "tracker.bitmap(engine, waiting.qp, base)",
        "tracker.bitmap(engine, waiting.qp, base) & 0xFFFFFFFF",
    ),
    "cack_psn of 16 bits": (
        "7.5.2.2/5",
        "engine.responder.sacks",
        "out.cack_psn = cack & _PSN_MASK",
        "out.cack_psn = cack & 0xFFFF",
    ),
    "nack_psn of 16 bits": (
        "table-7-3/1",
        "engine.responder.nacks",
        "out.nack_psn = waiting.psn & _PSN_MASK",
        "out.nack_psn = waiting.psn & 0xFFFF",
    ),
    "PSN of a NAK": (
        "10.6/8",
        "engine.responder.transport_acks",
        "row.nak_psn if is_refusal else row.expected_psn - 1",
        "row.expected_psn - 1",
    ),
    "PSN of an acknowledgement": (
        "7.5/12",
        "engine.responder.transport_acks",
        "row.nak_psn if is_refusal else row.expected_psn - 1",
        "row.nak_psn if is_refusal else row.expected_psn",
    ),
    "one immediate too many": ("6.1/13", "engine.responder.immediates", "ahead >= min(", "ahead > min("),
    "one immediate too few": ("6.1/12", "engine.responder.immediates", "ahead >= min(", "ahead + 1 >= min("),
    "a short First": (
        "9.7.4/3",
        "engine.responder.acceptance",
        "length > path_mtu and payload == path_mtu",
        "length > path_mtu and payload <= path_mtu",
    ),
    "a short Middle": (
        "9.7.4/4",
        "engine.responder.acceptance",
        "length > path_mtu and payload == path_mtu",
        "length > path_mtu and payload <= path_mtu",
    ),
    "a short Last": (
        "9.7.4/5",
        "engine.responder.acceptance",
        "payload == (length - 1) % path_mtu + 1",
        "payload <= path_mtu",
    ),
    "always to be skipped, skipped once": (
        "9.3.1/9",
        "engine.paths.ev_states",
        "EvEvent.SACK_ALWAYS_SKIP if always == 1 else EvEvent.SACK_SKIP_ONCE",
        "EvEvent.SACK_SKIP_ONCE",
    ),
    "skipped once, never again": (
        "9.3.1/8",
        "engine.paths.ev_states",
        "EvEvent.SACK_ALWAYS_SKIP if always == 1 else EvEvent.SACK_SKIP_ONCE",
        "EvEvent.SACK_ALWAYS_SKIP",
    ),
    "a mark without effect": (
        "9.3.1/7",
        "engine.paths.ev_states",
        "    transition(engine, now, ev, EvEvent.SACK_ALWAYS_SKIP if always == 1 else EvEvent.SACK_SKIP_ONCE)\n",
        "",
    ),
    "no return from SKIP": (
        "9.3.1/8",
        "engine.state.machines",
        "EvEvent.ROTATION): EvState.GOOD",
        "EvEvent.ROTATION): EvState.SKIP",
    ),
    "a count of messages of 8 bits": (
        "7.5/13",
        "engine.requester.feedback",
        "extend(arrived.acked_messages, row.message_head, 24)",
        "extend(arrived.acked_messages & 255, row.message_head, 8)",
    ),
    "an R_Key of 16 bits": (
        "10.6/9",
        "engine.requester.transmission",
        "out.r_key = message.r_key",
        "out.r_key = message.r_key & 0xFFFF",
    ),
    "a QPN of 16 bits": (
        "table-6-4/6",
        "engine.state.queue_pairs",
        "engine.qps[qp].qpn != qpn",
        "engine.qps[qp].qpn != qpn & 0xFFFF",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_noticed_by_its_test(fault: str) -> None:
    name, module, old, new = FAULTS[fault]
    (test,) = chosen(shipped_tests(), [name])
    mutant = Mutant(clause=test.clause, module=module, old=old, new=new)
    found = outcomes_of(mutant, [test]).get(name, HANGS)
    assert found != outcome(test)
    assert found.startswith(("fail", "info")), found
