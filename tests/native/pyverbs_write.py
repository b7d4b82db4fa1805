"""Write through pyverbs of Debian, with its Python: the device is listed, two queue pairs connect, bytes arrive."""

from typing import Any

import pyverbs.enums as e  # type: ignore[import-not-found]
from pyverbs.addr import AHAttr, GlobalRoute  # type: ignore[import-not-found]
from pyverbs.cq import CQ  # type: ignore[import-not-found]
from pyverbs.device import Context, get_device_list  # type: ignore[import-not-found]
from pyverbs.mr import MR  # type: ignore[import-not-found]
from pyverbs.pd import PD  # type: ignore[import-not-found]
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr  # type: ignore[import-not-found]
from pyverbs.wr import SGE, SendWR  # type: ignore[import-not-found]


class End:
    """A context with one queue pair and a page of memory."""

    def __init__(self) -> None:
        self.context = Context(name="mrc0")
        self.pd = PD(self.context)
        self.cq = CQ(self.context, 64)
        self.mr = MR(self.pd, 4096, e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE)
        cap = QPCap(max_send_wr=16, max_recv_wr=16, max_send_sge=1, max_recv_sge=1)
        self.qp = QP(self.pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=cap, sq_sig_all=1))

    def bring_up(self, other: Any) -> None:
        """Go to RTS towards another end."""
        attr = QPAttr(qp_state=e.IBV_QPS_INIT, port_num=1)
        attr.qp_access_flags = e.IBV_ACCESS_REMOTE_WRITE
        attr.dest_qp_num, attr.path_mtu, attr.rq_psn, attr.sq_psn = other.qp.qp_num, e.IBV_MTU_4096, 3, 3
        attr.timeout, attr.retry_cnt, attr.rnr_retry = 14, 7, 7
        route = GlobalRoute(dgid=other.context.query_gid(1, 3), sgid_index=3)
        attr.ah_attr = AHAttr(gr=route, is_global=1, port_num=1)
        self.qp.to_rts(attr)


def main() -> None:
    """Write seven bytes from one end to another."""
    assert [device.name.decode() for device in get_device_list()] == ["mrc0"]
    here, there = End(), End()
    here.bring_up(there)
    there.bring_up(here)
    here.mr.write(b"pyverbs", 7)
    request = SendWR(wr_id=5, opcode=e.IBV_WR_RDMA_WRITE, num_sge=1, sg=[SGE(here.mr.buf, 7, here.mr.lkey)])
    request.set_wr_rdma(there.mr.rkey, there.mr.buf)
    here.qp.post_send(request)
    found = 0
    while found == 0:
        found, completions = here.cq.poll()
    assert (completions[0].status, completions[0].wr_id) == (e.IBV_WC_SUCCESS, 5)
    assert there.mr.read(7, 0) == b"pyverbs"


if __name__ == "__main__":
    main()
