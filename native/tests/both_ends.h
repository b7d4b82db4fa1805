/* Two endpoints in one process, each with a queue pair to the other: what tests of the verbs device begin with. */
#pragma once

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                            \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

struct end {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    uint8_t *memory;
};

#define MEMORY (1 << 20)
#define EVERY_ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

/* What an end must know of another one. */
struct far_end {
    union ibv_gid gid;
    uint32_t qpn, rkey;
    uint64_t address;
};

static inline double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Change a setting of the environment for a while; return what it was, for `put_back`. */
static inline char *put_setting(const char *name, const char *value)
{
    const char *set = getenv(name);
    char *before = set != NULL ? strdup(set) : NULL;
    CHECK((set == NULL || before != NULL) && setenv(name, value, 1) == 0);
    return before;
}

static inline void put_back(const char *name, char *before)
{
    CHECK((before != NULL ? setenv(name, before, 1) : unsetenv(name)) == 0);
    free(before);
}

/* Open all of an end; what could be opened stays there when something fails, with errno. */
static inline bool try_open_end(struct end *end)
{
    int count;
    struct ibv_device **list = ibv_get_device_list(&count);
    if (list == NULL)
        return false;
    CHECK(count >= 1 && strcmp(ibv_get_device_name(list[0]), "mrc0") == 0);
    end->context = ibv_open_device(list[0]);
    int error = errno;
    ibv_free_device_list(list);
    errno = error;
    struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {128, 128, 4, 1, 256}};
    if (end->context == NULL || (end->pd = ibv_alloc_pd(end->context)) == NULL
        || (end->channel = ibv_create_comp_channel(end->context)) == NULL
        || (end->cq = ibv_create_cq(end->context, 1000, end, end->channel, 0)) == NULL)
        return false;
    CHECK((end->memory = aligned_alloc(4096, MEMORY)) != NULL);
    memset(end->memory, 0, MEMORY);
    init.send_cq = init.recv_cq = end->cq;
    return (end->mr = ibv_reg_mr(end->pd, end->memory, MEMORY, EVERY_ACCESS)) != NULL
        && (end->qp = ibv_create_qp(end->pd, &init)) != NULL;
}

static inline struct end open_end(void)
{
    struct end end = {0};
    CHECK(try_open_end(&end));
    end.cq->cq_context = NULL; /* the end moves */
    return end;
}

/* Close what is open. */
static inline void close_end(struct end *end)
{
    CHECK(end->qp == NULL || ibv_destroy_qp(end->qp) == 0);
    CHECK(end->cq == NULL || ibv_destroy_cq(end->cq) == 0);
    CHECK(end->channel == NULL || ibv_destroy_comp_channel(end->channel) == 0);
    CHECK(end->mr == NULL || ibv_dereg_mr(end->mr) == 0);
    CHECK(end->pd == NULL || ibv_dealloc_pd(end->pd) == 0);
    CHECK(end->context == NULL || ibv_close_device(end->context) == 0);
    free(end->memory);
}

static inline struct far_end seen_from_afar(const struct end *end)
{
    struct far_end seen = {.qpn = end->qp->qp_num, .rkey = end->mr->rkey, .address = (uintptr_t)end->memory};
    CHECK(ibv_query_gid(end->context, 1, 3, &seen.gid) == 0);
    return seen;
}

#define TO_INIT (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define TO_RTR                                                                                                         \
    (IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC           \
     | IBV_QP_MIN_RNR_TIMER)
#define TO_RTS                                                                                                         \
    (IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC)

/* Ask for a state, with what verbs want on the way to it. */
static inline int move_to(struct end *end, const struct far_end *other, enum ibv_qp_state state)
{
    struct ibv_qp_attr attr = {.qp_state = state, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
                               .path_mtu = IBV_MTU_1024, .dest_qp_num = other->qpn, .rq_psn = 3, .sq_psn = 5,
                               .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
                               .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = other->gid}}};
    return ibv_modify_qp(end->qp, &attr, state == IBV_QPS_INIT  ? TO_INIT
                                         : state == IBV_QPS_RTR ? TO_RTR
                                         : state == IBV_QPS_RTS ? TO_RTS
                                                                : IBV_QP_STATE);
}

/* RESET to RTS towards another end, with the timeouts of a test; 0 or what the first step that fails returns. */
static inline int try_bring_up_to(struct end *end, const struct far_end *other, int timeout, int retries)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    int error = ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_4096, .rq_psn = 17};
    attr.dest_qp_num = other->qpn;
    attr.ah_attr = (struct ibv_ah_attr){.is_global = 1, .port_num = 1, .grh = {.dgid = other->gid}};
    if (error == 0)
        error = ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN
                                                  | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .sq_psn = 17, .timeout = (uint8_t)timeout,
                                .retry_cnt = (uint8_t)retries, .rnr_retry = 7};
    if (error == 0)
        error = ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY
                                                  | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
    return error;
}

static inline void bring_up_to(struct end *end, const struct far_end *other, int timeout, int retries)
{
    CHECK(try_bring_up_to(end, other, timeout, retries) == 0);
}

static inline void bring_up(struct end *end, const struct end *other, int timeout, int retries)
{
    struct far_end seen = seen_from_afar(other);
    bring_up_to(end, &seen, timeout, retries);
}

static inline void connected(struct end *a, struct end *b, int timeout, int retries)
{
    *a = open_end();
    *b = open_end();
    bring_up(a, b, timeout, retries);
    bring_up(b, a, timeout, retries);
}

static inline int post_write(struct end *from, const struct end *to, uint64_t id, size_t offset, size_t length,
                             enum ibv_wr_opcode opcode, unsigned flags)
{
    struct ibv_sge sge = {(uintptr_t)from->memory + offset, (uint32_t)length, from->mr->lkey};
    struct ibv_send_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = flags}, *bad;
    wr.imm_data = (uint32_t)id;
    wr.wr.rdma.remote_addr = (uintptr_t)to->memory + offset;
    wr.wr.rdma.rkey = to->mr->rkey;
    return ibv_post_send(from->qp, &wr, &bad);
}

/* Poll for one completion, at most `limit` seconds. */
static inline struct ibv_wc next_completion(struct end *end, double limit)
{
    struct ibv_wc wc = {0};
    double until = seconds() + limit;
    int count = 0;
    while (count == 0 && seconds() < until)
        count = ibv_poll_cq(end->cq, 1, &wc);
    CHECK(count == 1);
    return wc;
}
