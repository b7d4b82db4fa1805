"""Queue pairs in every state, what is done to them, and the order in which objects end, against a model."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from harness.live_pair import addresses
from openmrc.errors import BusyError
from openmrc.verbs import (
    Access,
    Context,
    ContextAttr,
    InvalidArgumentError,
    MemoryRegion,
    NoRoomError,
    PeerAddress,
    QpAttr,
    QpInitAttr,
    QpState,
    QueuePair,
    SendWr,
    WcStatus,
    WorkCompletion,
)

from .drawing import drawn

pytestmark = pytest.mark.needs("jit")
_NUMBERS = itertools.count(300)
PATH = ("RESET", "INIT", "RTR", "RTS")
ALLOWED = {  # from, to
    *((state, "RESET") for state in (*PATH, "ERROR")),
    *((state, "ERROR") for state in (*PATH[1:], "ERROR")),
    ("RESET", "INIT"), ("INIT", "INIT"), ("INIT", "RTR"), ("RTR", "RTS"), ("RTS", "RTS"),
}  # fmt: skip
SENDS, RECEIVES = {"RTS", "ERROR"}, {"INIT", "RTR", "RTS", "ERROR"}
COUNT: dict[str, Callable[[int], int]] = {
    "none": lambda depth: 0,
    "one": lambda depth: 1,
    "all": lambda depth: depth,
    "one too many": lambda depth: depth + 1,
}


class Objects:
    """A context with one of each object, and how a queue pair gets into its states."""

    def __init__(self, row: SimpleNamespace) -> None:
        number = next(_NUMBERS)
        attr = ContextAttr(max_qp=2, max_peers=1, max_mr=2, max_mpr=4, evs_per_plane=1, max_recv_wr=64, max_send_wr=64)
        self.context = Context(addresses(0, number, row.planes, 4), attr)
        self.nobody = PeerAddress(planes=tuple(addresses(1, number, row.planes, 4)))
        self.pd = self.context.alloc_pd()
        self.region: MemoryRegion = self.pd.reg_mr(bytearray(64))
        self.cq = self.context.create_cq(256)
        init = QpInitAttr(send_cq=self.cq, recv_cq=self.cq, max_send_wr=row.depth, max_recv_wr=row.depth)
        self.qp: QueuePair = self.context.create_qp(self.pd, init)

    def move(self, state: str) -> None:
        """Move the queue pair, with all attributes that the state needs."""
        attributes: dict[str, dict[str, Any]] = {
            "INIT": {"access_flags": Access.REMOTE_WRITE},
            "RTR": {
                "remote": self.nobody, "dest_qpn": 77, "rq_psn": 0, "path_mtu": 1024, "max_wimm_dest": 4, "mpr_dest": 4,
            },
            "RTS": {
                "sq_psn": 0, "max_wimm": 4, "mpr": 4, "timeout": 18, "linear_count": 7, "exponential_count": 7,
                "user_timeout": 600.0,
            },
        }  # fmt: skip
        self.qp.modify(QpAttr(state=QpState[state], **attributes.get(state, {})))

    def reach(self, state: str) -> None:
        """Bring a new queue pair into a state."""
        for step in PATH[1:] if state == "ERROR" else PATH[1 : PATH.index(state) + 1]:
            self.move(step)
        if state == "ERROR":
            self.move("ERROR")

    def post(self, sends: bool, count: int) -> None:
        """Post so many requests, one after the other."""
        for number in range(count):
            if sends:
                self.qp.post_send(SendWr(wr_id=number, local=self.region, remote_addr=0, r_key=1))
            else:
                self.qp.post_recv()


def expected(row: SimpleNamespace) -> tuple[type[Exception] | None, int, int]:
    """Return by the model: the error, and how many sends and receives are outstanding or flushed then."""
    count = COUNT[row.posts](row.depth)
    if row.operation.startswith("to "):
        return (None if (row.state, row.operation[3:]) in ALLOWED else InvalidArgumentError), 0, 0
    sends = row.operation == "post_send"
    if count and row.state not in (SENDS if sends else RECEIVES):
        return InvalidArgumentError, 0, 0
    error = NoRoomError if count > row.depth and row.state != "ERROR" else None  # in ERROR they complete at once
    taken = count if row.state == "ERROR" else min(count, row.depth)
    return error, taken if sends else 0, 0 if sends else taken


def act(objects: Objects, row: SimpleNamespace) -> None:
    """Do what the row says."""
    if row.operation.startswith("to "):
        objects.move(row.operation[3:])
    else:
        objects.post(row.operation == "post_send", COUNT[row.posts](row.depth))


def check_flushed(objects: Objects, row: SimpleNamespace, error: type[Exception] | None, count: int) -> None:
    """What is outstanding is flushed in ERROR, and only there."""
    now = row.operation[3:] if row.operation.startswith("to ") and error is None else row.state
    assert objects.qp.state == QpState[now]
    if count:
        if now != "ERROR":
            assert objects.cq.poll(256) == []
            objects.move("ERROR")
        flushed: list[WorkCompletion] = []
        while len(flushed) < count:
            flushed += objects.cq.wait(60)
        flushed += objects.cq.poll(256)
        assert {completion.status for completion in flushed} == {WcStatus.WR_FLUSH_ERR}
        assert len(flushed) == count


def check_end(objects: Objects, row: SimpleNamespace, outstanding: bool) -> None:
    """End the objects in the order of the row: what others use is refused, what is refused stays as it was."""
    busy = {"queue first": objects.cq.destroy, "domain first": objects.pd.dealloc}
    if row.end in busy:
        with pytest.raises(BusyError):
            busy[row.end]()
    elif row.end == "memory first":
        if outstanding:
            with pytest.raises(BusyError):
                objects.region.dereg()
        else:
            objects.region.dereg()
    elif row.end == "context first":
        objects.context.close()
    for _ in range(2 if row.end == "twice" else 1):
        objects.qp.destroy()
        objects.cq.destroy()
        objects.region.dereg()
        objects.pd.dealloc()
        objects.context.close()


@drawn("verbs", few=10)
def test_verbs_do_what_the_model_says(row: SimpleNamespace) -> None:
    def whole() -> None:
        objects = Objects(row)
        try:
            objects.reach(row.state)
            error, sends, receives = expected(row)
            if error is None:
                act(objects, row)
            else:
                with pytest.raises(error):
                    act(objects, row)
            is_flushed = row.depth % 2 == 0 or row.state == "ERROR"
            if is_flushed:
                check_flushed(objects, row, error, sends + receives)
            check_end(objects, row, outstanding=sends > 0 and not is_flushed)
        finally:
            objects.context.close()

    if row.thread == "main":
        whole()
    else:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(whole).result()
