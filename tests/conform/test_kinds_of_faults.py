"""Kinds of faults that devices have, each made in the engine, and the test that notices it."""

from __future__ import annotations

import pytest

from openmrc.conform.catalogue import chosen, shipped_tests
from openmrc.conform.language import Level
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
    "planes of which every second is passed over": (
        "9.3.2/12",
        "engine.paths.spray",
        "row.rotation_cursor = (row.rotation_cursor + 1) % row.rotation_count",
        "row.rotation_cursor = (row.rotation_cursor + 2) % row.rotation_count",
    ),
    "two ports of four that carry nothing": (
        "9.3.2/13",
        "engine.state.queue_pairs",
        "ports_up & engine.peers[row.peer].ports_up",
        "ports_up & engine.peers[row.peer].ports_up & ~6",
    ),
    "updates that name two ports": (
        "7.4.8/10",
        "engine.paths.ports",
        "(mask >> 1) & ((1 << node.port_count) - 1)",
        "(mask >> 1) & 3",
    ),
    "answers on the second port, up or down": (
        "7.4.8/11",
        "engine.state.queue_pairs",
        "ports_up & engine.peers[row.peer].ports_up",
        "ports_up & (engine.peers[row.peer].ports_up | 2)",
    ),
    "a third port that is taken for the first": (
        "9.3.2/14",
        "engine.paths.ports",
        "ports_wanted &= ~(1 << port)",
        "ports_wanted &= ~(1 << (port & 1))",
    ),
    "ports that updates count from 0": (
        "7.4.8/12",
        "engine.paths.ports",
        "STATUS_PROBE_ID, node.ports_up << 1)",
        "STATUS_PROBE_ID, node.ports_up)",
    ),
    "a first port of those down that alone is probed": (
        "7.4.8/13",
        "engine.paths.ports",
        "        row.check_attempts += 1\n",
        "",
    ),
    "answers that leave by the first plane": (
        "7.5/16",
        "engine.endpoint",
        "row.heard_rotation = arrived.port",
        "row.heard_rotation = 0",
    ),
    "reverse paths of two planes alone": (
        "6.5.2/3",
        "engine.responder.reverse",
        "(row.reverse_cursor + 1) % row.rotation_count",
        "(row.reverse_cursor + 1) % 2",
    ),
    "a reverse path that is tested and not used": (
        "6.5.2/4",
        "engine.responder.reverse",
        "        rotation.reverse = answered - rotation.ev_base\n",
        "        pass\n",
    ),
    "a byte behind the region": (
        "10.6/12",
        "engine.responder.regions",
        "offset > region.length - length",
        "offset > region.length - length + 1",
    ),
    "a record of arrivals of half its size": (
        "6.3.1/19",
        "engine.state.tracker",
        "((psn & row.tracker_mask) >> WORD_BITS)",
        "((psn & row.tracker_mask >> 1) >> WORD_BITS)",
    ),
    "immediates that wait in a ring of two": (
        "6.1/19",
        "engine.responder.immediates",
        "waiting = engine.pending_immediates[row.pending_base + (rqmsn & row.pending_mask)]",
        "waiting = engine.pending_immediates[row.pending_base + (rqmsn & 1)]",
    ),
    "the upper half of a bitmap that is not read": (
        "7.4.5/6",
        "engine.requester.feedback",
        "for half in range(2):",
        "for half in range(1):",
    ),
    "a window that ends one early": (
        "6.3.1/20",
        "engine.state.queue_pairs",
        "return row.unack_psn + min(",
        "return row.unack_psn - 1 + min(",
    ),
    "timeouts that double once": (
        "7.4.1/7",
        "engine.user_timeout",
        "max(attempt - row.linear_count, 0), 24)",
        "max(attempt - row.linear_count, 0), 1)",
    ),
    "timeouts that stay long": (
        "7.4.1/8",
        "engine.requester.retries",
        "    row.retries = 0\n",
        "",
    ),
    "a tail that is asked for at one interval": (
        "7.4.6/6",
        "engine.requester.transmission",
        "doublings = min(max(row.tail_probes - row.linear_count, 0), _MOST_DOUBLINGS)",
        "doublings = 0",
    ),
    "probes at one interval": (
        "7.4.6/7",
        "engine.requester.probes",
        "min(2 * failure.probe_gap, params.probe_interval_max)",
        "min(failure.probe_gap, params.probe_interval_max)",
    ),
    "a copy for each NACK": (
        "7.4.4/13",
        "engine.requester.feedback",
        "if sent.state != SentState.IN_FLIGHT or _was_just_sent_again(engine, now, qp, packet, sent):",
        "if sent.state != SentState.IN_FLIGHT:",
    ),
    "a trim that blames no path": (
        "9.3.1/13",
        "engine.state.machines",
        "(EvState.GOOD, EvEvent.TRIMMED): EvState.SKIP",
        "(EvState.GOOD, EvEvent.TRIMMED): EvState.GOOD",
    ),
    "a trim on the last hop that blames the path": (
        "9.3.1/14",
        "engine.state.machines",
        "NackReason.TRIMMED_LASTHOP: NackAction.RESEND,",
        "NackReason.TRIMMED_LASTHOP: NackAction.RESEND | NackAction.SKIP_PATH,",
    ),
    "marked answers that bring no EV back": (
        "9.3.1/15",
        "engine.state.machines",
        "(EvState.ASSUMED_BAD, EvEvent.PROBE_MARKED): EvState.SKIP",
        "(EvState.ASSUMED_BAD, EvEvent.PROBE_MARKED): EvState.ASSUMED_BAD",
    ),
    "a mark of a probe that nobody hears of": (
        "7.5.2/17",
        "engine.responder.sacks",
        "waiting.mark = PathMark.SKIP_ONCE if arrived.marked == 1 else PathMark.NONE",
        "waiting.mark = PathMark.NONE",
    ),
    "reports for a quarter of a window": (
        "7.5.2/18",
        "engine.requester.transmission",
        "_REPORTS = 16  # of",
        "_REPORTS = 4  # of",
    ),
    "a turn that never ends": (
        "8.1/2",
        "engine.requester.transmission",
        "row.deficit = max(row.deficit - size, 0)",
        "row.deficit = max(row.deficit, 0)",
    ),
    "reports beyond the first that are left out": (
        "7.5.2.2/6",
        "engine.responder.sacks",
        "row.lowest_unsacked = min(base + BITMAP_PSNS, row.highest_received + 1)",
        "row.lowest_unsacked = row.highest_received + 1",
    ),
    "a window that does not come back": (
        "8.5/2",
        "engine.congestion.nscc",
        "row.cwnd = max(row.cwnd, row.saved_cwnd)",
        "row.cwnd = max(row.cwnd, 0.0)",
    ),
    "acknowledgements of packets that were not sent": (
        "7.5/17",
        "engine.requester.feedback",
        "if not may_be_answered(engine, qp, psn) or (is_refusal",
        "if (is_refusal",
    ),
    "a report for every packet": (
        "7.4.4/14",
        "engine.responder.sacks",
        "due = is_new == 0 or",
        "due = is_new >= 0 or",
    ),
    "one answer that brings an EV back": (
        "9.3.1/16",
        "engine.paths.ev_states",
        "once = int(params_of(engine, engine.rotations[engine.evs[ev].rotation].qp).probe_successes)",
        "once = 1",
    ),
    "a silent plane that is asked at one interval": (
        "9.3.2/15",
        "engine.requester.probes",
        "min(2 * probing.check_gap, longest)",
        "min(probing.check_gap, longest)",
    ),
    "marks that nobody hears of": (
        "table-7-3/12",
        "engine.responder.sacks",
        "    waiting.mark = mark\n",
        "    waiting.mark = 0\n",
    ),
    "reordering that explains nothing": (
        "7.4.5/7",
        "engine.congestion.reordering",
        "seen = row.reordering + (row.reordering >> 2)",
        "seen = 0",
    ),
    "a refusal that is said once": (
        "10.6/13",
        "engine.responder.acceptance",
        "row.state == QpState.ERROR and row.nak_syndrome != 0",
        "row.nak_syndrome > 255",
    ),
    "silent planes that nobody probes": (
        "9.3.2/16",
        "engine.requester.probes",
        "for index in range(row.rotation_base, row.rotation_base + row.rotation_count):",
        "for index in range(0):",
    ),
}

FATAL = "a ring of 32 messages"  # two messages in a row may name memory that is not there: its process may end


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_noticed_by_its_test(fault: str) -> None:
    name, module, old, new = FAULTS[fault]
    (test,) = chosen(shipped_tests(), [name])
    mutant = Mutant(clause=test.clause, module=module, old=old, new=new)
    found = outcomes_of(mutant, [test]).get(name, HANGS)
    if test.level == Level.INFO:  # without the fault, all others pass: tests/conform/test_suite.py
        assert found != outcome(test)
    assert found.startswith(("fail", "info")) or fault == FATAL, found
