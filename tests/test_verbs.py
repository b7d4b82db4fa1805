import asyncio
import errno
import gc
import mmap
import os
import re
import select
import weakref
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from harness.live_pair import SMALL, addresses, joined
from openmrc import verbs
from openmrc.errors import ConfigError
from openmrc.verbs import (
    Access,
    BusyError,
    CallError,
    ClosedError,
    Context,
    InvalidArgumentError,
    NoRoomError,
    PeerAddress,
    QpAttr,
    QpHintAttr,
    QpInitAttr,
    QpState,
    QueuePair,
    SendWr,
    WcStatus,
)


@pytest.fixture
def context() -> Iterator[Context]:
    with Context(addresses(0, 220, 1, 4), SMALL) as opened:
        yield opened


@pytest.fixture
def qp(context: Context) -> QueuePair:
    cq = context.create_cq(64)
    return context.create_qp(context.alloc_pd(), QpInitAttr(send_cq=cq, recv_cq=cq, max_send_wr=8, max_recv_wr=8))


def to_rtr(qp: QueuePair) -> None:
    qp.modify(state=QpState.INIT, access_flags=Access.REMOTE_WRITE)
    qp.modify(
        state=QpState.RTR,
        remote=PeerAddress(planes=("127.0.0.9",)),
        dest_qpn=3,
        rq_psn=0,
        path_mtu=1024,
        max_wimm_dest=4,
        mpr_dest=4,
    )


def to_rts(qp: QueuePair) -> None:
    to_rtr(qp)
    qp.modify(state=QpState.RTS, sq_psn=0, max_wimm=4, mpr=4, timeout=20, linear_count=1, exponential_count=1)


@pytest.mark.parametrize(
    "buffer",
    [bytearray(100), mmap.mmap(-1, 100), np.zeros(25, np.float32), np.zeros((5, 5), np.int32)],
    ids=lambda buffer: type(buffer).__name__,
)
def test_any_writable_buffer_can_be_registered(context: Context, buffer: object) -> None:
    with context.alloc_pd().reg_mr(buffer) as region:
        assert region.length == 100
        assert region.l_key == region.r_key != 0
        assert region[10:20].addr == region.addr + 10
    assert not region.is_registered


@pytest.mark.needs("torch")
def test_a_cpu_tensor_can_be_registered(context: Context) -> None:
    import torch

    tensor = torch.zeros(4, dtype=torch.bfloat16)
    with context.alloc_pd().reg_mr(tensor) as region:
        assert (region.addr, region.length) == (tensor.data_ptr(), 8)


@pytest.mark.parametrize("buffer", [b"read-only", np.zeros((4, 4))[:, 1], bytearray(), 7])
def test_what_is_no_writable_memory_is_refused(context: Context, buffer: object) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        context.alloc_pd().reg_mr(buffer)
    assert caught.value.errno == errno.EINVAL


def test_regions_run_out_with_enomem(context: Context) -> None:
    pd = context.alloc_pd()
    kept = [pd.reg_mr(bytearray(8)) for _ in range(SMALL.max_mr)]
    with pytest.raises(NoRoomError) as caught:
        pd.reg_mr(bytearray(8))
    assert caught.value.errno == errno.ENOMEM
    kept[0].dereg()
    pd.reg_mr(bytearray(8))


def test_a_domain_in_use_cannot_be_given_back(context: Context) -> None:
    pd = context.alloc_pd()
    region = pd.reg_mr(bytearray(8))
    with pytest.raises(BusyError) as caught:
        pd.dealloc()
    assert caught.value.errno == errno.EBUSY
    region.dereg()
    pd.dealloc()


def test_a_queue_pair_walks_from_reset_to_rts_and_back(qp: QueuePair) -> None:
    assert qp.state == QpState.RESET
    number = qp.qpn
    to_rts(qp)
    attr, init = qp.query()
    assert (attr.state, attr.path_mtu, attr.timeout, init.max_send_wr) == (QpState.RTS, 1024, 20, 8)
    qp.modify(state=QpState.ERROR)
    qp.modify(state=QpState.RESET)
    assert qp.state == QpState.RESET
    assert qp.qpn != number
    to_rts(qp)


NEEDED = [
    (QpState.INIT, "access_flags"),
    *((QpState.RTR, name) for name in ("remote", "dest_qpn", "rq_psn", "path_mtu", "max_wimm_dest", "mpr_dest")),
    *((QpState.RTS, name) for name in ("sq_psn", "max_wimm", "mpr", "timeout", "linear_count", "exponential_count")),
]


@pytest.mark.parametrize(("state", "name"), NEEDED)
def test_each_transition_names_the_attribute_it_lacks(qp: QueuePair, state: QpState, name: str) -> None:
    fields: dict[QpState, dict[str, object]] = {
        QpState.INIT: {"access_flags": Access.REMOTE_WRITE},
        QpState.RTR: {
            "remote": PeerAddress(planes=("127.0.0.9",)),
            "dest_qpn": 3,
            "rq_psn": 0,
            "path_mtu": 1024,
            "max_wimm_dest": 4,
            "mpr_dest": 4,
        },
        QpState.RTS: {
            "sq_psn": 0,
            "max_wimm": 4,
            "mpr": 4,
            "timeout": 14,
            "linear_count": 1,
            "exponential_count": 1,
        },
    }
    for step in (QpState.INIT, QpState.RTR, QpState.RTS):
        given = dict(fields[step])
        if step == state:
            given.pop(name)
            with pytest.raises(InvalidArgumentError, match=name):
                qp.modify(QpAttr(state=step, **given))  # type: ignore[arg-type]
            return
        qp.modify(QpAttr(state=step, **given))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"timeout": 25}, "0..24"),
        ({"linear_count": 8}, "0..7"),
        ({"exponential_count": 26}, "0..25"),
        ({"mpr": 5}, "1..4"),
        ({"path_mtu": 1500}, "256, 512"),
        ({"rq_psn": 1 << 24}, "rq_psn"),
        ({"dest_qpn": 2}, "dest_qpn"),
        ({"remote": PeerAddress(planes=("a", "b"))}, "2 planes"),
        ({"cur_state": QpState.RTS}, "RESET"),
        ({"state": QpState.RTS}, "no transition"),
        ({"hint": 7}, "QpHint"),
    ],
)
def test_wrong_attributes_are_refused_and_change_nothing(qp: QueuePair, fields: dict[str, Any], text: str) -> None:
    before = qp.query()
    with pytest.raises(InvalidArgumentError, match=text):
        qp.modify(**fields)
    assert qp.query() == before


def test_posting_asks_for_the_right_state(qp: QueuePair) -> None:
    region = qp.pd.reg_mr(bytearray(64))
    with pytest.raises(InvalidArgumentError, match="RESET"):
        qp.post_recv()
    to_rtr(qp)
    qp.post_recv()
    with pytest.raises(InvalidArgumentError, match="RTR"):
        qp.post_write(region, 0, 1)


def test_a_full_queue_is_enomem_and_posted_memory_is_busy(qp: QueuePair) -> None:
    to_rts(qp)
    region = qp.pd.reg_mr(bytearray(64))
    for _ in range(qp.init.max_send_wr):
        qp.post_write(region, 0, 1)
    with pytest.raises(NoRoomError, match="full"):
        qp.post_write(region, 0, 1)
    with pytest.raises(BusyError):
        region.dereg()
    qp.modify(state=QpState.ERROR)
    statuses = {completion.status for completion in qp.send_cq.poll(1000)}
    assert statuses == {WcStatus.WR_FLUSH_ERR}
    region.dereg()


@pytest.mark.parametrize(
    "change", [{"immediate": 1 << 32}, {"r_key": 1 << 32}, {"remote_addr": -1}, {"wr_id": 1 << 64}, {"local": b"x"}]
)
def test_requests_that_do_not_fit_the_wire_are_refused(qp: QueuePair, change: dict[str, object]) -> None:
    to_rts(qp)
    fields: dict[str, object] = {"local": qp.pd.reg_mr(bytearray(8)), "remote_addr": 0, "r_key": 1}
    with pytest.raises(CallError):
        qp.post_send(SendWr(**{**fields, **change}))  # type: ignore[arg-type]


def test_memory_of_another_domain_cannot_be_sent(qp: QueuePair) -> None:
    to_rts(qp)
    stranger = qp.context.alloc_pd().reg_mr(bytearray(8))
    with pytest.raises(InvalidArgumentError, match="domain"):
        qp.post_write(stranger, 0, 1)


def test_a_completion_queue_in_use_cannot_be_given_back(qp: QueuePair) -> None:
    with pytest.raises(BusyError):
        qp.send_cq.destroy()
    qp.destroy()
    qp.send_cq.destroy()


def test_hints_are_shared_and_counted(qp: QueuePair) -> None:
    hint = qp.context.create_qp_hint(QpHintAttr(num_send_peers=3))
    qp.modify(state=QpState.INIT, access_flags=Access.REMOTE_WRITE, hint=hint)
    with pytest.raises(BusyError):
        hint.destroy()
    qp.destroy()
    hint.destroy()
    with pytest.raises(InvalidArgumentError, match="128"):
        hint.modify(QpHintAttr(vendor_cfg=bytes(129)))


def test_a_hint_that_nobody_uses_is_not_kept(qp: QueuePair) -> None:
    hint = weakref.ref(qp.context.create_qp_hint())  # each connection makes one
    gc.collect()
    assert hint() is None


def test_queue_pairs_run_out_with_enomem_and_come_back(context: Context) -> None:
    cq, pd = context.create_cq(), context.alloc_pd()
    init = QpInitAttr(send_cq=cq, recv_cq=cq, max_recv_wr=8)
    pairs = [context.create_qp(pd, init) for _ in range(SMALL.max_qp)]
    with pytest.raises(NoRoomError):
        context.create_qp(pd, init)
    pairs[0].destroy()
    context.create_qp(pd, init)


def test_a_closed_context_refuses_everything(context: Context) -> None:
    pd = context.alloc_pd()
    context.close()
    context.close()
    with pytest.raises(ClosedError):
        pd.reg_mr(bytearray(8))
    with pytest.raises(ClosedError):
        context.create_cq()


def test_versions_are_packed_as_the_header_says() -> None:
    assert verbs.query_version()["api"] == 1 << 24 | 0 << 16 | 1


def test_an_armed_queue_makes_its_descriptor_readable_once() -> None:
    with joined() as pair:
        cq, poller = pair.ends[1].recv_cq, select.poll()
        poller.register(cq.fileno(), select.POLLIN)
        pair.ends[1].qp.post_recv(2)
        cq.notify()
        assert not poller.poll(0)
        pair.ends[0].write(pair.regions[0][:8], pair.ends[0].remote.regions[0], immediate=7, timeout=20)
        assert poller.poll(20_000)
        assert cq.poll()[0].immediate == 7
        cq.notify(solicited_only=True)
        pair.ends[0].write(pair.regions[0][:8], pair.ends[0].remote.regions[0], immediate=8, timeout=20)
        assert cq.wait(20)[0].immediate == 8


def test_waiting_works_in_an_event_loop() -> None:
    async def exchange() -> tuple[int | None, int]:
        with joined() as pair:
            pair.ends[1].qp.post_recv(1)
            target = pair.ends[0].remote.regions[0]
            sent, arrived = await asyncio.gather(
                pair.ends[0].write_async(pair.regions[0], target, immediate=9, timeout=20),
                pair.ends[1].recv_cq.wait_async(20),
            )
            return arrived[0].immediate, sent.byte_len

    assert asyncio.run(exchange()) == (9, 1 << 16)


def test_planes_switched_off_here_are_known_to_the_peer() -> None:
    with joined() as pair:
        pair.contexts[0].set_plane(1, False)
        event = pair.contexts[1].get_async_event(20)
        pair.contexts[1].ack_async_event(event)
        assert event.port_mask == 0b01
        pair.ends[0].write(pair.regions[0], pair.ends[0].remote.regions[0], timeout=20)
        assert pair.contexts[0].plane_counters()[1].up is False


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"evs_per_plane": 0}, "evs_per_plane: 0 is not in 1.."),
        ({"mtu": 100}, "mtu: 100 is not one of 256, 512"),
        ({"ev_format": 7}, "ev_format: 7 is not one of EvFormat.STEV"),
        ({"receive_buffer": 1 << 40}, "receive_buffer: 1099511627776 is not in"),
        ({"max_qp": 0}, "max_qp"),
        ({"max_cq": "many"}, "max_cq: 'many' is not an integer"),
        ({"seed": -1}, "seed: -1"),
    ],
)
def test_wrong_attributes_of_a_context_are_refused_by_name_and_open_nothing(change: dict[str, Any], text: str) -> None:
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(InvalidArgumentError, match=re.escape(text)):
        Context(addresses(0, 237, 1, 4), replace(SMALL, **change))
    assert len(os.listdir("/proc/self/fd")) <= before


@pytest.mark.parametrize("faults", ["down: plane 9", "nonsense"])
def test_an_open_that_fails_late_leaks_no_descriptor(faults: str) -> None:
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(ConfigError):
        Context(addresses(0, 238, 1, 4), SMALL, faults=faults)
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before
    Context(addresses(0, 238, 1, 4), SMALL).close()


def test_one_address_instead_of_a_list_is_explained() -> None:
    with pytest.raises(InvalidArgumentError, match=re.escape("give a list of addresses, ['127.0.0.1']")):
        Context("127.0.0.1")


def test_a_write_that_the_remote_region_cannot_hold_is_refused_here() -> None:
    with joined() as pair:
        end, target = pair.ends[0], pair.ends[0].remote.regions[0]
        with pytest.raises(InvalidArgumentError, match="remote: 100 bytes, too small for a write of 65536"):
            end.write(pair.regions[0], target[:100], timeout=20)
        with pytest.raises(InvalidArgumentError, match="too small"):
            asyncio.run(end.write_async(pair.regions[0], target[:100], timeout=20))
        assert end.qp.state == QpState.RTS


def test_objects_say_what_they_are() -> None:
    with joined() as pair:
        end, region = pair.ends[0], pair.regions[0]
        described: list[tuple[object, str]] = [
            (pair.contexts[0], "<Context open on 127."),
            (region, "65536 bytes at 0x"),
            (region[10:20], "<RegionSlice 10..20 of <MemoryRegion"),
            (region.pd, "<ProtectionDomain "),
            (end.qp, "RTS, 0 writes outstanding>"),
            (end.send_cq, "0 ready, 1 queue pairs>"),
            (end, "<Connection to "),
            (pair.contexts[0].create_comp_channel(), "<CompletionChannel of 0"),
        ]
        for thing, words in described:
            assert words in repr(thing)
