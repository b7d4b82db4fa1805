import threading

from openmrc.live.warm import warm


def test_warming_leaves_no_thread_behind() -> None:
    before = threading.active_count()
    warm()
    assert threading.active_count() == before
