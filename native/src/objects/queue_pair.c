/* Queue pairs: their life and their attributes. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "objects/objects.h"
#include "endpoint/published.h"
#include "endpoint/report.h"

#define TIMEOUT_UNIT_PS 4096000LL /* of verbs: 4.096 us x 2^timeout (IBTA volume 1, 9.9.2.1) */
#define MOST_TIMEOUT 31
#define MOST_RETRIES 7
#define DEFAULT_TIMEOUT 14 /* 67 ms, what programs pass most */
#define LEAST_DEPTH 256
#define FIRST_OF_RINGS (1 << 30) /* numbers of domains that no program opens: a ring of SEND lies in each */
#define MOST_OLD_TRAINS 1000 /* that are looked through for what has come; others may send on */

static const enum ibv_qp_state states[] = {
    [MRC_QP_STATE_RESET] = IBV_QPS_RESET, [MRC_QP_STATE_INIT] = IBV_QPS_INIT, [MRC_QP_STATE_RTR] = IBV_QPS_RTR,
    [MRC_QP_STATE_RTS] = IBV_QPS_RTS,     [MRC_QP_STATE_ERROR] = IBV_QPS_ERR,
};

/*
 * The state that the program sees. A receiver of emulated SENDs must send grants, and programs that only receive stay in
 * RTR: such a queue pair of the engine goes to RTS at once.
 */
static enum ibv_qp_state state_of(const struct qp *qp)
{
    const struct endpoint *endpoint = its_context(qp->verbs.context)->endpoint;
    enum ibv_qp_state state = states[__atomic_load_n(&endpoint->qps[qp->row].state, __ATOMIC_RELAXED)];
    if (__atomic_load_n(&qp->ends, __ATOMIC_ACQUIRE))
        return IBV_QPS_ERR;
    return qp->emulation != NULL && state == IBV_QPS_RTS && !qp->sends ? IBV_QPS_RTR : state;
}

static const struct emulator *emulator_of(const struct qp *qp)
{
    return its_context(qp->verbs.context)->emulator;
}

/* Hold off the thread that answers READs. */
static void hold(struct qp *qp)
{
    if (qp->emulation != NULL)
        emulator_of(qp)->lock(qp);
}

static void let_go(struct qp *qp)
{
    if (qp->emulation != NULL)
        emulator_of(qp)->unlock(qp);
}

static void fill_unchanged(int64_t words[MRC_ATTRIBUTES])
{
    for (int word = 0; word < MRC_ATTRIBUTES; word++)
        words[word] = MRC_UNCHANGED;
}

/* Writes that a send queue must hold: each piece of a request is one. */
static int64_t writes_of(const struct ibv_qp_cap *cap)
{
    return (int64_t)cap->max_send_wr * (cap->max_send_sge > 1 ? cap->max_send_sge : 1);
}

/* Of what was granted, too: programs make one queue pair after another with the same struct. */
static bool caps_are_possible(const struct ibv_qp_cap *cap, bool emulates)
{
    return cap->max_send_wr <= DEPTH_OF_A_QUEUE && cap->max_recv_wr <= MRC_RECEIVES && cap->max_send_sge <= MOST_SGES
        && cap->max_recv_sge <= MOST_SGES && cap->max_inline_data <= MOST_INLINE && (emulates || writes_of(cap) <= MRC_SENDS);
}

static int refusal(const struct endpoint *endpoint, const struct ibv_qp_init_attr *init)
{
    if (init->qp_type != IBV_QPT_RC || init->srq != NULL) {
        report("a %s is not offered: MRC has reliable connections (RC) only",
               init->srq != NULL ? "queue pair with a shared receive queue" : "queue pair of another type than RC");
        return EOPNOTSUPP;
    }
    bool is_possible = caps_are_possible(&init->cap, endpoint->addresses.emulates != 0)
        && init->send_cq != NULL && init->recv_cq != NULL;
    return is_possible && endpoint_is_usable(endpoint) ? 0 : EINVAL;
}

/* A queue pair with its memory and its row; NULL if there is no room. */
static struct qp *allocate(struct context *context)
{
    struct endpoint *endpoint = context->endpoint;
    struct qp *qp = calloc(1, sizeof *qp);
    if (qp == NULL)
        return NULL;
    qp->inlined_bytes = (size_t)MRC_SENDS * MOST_INLINE;
    qp->inlined = mmap(NULL, qp->inlined_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                       -1, 0);
    bool has_memory = qp->inlined != MAP_FAILED && (!endpoint->addresses.emulates || context->emulator->open(qp) == 0);
    qp->row = has_memory ? endpoint_take_qp(endpoint) : NO_ROW;
    qp->peer = NO_ROW;
    if (qp->row != NO_ROW)
        return qp;
    if (qp->emulation != NULL)
        context->emulator->close(qp);
    if (qp->inlined != MAP_FAILED)
        munmap(qp->inlined, qp->inlined_bytes);
    free(qp);
    return NULL;
}

/* Count it as a user of its domain and queues, and let the engine and events find it. */
static void join(struct context *context, struct qp *qp)
{
    struct cq *send = (struct cq *)qp->verbs.send_cq, *receive = (struct cq *)qp->verbs.recv_cq;
    atomic_fetch_add(&((struct pd *)qp->verbs.pd)->users, 1);
    atomic_fetch_add(&send->users, 1);
    atomic_fetch_add(&receive->users, 1);
    context->endpoint->cq_of[2 * qp->row] = send->row;
    context->endpoint->cq_of[2 * qp->row + 1] = receive->row;
    list_qp(context, qp);
}

/*
 * What was asked for can be posted, and no more is granted: a program that fills what it was granted has a completion queue
 * for as many. A send queue of the engine that is no longer than it must be stays in the caches; one that emulates holds
 * requests elsewhere.
 */
static void grant(struct endpoint *endpoint, struct qp *qp, struct ibv_qp_cap *cap)
{
    unsigned pieces = qp->emulation != NULL ? MOST_SGES : cap->max_send_sge > 1 ? cap->max_send_sge : 1;
    qp->depth = qp->emulation != NULL ? MRC_SENDS : LEAST_DEPTH;
    while (qp->depth < writes_of(cap))
        qp->depth *= 2;
    endpoint->qps[qp->row].message_mask = (int32_t)(qp->depth - 1);
    unsigned sends = cap->max_send_wr > 0 ? cap->max_send_wr : 1;
    unsigned receives = cap->max_recv_wr > 0 ? cap->max_recv_wr : 1;
    *cap = (struct ibv_qp_cap){sends, receives, pieces, MOST_SGES, MOST_INLINE};
}

struct ibv_qp *open_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
    struct context *context = its_context(pd->context);
    int error = refusal(context->endpoint, init);
    if (error == 0 && !(is_whole_pd(pd) && is_whole_cq(init->send_cq) && is_whole_cq(init->recv_cq)))
        error = ENOENT;
    if (error != 0)
        return errno = error, NULL;
    struct qp *qp = allocate(context);
    if (qp == NULL)
        return errno = ENOMEM, NULL;
    grant(context->endpoint, qp, &init->cap);
    qp->init = *init;
    qp->verbs.context = pd->context;
    qp->verbs.qp_context = init->qp_context;
    qp->verbs.pd = pd;
    qp->verbs.send_cq = init->send_cq;
    qp->verbs.recv_cq = init->recv_cq;
    qp->verbs.qp_type = IBV_QPT_RC;
    qp->verbs.handle = (uint32_t)qp->row;
    pthread_mutex_init(&qp->verbs.mutex, NULL);
    pthread_cond_init(&qp->verbs.cond, NULL);
    join(context, qp);
    return &qp->verbs;
}

void fail_qp(struct qp *qp)
{
    int64_t words[MRC_ATTRIBUTES];
    fill_unchanged(words);
    mrc_move(its_context(qp->verbs.context)->endpoint->at, qp->row, MRC_QP_EVENT_FAIL, words, MRC_ATTRIBUTES);
}

/* Go to RESET: what was posted never completes, and the peer is no longer needed. The number stays, as in verbs. */
static void reset(struct endpoint *endpoint, struct qp *qp)
{
    int64_t words[MRC_ATTRIBUTES];
    fill_unchanged(words);
    pthread_mutex_lock(&endpoint->posting);
    endpoint_iterate(endpoint); /* requests posted before are dropped with the others */
    published_before_end(endpoint, qp->row);
    mrc_move(endpoint->at, qp->row, MRC_QP_EVENT_TO_RESET, words, MRC_ATTRIBUTES);
    endpoint->qps[qp->row].qpn = (int32_t)qp->verbs.qp_num;
    __atomic_store_n(&endpoint->queues[2 * qp->row].posted, 0, __ATOMIC_RELEASE); /* emulation.c:is_quiet reads it */
    endpoint->queues[2 * qp->row + 1].posted = 0;
    pthread_mutex_unlock(&endpoint->posting);
    qp->sends = false;
    qp->completed = 0;
    if (qp->emulation != NULL)
        emulator_of(qp)->reset(qp);
    if (qp->peer != NO_ROW)
        endpoint_give_peer(endpoint, qp->peer);
    qp->peer = NO_ROW;
}

int close_qp(struct ibv_qp *verbs)
{
    struct qp *qp = (struct qp *)verbs;
    struct context *context = its_context(verbs->context);
    struct endpoint *endpoint = context->endpoint;
    bool usable = endpoint_is_usable(endpoint);
    if (!is_whole_qp(verbs))
        return ENOENT;
    if (usable)
        reset(endpoint, qp);
    forget_qp(context, qp);
    if (qp->emulation != NULL)
        context->emulator->close(qp);
    pthread_mutex_lock(&verbs->mutex);
    while (usable && verbs->events_completed != qp->events_given)
        pthread_cond_wait(&verbs->cond, &verbs->mutex);
    pthread_mutex_unlock(&verbs->mutex);
    if (usable) { /* in a forked child the tables may be the parent's */
        endpoint->cq_of[2 * qp->row] = endpoint->cq_of[2 * qp->row + 1] = NO_ROW;
        mrc_renew_number(endpoint->at, qp->row, (int64_t)(random_bits() >> 1));
    }
    endpoint_give_qp(endpoint, qp->row);
    atomic_fetch_sub(&((struct cq *)verbs->send_cq)->users, 1);
    atomic_fetch_sub(&((struct cq *)verbs->recv_cq)->users, 1);
    atomic_fetch_sub(&((struct pd *)verbs->pd)->users, 1);
    munmap(qp->inlined, qp->inlined_bytes);
    free(qp);
    return 0;
}

static int64_t timeout_ps(int timeout)
{
    /* 0 means to wait for ever; the retry count then does not matter. */
    return TIMEOUT_UNIT_PS << (timeout == 0 || timeout > MOST_TIMEOUT ? MOST_TIMEOUT : timeout);
}

/*
 * The domain in which the engine looks for what the peer writes to: in a context that emulates one that has the ring alone,
 * if the program's queue pair takes no writes.
 */
static int64_t domain_of(const struct qp *qp, unsigned access)
{
    bool takes_writes = qp->emulation == NULL || access & IBV_ACCESS_REMOTE_WRITE;
    return takes_writes ? ((struct pd *)qp->verbs.pd)->number : FIRST_OF_RINGS + qp->row;
}

/* Ring and queue pair cannot change domains together while packets come. */
static bool keeps_its_domain(const struct qp *qp, unsigned access)
{
    bool keeps = domain_of(qp, access) == domain_of(qp, qp->attr.qp_access_flags);
    if (!keeps)
        report("REMOTE_WRITE of a queue pair cannot change after RTR where SEND is emulated");
    return keeps;
}

/* What the peer may do; in a context that emulates the ring is written. */
static int64_t access_of(const struct qp *qp, const struct ibv_qp_attr *attr)
{
    return (attr->qp_access_flags & (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE))
        | (qp->emulation != NULL ? IBV_ACCESS_REMOTE_WRITE : 0);
}

static int to_init(struct qp *qp, const struct ibv_qp_attr *attr, int mask, int64_t *words)
{
    if (!(mask & IBV_QP_ACCESS_FLAGS) || (mask & IBV_QP_PORT && attr->port_num != 1)
        || (mask & IBV_QP_PKEY_INDEX && attr->pkey_index != 0))
        return EINVAL;
    words[MRC_ATTRIBUTE_PD] = domain_of(qp, attr->qp_access_flags);
    words[MRC_ATTRIBUTE_SQ_SIGNAL_ALL] = qp->init.sq_sig_all != 0;
    words[MRC_ATTRIBUTE_TRIM_NACK_DEST] = 1;
    words[MRC_ATTRIBUTE_DYNAMIC_MPR] = 0;
    words[MRC_ATTRIBUTE_ACCESS] = access_of(qp, attr);
    return 0;
}

static int to_rtr(struct qp *qp, const struct ibv_qp_attr *attr, int mask, int64_t *words)
{
    struct context *context = its_context(qp->verbs.context);
    const int needed = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    struct mrc_gid gid;
    if ((mask & needed) != needed || attr->path_mtu < IBV_MTU_256 || attr->path_mtu > largest_mtu(context))
        return EINVAL;
    int64_t mtu = 128LL << attr->path_mtu;
    if (!attr->ah_attr.is_global)
        return report("the peer's address has no GRH (ah_attr.is_global): planes are found by its GID"), EINVAL;
    if (attr->ah_attr.port_num != 1 || attr->ah_attr.grh.sgid_index >= GID_ENTRIES)
        return EINVAL;
    memcpy(gid.raw, attr->ah_attr.grh.dgid.raw, sizeof gid.raw);
    find_gid_in_process(context, attr->dest_qp_num, &gid);
    if (qp->peer == NO_ROW)
        qp->peer = endpoint_take_peer(context->endpoint, &gid);
    if (qp->peer == NO_ROW)
        return errno;
    words[MRC_ATTRIBUTE_PEER] = qp->peer;
    words[MRC_ATTRIBUTE_DEST_QPN] = attr->dest_qp_num;
    words[MRC_ATTRIBUTE_PATH_MTU] = mtu;
    /* An emulating end sends before its program has said with which PSN: both take the sender's number. */
    words[MRC_ATTRIBUTE_EXPECTED_PSN] = qp->emulation != NULL ? attr->dest_qp_num : attr->rq_psn & 0xFFFFFF;
    words[MRC_ATTRIBUTE_MAX_WIMM_DEST] = context->max_wimm;
    words[MRC_ATTRIBUTE_MPR] = words[MRC_ATTRIBUTE_MPR_DEST] = context->mpr;
    return 0;
}

static int to_rts(struct qp *qp, const struct ibv_qp_attr *attr, int mask, int64_t *words)
{
    struct context *context = its_context(qp->verbs.context);
    bool from_rtr = state_of(qp) == IBV_QPS_RTR;
    if (from_rtr && !(mask & IBV_QP_SQ_PSN))
        return EINVAL;
    if (mask & IBV_QP_SQ_PSN && qp->emulation == NULL)
        words[MRC_ATTRIBUTE_FIRST_PSN] = attr->sq_psn & 0xFFFFFF;
    if (from_rtr || mask & IBV_QP_TIMEOUT) {
        int timeout = mask & IBV_QP_TIMEOUT ? attr->timeout : DEFAULT_TIMEOUT;
        words[MRC_ATTRIBUTE_TIMEOUT] = timeout_ps(timeout);
        words[MRC_ATTRIBUTE_EXPONENTIAL_COUNT] = timeout == 0 ? MRC_INFINITE_RETRIES : 0;
    }
    if (from_rtr || mask & IBV_QP_RETRY_CNT)
        words[MRC_ATTRIBUTE_LINEAR_COUNT] = mask & IBV_QP_RETRY_CNT ? attr->retry_cnt : MRC_MAX_LINEAR;
    words[MRC_ATTRIBUTE_MAX_WIMM] = context->max_wimm;
    return 0;
}

static void remember(struct qp *qp, const struct ibv_qp_attr *attr, int mask)
{
    struct ibv_qp_attr *own = &qp->attr;
    hold(qp);
#define KEEP(bit, field) own->field = mask & (bit) ? attr->field : own->field
    KEEP(IBV_QP_ACCESS_FLAGS, qp_access_flags);
    KEEP(IBV_QP_PKEY_INDEX, pkey_index);
    KEEP(IBV_QP_PORT, port_num);
    KEEP(IBV_QP_AV, ah_attr);
    KEEP(IBV_QP_PATH_MTU, path_mtu);
    KEEP(IBV_QP_DEST_QPN, dest_qp_num);
    KEEP(IBV_QP_RQ_PSN, rq_psn);
    KEEP(IBV_QP_SQ_PSN, sq_psn);
    KEEP(IBV_QP_TIMEOUT, timeout);
    KEEP(IBV_QP_RETRY_CNT, retry_cnt);
    KEEP(IBV_QP_RNR_RETRY, rnr_retry);
    KEEP(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
    KEEP(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
    KEEP(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
#undef KEEP
    let_go(qp);
}

/* To RTS, before the program asks for it; what it asks for then replaces the timeout and the retries. */
static void send_at_once(struct endpoint *endpoint, struct qp *qp)
{
    int64_t words[MRC_ATTRIBUTES];
    fill_unchanged(words);
    words[MRC_ATTRIBUTE_FIRST_PSN] = qp->verbs.qp_num;
    words[MRC_ATTRIBUTE_TIMEOUT] = timeout_ps(DEFAULT_TIMEOUT);
    words[MRC_ATTRIBUTE_LINEAR_COUNT] = MRC_MAX_LINEAR;
    words[MRC_ATTRIBUTE_EXPONENTIAL_COUNT] = 0;
    words[MRC_ATTRIBUTE_MAX_WIMM] = its_context(qp->verbs.context)->max_wimm;
    mrc_move(endpoint->at, qp->row, MRC_QP_EVENT_TO_RTS, words, MRC_ATTRIBUTES);
}

static int event_of(enum ibv_qp_state state)
{
    switch (state) {
    case IBV_QPS_INIT:
        return MRC_QP_EVENT_TO_INIT;
    case IBV_QPS_RTR:
        return MRC_QP_EVENT_TO_RTR;
    case IBV_QPS_RTS:
        return MRC_QP_EVENT_TO_RTS;
    case IBV_QPS_ERR:
        return MRC_QP_EVENT_FAIL;
    default:
        return -1;
    }
}

/* What the program said in MRC's own attributes counts, where verbs set the same. */
static void prefer(int64_t *words, const int64_t *others)
{
    for (int word = 0; others != NULL && word < MRC_ATTRIBUTES; word++)
        if (others[word] != MRC_UNCHANGED)
            words[word] = others[word];
}

/*
 * What came for an earlier connection of the same number is dropped before the new one could take it for its own. What was
 * held back for packets before it is looked at again within some time.
 */
static void drop_what_came_before(struct endpoint *endpoint)
{
    const struct timespec next_try = {0, MRC_NEXT_TRY / MRC_PS_PER_NS};
    if (endpoint->nic->in_order)
        nanosleep(&next_try, NULL);
    for (int trains = 0; trains < MOST_OLD_TRAINS && mrc_absorb(endpoint->at) > 0; trains++)
        ;
}

/* What verbs want on the way from one state to another (InfiniBand, volume 1, 11.2.4.2; a kernel refuses less, too). */
static int needed(enum ibv_qp_state from, enum ibv_qp_state to)
{
    if (from == IBV_QPS_RESET && to == IBV_QPS_INIT)
        return IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    if (from == IBV_QPS_INIT && to == IBV_QPS_RTR)
        return IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC
            | IBV_QP_MIN_RNR_TIMER;
    if (from == IBV_QPS_RTR && to == IBV_QPS_RTS)
        return IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
    return 0;
}

/* Whether what was given fits the fields of verbs: five bits of a timeout or timer, three of retries; one port. */
static bool is_in_range(const struct ibv_qp_attr *attr, int mask)
{
    return !(mask & IBV_QP_QKEY) && (!(mask & IBV_QP_PORT) || attr->port_num == 1)
        && (!(mask & IBV_QP_TIMEOUT) || attr->timeout <= MOST_TIMEOUT)
        && (!(mask & IBV_QP_MIN_RNR_TIMER) || attr->min_rnr_timer <= MOST_TIMEOUT)
        && (!(mask & IBV_QP_RETRY_CNT) || attr->retry_cnt <= MOST_RETRIES)
        && (!(mask & IBV_QP_RNR_RETRY) || attr->rnr_retry <= MOST_RETRIES);
}

int modify_qp(struct ibv_qp *verbs, struct ibv_qp_attr *attr, int mask)
{
    int wanted = mask & IBV_QP_STATE ? needed(state_of((struct qp *)verbs), attr->qp_state) : 0;
    if (!endpoint_is_usable(its_context(verbs->context)->endpoint))
        return EIO;
    if (!is_whole_qp(verbs))
        return ENOENT;
    return (mask & wanted) == wanted && is_in_range(attr, mask) ? modify_qp_with(verbs, attr, mask, NULL) : EINVAL;
}

int modify_qp_with(struct ibv_qp *verbs, struct ibv_qp_attr *attr, int mask, const int64_t *others)
{
    struct qp *qp = (struct qp *)verbs;
    struct endpoint *endpoint = its_context(verbs->context)->endpoint;
    int64_t words[MRC_ATTRIBUTES];
    int error = 0;
    if (!endpoint_is_usable(endpoint))
        return EIO;
    if (mask & IBV_QP_CUR_STATE && attr->cur_qp_state != state_of(qp))
        return EINVAL;
    enum ibv_qp_state wanted = mask & IBV_QP_STATE ? attr->qp_state : state_of(qp);
    fill_unchanged(words);
    if (wanted == IBV_QPS_RESET && mask & IBV_QP_STATE) {
        reset(endpoint, qp);
        hold(qp);
        memset(&qp->attr, 0, sizeof qp->attr);
        let_go(qp);
        verbs->state = IBV_QPS_RESET;
        return 0;
    }
    if (__atomic_load_n(&qp->ends, __ATOMIC_ACQUIRE)) /* on its way to ERR, where its peer hears why */
        return wanted == IBV_QPS_ERR ? 0 : EINVAL;
    if (wanted == IBV_QPS_INIT && (mask & IBV_QP_STATE || mask & IBV_QP_ACCESS_FLAGS))
        error = to_init(qp, attr, mask, words);
    else if (wanted == IBV_QPS_RTR && mask & IBV_QP_STATE)
        error = endpoint->qps[qp->row].state == MRC_QP_STATE_INIT ? to_rtr(qp, attr, mask, words) : EINVAL;
    else if (wanted == IBV_QPS_RTS)
        error = to_rts(qp, attr, mask, words);
    if (error != 0)
        return error;
    if (mask & IBV_QP_ACCESS_FLAGS && (wanted == IBV_QPS_RTR || wanted == IBV_QPS_RTS)) {
        if (endpoint->qps[qp->row].state != MRC_QP_STATE_INIT && !keeps_its_domain(qp, attr->qp_access_flags))
            return EOPNOTSUPP;
        words[MRC_ATTRIBUTE_ACCESS] = access_of(qp, attr);
        words[MRC_ATTRIBUTE_PD] = domain_of(qp, attr->qp_access_flags);
    }
    if (wanted == IBV_QPS_RTR && mask & IBV_QP_STATE) {
        drop_what_came_before(endpoint);
        unsigned access = mask & IBV_QP_ACCESS_FLAGS ? attr->qp_access_flags : qp->attr.qp_access_flags;
        if (qp->emulation != NULL)
            emulator_of(qp)->begin(qp, attr->dest_qp_num, domain_of(qp, access));
    }
    prefer(words, others);
    if (!(mask & IBV_QP_STATE))
        mrc_change(endpoint->at, qp->row, words, MRC_ATTRIBUTES);
    else if (event_of(wanted) < 0 || mrc_move(endpoint->at, qp->row, event_of(wanted), words, MRC_ATTRIBUTES) == 0)
        return EINVAL;
    if (wanted == IBV_QPS_RTR && mask & IBV_QP_STATE && qp->emulation != NULL)
        send_at_once(endpoint, qp);
    qp->sends = qp->sends || wanted == IBV_QPS_RTS;
    endpoint_iterate(endpoint);
    remember(qp, attr, mask);
    verbs->state = state_of(qp);
    return 0;
}

int query_qp(struct ibv_qp *verbs, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
    struct qp *qp = (struct qp *)verbs;
    (void)mask; /* all are filled, as rdma-core's providers do */
    if (!is_whole_qp(verbs))
        return ENOENT;
    *attr = qp->attr;
    attr->qp_state = attr->cur_qp_state = state_of(qp);
    attr->cap = qp->init.cap;
    attr->path_mig_state = IBV_MIG_MIGRATED;
    *init = qp->init;
    verbs->state = attr->qp_state;
    return 0;
}
