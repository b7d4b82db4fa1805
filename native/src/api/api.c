/* mrc.h: other names for the objects of the verbs device, and the attributes that verbs do not have. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "control/profiles.h"

#pragma GCC visibility push(default)

#define TIMEOUT_UNIT_PS 1024000LL /* 1.024 us x 2^timeout */
#define DEFAULT_TIMEOUT 14
#define DEFAULT_EXPONENTIAL 7
#define OFFERED_OPERATIONS (IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM)

struct mrc_qp_hint {
    struct mrc_context *context;
    struct mrc_qp_hint_attr attr;
    atomic_int users;
};

struct mrc_qp {
    struct ibv_qp *verbs; /* first: adapters read it */
    struct mrc_context *context;
    struct mrc_qp_init_attr init;
    struct mrc_qp_attr attr;
    int given; /* mask of the attributes that were set */
};

static int fail(int error)
{
    errno = error;
    return error == 0 ? 0 : -1;
}

/* Versions and devices */

int mrc_query_device(struct ibv_context *context, struct mrc_device_attr *attr, int *supported)
{
    if (context == NULL || attr == NULL)
        return fail(EINVAL);
    if (supported != NULL)
        *supported = is_ours(context);
    if (!is_ours(context))
        return supported != NULL ? 0 : fail(EOPNOTSUPP);
    memset(attr, 0, sizeof *attr);
    attr->mrc_protocol_version = MRC_PROTOCOL_VERSION_1;
    attr->wimm_attr.max_wimm = attr->wimm_attr.max_wimm_dest = MRC_WIMMS;
    attr->mpr_attr.max_mpr = MRC_MPR;
    attr->mpr_attr.mpr_resolution = 1;
    attr->qp_attr.max_qp_hint = 1 << 16;
    attr->cap = MRC_DEVICE_CAP_TRIM_NACK | MRC_DEVICE_CAP_DYNAMIC_MPR;
    return 0;
}

int mrc_query_device_ex(struct ibv_context *context, struct mrc_context *mcontext, struct mrc_device_attr *attr,
                        int *supported)
{
    if (mcontext != NULL && context == NULL)
        context = mcontext->verbs;
    return mrc_query_device(context, attr, supported);
}

void mrc_query_version(uint32_t *current, uint32_t *last_supported, uint32_t *vendor, uint32_t *vendor_last_supported)
{
    if (current != NULL)
        *current = MRC_API_CURRENT_VERSION;
    if (last_supported != NULL)
        *last_supported = MRC_API_LAST_SUPPORTED_VERSION;
    if (vendor != NULL)
        *vendor = MRC_VENDOR_API_CURRENT_VERSION;
    if (vendor_last_supported != NULL)
        *vendor_last_supported = MRC_VENDOR_API_LAST_SUPPORTED_VERSION;
}

const char *mrc_library_version(void)
{
    return MRC_LAYOUT_DIGEST;
}

static bool is_too_new(uint32_t used, uint32_t current)
{
    return used != MRC_API_VER_LATEST && used > current;
}

struct mrc_context *mrc_create_context(struct ibv_context *verbs, struct mrc_context_attr *attr)
{
    if (!is_ours(verbs))
        return errno = EINVAL, NULL;
    if (attr != NULL && (is_too_new(attr->mrc_api_version_used, MRC_API_CURRENT_VERSION)
                         || is_too_new(attr->mrc_vendor_api_version_used, MRC_VENDOR_API_CURRENT_VERSION)))
        return errno = EINVAL, NULL;
    struct mrc_context *context = calloc(1, sizeof *context);
    if (context != NULL)
        context->verbs = verbs;
    return context;
}

int mrc_destroy_context(struct mrc_context *context)
{
    if (context == NULL)
        return fail(EINVAL);
    if (atomic_load(&context->users) > 0)
        return fail(EBUSY);
    free(context);
    return 0;
}

/* Channels and completion queues */

int mrc_create_comp_channel(struct mrc_context *context, struct mrc_comp_channel **channel)
{
    if (context == NULL || channel == NULL)
        return fail(EINVAL);
    struct mrc_comp_channel *made = calloc(1, sizeof *made);
    if (made == NULL)
        return -1;
    made->context = context;
    made->verbs = open_channel(context->verbs);
    if (made->verbs == NULL) {
        free(made);
        return -1;
    }
    atomic_fetch_add(&context->users, 1);
    *channel = made;
    return 0;
}

int mrc_get_comp_channel_fd(struct mrc_comp_channel *channel, int *fd)
{
    if (channel == NULL || fd == NULL)
        return fail(EINVAL);
    *fd = channel->verbs->fd;
    return 0;
}

int mrc_destroy_comp_channel(struct mrc_comp_channel *channel)
{
    int error = close_channel(channel->verbs);
    if (error == 0) {
        atomic_fetch_sub(&channel->context->users, 1);
        free(channel);
    }
    return error;
}

struct mrc_cq *mrc_create_cq(struct mrc_context *context, int cqe, void *cq_context, struct mrc_comp_channel *channel,
                             int vector)
{
    return wrap_cq(context, cqe, cq_context, channel, vector);
}

int mrc_poll_cq(struct mrc_cq *cq, int count, struct ibv_wc *wc)
{
    int taken = poll_cq(cq->verbs, count, wc);
    return taken < 0 ? fail(-taken) : taken;
}

int mrc_req_notify_cq(struct mrc_cq *cq, int solicited_only)
{
    return arm_cq(cq->verbs, solicited_only);
}

int mrc_get_cq_event(struct mrc_comp_channel *channel, struct mrc_cq **cq, void **cq_context)
{
    struct ibv_cq *verbs;
    if (next_cq_event(channel->verbs, &verbs, cq_context) != 0)
        return -1;
    *cq = ((struct cq *)verbs)->wrapper;
    return 0;
}

void mrc_ack_cq_events(struct mrc_cq *cq, unsigned int count)
{
    acknowledge_cq_events(cq->verbs, count);
}

int mrc_destroy_cq(struct mrc_cq *cq)
{
    ev_events_detach(cq);
    struct ev_events *events = cq->events;
    int error = unwrap_cq(cq);
    if (error == 0)
        ev_events_free(events);
    return error;
}

/* Hints */

static void copy_hint(struct mrc_qp_hint_attr *to, const struct mrc_qp_hint_attr *from, int mask)
{
    if (mask & MRC_QP_HINT_NUM_QPS_PER_PEER)
        to->num_qps_per_peer = from->num_qps_per_peer;
    if (mask & MRC_QP_HINT_NUM_SEND_PEERS)
        to->num_send_peers = from->num_send_peers;
    if (mask & MRC_QP_HINT_NUM_REMOTE_RECV_PEERS)
        to->num_remote_recv_peers = from->num_remote_recv_peers;
    if (mask & MRC_QP_HINT_VENDOR_CFG)
        memcpy(to->vendor_cfg, from->vendor_cfg, sizeof to->vendor_cfg);
}

static bool hint_is_possible(const struct mrc_qp_hint_attr *attr, int mask)
{
    const int known = MRC_QP_HINT_NUM_QPS_PER_PEER | MRC_QP_HINT_NUM_SEND_PEERS | MRC_QP_HINT_NUM_REMOTE_RECV_PEERS
        | MRC_QP_HINT_VENDOR_CFG;
    return (mask & ~known) == 0 && (attr != NULL || mask == 0);
}

struct mrc_qp_hint *mrc_create_qp_hint(struct mrc_context *context, struct mrc_qp_hint_init_attr *init)
{
    if (context == NULL || init == NULL)
        return errno = EINVAL, NULL;
    struct mrc_qp_hint *hint = calloc(1, sizeof *hint);
    if (hint == NULL)
        return NULL;
    hint->context = context;
    hint->attr = init->attr;
    atomic_fetch_add(&context->users, 1);
    return hint;
}

int mrc_query_qp_hint(struct mrc_qp_hint *hint, struct mrc_qp_hint_attr *attr, int mask)
{
    if (hint == NULL || attr == NULL || !hint_is_possible(attr, mask))
        return EINVAL;
    copy_hint(attr, &hint->attr, mask);
    return 0;
}

int mrc_modify_qp_hint(struct mrc_qp_hint *hint, struct mrc_qp_hint_attr *attr, int mask)
{
    if (hint == NULL || !hint_is_possible(attr, mask))
        return EINVAL;
    copy_hint(&hint->attr, attr, mask);
    return 0;
}

int mrc_destroy_qp_hint(struct mrc_qp_hint *hint)
{
    if (hint == NULL)
        return EINVAL;
    if (atomic_load(&hint->users) > 0)
        return EBUSY;
    atomic_fetch_sub(&hint->context->users, 1);
    free(hint);
    return 0;
}

/* Queue pairs */

struct mrc_qp *mrc_create_qp(struct mrc_context *context, struct mrc_qp_init_attr *init)
{
    if (init->send_cq == NULL || init->recv_cq == NULL || init->pd == NULL || init->send_cq->events != NULL
        || init->recv_cq->events != NULL)
        return errno = EINVAL, NULL;
    if (init->send_ops_flags & ~(uint64_t)OFFERED_OPERATIONS
        || (init->protocol_version != 0 && !(init->protocol_version & MRC_PROTOCOL_VERSION_1)))
        return errno = EOPNOTSUPP, NULL;
    struct mrc_qp *qp = calloc(1, sizeof *qp);
    if (qp == NULL)
        return NULL;
    struct ibv_qp_init_attr verbs = {
        .qp_context = init->qp_context,
        .send_cq = init->send_cq->verbs,
        .recv_cq = init->recv_cq->verbs,
        .cap = init->cap,
        .qp_type = IBV_QPT_RC,
        .sq_sig_all = init->sq_sig_all,
    };
    qp->verbs = open_qp(init->pd, &verbs);
    if (qp->verbs == NULL) {
        free(qp);
        return NULL;
    }
    init->cap = verbs.cap;
    qp->init = *init;
    qp->context = context;
    qp->attr.mpr.mpr = qp->attr.mpr.mpr_dest = MRC_MPR;
    qp->attr.wimm.max_wimm = qp->attr.wimm.max_wimm_dest = MRC_WIMMS;
    qp->attr.timeout = DEFAULT_TIMEOUT;
    qp->attr.retry.linear_cnt = MRC_MAX_LINEAR;
    qp->attr.retry.exp_cnt = DEFAULT_EXPONENTIAL;
    ((struct qp *)qp->verbs)->wrapper = qp;
    atomic_fetch_add(&context->users, 1);
    return qp;
}

int mrc_destroy_qp(struct mrc_qp *qp)
{
    profiles_unbind(its_context(qp->verbs->context), ((struct qp *)qp->verbs)->row);
    int error = close_qp(qp->verbs);
    if (error != 0)
        return error;
    if (qp->attr.qp_hint != NULL)
        atomic_fetch_sub(&qp->attr.qp_hint->users, 1);
    atomic_fetch_sub(&qp->context->users, 1);
    free(qp);
    return 0;
}

int mrc_query_qp(struct mrc_qp *qp, struct ibv_qp_attr *attr, int mask, struct mrc_qp_attr *mrc_attr, int mrc_mask,
                 struct mrc_qp_init_attr *init)
{
    struct ibv_qp_attr verbs;
    struct ibv_qp_init_attr verbs_init;
    (void)mrc_mask; /* all are filled */
    int error = query_qp(qp->verbs, &verbs, mask, &verbs_init);
    if (error != 0)
        return error;
    if (attr != NULL)
        *attr = verbs;
    if (mrc_attr != NULL)
        *mrc_attr = qp->attr;
    if (init != NULL)
        *init = qp->init;
    return 0;
}

static bool is_in_range(const struct mrc_qp_attr *attr, int mask)
{
    const int known = (MRC_QP_CAP << 1) - 1;
    if (mask & ~(known | MRC_QP_VENDOR_CFG) || (attr == NULL && mask != 0))
        return false;
#define WITHIN(bit, value, least, most) (!(mask & (bit)) || ((int64_t)(value) >= (least) && (int64_t)(value) <= (most)))
    return WITHIN(MRC_QP_MPR, attr->mpr.mpr, 1, MRC_MPR) && WITHIN(MRC_QP_MPR_DEST, attr->mpr.mpr_dest, 1, 255)
        && WITHIN(MRC_QP_MAX_WIMM, attr->wimm.max_wimm, 1, MRC_WIMMS)
        && WITHIN(MRC_QP_MAX_WIMM_DEST, attr->wimm.max_wimm_dest, 1, MRC_WIMMS)
        && WITHIN(MRC_QP_TIMEOUT, attr->timeout, 0, MRC_MAX_TIMEOUT)
        && WITHIN(MRC_QP_RETRY_CNT, attr->retry.linear_cnt, 0, MRC_MAX_LINEAR)
        && WITHIN(MRC_QP_RETRY_CNT, attr->retry.exp_cnt, 0, MRC_INFINITE_RETRIES)
        && WITHIN(MRC_QP_EV_PROFILE_ID, attr->profile.ev_profile_id, 0, MRC_MOST_PROFILES)
        && WITHIN(MRC_QP_CC_PROFILE_ID, attr->profile.cc_profile_id, 0, MRC_MOST_PROFILES);
#undef WITHIN
}

static void merge(struct mrc_qp *qp, const struct mrc_qp_attr *attr, int mask)
{
    struct mrc_qp_attr *own = &qp->attr;
#define KEEP(bit, field) own->field = mask & (bit) ? attr->field : own->field
    KEEP(MRC_QP_MPR, mpr.mpr);
    KEEP(MRC_QP_MPR_DEST, mpr.mpr_dest);
    KEEP(MRC_QP_MAX_WIMM, wimm.max_wimm);
    KEEP(MRC_QP_MAX_WIMM_DEST, wimm.max_wimm_dest);
    KEEP(MRC_QP_TIMEOUT, timeout);
    KEEP(MRC_QP_RETRY_CNT, retry);
    KEEP(MRC_QP_CAP, cap);
    KEEP(MRC_QP_EV_PROFILE_ID, profile.ev_profile_id);
    KEEP(MRC_QP_CC_PROFILE_ID, profile.cc_profile_id);
#undef KEEP
    if (mask & MRC_QP_VENDOR_CFG)
        memcpy(own->vendor_cfg, attr->vendor_cfg, sizeof own->vendor_cfg);
    if (mask & MRC_QP_HINT && attr->qp_hint != own->qp_hint) {
        if (own->qp_hint != NULL)
            atomic_fetch_sub(&own->qp_hint->users, 1);
        own->qp_hint = attr->qp_hint;
        if (own->qp_hint != NULL)
            atomic_fetch_add(&own->qp_hint->users, 1);
    }
    qp->given |= mask;
}

/* The attributes as the engine takes them; those that verbs would set otherwise are ours. */
static void fill_words(const struct mrc_qp *qp, int verbs_mask, int64_t words[MRC_ATTRIBUTES])
{
    for (int word = 0; word < MRC_ATTRIBUTES; word++)
        words[word] = MRC_UNCHANGED;
    words[MRC_ATTRIBUTE_MPR] = qp->attr.mpr.mpr;
    words[MRC_ATTRIBUTE_MPR_DEST] = qp->attr.mpr.mpr_dest;
    words[MRC_ATTRIBUTE_MAX_WIMM] = qp->attr.wimm.max_wimm;
    words[MRC_ATTRIBUTE_MAX_WIMM_DEST] = qp->attr.wimm.max_wimm_dest;
    words[MRC_ATTRIBUTE_TRIM_NACK_DEST] = !(qp->attr.cap & MRC_QP_CAP_TRIM_NACK_DEST_UNSUPPORTED);
    words[MRC_ATTRIBUTE_DYNAMIC_MPR] = (qp->attr.cap & MRC_QP_CAP_DYNAMIC_MPR) != 0;
    if (qp->given & MRC_QP_TIMEOUT || !(verbs_mask & IBV_QP_TIMEOUT))
        words[MRC_ATTRIBUTE_TIMEOUT] = TIMEOUT_UNIT_PS << qp->attr.timeout;
    if (qp->given & MRC_QP_RETRY_CNT || !(verbs_mask & IBV_QP_RETRY_CNT)) {
        words[MRC_ATTRIBUTE_LINEAR_COUNT] = qp->attr.retry.linear_cnt;
        words[MRC_ATTRIBUTE_EXPONENTIAL_COUNT] = qp->attr.retry.exp_cnt;
    }
}

/* Profiles are chosen on the way to INIT; the same ones may be named again. */
static bool may_name_profiles(const struct mrc_qp *qp, const struct mrc_qp_attr *attr, int mask, bool to_init)
{
    return to_init
        || ((!(mask & MRC_QP_EV_PROFILE_ID) || attr->profile.ev_profile_id == qp->attr.profile.ev_profile_id)
            && (!(mask & MRC_QP_CC_PROFILE_ID) || attr->profile.cc_profile_id == qp->attr.profile.cc_profile_id));
}

static int before_step(struct context *context, const struct mrc_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
    int row = ((struct qp *)qp->verbs)->row;
    if (attr->qp_state == IBV_QPS_INIT)
        return profiles_bind(context, row, qp->attr.profile.ev_profile_id, qp->attr.profile.cc_profile_id);
    if (attr->qp_state == IBV_QPS_RTR && mask & IBV_QP_AV)
        return profiles_check(context, row, &attr->ah_attr.grh.dgid);
    return 0;
}

static void after_step(struct context *context, const struct mrc_qp *qp, enum ibv_qp_state state, int error)
{
    int row = ((struct qp *)qp->verbs)->row;
    if (error == 0 ? state == IBV_QPS_RESET : state == IBV_QPS_INIT)
        profiles_unbind(context, row);
    else if (error == 0 && state == IBV_QPS_RTR)
        profiles_apply(context, row);
}

/* What programs leave out is as they would most often have it; verbs proper ask for all of it. */
static int complete(const struct context *context, struct ibv_qp_attr *attr, int mask)
{
    if (!(mask & IBV_QP_STATE))
        return mask;
    if (attr->qp_state == IBV_QPS_INIT && !(mask & IBV_QP_ACCESS_FLAGS)) {
        attr->qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
        mask |= IBV_QP_ACCESS_FLAGS;
    }
    if (attr->qp_state == IBV_QPS_RTR && attr->ah_attr.port_num == 0)
        attr->ah_attr.port_num = 1;
    if (attr->qp_state == IBV_QPS_RTR && !(mask & IBV_QP_PATH_MTU)) {
        attr->path_mtu = largest_mtu(context);
        mask |= IBV_QP_PATH_MTU;
    }
    if (attr->qp_state == IBV_QPS_RTR && !(mask & IBV_QP_RQ_PSN)) {
        attr->rq_psn = 0;
        mask |= IBV_QP_RQ_PSN;
    }
    if (attr->qp_state == IBV_QPS_RTS && !(mask & IBV_QP_SQ_PSN)) {
        attr->sq_psn = 0;
        mask |= IBV_QP_SQ_PSN;
    }
    return mask;
}

int mrc_modify_qp(struct mrc_qp *qp, struct ibv_qp_attr *given, int mask, struct mrc_qp_attr *mrc_attr, int mrc_mask)
{
    int64_t words[MRC_ATTRIBUTES];
    if (qp == NULL || !is_in_range(mrc_attr, mrc_mask) || (given == NULL && mask != 0))
        return EINVAL;
    struct context *context = its_context(qp->verbs->context);
    struct ibv_qp_attr attr = given != NULL ? *given : (struct ibv_qp_attr){0};
    bool steps = mask & IBV_QP_STATE;
    mask = complete(context, &attr, mask);
    if (!may_name_profiles(qp, mrc_attr, mrc_mask, steps && attr.qp_state == IBV_QPS_INIT))
        return EINVAL;
    merge(qp, mrc_attr, mrc_mask);
    fill_words(qp, mask, words);
    int error = steps ? before_step(context, qp, &attr, mask) : 0;
    if (error != 0)
        return error;
    error = modify_qp_with(qp->verbs, &attr, mask, words);
    if (steps)
        after_step(context, qp, attr.qp_state, error);
    return error;
}

int mrc_get_qpn(struct mrc_qp *qp, uint32_t *qpn)
{
    if (qp == NULL || qpn == NULL)
        return fail(EINVAL);
    *qpn = qp->verbs->qp_num;
    return 0;
}

int mrc_post_recv(struct mrc_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    return fail(post_recv(qp->verbs, wr, bad));
}

int mrc_post_send(struct mrc_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    return fail(post_send(qp->verbs, wr, bad));
}

/* Async events */

int mrc_get_async_event(struct mrc_context *context, struct mrc_async_event *event)
{
    struct ibv_async_event verbs;
    if (next_async_event(context->verbs, &verbs) != 0)
        return -1;
    event->event_type = verbs.event_type;
    if (verbs.event_type == IBV_EVENT_CQ_ERR)
        event->element.cq = ((struct cq *)verbs.element.cq)->wrapper;
    else if (verbs.event_type <= IBV_EVENT_QP_ACCESS_ERR)
        event->element.qp = ((struct qp *)verbs.element.qp)->wrapper;
    else
        event->element.port_num = verbs.element.port_num;
    return 0;
}

void mrc_ack_async_event(struct mrc_async_event *event)
{
    struct ibv_async_event verbs = {.event_type = event->event_type};
    if (event->event_type == IBV_EVENT_CQ_ERR)
        verbs.element.cq = event->element.cq->verbs;
    else if (event->event_type <= IBV_EVENT_QP_ACCESS_ERR)
        verbs.element.qp = event->element.qp->verbs;
    acknowledge_async_event(&verbs);
}

#pragma GCC visibility pop
