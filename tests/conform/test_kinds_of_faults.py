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
    "every packet is for the first queue pair": (
        "6.3.1/17",
        "engine.state.queue_pairs",
        "        return NONE\n    return qp\n",
        "        return NONE\n    return engine.endpoints[endpoint].qp_base\n",
    ),
    "a hole that holds up other queue pairs": (
        "6.3.1/18",
        "engine.responder.transport_acks",
        "if completed > 0 or asked or row.since_ack >= every:",
        "if all(other.ooo_count == 0 for other in engine.qps) and (completed > 0 or asked or row.since_ack >= every):",
    ),
    "immediates wait for other queue pairs": (
        "6.1/14",
        "engine.responder.immediates",
        "return engine.pending_immediates[row.pending_base + (row.expected_rqmsn & row.pending_mask)].present",
        "return all(other.ooo_count == 0 for other in engine.qps) and "
        "engine.pending_immediates[row.pending_base + (row.expected_rqmsn & row.pending_mask)].present",
    ),
    "no protection domains": (
        "10.6/10",
        "engine.responder.regions",
        "region.pd != queue_pair.pd",
        "region.pd == 0",
    ),
    "a protection domain that is checked once": (
        "10.6/11",
        "engine.responder.regions",
        "region.pd != queue_pair.pd",
        "(region.pd != queue_pair.pd and queue_pair.received_packets == 0)",
    ),
    "probes answered by the first queue pair": (
        "7.5.2/13",
        "engine.responder.sacks",
        "    waiting.reason = 1\n",
        "    waiting.reason = 1\n    waiting.qp = engine.endpoints[row.endpoint].qp_base\n",
    ),
    "a refusal that ends all queue pairs": (
        "10.3.1/2",
        "engine.lifecycle",
        "    scheduler.forget(engine, qp)\n    _quiet(engine, qp)\n    messages.flush",
        "    for other in engine.qps:\n        other.state = QpState.ERROR\n"
        "    scheduler.forget(engine, qp)\n    _quiet(engine, qp)\n    messages.flush",
    ),
    "messages that are counted for all queue pairs": (
        "6.1/15",
        "engine.requester.feedback",
        "    while row.message_head < count:\n",
        "    if qp > 0:\n        messages.complete_oldest(engine, 0, WcStatus.SUCCESS)\n"
        "    while row.message_head < count:\n",
    ),
    "a window for each queue pair": (
        "8.1/1",
        "engine.congestion.qpcc",
        "return row.inflight <= 0 or",
        "return len(engine.qps) > 1 or row.inflight <= 0 or",
    ),
    "one PSN for both directions": (
        "6.1/16",
        "engine.requester.transmission",
        "    row.next_psn += 1\n",
        "    row.next_psn += 1\n    row.expected_psn += 1\n",
    ),
    "a left edge of what the other direction has sent": (
        "6.1/17",
        "engine.responder.sacks",
        "    cack = row.expected_psn - 1\n",
        "    cack = max(row.expected_psn, row.unack_psn) - 1\n",
    ),
    "a ring of 32 messages": (
        "6.1/18",
        "engine.state.queue_pairs",
        "row.message_base + (number & row.message_mask)",
        "row.message_base + (number & 31)",
    ),
    "a count of messages that outlives RESET": (
        "table-10-1/1",
        "engine.lifecycle",
        "row.completed_messages = row.acked_messages = 0",
        "row.acked_messages = 0",
    ),
    "an RQMSN that outlives RESET": (
        "table-10-1/2",
        "engine.lifecycle",
        "row.packets_cut = row.wimm_next =",
        "row.packets_cut =",
    ),
    "messages that outlive RESET": (
        "table-10-1/3",
        "engine.lifecycle",
        "    row.message_head = row.message_current = row.message_tail = 0\n",
        "",
    ),
    "a QPN that outlives RESET": (
        "10.3/1",
        "engine.lifecycle",
        "(row.qpn + engine.endpoints[row.endpoint].qpn_slot_mask + 1) & QPN_MASK",
        "row.qpn",
    ),
    "immediates of before RESET": (
        "table-10-1/4",
        "engine.lifecycle",
        "row.expected_rqmsn = row.reverse_left =",
        "row.reverse_left =",
    ),
    "a transfer that goes on after RESET": (
        "table-10-1/5",
        "engine.lifecycle",
        "    row.next_psn = row.first_psn\n",
        "",
    ),
    "arrivals of before RESET": (
        "table-10-1/6",
        "engine.lifecycle",
        "    tracker.clear(engine, qp)\n",
        "",
    ),
    "a plane that is dead for ever": (
        "9.3.2/6",
        "engine.paths.silence",
        "    engine.qps[row.qp].silent_ports &= ~(1 << row.port)\n",
        "",
    ),
    "a port that never comes up": (
        "9.3.2/7",
        "engine.endpoint",
        "ports.set_local(engine, now, endpoint, port, up)",
        "ports.set_local(engine, now, endpoint, port, 0)",
    ),
    "timers of twice the time": (
        "7.4.1/5",
        "engine.user_timeout",
        "    once = first_rto(engine, qp)\n    return min(",
        "    once = 2 * first_rto(engine, qp)\n    return min(",
    ),
    "port updates that come twice as seldom": (
        "7.4.8/7",
        "engine.paths.ports",
        "return params_of_peer(engine, peer).port_status_interval",
        "return 2 * params_of_peer(engine, peer).port_status_interval",
    ),
    "a penalty that is ignored": (
        "8.5/1",
        "engine.congestion.nscc",
        "    if penalty > 0:\n",
        "    if penalty > 127:\n",
    ),
    "packets in a peer's name from elsewhere": (
        "7.5.6/5",
        "engine.endpoint",
        "    if arrived.source != engine.peers[row.peer].address:\n",
        "    if False:\n",
    ),
    "a first port of the peer that is never down": (
        "7.4.8/8",
        "engine.state.queue_pairs",
        "ports_up & engine.peers[row.peer].ports_up",
        "ports_up & (engine.peers[row.peer].ports_up | 1)",
    ),
    "a plane that never works again": (
        "9.3.2/8",
        "engine.paths.silence",
        "    engine.qps[row.qp].silent_ports &= ~(1 << row.port)\n",
        "    engine.endpoints[engine.qps[row.qp].endpoint].ports_up &= ~(1 << row.port)\n",
    ),
    "answers that come twice": (
        "7.5.2/14",
        "engine.responder.nacks",
        "    row.nacks_sent += 1\n",
        "    row.nacks_sent += 1\n    if waiting.mark == 0:\n        waiting.mark = 1\n"
        "        queue(engine, qp, packet, psn, reason)\n",
    ),
    "SACKs that come ten times": (
        "7.5.2/15",
        "engine.responder.sacks",
        "    row.sack_count = 0\n\n\n@kernel\ndef queue_probe_answer",
        "    row.sack_count = 0\n    for _ in range(9):\n"
        "        again = engine.control[control_queue.claim(engine, row.endpoint, Opcode.SACK, qp, row.peer)]\n"
        "        again.psn, again.entropy, again.tx_timestamp = psn, arrived.entropy, arrived.tx_timestamp\n"
        "\n\n@kernel\ndef queue_probe_answer",
    ),
    "acknowledgements that complete again": (
        "7.5/14",
        "engine.requester.feedback",
        "    while row.message_head < count:\n",
        "    if row.message_head == count > 0:\n        row.message_head -= 1\n    while row.message_head < count:\n",
    ),
    "a SACK that is counted again": (
        "7.5/15",
        "engine.requester.feedback",
        "    _drop_residue(engine, qp)\n    if is_refusal:\n",
        "    row.malformed += 1\n    if is_refusal or row.malformed > 500:\n",
    ),
    "numbers that fill a mask from its top": (
        "mrc_ctl/1",
        "ctl.profiles.field_rules",
        "        lowest = remaining & -remaining\n",
        "        lowest = 1 << remaining.bit_length() - 1\n",
    ),
    "narrow fields at the left of their part": (
        "mrc_ctl/1",
        "ctl.profiles.field_rules",
        "packed << widths[index] | holding(field, ev >> left & ((1 << bits_of(field)) - 1))",
        "packed << widths[index]\n"
        "        packed |= holding(field, ev >> left & (1 << bits_of(field)) - 1) << widths[index] - field[0]",
    ),
    "every field takes the first bits": (
        "mrc_ctl/2",
        "ctl.profiles.field_rules",
        "        left -= bits_of(field)\n        packed",
        "        left = bits - bits_of(field)\n        packed",
    ),
    "denied EVs that carry data": (
        "mrc_ctl/3",
        "engine.state.machines",
        "(state, EvEvent.DENY): EvState.DENIED",
        "(state, EvEvent.DENY): state",
    ),
    "a mask as wide as its format": (
        "mrc_ctl/4",
        "ctl.profiles.field_rules",
        "    if not _fits(field[FieldColumn.MASK], width):\n",
        "    if not _fits(field[FieldColumn.MASK], width + 1):\n",
    ),
    "one EV more than the fields allow": (
        "mrc_ctl/5",
        "ctl.profiles.ev_generation",
        "    if count > available:\n",
        "    if count > available + 1:\n",
    ),
    "a pad of the remainder": (
        "A17/5",
        "wire.icrc",
        "return (-payload_length & 3) + ICRC_LENGTH",
        "return (payload_length & 3) + ICRC_LENGTH",
    ),
    "a second port that cannot go down": (
        "9.3.2/9",
        "engine.paths.ports",
        "ports_wanted &= ~(1 << port)",
        "ports_wanted &= ~(1 >> port)",
    ),
    "a port of the peer that is down for good": (
        "7.4.8/9",
        "engine.paths.ports",
        "doubtful = node.ports_up & ~row.ports_up",
        "doubtful = 0",
    ),
    "receive requests that vanish": (
        "10.3.1/3",
        "engine.messages",
        "row.receive_head += 1\n        completions",
        "row.receive_head += 2\n        completions",
    ),
    "answers to the first queue pair's probes alone": (
        "6.5.2/2",
        "engine.responder.reverse",
        "number = probe_id & ((1 << _ROTATION_BITS) - 1)",
        "number = probe_id",
    ),
    "a plane that is silent for all or for none": (
        "9.3.2/10",
        "engine.paths.silence",
        "row.silent_ports | engine.endpoints",
        "row.silent_ports & engine.endpoints",
    ),
    "bits that no field takes": (
        "mrc_ctl/7",
        "ctl.profiles.field_rules",
        "unused = ev & ((1 << left) - 1) if left > 0 else 0",
        "unused = 0",
    ),
    "bad EVs of the second plane": (
        "9.3.1/10",
        "engine.requester.probes",
        "(working >> bad.port) & 1 == 1\n            if failure",
        "bad.port == 0\n            if failure",
    ),
    "marks that count half": (
        "table-8-1/2",
        "engine.congestion.nscc",
        "params.gamma * excess",
        "params.gamma * excess / 2",
    ),
    "half of the fair increase": (
        "table-8-1/3",
        "engine.congestion.nscc",
        "params.fi * size",
        "params.fi * size / 2",
    ),
    "an increase that disregards the delay": (
        "table-8-1/4",
        "engine.congestion.nscc",
        "* size * (target - delay)",
        "* size * target",
    ),
    "marks without delay that shrink the window": (
        "table-8-1/5",
        "engine.congestion.nscc",
        "    elif delay >= _target(row, params):\n        _decrease(row, params, now)",
        "    else:\n        row.cwnd /= 2",
    ),
    "half of the fast increase": (
        "8.3/1",
        "engine.congestion.nscc",
        "size * params.fi_scale",
        "size * params.fi_scale / 2",
    ),
    "a window that trims shrink by themselves alone": (
        "8.3/2",
        "engine.congestion.nscc",
        "    if params.disable_qa:\n",
        "    if True:\n",
    ),
    "a mark that stands for later reports": (
        "7.5.2/16",
        "engine.responder.sacks",
        "    if mark == PathMark.NONE:\n        row.sack_queued = True\n",
        "    row.sack_queued = True\n",
    ),
    "an answer without a request that ends the queue pair": (
        "7.5.6/6",
        "engine.responder.reverse",
        "number >= row.rotation_count:\n",
        "number >= row.rotation_count:\n        row.state = 0\n",
    ),
    "a stand-in that stays": (
        "9.3.1/11",
        "engine.paths.ev_states",
        "    elif ev - rotation.ev_base < most:\n        _take_place(engine, row.rotation, ev, most)\n",
        "",
    ),
    "the EV that failed last is tried first": (
        "9.3.1/12",
        "engine.paths.ev_states",
        "failed_at < engine.ev_failures[best].failed_at",
        "failed_at > engine.ev_failures[best].failed_at",
    ),
    "a port that returns and is not probed": (
        "9.3.2/11",
        "engine.paths.ports",
        "                    ev_states.wake_rotation(engine, now, rotation)\n",
        "",
    ),
    "a timeout that round trips do not lengthen": (
        "7.4.1/6",
        "engine.user_timeout",
        "return max(row.timeout, measured)",
        "return row.timeout",
    ),
    "a probe that counts from an earlier packet": (
        "7.4.6/5",
        "engine.requester.transmission",
        "quiet_since = max(row.heard_at, quiet_since)",
        "quiet_since = row.heard_at",
    ),
    "a full window that one trim leaves open": (
        "8.3/3",
        "engine.congestion.nscc",
        "return row.qa_blocked or row.qa_trimmed",
        "return row.qa_trimmed",
    ),
    "a count of packets that outlives RESET": (
        "table-10-1/7",
        "engine.lifecycle",
        "row.packets_cut = row.wimm_next",
        "row.wimm_next",
    ),
}

FATAL = "a ring of 32 messages"  # two messages in a row may name memory that is not there: its process may end


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_noticed_by_its_test(fault: str) -> None:
    name, module, old, new = FAULTS[fault]
    (test,) = chosen(shipped_tests(), [name])
    mutant = Mutant(clause=test.clause, module=module, old=old, new=new)
    found = outcomes_of(mutant, [test]).get(name, HANGS)
    assert found != outcome(test)
    assert found.startswith(("fail", "info")) or fault == FATAL, found
