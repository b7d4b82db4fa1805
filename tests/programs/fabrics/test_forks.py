import os

import pytest

from openmrc.programs.fabrics.files import fork_each


def test_many_items_are_done_in_order_by_several_processes() -> None:
    here = os.getpid()
    found = list(fork_each(lambda item: (item, os.getpid()), range(500)))
    assert [item for item, _ in found] == list(range(500))
    if (os.cpu_count() or 1) > 1:
        assert here not in {process for _, process in found}


def test_few_items_are_done_here() -> None:
    assert list(fork_each(lambda item: os.getpid(), range(3))) == [os.getpid()] * 3


def test_an_error_of_a_process_comes_back_and_the_next_call_works() -> None:
    with pytest.raises(ZeroDivisionError):
        list(fork_each(lambda item: 1 // (item - 400), range(500)))
    assert sum(fork_each(lambda item: item, range(500))) == sum(range(500))
