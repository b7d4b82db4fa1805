"""On which path answers leave: each on the next one that was heard, or all that leave in a row on one."""

from __future__ import annotations

from typing import Any

from openmrc.engine.endpoint import put_data_first
from openmrc.engine.state.machines import EvState
from openmrc.wire.codes import Opcode
from tests.engine.scripted_peer import PEER, QPN, Endpoint, data, steady

TOGETHER = steady(answers_together=True)


def paths_of(packets: list[Any]) -> list[tuple[int, int]]:
    return [(each.port, each.entropy) for each in packets]


def heard(endpoint: Endpoint, qp: int = 0, psn: int = 0, port: int = 0, source: int = PEER) -> None:
    endpoint.receives(data(psn, dest_qpn=QPN + qp, ack_request=1), port=port, source=source)


def test_answers_take_turns_over_the_ports_that_were_heard() -> None:
    endpoint = Endpoint()
    heard(endpoint, psn=0, port=1)
    heard(endpoint, psn=1, port=2)
    sent = endpoint.all_sent()
    assert [each.opcode for each in sent] == [Opcode.SACK, Opcode.ACKNOWLEDGE]
    assert {each.port for each in sent} == {1, 2}


def test_the_answers_of_one_arrival_go_together() -> None:
    endpoint = Endpoint(settings=TOGETHER)
    heard(endpoint, psn=0, port=1)
    heard(endpoint, psn=1, port=2)
    sent = endpoint.all_sent()
    assert [each.opcode for each in sent] == [Opcode.SACK, Opcode.ACKNOWLEDGE]
    assert len(set(paths_of(sent))) == 1


def test_the_answers_of_all_queue_pairs_to_a_peer_go_together() -> None:
    endpoint = Endpoint(settings=TOGETHER, peer_of=(0, 0, 0))
    for qp, port in ((0, 1), (1, 2), (2, 3)):
        heard(endpoint, qp, port=port)
    sent = endpoint.all_sent()
    assert len(sent) == 6
    assert len(set(paths_of(sent))) == 1


def test_the_next_answers_take_another_port() -> None:
    endpoint = Endpoint(settings=TOGETHER)
    ports = set()
    for psn in range(3):
        heard(endpoint, psn=psn, port=1 + psn)
        ports |= {each.port for each in endpoint.all_sent()}
    assert ports == {1, 2, 3}


def test_another_peers_answers_join_only_where_that_peer_was_heard() -> None:
    endpoint = Endpoint(settings=TOGETHER, peer_of=(0, 1, 2))
    heard(endpoint, 0, port=1)
    heard(endpoint, 1, port=1, source=PEER + 1)
    heard(endpoint, 2, port=3, source=PEER + 2)
    sent = endpoint.all_sent()
    assert {each.port for each in sent if each.destination == PEER} == {1}
    assert {each.port for each in sent if each.destination == PEER + 1} == {1}
    assert {each.port for each in sent if each.destination == PEER + 2} == {3}


def test_an_answer_does_not_join_on_a_path_that_its_queue_pair_holds_for_bad() -> None:
    endpoint = Endpoint(settings=TOGETHER, peer_of=(0, 0))
    for ev in range(16, 32):
        endpoint.engine.evs[ev].state = EvState.ASSUMED_BAD if endpoint.engine.evs[ev].port == 1 else EvState.GOOD
    heard(endpoint, 0, port=1)
    heard(endpoint, 1, port=2)
    ports = [each.port for each in endpoint.all_sent()]
    assert ports == [1, 1, 2, 2]


def test_data_that_is_put_first_leaves_before_the_answers_and_only_so_much_of_it() -> None:
    endpoint = Endpoint()
    heard(endpoint)
    endpoint.write(length=4 * 256)
    put_data_first(endpoint.engine, 0, 2)
    kinds = [each.opcode for each in endpoint.all_sent()]
    assert kinds[:2] == [Opcode.WRITE_FIRST, Opcode.WRITE_MIDDLE]
    assert kinds[2:4] == [Opcode.SACK, Opcode.ACKNOWLEDGE]
    assert kinds[4:] == [Opcode.WRITE_MIDDLE, Opcode.WRITE_LAST]


def test_answers_leave_at_once_if_there_is_no_data_to_put_first() -> None:
    endpoint = Endpoint()
    heard(endpoint)
    put_data_first(endpoint.engine, 0, 2)
    assert [each.opcode for each in endpoint.all_sent()] == [Opcode.SACK, Opcode.ACKNOWLEDGE]
    assert endpoint.node().data_ahead == 0
