"""The engine with its tables of sockets, the mutexes around them, and the threads that run them."""

import contextlib
import os
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterator
from mmap import PAGESIZE

import numpy as np

from openmrc.core import fault_guard
from openmrc.core.calls import address_of_entry
from openmrc.core.rebase import set_back
from openmrc.core.rows import column
from openmrc.engine.state.build import TableSizes, build
from openmrc.engine.state.params import Settings
from openmrc.engine.state.tables import Engine
from openmrc.live.attributes import ContextAttr
from openmrc.live.datapath import handles, remote_nics
from openmrc.live.datapath.libc import MADV_NOHUGEPAGE, POLLIN, advise, check
from openmrc.live.datapath.loop import attendance, iteration, opening, operations, recovery
from openmrc.live.datapath.loop.leases import QUIET, Attendant
from openmrc.live.datapath.loop.waiting import NO_DESCRIPTOR, first_of_waiter
from openmrc.live.datapath.packets import capture, pacing
from openmrc.live.datapath.rows import PORT_VALUES, address_of, build_datapath
from openmrc.live.errors import ClosedError
from openmrc.live.host.control import ControlThread
from openmrc.live.host.poll_time import ask_for_short_slices, poll_us
from openmrc.live.host.sockets import Sockets
from openmrc.units import NS_PER_S, PS_PER_NS, PS_PER_S, ps_from_us
from openmrc.wire.layout import LONGEST_HEADER

CC_PROFILES = 16  # congestion control profiles beside the endpoint's own settings
HELD = 8192  # delayed packets that impairments can hold: two windows of the default size
REST_SECONDS = 0.002  # s after each run of the Python thread: a burst of events costs one wake-up, not one each
CLOSE_SECONDS = 5.0
HEAD_START = 1  # s: keeps engine times above 0, which means never


def table_sizes(attr: ContextAttr, planes: int) -> TableSizes:
    return TableSizes(
        ports=planes,
        peers=attr.max_peers,
        qps=attr.max_qp,
        regions=attr.max_mr,
        controls=1024,
        events=1024,
        sends=attr.max_send_wr,
        receives=attr.max_recv_wr,
        window=attr.max_mpr * 128,
        tracked=attr.max_mpr * 128,
        wimms=attr.max_wimm,
        evs_per_rotation=attr.evs_per_plane,
        tunings=1 + CC_PROFILES,
    )


class EndpointRuntime:
    """Compiled state and the thread that runs it; Python changes it within `locked` only.

    In the main thread call `locked` from `uninterrupted` methods only (`openmrc.live.host.control`).
    """

    def __init__(self, sockets: Sockets, attr: ContextAttr, settings: Settings, capturing: bool) -> None:
        """Allocate everything; `start` starts the threads."""
        check()
        self.epoch = int(time.monotonic()) - HEAD_START
        planes = len(sockets.addresses)
        self.sockets = sockets
        self.settings = settings
        self.engine = build(table_sizes(attr, planes), settings, packets=2, seed=attr.seed or secrets.randbits(31))
        _use_small_pages(self.engine)
        self.datapath = build_datapath(
            self.engine,
            planes,
            planes * attr.evs_per_plane,
            attr.max_peers,
            max(attr.max_cq, 2 * attr.max_qp),
            HELD,
            capture.RING if capturing else 0,
        )
        self.nic = self.datapath.nic[0]
        # `item` takes a tenth of the time of a row's attribute.
        self._sleeps_until = column(self.datapath.leases, "sleeps_until").item
        self._handled = column(self.datapath.nic, "handled").item
        self._handle_memory = handles.store(self.engine, self.datapath)
        self.at = address_of(self._handle_memory)
        self.wake_fd, self._python_wake_fd = _eventfds()
        self._thread = threading.Thread(target=self._run_loop, name="openmrc endpoint", daemon=True)
        self._helper = threading.Thread(target=self._run_python, name="openmrc events", daemon=True)
        self._python: Callable[[], None] = lambda: None
        self.on_set_back: Callable[[int], None] = lambda by: None
        self.control = ControlThread()
        self.control.holds.append(lambda: self._holder == threading.get_ident())
        self._holder = 0  # the thread that holds the loop mutex in Python
        self.error: BaseException | None = None
        self.is_stopped = False
        self.is_abandoned = False
        self._init_nic(attr, capturing)
        if not settings.bound_by_delivery:  # the rate of the network is known
            pacing.set_rate(self.datapath, settings.link_gbps * 1e9 / planes, settings.mtu + LONGEST_HEADER)
        self._init_sockets()

    def now(self) -> int:
        """Return the endpoint's time (ps)."""
        return (time.monotonic_ns() - self.epoch * NS_PER_S) * PS_PER_NS

    def start(self, python: Callable[[], None]) -> None:
        """Start the threads; `python` is called in one of its own whenever work needs Python."""
        self._python = python
        self.compile()
        self._thread.start()
        self._helper.start()
        self.control.start()

    def compile(self) -> None:
        """Compile every entry, or load it from the cache, before any timing starts."""
        for called in (*attendance.ENTRIES, *capture.ENTRIES):
            address_of_entry(called)
        for with_arrays, arguments in (*operations.ENTRIES, *remote_nics.ENTRIES):
            address_of_entry(with_arrays, arguments)
        self.iterate()

    def stop(self) -> None:
        """Stop the threads and close the sockets; return when they have ended, or after a few seconds."""
        if self.is_stopped:
            return
        self.is_stopped = True
        self.nic.stop = True
        threads = [thread for thread in (self._thread, self._helper) if thread.ident is not None]
        for descriptor in (self.wake_fd, self._python_wake_fd):
            os.eventfd_write(descriptor, 1)
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(CLOSE_SECONDS)
        self.sockets.close()
        if not any(thread.is_alive() for thread in threads):
            fault_guard.release(self.at)
            os.close(self.wake_fd)
            os.close(self._python_wake_fd)

    def abandon(self) -> None:
        """Detach the runtime in a forked child: its threads do not exist there, and its mutexes may be locked."""
        if self.is_stopped:
            return  # its descriptors are closed, and their numbers may belong to other files
        self.is_stopped = True
        self.error = ClosedError("context: opened before this process was forked; open a new one in the child")
        self.is_abandoned = True
        self.control.abandon()
        self.sockets.close()
        os.close(self.wake_fd)
        os.close(self._python_wake_fd)

    @property
    def is_closed(self) -> bool:
        """Whether the endpoint is unusable: stopped, or its thread died."""
        return self.is_stopped or self.error is not None

    def check_open(self) -> None:
        """Raise ClosedError if the endpoint is unusable."""
        if self.error is not None:
            self.check_here()
            raise ClosedError(f"context: the endpoint's thread has died: {self.error!r}")
        if self.is_stopped:
            raise ClosedError("context: closed")

    def check_here(self) -> None:
        """Raise ClosedError in a forked child, where taking a mutex would deadlock."""
        if self.is_abandoned and self.error is not None:
            raise self.error

    def iterate(self) -> None:
        """Run one iteration in this thread: process requests, send."""
        attendance.settle(self.at)

    def post(self, count: int) -> None:
        """Submit this many requests of the command ring."""
        attendance.post(self.at, count)

    def wait(self, cq: int, seconds: float, descriptor: int) -> int:
        """Wait at the sockets in this thread for a completion of `cq`, at most this long; return as `event_loop.wait`.

        `descriptor` ends the wait when it becomes readable; NO_DESCRIPTOR: none.
        """
        if self._sleeps_until(0) == 0 and self._handled(0) > QUIET:
            return attendance.BUSY  # check before the call, which costs several microseconds
        return attendance.wait(self.at, cq, int(seconds * PS_PER_S), descriptor)

    @contextlib.contextmanager
    def locked(self) -> Iterator[int]:
        """Hold the loop mutex and yield the time (ps); afterwards send what became due."""
        self.check_here()
        attendance.acquire(self.datapath)
        try:
            self._holder = threading.get_ident()
            self.nic.now = self.now()
            yield self.nic.now
        finally:
            self._holder = 0
            attendance.release(self.datapath)
        if not self.is_stopped:
            self.iterate()

    def set_clock_back(self, by: int) -> bool:
        """Make the endpoint `by` ps younger, a multiple of `clock.WRAPS`; False while a user's thread waits by it."""
        with self.locked():
            if self.datapath.leases[0].attendant == Attendant.WAITER:
                return False
            set_back(self.engine, by)
            set_back(self.datapath, by)
            self.epoch += by // PS_PER_S
            self.nic.epoch = self.epoch
            self.datapath.capture[0].clock += by // PS_PER_NS
            self.on_set_back(by)
        os.eventfd_write(self.wake_fd, 1)  # the endpoint's thread may be about to sleep by the old clock
        return True

    def watch_links(self, descriptor: int) -> None:
        """Have the endpoint's thread read announcements of rtnetlink from this descriptor; call before `start`."""
        slot = self.datapath.poll[self.nic.planes + 1]
        slot.descriptor, slot.events = descriptor, POLLIN
        self.nic.link_fd = descriptor

    def _run_loop(self) -> None:
        ask_for_short_slices()
        try:
            if attendance.serve(self.at) == attendance.BROKEN:
                raise ClosedError("context: a completion was lost; this is a defect of openmrc, please report it")
        except BaseException as error:  # waiting calls must see any failure
            self.error = error
            self.nic.stop = True
        finally:
            os.eventfd_write(self._python_wake_fd, 1)

    def _run_python(self) -> None:
        """Do work that needs Python, whenever the data path signals it; the endpoint's thread never waits for it."""
        try:
            while not self.nic.stop:
                os.eventfd_read(self._python_wake_fd)
                self._python()
                if self.nic.now > attendance.OLD:
                    self.set_clock_back(attendance.SET_BACK)
                if not self.datapath.capture[0].is_on:
                    time.sleep(REST_SECONDS)
        except BaseException as error:
            self.error = error
            self.nic.stop = True
            os.eventfd_write(self.wake_fd, 1)
        finally:
            self._python()

    def _init_nic(self, attr: ContextAttr, capturing: bool) -> None:
        nic = self.nic
        opening.open_rows(self.engine, self.datapath, self.sockets.addresses[0].ip.version)
        nic.epoch = self.epoch
        nic.source_key = secrets.randbits(31)
        nic.placement = self.sockets.placement
        take_in, send_out = address_of_entry(iteration.take_in), address_of_entry(iteration.send_out)
        recover = address_of_entry(recovery.recover)
        nic.take_in_at, nic.send_out_at = fault_guard.guard(self.at, self.engine.regions, take_in, send_out, recover)
        nic.segmentation = self.sockets.segmentation
        nic.poll_limit = ps_from_us(poll_us(attr.poll_us))
        self.datapath.capture[0].is_on = capturing
        self.datapath.capture[0].clock = time.time_ns() - time.monotonic_ns() + self.epoch * NS_PER_S
        nic.wake_fd = self.wake_fd
        nic.python_wake_fd = self._python_wake_fd

    def _init_sockets(self) -> None:
        tables, ports = self.datapath, self.sockets
        for plane, receiver in enumerate(ports.receivers):
            tables.planes[plane].descriptor = receiver.fileno()
            tables.planes[plane].random = plane + 1
            tables.poll[plane].descriptor = receiver.fileno()
            tables.poll[plane].events = POLLIN
            slot = tables.poll[first_of_waiter(tables) + plane]
            slot.descriptor, slot.events = receiver.fileno(), POLLIN
            values = ports.evs(plane)
            tables.ev_values[plane] = values
            for k, sender in enumerate(ports.senders[plane]):
                index = plane * self.nic.evs + k
                tables.senders[index].descriptor = sender.fileno()
                tables.senders[index].plane = plane
                tables.senders[index].port = ports.source_ports[plane][k]
            self.choose_reply_paths(plane)
        tables.poll[self.nic.planes].descriptor = self.wake_fd
        tables.poll[self.nic.planes].events = POLLIN
        tables.poll[first_of_waiter(tables) + self.nic.planes].events = POLLIN
        self.watch_links(NO_DESCRIPTOR)

    def choose_reply_paths(self, plane: int, avoided: Collection[int] = ()) -> None:
        """Have every entropy value name a path of ours, those of peers one that is not avoided, if there is another.

        Replies carry the value of the packet that they answer, which need not be one of ours.
        """
        tables, first = self.datapath, plane * self.nic.evs
        ours = np.asarray(tables.ev_values[plane], dtype=np.int64)
        usable = np.flatnonzero(~np.isin(ours, list(avoided)))
        usable = usable if len(usable) else np.arange(len(ours))
        chosen = first + usable[np.arange(PORT_VALUES) % len(usable)]
        chosen[ours & (PORT_VALUES - 1)] = first + np.arange(len(ours))
        tables.sender_of[plane] = chosen


def _eventfds() -> tuple[int, int]:
    """Return the descriptors that wake the endpoint's thread and the one that runs Python: both or none is opened."""
    first = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    try:
        return first, os.eventfd(0, os.EFD_CLOEXEC)
    except OSError:
        os.close(first)
        raise


def _use_small_pages(engine: Engine) -> None:
    """Let rows take memory by the page as they are used: NumPy asks for pages of 2 MiB, where 20 connections lie."""
    for rows in engine:
        begin = -(-address_of(rows) // PAGESIZE) * PAGESIZE
        length = address_of(rows, len(rows)) // PAGESIZE * PAGESIZE - begin
        if length > 0:
            advise(begin, length, MADV_NOHUGEPAGE)  # refused only where there are no such pages
