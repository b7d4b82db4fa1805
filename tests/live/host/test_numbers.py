import numpy as np

from openmrc.core.rows import column
from openmrc.engine.state.build import TableSizes, build
from openmrc.engine.state.machines import QpState
from openmrc.engine.state.params import Settings
from openmrc.engine.state.queue_pairs import by_qpn
from openmrc.engine.state.tables import NONE
from openmrc.live.host.numbers import QueuePairNumbers, RegionKeys
from openmrc.wire.codes import FIRST_USER_QPN


def test_queue_pair_numbers_are_random_and_each_finds_its_row() -> None:
    first = set()
    for _ in range(20):
        engine = build(TableSizes(qps=5), Settings())
        QueuePairNumbers(engine)
        numbers = column(engine.qps, "qpn")
        first.add(int(numbers[0]))
        assert all(FIRST_USER_QPN <= qpn < 0xFFFFFF for qpn in numbers)
        column(engine.qps, "state")[:] = QpState.RTS
        assert [by_qpn(engine, 0, int(qpn)) for qpn in numbers] == list(range(5))
        assert by_qpn(engine, 0, (int(numbers[0]) + 8) & 0xFFFFFF) == NONE
    assert len(first) > 18


def test_a_renewed_number_is_neither_the_last_nor_the_one_before_the_reset() -> None:
    engine = build(TableSizes(qps=1), Settings())
    numbers = QueuePairNumbers(engine)
    step = int(engine.endpoints[0].qpn_slot_mask) + 1
    qpns = column(engine.qps, "qpn")
    for _ in range(2000):
        before = int(qpns[0])
        qpns[0] = (before + step) & 0xFFFFFF  # what RESET does
        numbers.renew(0)
        assert qpns[0] != before
        assert (qpns[0] - before) % step == 0


def test_keys_are_random_and_take_different_rows_until_none_is_left() -> None:
    keys = RegionKeys(64)
    drawn = [keys.draw() for _ in range(64)]
    assert sorted(key % 64 for key in drawn) == list(range(64))
    assert keys.draw() == 0
    assert 0 not in drawn
    assert max(drawn) < 1 << 32
    assert len(set(np.diff(drawn))) > 60
    keys.give_back(drawn[7])
    again = keys.draw()
    assert again % 64 == drawn[7] % 64
    assert again != drawn[7]
