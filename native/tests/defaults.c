/* mrc.h with as little as its published examples pass: what is left out is chosen. */
#include <mrc.h>

#include "both_ends.h"

struct side {
    struct mrc_context *context;
    struct mrc_comp_channel *channel;
    struct mrc_qp_hint *hint;
    struct mrc_cq *cq;
    struct mrc_qp *qp;
};

static struct side open_side(struct end *end)
{
    struct side side = {0};
    struct mrc_device_attr attr;
    struct mrc_qp_hint_init_attr hint = {.attr = {.num_qps_per_peer = 2}};
    int supported = -1;
    CHECK(mrc_query_device(end->context, &attr, &supported) == 0 && supported == 1);
    CHECK((side.context = mrc_create_context(end->context, NULL)) != NULL);
    CHECK(mrc_create_comp_channel(side.context, &side.channel) == 0 && side.channel != NULL);
    CHECK((side.hint = mrc_create_qp_hint(side.context, &hint)) != NULL);
    CHECK((side.cq = mrc_create_cq(side.context, 16, NULL, side.channel, 0)) != NULL);
    struct mrc_qp_init_attr init = {.send_cq = side.cq, .recv_cq = side.cq, .pd = end->pd, .cap = {16, 16, 1, 1, 0}};
    CHECK((side.qp = mrc_create_qp(side.context, &init)) != NULL);
    return side;
}

static void bring_up_side(struct side *side, const struct side *other, struct end *far)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT};
    struct mrc_qp_attr mrc = {.qp_hint = side->hint};
    CHECK(mrc_modify_qp(side->qp, &attr, IBV_QP_STATE, &mrc,
                        MRC_QP_EV_PROFILE_ID | MRC_QP_CC_PROFILE_ID | MRC_QP_HINT) == 0);
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .ah_attr = {.is_global = 1, .port_num = 1}};
    CHECK(mrc_get_qpn(other->qp, &attr.dest_qp_num) == 0);
    CHECK(ibv_query_gid(far->context, 1, 3, &attr.ah_attr.grh.dgid) == 0);
    CHECK(mrc_modify_qp(side->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_DEST_QPN, NULL, 0) == 0);
    attr.qp_state = IBV_QPS_RTS;
    CHECK(mrc_modify_qp(side->qp, &attr, IBV_QP_STATE, NULL, 0) == 0);
}

int main(void)
{
    struct end ends[2] = {open_end(), open_end()};
    struct side sides[2] = {open_side(&ends[0]), open_side(&ends[1])};
    bring_up_side(&sides[0], &sides[1], &ends[1]);
    bring_up_side(&sides[1], &sides[0], &ends[0]);
    memset(ends[0].memory, 'x', MEMORY);
    struct ibv_sge piece = {(uintptr_t)ends[0].memory, MEMORY, ends[0].mr->lkey};
    struct ibv_send_wr wr = {.wr_id = 1, .sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = (uintptr_t)ends[1].memory;
    wr.wr.rdma.rkey = ends[1].mr->rkey;
    CHECK(mrc_post_send(sides[0].qp, &wr, &bad) == 0);
    struct ibv_wc wc;
    int count = 0;
    for (double until = seconds() + 10; count == 0 && seconds() < until;)
        count = mrc_poll_cq(sides[0].cq, 1, &wc);
    CHECK(count == 1 && wc.status == IBV_WC_SUCCESS && memcmp(ends[0].memory, ends[1].memory, MEMORY) == 0);
    for (int i = 0; i < 2; i++) {
        CHECK(mrc_destroy_qp(sides[i].qp) == 0 && mrc_destroy_qp_hint(sides[i].hint) == 0);
        CHECK(mrc_destroy_cq(sides[i].cq) == 0 && mrc_destroy_comp_channel(sides[i].channel) == 0);
        CHECK(mrc_destroy_context(sides[i].context) == 0);
        close_end(&ends[i]);
    }
    return 0;
}
