/*
 * The smallest whole program: two queue pairs of one device, and a write from the memory of one into that of the other.
 *
 *     cc write_memory.c -libverbs -o write_memory
 *     mrc run --planes loopback ./write_memory
 */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(int holds, const char *what)
{
    if (!holds) {
        perror(what);
        exit(1);
    }
}

static struct ibv_qp *made(struct ibv_pd *pd, struct ibv_cq *cq)
{
    struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = {8, 8, 1, 1, 0}};
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    must(qp != NULL, "ibv_create_qp");
    return qp;
}

static void connect_to(struct ibv_qp *qp, struct ibv_qp *peer, union ibv_gid gid)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    must(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0, "INIT");
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_4096, .dest_qp_num = peer->qp_num};
    attr.ah_attr = (struct ibv_ah_attr){.is_global = 1, .port_num = 1, .grh = {.dgid = gid, .hop_limit = 64}};
    attr.max_dest_rd_atomic = 1;
    int changes = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    changes |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    must(ibv_modify_qp(qp, &attr, IBV_QP_STATE | changes) == 0, "RTR");
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 20, .retry_cnt = 7, .max_rd_atomic = 1};
    changes = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
    must(ibv_modify_qp(qp, &attr, IBV_QP_STATE | changes) == 0, "RTS");
}

int main(void)
{
    static char from[1 << 20] = "written by MRC", to[1 << 20];
    struct ibv_device **devices = ibv_get_device_list(NULL);
    must(devices != NULL && devices[0] != NULL, "no device: run with mrc run");
    struct ibv_context *context = ibv_open_device(devices[0]);
    must(context != NULL, "ibv_open_device");
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
    struct ibv_mr *source = ibv_reg_mr(pd, from, sizeof from, 0);
    struct ibv_mr *target = ibv_reg_mr(pd, to, sizeof to, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    must(source != NULL && target != NULL, "ibv_reg_mr");
    union ibv_gid gid;
    must(ibv_query_gid(context, 1, 0, &gid) == 0, "ibv_query_gid");
    struct ibv_qp *left = made(pd, cq), *right = made(pd, cq);
    connect_to(left, right, gid);
    connect_to(right, left, gid);

    struct ibv_sge piece = {(uintptr_t)from, sizeof from, source->lkey};
    struct ibv_send_wr write = {.sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
    write.send_flags = IBV_SEND_SIGNALED;
    write.wr.rdma.remote_addr = (uintptr_t)to;
    write.wr.rdma.rkey = target->rkey;
    must(ibv_post_send(left, &write, &bad) == 0, "ibv_post_send");
    struct ibv_wc done;
    while (ibv_poll_cq(cq, 1, &done) == 0)
        ;
    printf("%s: %s, %zu bytes %s\n", ibv_get_device_name(devices[0]), ibv_wc_status_str(done.status), sizeof to,
        memcmp(from, to, sizeof to) == 0 ? to : "differ");
    return done.status != IBV_WC_SUCCESS;
}
