# ruff: noqa: PT027 - Debian has pytest in a package of its own
"""Queue pairs and what they carry through pyverbs, in the manner of rdma-core's own tests. Run by `pyverbs_runner.py`.

What is right is what the manual pages of libibverbs and the InfiniBand specification say.
"""

from __future__ import annotations

import errno
import time
import unittest
from typing import Any

import pyverbs.enums as e  # type: ignore[import-not-found]
from pyverbs.addr import AHAttr, GlobalRoute  # type: ignore[import-not-found]
from pyverbs.cq import CQ  # type: ignore[import-not-found]
from pyverbs.device import Context  # type: ignore[import-not-found]
from pyverbs.mr import MR  # type: ignore[import-not-found]
from pyverbs.pd import PD  # type: ignore[import-not-found]
from pyverbs.pyverbs_error import PyverbsRDMAError  # type: ignore[import-not-found]
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr  # type: ignore[import-not-found]
from pyverbs.wr import SGE, RecvWR, SendWR  # type: ignore[import-not-found]

MEMORY = 1 << 20
MOST = 4096  # requests in a queue
ACCESS = e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ
PATIENCE = 30.0  # seconds for a completion on a loaded machine


class End:
    """A context with a queue pair and a megabyte."""

    def __init__(self, kind: int = e.IBV_QPT_RC, **cap: int) -> None:
        """Open all of it; the queue pair is in RESET."""
        self.context = Context(name="mrc0")
        self.pd = PD(self.context)
        self.cq = CQ(self.context, 64)
        self.mr = MR(self.pd, MEMORY, e.IBV_ACCESS_LOCAL_WRITE | ACCESS)
        counts = QPCap(**{"max_send_wr": 16, "max_recv_wr": 16, "max_send_sge": 2, "max_recv_sge": 2, **cap})
        counts.max_inline_data = 32
        self.qp = QP(self.pd, QPInitAttr(qp_type=kind, scq=self.cq, rcq=self.cq, cap=counts, sq_sig_all=0))

    def attributes(self, other: End) -> Any:
        """Return all that a queue pair needs on its way to RTS."""
        attr = QPAttr(qp_state=e.IBV_QPS_INIT, port_num=1)
        attr.qp_access_flags = ACCESS
        attr.dest_qp_num, attr.path_mtu, attr.rq_psn, attr.sq_psn = other.qp.qp_num, e.IBV_MTU_4096, 3, 3
        attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.min_rnr_timer = 14, 7, 7, 12
        attr.max_rd_atomic = attr.max_dest_rd_atomic = 1
        route = GlobalRoute(dgid=other.context.query_gid(1, 3), sgid_index=3)
        attr.ah_attr = AHAttr(gr=route, is_global=1, port_num=1)
        return attr

    def piece(self, length: int, at: int = 0) -> Any:
        """Return a piece of this memory."""
        return SGE(self.mr.buf + at, length, self.mr.lkey)

    def post(self, opcode: int, pieces: list[Any], other: End | None = None, **words: Any) -> None:
        """Post a request with completion, to the beginning of the other memory."""
        words = {"wr_id": 5, "send_flags": e.IBV_SEND_SIGNALED, **words}
        key, address = words.pop("rkey", other and other.mr.rkey), words.pop("address", other and other.mr.buf)
        request = SendWR(opcode=opcode, num_sge=len(pieces), sg=pieces, **words)
        if other is not None:
            request.set_wr_rdma(key, address)
        self.qp.post_send(request)

    def completion(self) -> Any:
        """Wait for the next completion."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            count, found = self.cq.poll()
            if count:
                return found[0]
        raise TimeoutError

    def receive(self, length: int, number: int = 9) -> None:
        """Post a receive."""
        self.qp.post_recv(RecvWR(wr_id=number, num_sge=1, sg=[self.piece(length)]))


def pair() -> tuple[End, End]:
    """Return two connected ends."""
    here, there = End(), End()
    attributes = here.attributes(there), there.attributes(here)
    here.qp.to_rts(attributes[0])
    there.qp.to_rts(attributes[1])
    return here, there


class TestQp(unittest.TestCase):
    """Queue pairs and their states."""

    def refused_kind(self, kind: int) -> None:
        with self.assertRaises(PyverbsRDMAError) as seen:
            End(kind)
        assert seen.exception.error_code == errno.EOPNOTSUPP

    def test_datagrams_are_refused(self) -> None:
        self.refused_kind(e.IBV_QPT_UD)

    def test_unreliable_connections_are_refused(self) -> None:
        self.refused_kind(e.IBV_QPT_UC)

    def test_raw_packets_are_refused(self) -> None:
        self.refused_kind(e.IBV_QPT_RAW_PACKET)

    def test_it_begins_in_reset(self) -> None:
        end = End()
        assert (end.qp.qp_state, end.qp.query(e.IBV_QP_STATE)[0].qp_state) == (e.IBV_QPS_RESET,) * 2

    def test_numbers_differ(self) -> None:
        assert End().qp.qp_num != End().qp.qp_num

    def test_it_has_at_least_what_was_asked_for(self) -> None:
        has = End().qp.query(e.IBV_QP_CAP)[1].cap
        least = (has.max_send_wr, has.max_recv_wr, has.max_send_sge, has.max_recv_sge, has.max_inline_data)
        assert all(a >= b for a, b in zip(least, (16, 16, 2, 2, 32), strict=True)), least

    def test_it_may_not_be_deeper_than_the_device_says(self) -> None:
        with self.assertRaises(PyverbsRDMAError) as seen:
            End(max_recv_wr=1 << 24)
        assert seen.exception.error_code == errno.EINVAL

    def test_it_may_not_have_more_pieces_than_the_device_says(self) -> None:
        with self.assertRaises(PyverbsRDMAError) as seen:
            End(max_send_sge=1 << 12)
        assert seen.exception.error_code == errno.EINVAL

    def test_it_goes_state_by_state(self) -> None:
        here, there = End(), End()
        attr = here.attributes(there)
        for move, state in (
            (here.qp.to_init, e.IBV_QPS_INIT),
            (here.qp.to_rtr, e.IBV_QPS_RTR),
            (here.qp.to_rts, e.IBV_QPS_RTS),
        ):
            move(attr)
            assert here.qp.query(e.IBV_QP_STATE)[0].qp_state == state

    def test_no_state_is_left_out(self) -> None:
        with self.assertRaises(PyverbsRDMAError) as seen:
            End().qp.modify(QPAttr(qp_state=e.IBV_QPS_RTS), e.IBV_QP_STATE)
        assert seen.exception.error_code == errno.EINVAL

    def test_what_was_set_is_told(self) -> None:
        here, there = pair()
        attr, asked = here.qp.query(e.IBV_QP_TIMEOUT)[0], here.attributes(there)
        for name in ("dest_qp_num", "path_mtu", "rq_psn", "sq_psn", "timeout", "retry_cnt", "rnr_retry", "port_num"):
            assert getattr(attr, name) == getattr(asked, name), name

    def test_nothing_is_posted_in_reset(self) -> None:
        end = End()
        with self.assertRaises(PyverbsRDMAError):
            end.post(e.IBV_WR_SEND, [end.piece(8)])

    def test_it_connects_again_after_reset(self) -> None:
        here, there = pair()
        attributes = here.attributes(there), there.attributes(here)
        for end in (here, there):
            end.qp.modify(QPAttr(qp_state=e.IBV_QPS_RESET), e.IBV_QP_STATE)
        here.qp.to_rts(attributes[0])
        there.qp.to_rts(attributes[1])
        here.post(e.IBV_WR_RDMA_WRITE, [here.piece(8)], there)
        assert here.completion().status == e.IBV_WC_SUCCESS

    def test_receives_are_flushed_in_error(self) -> None:
        here, _ = pair()
        here.receive(64)
        here.qp.modify(QPAttr(qp_state=e.IBV_QPS_ERR), e.IBV_QP_STATE)
        seen = here.completion()
        assert (seen.status, seen.wr_id) == (e.IBV_WC_WR_FLUSH_ERR, 9)

    def test_it_may_be_closed_twice(self) -> None:
        end = End()
        end.qp.close()
        end.qp.close()


class TestTraffic(unittest.TestCase):
    """Requests and what they end in."""

    def setUp(self) -> None:
        self.here, self.there = pair()

    def tearDown(self) -> None:
        self.here.context.close()
        self.there.context.close()

    def arrives(self, length: int) -> None:
        """Write so many bytes, and compare."""
        text = bytes(at * 31 >> 4 & 0xFF for at in range(4096)) * (length // 4096 + 1)
        self.here.mr.write(text[:length], length)
        self.here.post(e.IBV_WR_RDMA_WRITE, [self.here.piece(length)], self.there)
        seen = self.here.completion()
        assert (seen.status, seen.wr_id, seen.opcode) == (e.IBV_WC_SUCCESS, 5, e.IBV_WC_RDMA_WRITE)
        assert self.there.mr.read(length, 0) == text[:length]

    def ends_in(self, status: int, end: End | None = None) -> None:
        assert (end or self.here).completion().status == status

    def test_a_byte_is_written(self) -> None:
        self.arrives(1)

    def test_a_packet_is_written(self) -> None:
        self.arrives(4096)

    def test_more_than_a_packet_is_written(self) -> None:
        self.arrives(4097)

    def test_all_of_the_memory_is_written(self) -> None:
        self.arrives(MEMORY)

    def test_nothing_is_written(self) -> None:
        self.here.post(e.IBV_WR_RDMA_WRITE, [self.here.piece(0)], self.there)
        self.ends_in(e.IBV_WC_SUCCESS)

    def test_pieces_are_gathered(self) -> None:
        self.here.mr.write(b"abcdef", 6)
        pieces = [self.here.piece(2, 4), self.here.piece(2)]
        self.here.post(e.IBV_WR_RDMA_WRITE, pieces, self.there)
        self.ends_in(e.IBV_WC_SUCCESS)
        assert self.there.mr.read(4, 0) == b"efab"

    def test_inline_data_may_change_at_once(self) -> None:
        self.here.mr.write(b"before", 6)
        flags = e.IBV_SEND_SIGNALED | e.IBV_SEND_INLINE
        self.here.post(e.IBV_WR_RDMA_WRITE, [self.here.piece(6)], self.there, send_flags=flags)
        self.here.mr.write(b"after!", 6)
        self.ends_in(e.IBV_WC_SUCCESS)
        assert self.there.mr.read(6, 0) == b"before"

    def test_only_what_asks_for_it_completes(self) -> None:
        self.here.post(e.IBV_WR_RDMA_WRITE, [self.here.piece(8)], self.there, wr_id=1, send_flags=0)
        self.here.post(e.IBV_WR_RDMA_WRITE, [self.here.piece(8)], self.there, wr_id=2)
        assert self.here.completion().wr_id == 2
        assert self.here.cq.poll()[0] == 0

    def test_completions_keep_the_order_of_requests(self) -> None:
        for number in range(16):
            self.here.post(e.IBV_WR_RDMA_WRITE, [self.here.piece(4096)], self.there, wr_id=number)
        assert [self.here.completion().wr_id for _ in range(16)] == list(range(16))

    def test_an_immediate_takes_a_receive(self) -> None:
        self.there.receive(0, 77)
        self.here.post(e.IBV_WR_RDMA_WRITE_WITH_IMM, [self.here.piece(8)], self.there, imm_data=0x01020304)
        self.ends_in(e.IBV_WC_SUCCESS)
        seen = self.there.completion()
        assert (seen.opcode, seen.wr_id, seen.byte_len) == (e.IBV_WC_RECV_RDMA_WITH_IMM, 77, 8)
        assert (seen.wc_flags & e.IBV_WC_WITH_IMM, seen.imm_data) == (e.IBV_WC_WITH_IMM, 16909060)

    def test_a_send_fills_a_receive(self) -> None:
        self.there.receive(64, 77)
        self.here.mr.write(b"hello", 5)
        self.here.post(e.IBV_WR_SEND, [self.here.piece(5)])
        seen = self.there.completion()
        assert (seen.opcode, seen.wr_id, seen.byte_len) == (e.IBV_WC_RECV, 77, 5)
        assert self.there.mr.read(5, 0) == b"hello"
        self.ends_in(e.IBV_WC_SUCCESS)

    def test_a_send_has_an_immediate(self) -> None:
        self.there.receive(64)
        self.here.post(e.IBV_WR_SEND_WITH_IMM, [self.here.piece(5)], imm_data=7)
        assert self.there.completion().imm_data == 7

    def test_a_read_brings_what_is_there(self) -> None:
        self.there.mr.write(b"theirs", 6)
        self.here.post(e.IBV_WR_RDMA_READ, [self.here.piece(6)], self.there)
        seen = self.here.completion()
        assert (seen.status, seen.opcode) == (e.IBV_WC_SUCCESS, e.IBV_WC_RDMA_READ)
        assert self.here.mr.read(6, 0) == b"theirs"

    def test_both_write_at_once(self) -> None:
        for end, other in ((self.here, self.there), (self.there, self.here)):
            end.post(e.IBV_WR_RDMA_WRITE, [end.piece(4096)], other, address=other.mr.buf + 8192)
        self.ends_in(e.IBV_WC_SUCCESS)
        self.ends_in(e.IBV_WC_SUCCESS, self.there)

    def test_a_wrong_remote_key_is_an_error(self) -> None:
        self.here.post(e.IBV_WR_RDMA_WRITE, [self.here.piece(8)], self.there, rkey=self.there.mr.rkey ^ 0xFF00)
        self.ends_in(e.IBV_WC_REM_ACCESS_ERR)

    def test_what_is_past_the_region_is_an_error(self) -> None:
        end = self.there.mr.buf + MEMORY - 4
        self.here.post(e.IBV_WR_RDMA_WRITE, [self.here.piece(8)], self.there, address=end)
        self.ends_in(e.IBV_WC_REM_ACCESS_ERR)

    def test_a_wrong_local_key_is_an_error(self) -> None:
        self.here.post(e.IBV_WR_RDMA_WRITE, [SGE(self.here.mr.buf, 8, self.here.mr.lkey ^ 0xFF00)], self.there)
        self.ends_in(e.IBV_WC_LOC_PROT_ERR)

    def test_what_follows_an_error_is_flushed(self) -> None:
        self.here.post(e.IBV_WR_RDMA_WRITE, [self.here.piece(8)], self.there, rkey=self.there.mr.rkey ^ 0xFF00)
        self.here.post(e.IBV_WR_RDMA_WRITE, [self.here.piece(8)], self.there, wr_id=6)
        self.ends_in(e.IBV_WC_REM_ACCESS_ERR)
        self.ends_in(e.IBV_WC_WR_FLUSH_ERR)
        assert self.here.qp.query(e.IBV_QP_STATE)[0].qp_state == e.IBV_QPS_ERR

    def test_atomic_operations_are_refused(self) -> None:
        request = SendWR(opcode=e.IBV_WR_ATOMIC_FETCH_AND_ADD, num_sge=1, sg=[self.here.piece(8)])
        request.set_wr_atomic(self.there.mr.rkey, self.there.mr.buf, 1)
        with self.assertRaises(PyverbsRDMAError) as seen:
            self.here.qp.post_send(request)
        assert abs(seen.exception.error_code) == errno.EOPNOTSUPP

    def test_more_than_the_queue_holds_is_refused(self) -> None:
        with self.assertRaises(PyverbsRDMAError) as seen:
            for _ in range(MOST + 1):
                self.there.receive(8)
        assert abs(seen.exception.error_code) == errno.ENOMEM
