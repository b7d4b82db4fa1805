# ruff: noqa: PT027 - Debian has pytest in a package of its own
"""Devices, protection domains, regions and completion queues through pyverbs, in the manner of rdma-core's own tests.

What is right is what the manual pages of libibverbs say. Run by `pyverbs_runner.py`.
"""

from __future__ import annotations

import errno
import unittest
from collections.abc import Callable
from typing import Any

import pyverbs.enums as e  # type: ignore[import-not-found]
from pyverbs.cq import CQ, CompChannel  # type: ignore[import-not-found]
from pyverbs.device import Context, get_device_list  # type: ignore[import-not-found]
from pyverbs.mr import MR  # type: ignore[import-not-found]
from pyverbs.pd import PD  # type: ignore[import-not-found]
from pyverbs.pyverbs_error import PyverbsError, PyverbsRDMAError  # type: ignore[import-not-found]

GIDS = 4
LOCAL, REMOTE = e.IBV_ACCESS_LOCAL_WRITE, e.IBV_ACCESS_REMOTE_WRITE


class Opened(unittest.TestCase):
    """A test with an open device."""

    def setUp(self) -> None:
        self.context = Context(name="mrc0")
        self.pd = PD(self.context)

    def tearDown(self) -> None:
        self.context.close()

    def refused(self, code: int, call: Callable[..., Any], *args: Any, **words: Any) -> None:
        """Check that a call is refused with an error number, of either sign."""
        with self.assertRaises(PyverbsRDMAError) as seen:
            call(*args, **words)
        assert abs(seen.exception.error_code) == code


class TestDevice(Opened):
    """What a device says of itself."""

    def test_the_list_has_one_device(self) -> None:
        assert [device.name for device in get_device_list()] == [b"mrc0"]

    def test_the_list_says_its_kind(self) -> None:
        device = get_device_list()[0]
        assert (device.node_type, device.transport_type) == (e.IBV_NODE_CA, e.IBV_TRANSPORT_IB)

    def test_an_unknown_name_cannot_be_opened(self) -> None:
        with self.assertRaises(PyverbsError):
            Context(name="mrc7")

    def test_it_may_be_closed_twice(self) -> None:
        self.context.close()
        self.context.close()

    def test_the_guid_is_the_same_everywhere(self) -> None:
        big, raw = get_device_list()[0].guid, self.context.query_device().node_guid
        assert big.to_bytes(8, "big") == raw.to_bytes(8, "little")

    def test_its_limits_are_usable(self) -> None:
        has = self.context.query_device()
        least = (has.max_qp, has.max_qp_wr, has.max_sge, has.max_cq, has.max_cqe, has.max_mr, has.max_pd)
        assert all(count > 0 for count in least), least

    def test_it_has_one_port(self) -> None:
        assert self.context.query_device().phys_port_cnt == 1

    def test_it_has_no_atomic_operations(self) -> None:
        assert self.context.query_device().atomic_caps == e.IBV_ATOMIC_NONE

    def test_the_extended_query_says_the_same(self) -> None:
        assert self.context.query_device_ex().orig_attr.max_qp_wr == self.context.query_device().max_qp_wr

    def test_the_port_is_active_ethernet(self) -> None:
        port = self.context.query_port(1)
        assert (port.state, port.link_layer) == (e.IBV_PORT_ACTIVE, e.IBV_LINK_LAYER_ETHERNET)

    def test_the_port_has_as_many_gids_as_it_says(self) -> None:
        assert self.context.query_port(1).gid_tbl_len == GIDS

    def test_there_is_no_port_0(self) -> None:
        self.refused(errno.EINVAL, self.context.query_port, 0)

    def test_there_is_no_port_2(self) -> None:
        self.refused(errno.EINVAL, self.context.query_port, 2)

    def test_every_gid_can_be_read(self) -> None:
        gids = {self.context.query_gid(1, index).gid for index in range(GIDS)}
        assert "0000:0000:0000:0000:0000:0000:0000:0000" not in gids

    def test_a_gid_past_the_table_is_refused(self) -> None:
        with self.assertRaises(PyverbsRDMAError):
            self.context.query_gid(1, GIDS)

    def test_gids_are_of_roce_v2(self) -> None:
        assert self.context.query_gid_type(1, 3) == e.IBV_GID_TYPE_SYSFS_ROCE_V2

    def test_an_entry_says_its_place_and_its_kind(self) -> None:
        entry = self.context.query_gid_ex(1, 3)
        assert (entry.port_num, entry.gid_index, entry.gid_type) == (1, 3, e.IBV_GID_TYPE_ROCE_V2)

    def test_the_whole_table_is_read(self) -> None:
        assert [entry.gid_index for entry in self.context.query_gid_table(GIDS)] == list(range(GIDS))

    def test_a_larger_buffer_gets_no_more(self) -> None:
        assert len(self.context.query_gid_table(2 * GIDS)) == GIDS

    def test_a_part_of_the_table_is_not_read(self) -> None:
        self.refused(errno.EINVAL, self.context.query_gid_table, GIDS - 1)

    def test_the_partition_is_the_default_one(self) -> None:
        assert self.context.query_pkey(1, 0) & 65535 == 65535

    def test_there_is_one_partition(self) -> None:
        with self.assertRaises(PyverbsRDMAError):
            self.context.query_pkey(1, 1)


class TestMr(Opened):
    """Memory that is registered."""

    def test_a_byte_can_be_registered(self) -> None:
        assert MR(self.pd, 1, LOCAL).length == 1

    def test_megabytes_can_be_registered(self) -> None:
        assert MR(self.pd, 1 << 22, LOCAL).length == 1 << 22

    def test_nothing_cannot_be_registered(self) -> None:
        with self.assertRaises(PyverbsError):
            MR(self.pd, 0, LOCAL)

    def test_what_is_written_is_read(self) -> None:
        region = MR(self.pd, 4096, LOCAL)
        region.write(b"abc", 3, 4093)
        assert region.read(3, 4093) == b"abc"

    def test_two_regions_have_keys_of_their_own(self) -> None:
        one, two = MR(self.pd, 4096, LOCAL), MR(self.pd, 4096, LOCAL)
        assert (one.lkey, one.rkey) != (two.lkey, two.rkey)

    def test_regions_may_share_memory(self) -> None:
        one = MR(self.pd, 4096, LOCAL)
        two = MR(self.pd, 4096, LOCAL, address=one.buf)
        one.write(b"x", 1)
        assert two.read(1, 0) == b"x"

    def test_a_remote_write_needs_a_local_one(self) -> None:
        self.refused(errno.EINVAL, MR, self.pd, 4096, REMOTE)

    def test_a_region_may_be_read_only(self) -> None:
        assert MR(self.pd, 4096, 0).length == 4096

    def test_all_that_is_offered_goes_together(self) -> None:
        access = LOCAL | REMOTE | e.IBV_ACCESS_REMOTE_READ | e.IBV_ACCESS_RELAXED_ORDERING
        assert MR(self.pd, 4096, access).length == 4096

    def test_addresses_may_count_from_zero(self) -> None:
        assert MR(self.pd, 4096, LOCAL | e.IBV_ACCESS_ZERO_BASED).length == 4096

    def test_paging_on_demand_is_refused(self) -> None:
        self.refused(errno.EOPNOTSUPP, MR, self.pd, 4096, LOCAL | e.IBV_ACCESS_ON_DEMAND)

    def test_windows_are_refused(self) -> None:
        self.refused(errno.EOPNOTSUPP, MR, self.pd, 4096, LOCAL | e.IBV_ACCESS_MW_BIND)

    def test_memory_that_is_not_there_is_refused(self) -> None:
        self.refused(errno.EFAULT, MR, self.pd, 4096, LOCAL, address=4096)

    def test_it_may_be_closed_twice(self) -> None:
        region = MR(self.pd, 4096, LOCAL)
        region.close()
        region.close()

    def test_it_cannot_change(self) -> None:
        region = MR(self.pd, 4096, LOCAL)
        with self.assertRaises(PyverbsRDMAError):
            region.rereg(e.IBV_REREG_MR_CHANGE_ACCESS, None, 0, 0, LOCAL)


class TestCq(Opened):
    """Queues of completions."""

    def test_it_has_at_least_what_was_asked_for(self) -> None:
        assert CQ(self.context, 100).cqe >= 100

    def test_it_may_be_as_long_as_the_device_says(self) -> None:
        most = self.context.query_device().max_cqe
        assert CQ(self.context, most).cqe >= most

    def test_it_may_not_be_longer(self) -> None:
        self.refused(errno.EINVAL, CQ, self.context, self.context.query_device().max_cqe + 1)

    def test_none_cannot_be_asked_for(self) -> None:
        self.refused(errno.EINVAL, CQ, self.context, 0)

    def test_it_begins_empty(self) -> None:
        assert CQ(self.context, 4).poll(4) == (0, [])

    def test_queues_may_share_a_channel(self) -> None:
        channel = CompChannel(self.context)
        queues = [CQ(self.context, 4, None, channel, 0) for _ in range(2)]
        for queue in queues:
            queue.req_notify()
        assert queues[0] != queues[1]

    def test_there_is_no_vector_1000(self) -> None:
        self.refused(errno.EINVAL, CQ, self.context, 4, None, None, 1000)

    def test_its_length_stays(self) -> None:
        with self.assertRaises(PyverbsRDMAError):
            CQ(self.context, 4).resize(8)

    def test_it_may_be_closed_twice(self) -> None:
        queue = CQ(self.context, 4)
        queue.close()
        queue.close()
