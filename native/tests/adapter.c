/*
 * An adapter that turns verbs into mrc.h, as some run in production: it opens the library by path, finds 13 functions of
 * mrc.h with dlsym and 7 of libibverbs with dlvsym, and uses nothing else of the transport. Memory is registered by the
 * library that it finds beside, here the same one.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mrc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                            \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

#define OF_MRC(name) static __typeof__(&mrc_##name) name;
#define OF_VERBS(name) static __typeof__(&ibv_##name) verbs_##name;
#define MRC_FUNCTIONS(EACH)                                                                                            \
    EACH(query_device) EACH(create_context) EACH(destroy_context) EACH(create_cq) EACH(poll_cq) EACH(destroy_cq)       \
    EACH(create_qp) EACH(destroy_qp) EACH(query_qp) EACH(modify_qp) EACH(get_qpn) EACH(post_recv) EACH(post_send)
#define VERBS_FUNCTIONS(EACH)                                                                                          \
    EACH(get_device_list) EACH(get_device_name) EACH(open_device) EACH(close_device) EACH(create_qp) EACH(create_cq)   \
    EACH(query_gid)
#undef ibv_reg_mr
MRC_FUNCTIONS(OF_MRC)
VERBS_FUNCTIONS(OF_VERBS)
static struct ibv_pd *(*alloc_pd)(struct ibv_context *);
static struct ibv_mr *(*reg_mr)(struct ibv_pd *, void *, size_t, int);

static void find_functions(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        fprintf(stderr, "%s\n", dlerror());
    CHECK(library != NULL);
#define FIND_MRC(name) CHECK((*(void **)&name = dlsym(library, "mrc_" #name)) != NULL);
#define FIND_VERBS(name) CHECK((*(void **)&verbs_##name = dlvsym(library, "ibv_" #name, "IBVERBS_1.1")) != NULL);
    MRC_FUNCTIONS(FIND_MRC)
    VERBS_FUNCTIONS(FIND_VERBS)
    CHECK((*(void **)&alloc_pd = dlvsym(library, "ibv_alloc_pd", "IBVERBS_1.1")) != NULL);
    CHECK((*(void **)&reg_mr = dlvsym(library, "ibv_reg_mr", "IBVERBS_1.1")) != NULL);
}

struct end {
    struct ibv_context *device;
    struct mrc_context *context;
    struct mrc_cq *cq;
    struct mrc_qp *qp;
    struct ibv_mr *mr;
    uint32_t qpn;
    uint8_t memory[4096];
};

static void open_end(struct end *end)
{
    struct ibv_device **list = verbs_get_device_list(NULL);
    struct mrc_device_attr about;
    int supported = 0;
    CHECK(list != NULL && strcmp(verbs_get_device_name(list[0]), "mrc0") == 0);
    CHECK((end->device = verbs_open_device(list[0])) != NULL);
    CHECK(query_device(end->device, &about, &supported) == 0 && supported && about.mpr_attr.max_mpr > 0);
    CHECK((end->context = create_context(end->device, NULL)) != NULL);
    struct ibv_pd *pd = alloc_pd(end->device);
    CHECK((end->cq = create_cq(end->context, 64, NULL, NULL, 0)) != NULL);
    CHECK((end->mr = reg_mr(pd, end->memory, sizeof end->memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)));
    struct mrc_qp_init_attr init = {.send_cq = end->cq, .recv_cq = end->cq, .pd = pd, .cap = {16, 16, 1, 1, 0}};
    CHECK((end->qp = create_qp(end->context, &init)) != NULL && get_qpn(end->qp, &end->qpn) == 0);
}

static void bring_up(struct end *end, const struct end *other)
{
    struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_4096, .rq_psn = 5};
    struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS, .sq_psn = 5}, now;
    struct mrc_qp_attr mrc = {.timeout = 14, .mpr = {32, 32}, .wimm = {16, 16}, .retry = {7, 7}};
    struct mrc_qp_init_attr given;
    rtr.dest_qp_num = other->qpn;
    rtr.ah_attr.is_global = 1;
    CHECK(verbs_query_gid(other->device, 1, 3, &rtr.ah_attr.grh.dgid) == 0);
    CHECK(modify_qp(end->qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, &mrc, 0) == 0);
    CHECK(modify_qp(end->qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_PATH_MTU, &mrc,
                    MRC_QP_MAX_WIMM_DEST | MRC_QP_MPR_DEST | MRC_QP_CAP) == 0);
    CHECK(modify_qp(end->qp, &rts, IBV_QP_STATE | IBV_QP_SQ_PSN, &mrc,
                    MRC_QP_MAX_WIMM | MRC_QP_MPR | MRC_QP_RETRY_CNT | MRC_QP_TIMEOUT) == 0);
    CHECK(query_qp(end->qp, &now, IBV_QP_STATE, NULL, 0, &given) == 0 && now.qp_state == IBV_QPS_RTS);
}

static struct ibv_wc completion(struct end *end)
{
    struct ibv_wc wc;
    int count;
    while ((count = poll_cq(end->cq, 1, &wc)) == 0)
        ;
    CHECK(count == 1 && wc.status == IBV_WC_SUCCESS);
    return wc;
}

int main(int count, char **words)
{
    static struct end a, b;
    CHECK(count == 2);
    find_functions(words[1]);
    open_end(&a);
    open_end(&b);
    bring_up(&a, &b);
    bring_up(&b, &a);
    for (uint32_t turn = 0; turn < 100; turn++) {
        struct end *from = turn % 2 ? &b : &a, *to = turn % 2 ? &a : &b;
        struct ibv_recv_wr receive = {.wr_id = turn}, *bad_receive;
        struct ibv_sge sge = {(uintptr_t)from->memory, sizeof from->memory, from->mr->lkey};
        struct ibv_send_wr wr = {.wr_id = turn, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM};
        struct ibv_send_wr *bad;
        wr.send_flags = IBV_SEND_SIGNALED;
        wr.imm_data = turn;
        wr.wr.rdma.remote_addr = (uintptr_t)to->memory;
        wr.wr.rdma.rkey = to->mr->rkey;
        memset(from->memory, (int)turn + 1, sizeof from->memory);
        CHECK(post_recv(to->qp, &receive, &bad_receive) == 0 && post_send(from->qp, &wr, &bad) == 0);
        CHECK(completion(to).imm_data == turn && to->memory[4095] == (uint8_t)(turn + 1));
        CHECK(completion(from).wr_id == turn);
    }
    CHECK(destroy_qp(a.qp) == 0 && destroy_qp(b.qp) == 0 && destroy_cq(a.cq) == 0 && destroy_cq(b.cq) == 0);
    CHECK(destroy_context(a.context) == 0 && destroy_context(b.context) == 0);
    return 0;
}
