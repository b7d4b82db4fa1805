"""Carriers of the planes' interfaces, read from rtnetlink by the endpoint's thread.

The thread that sends must learn of a lost carrier itself: a thread of Python would wait for the interpreter's lock
first, for 5 ms if the program computes. Addresses and MTUs change seldom and need a dump to be understood: for those
Python is called.
"""

from enum import IntEnum

from openmrc.core.jit import kernel, rare_kernel
from openmrc.engine.endpoint import set_port
from openmrc.engine.state.tables import Engine
from openmrc.live.datapath.libc import EAGAIN, MSG_DONTWAIT, last_error, receive_bytes
from openmrc.live.datapath.rows import DataPath

_NEW_LINK, _DEL_LINK = 16, 17
_UP, _LOWER_UP = 0x1, 0x10000
_WORDS_OF_A_HEADER = 4  # struct nlmsghdr; then struct ifinfomsg: family and type, index, flags, change
_INDEX, _FLAGS = _WORDS_OF_A_HEADER + 1, _WORDS_OF_A_HEADER + 2
_READS = 64  # announcements taken in one turn


class Fault(IntEnum):
    """Why a plane of ours does not work; bits of `Plane.faults`."""

    DISABLED = 1  # `Context.set_plane`
    NO_CARRIER = 2  # or the interface is down, or gone
    NO_ADDRESS = 4
    MTU = 8  # below what the path MTU in use needs


@rare_kernel
def read_news(engine: Engine, datapath: DataPath) -> None:
    """Take what rtnetlink announced; planes whose carrier came or went change at once."""
    nic = datapath.nic[0]
    nic.link_news = False
    for _ in range(_READS):
        length = receive_bytes(nic.link_fd, datapath.link_news.ctypes.data, len(datapath.link_news) * 4, MSG_DONTWAIT)
        if length <= 0:
            if last_error(datapath.clock[0]) != EAGAIN:
                nic.links_changed = True  # the kernel dropped announcements: look at everything
            return
        _read(engine, datapath, length // 4)
    nic.link_news = True


@kernel
def _read(engine: Engine, datapath: DataPath, words: int) -> None:
    news = datapath.link_news
    datapath.nic[0].links_changed = True
    at = 0
    while at + _WORDS_OF_A_HEADER <= words:
        length = (int(news[at]) + 3) // 4
        if length < _WORDS_OF_A_HEADER or at + length > words:
            return
        kind = int(news[at + 1]) & 0xFFFF
        if kind in (_NEW_LINK, _DEL_LINK) and length > _FLAGS:
            works = kind == _NEW_LINK and int(news[at + _FLAGS]) & (_UP | _LOWER_UP) == _UP | _LOWER_UP
            _on_link(engine, datapath, int(news[at + _INDEX]), works)
        at += length


@kernel
def _on_link(engine: Engine, datapath: DataPath, index: int, works: bool) -> None:
    for plane in range(datapath.nic[0].planes):
        if datapath.planes[plane].interface == index:
            set_fault(engine, datapath, plane, Fault.NO_CARRIER.value, not works)


@kernel
def set_fault(engine: Engine, datapath: DataPath, plane: int, fault: int, is_there: bool) -> None:
    """Note or clear one fault of a plane; the engine learns of the port when it is the first, or was the last."""
    row = datapath.planes[plane]
    before = row.faults
    row.faults = before | fault if is_there else before & ~fault
    if (before == 0) != (row.faults == 0):
        nic = datapath.nic[0]
        set_port(engine, nic.now, nic.endpoint, plane, int(row.faults == 0))
