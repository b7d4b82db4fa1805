"""The runtime around the event loop: mutexes, threads, the end."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path

import pytest

from harness.live_pair import SMALL, addresses
from openmrc.live.datapath.rows import address_of
from openmrc.verbs import ClosedError, Context, ContextAttr
from tests.live.datapath.memory_kernel import endpoint


def test_what_is_changed_under_the_lock_is_sent_when_it_is_released() -> None:
    with endpoint() as here:
        here.kernel.now = here.now
        with here.runtime.locked() as now:
            assert now > 0
            here.submit_write(1024)
            assert here.kernel.sent == []
            here.lease.sleeps_until = 1
        assert len(here.kernel.sent) == 1


def test_an_exception_under_the_lock_releases_it() -> None:
    with Context(addresses(0, 233, 1, 4), SMALL) as context:
        runtime = context.nic.runtime
        with pytest.raises(ZeroDivisionError), runtime.locked():
            _ = 1 // 0
        context.alloc_pd().reg_mr(bytearray(8)).dereg()


def test_threads_get_the_lock_in_turn_though_the_endpoint_is_busy() -> None:
    with Context(addresses(0, 234, 1, 4), SMALL) as context:
        pd = context.alloc_pd()
        counts = [0] * 4
        until = time.monotonic() + 0.5

        def work(number: int) -> None:
            while time.monotonic() < until:
                pd.reg_mr(bytearray(8)).dereg()
                counts[number] += 1

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert min(counts) > max(counts) / 10


def test_a_stopped_runtime_refuses_and_stops_once() -> None:
    context = Context(addresses(0, 235, 1, 4), SMALL)
    context.close()
    context.close()
    assert context.is_closed
    assert "closed" in repr(context)
    with pytest.raises(ClosedError):
        context.create_cq(8)


def test_the_endpoints_time_begins_near_zero() -> None:
    with Context(addresses(0, 236, 1, 4), SMALL) as context:
        assert 10**12 <= context.nic.runtime.now() < 60 * 10**12


@pytest.mark.skipif(not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="the kernel has no huge pages")
def test_rows_of_many_queue_pairs_lie_in_small_pages_that_are_taken_as_they_are_used() -> None:
    with Context(addresses(0, 235, 1, 4), ContextAttr(max_qp=100)) as context:
        place = address_of(context.nic.runtime.engine.sent, 4096 * 50)
        assert "nh" in _flags_of_mapping(place)


def _flags_of_mapping(place: int) -> list[str]:
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if bounds := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            inside = int(bounds[1], 16) <= place < int(bounds[2], 16)
        elif inside and line.startswith("VmFlags:"):
            return line.split()[1:]
    raise AssertionError(f"{place:#x} is not mapped")
