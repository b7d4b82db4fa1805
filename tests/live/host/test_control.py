"""Signals and forks at any moment: nothing hangs, nothing is half done."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.live_pair import SMALL, Pair, addresses, joined
from openmrc.live.host.control import ControlThread
from openmrc.verbs import ClosedError, Context, QpState

ROOT = Path(__file__).parents[3]

INTERRUPTED = """
import signal, threading, time
from openmrc.verbs import Context
from harness.live_pair import SMALL, addresses

class Interrupt(BaseException): pass

def handler(*_):
    raise Interrupt

with Context(addresses(0, 230, 1, 4), SMALL) as context:
    pd = context.alloc_pd()
    signal.signal(signal.SIGALRM, handler)
    interrupted, until = 0, time.monotonic() + 3
    while time.monotonic() < until:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.00002 + interrupted % 97 * 0.00001)
            while True:
                pd.reg_mr(bytearray(64)).dereg()
                context.impair("")
        except Interrupt:
            interrupted += 1
        for region in list(context.nic._regions.values()):
            region.dereg()  # given to us, but we were interrupted before we could keep it
    for _ in range(SMALL.max_mr):
        pd.reg_mr(bytearray(8))
    signal.setitimer(signal.ITIMER_REAL, 0.0001)
    try:
        context.close()
        time.sleep(5)
    except Interrupt:
        pass
print(interrupted, threading.active_count())
"""


def test_exceptions_of_signal_handlers_leave_no_mutex_locked_and_no_thread_behind() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    interrupted, threads = map(int, done.stdout.split())
    assert interrupted > 100
    assert threads == 1


def test_an_operation_ends_although_who_called_it_was_interrupted() -> None:
    control, over = ControlThread(), threading.Event()
    control.start()

    def operate() -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)
        time.sleep(0.2)
        over.set()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            control.call(operate)
        assert over.is_set()
    finally:
        signal.signal(signal.SIGALRM, before)
        control.stop()


def test_an_interruption_before_the_wait_takes_effect_after_the_call_too() -> None:
    class Interrupted(queue.SimpleQueue[Any]):
        def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
            super().put(item)
            if item is not None:
                raise KeyboardInterrupt  # as by a signal between this call and the next

    control, over = ControlThread(), threading.Event()

    def operate() -> None:
        time.sleep(0.1)
        over.set()

    control._operations = Interrupted()
    control.start()
    with pytest.raises(KeyboardInterrupt):
        control.call(operate)
    assert over.is_set()
    control.stop()


def test_what_an_operation_raises_reaches_its_caller() -> None:
    control = ControlThread()
    control.start()
    with pytest.raises(ZeroDivisionError):
        control.call(lambda: 1 // 0)
    control.stop()
    assert control.call(lambda: 7) == 7  # stopped: in the caller's thread


def test_the_child_of_a_fork_is_refused_and_the_parent_goes_on() -> None:
    with joined() as pair:
        end, target = pair.ends[0], pair.ends[0].remote.regions[0]
        for _ in range(10):
            end.qp.post_write(pair.regions[0], target.addr, target.r_key)
            assert in_child(lambda: _try_everything(pair)) == 0
            end.send_cq.wait(20)
            pair.regions[0].bytes[:] += 1
            end.write(pair.regions[0], target, timeout=20)
            assert pair.regions[1].bytes.tobytes() == pair.regions[0].bytes.tobytes()


def test_a_fork_after_a_context_was_closed_closes_no_descriptor_of_others() -> None:
    reader, writer = os.pipe()  # before the context, whose numbers it must not have
    context = Context(addresses(0, 239, 1, 4), SMALL)
    numbers = (context.nic.runtime.wake_fd, context.nic.runtime._python_wake_fd)
    context.close()
    copies = [os.dup2(writer, number) for number in numbers]  # the numbers are another file's now
    assert in_child(lambda: sum(os.write(number, b"x") for number in copies)) == 2
    for descriptor in (reader, writer, *copies):
        os.close(descriptor)


def in_child(function: Callable[[], int]) -> int:
    """Return what the function returns in a forked child; what it raises there must not run the tests on."""
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            os._exit(function())
        finally:
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _try_everything(pair: Pair) -> int:
    """Return 0 if every call in the child raises ClosedError or does nothing."""
    end, target = pair.ends[0], pair.ends[0].remote.regions[0]
    region, context = pair.regions[0], pair.contexts[0]
    context.poll_async_events()
    calls: list[Callable[[], object]] = [
        lambda: end.qp.post_write(region, target.addr, target.r_key),
        lambda: end.qp.post_recv(),
        lambda: end.send_cq.wait(5),
        lambda: end.send_cq.notify(),
        lambda: end.qp.modify(state=QpState.RESET),
        lambda: region.pd.reg_mr(bytearray(8)),
        lambda: context.create_cq(8),
        lambda: context.set_plane(0, False),
        lambda: context.get_async_event(5),
        lambda: context.impair(""),
    ]
    for number, call in enumerate(calls):
        try:
            call()
            return 10 + number
        except ClosedError:
            continue
    end.qp.destroy()
    region.dereg()
    context.close()
    return 0
