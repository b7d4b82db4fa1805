/* Requests to other endpoints: a call sends a batch and sleeps until its answers are there. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "control/ctl.h"

#define MOST_DSCP 63
#define PROBES_ONLY (-1)
#define NS_PER_S 1000000000LL

struct outstanding {
    int64_t number; /* on the wire; -1: answered */
    uint16_t req_id;
};

struct endpoint_batch {
    struct endpoint_batch *next;
    struct outstanding *requests;
    uint32_t sent, answered;
    struct mrc_ctl_ep_rsp *rsp;
};

static struct outstanding *find(struct ctl *ctl, int64_t number, struct endpoint_batch **batch)
{
    for (*batch = ctl->batches; *batch != NULL; *batch = (*batch)->next)
        for (uint32_t i = 0; i < (*batch)->sent; i++)
            if ((*batch)->requests[i].number == number)
                return &(*batch)->requests[i];
    return NULL;
}

void ep_requests_on_response(struct ctl *ctl, const struct mrc_datapath_event_records *event)
{
    struct endpoint_batch *batch;
    pthread_mutex_lock(&ctl->requesting);
    struct outstanding *found = find(ctl, event->state, &batch);
    if (found != NULL) {
        batch->rsp[batch->answered++] = (struct mrc_ctl_ep_rsp){
            .req_id = found->req_id, .port = (uint8_t)(event->port + 1), .rtt = (unsigned)event->cause};
        found->number = -1;
        if (batch->answered == batch->sent)
            pthread_cond_broadcast(&ctl->answered);
    }
    pthread_mutex_unlock(&ctl->requesting);
}

static int check(struct endpoint *endpoint, enum mrc_ctl_ep_op_type type, const struct mrc_ctl_ep_req *req)
{
    static const union ibv_gid any;
    struct mrc_gid ours = planes_gid(&endpoint->addresses);
    uint32_t ports = ((1u << endpoint->addresses.count) - 1) << 1;
    if (req->ev_fmt_mode != MRC_CTL_EV_FMT_MODE_UDP)
        return ENOTSUP;
    if (memcmp(&req->sgid, &any, sizeof any) != 0 && memcmp(req->sgid.raw, ours.raw, sizeof ours.raw) != 0)
        return EINVAL;
    if (type == MRC_CTL_EP_OP_PORT_STATUS_UPDATE && req->op.port_status_update.port_status & ~ports)
        return EINVAL;
    return port_of_ev(endpoint, &req->req_ev) < 0 || endpoint_find_peer(endpoint, req->dgid.raw) == NO_ROW ? EINVAL : 0;
}

static int by_id(const void *one, const void *other)
{
    return *(const uint16_t *)one - *(const uint16_t *)other;
}

static bool ids_are_unique(const struct mrc_ctl_ep_req *req, uint32_t count)
{
    uint16_t ids[MRC_MOST_REQUESTS];
    for (uint32_t i = 0; i < count; i++)
        ids[i] = req[i].req_id;
    qsort(ids, count, sizeof *ids, by_id);
    for (uint32_t i = 1; i < count; i++)
        if (ids[i] == ids[i - 1])
            return false;
    return true;
}

static int check_all(struct endpoint *endpoint, enum mrc_ctl_ep_op_type type, const struct mrc_ctl_ep_req *req,
                     uint32_t count)
{
    int error = ids_are_unique(req, count) ? 0 : EINVAL;
    for (uint32_t i = 0; i < count && error == 0; i++)
        error = check(endpoint, type, &req[i]);
    return error;
}

static int64_t draw_number(struct ctl *ctl)
{
    struct endpoint_batch *batch;
    for (int tries = 0; tries < MRC_CONTROLLER_PROBES; tries++) {
        int64_t number = MRC_CONTROLLER_PROBE_ID + ctl->next_number++ % MRC_CONTROLLER_PROBES;
        if (find(ctl, number, &batch) == NULL)
            return number;
    }
    return -1;
}

/* Queue all requests; `requesting` is held, so no answer is looked at before its request is noted. */
static int send_all(struct endpoint *endpoint, struct ctl *ctl, struct endpoint_batch *batch,
                    enum mrc_ctl_ep_op_type type, const struct mrc_ctl_ep_req *req, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        int64_t number = draw_number(ctl), peer = endpoint_find_peer(endpoint, req[i].dgid.raw);
        int64_t mask = type == MRC_CTL_EP_OP_EV_PROBE ? PROBES_ONLY : (int64_t)req[i].op.port_status_update.port_status;
        if (number < 0
            || mrc_ask(endpoint->at, peer, req[i].req_ev.port - 1, port_of_ev(endpoint, &req[i].req_ev), number, mask) == 0)
            return EAGAIN;
        batch->requests[batch->sent++] = (struct outstanding){number, req[i].req_id};
    }
    return 0;
}

static int wait_for_answers(struct ctl *ctl, const struct endpoint_batch *batch, uint64_t timeout)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)((int64_t)timeout / NS_PER_S);
    until.tv_nsec += (long)((int64_t)timeout % NS_PER_S);
    if (until.tv_nsec >= NS_PER_S) {
        until.tv_sec++;
        until.tv_nsec -= NS_PER_S;
    }
    while (batch->answered < batch->sent)
        if (pthread_cond_timedwait(&ctl->answered, &ctl->requesting, &until) == ETIMEDOUT)
            return batch->answered < batch->sent ? ETIMEDOUT : 0;
    return 0;
}

static void forget(struct ctl *ctl, struct endpoint_batch *batch)
{
    struct endpoint_batch **at = &ctl->batches;
    while (*at != batch)
        at = &(*at)->next;
    *at = batch->next;
}

#pragma GCC visibility push(default)

int mrc_ctl_ep_batch_send_wait(struct mrc_context *context, uint8_t req_tc, enum mrc_ctl_ep_op_type op_type,
                               struct mrc_ctl_ep_req *req, int num_req, uint32_t rsp_timeout,
                               struct mrc_ctl_ep_rsp *rsp, int *num_rsp)
{
    int error;
    struct ctl *ctl = ctl_of(context, &error);
    if (ctl == NULL)
        return error;
    if (req == NULL || rsp == NULL || num_rsp == NULL || num_req < 1 || num_req > MRC_MOST_REQUESTS
        || *num_rsp < num_req || req_tc > MOST_DSCP || rsp_timeout < 1)
        return EINVAL;
    if (op_type != MRC_CTL_EP_OP_EV_PROBE && op_type != MRC_CTL_EP_OP_PORT_STATUS_UPDATE)
        return ENOTSUP;
    struct endpoint *endpoint = its_context(context->verbs)->endpoint;
    error = check_all(endpoint, op_type, req, (uint32_t)num_req);
    if (error != 0)
        return error;
    struct endpoint_batch batch = {.requests = calloc((size_t)num_req, sizeof *batch.requests), .rsp = rsp};
    if (batch.requests == NULL)
        return ENOMEM;
    pthread_mutex_lock(&ctl->requesting);
    batch.next = ctl->batches;
    ctl->batches = &batch;
    error = send_all(endpoint, ctl, &batch, op_type, req, (uint32_t)num_req);
    endpoint_iterate(endpoint);
    if (error == 0)
        error = wait_for_answers(ctl, &batch, rsp_timeout);
    forget(ctl, &batch);
    pthread_mutex_unlock(&ctl->requesting);
    *num_rsp = (int)batch.answered;
    free(batch.requests);
    return error;
}

#pragma GCC visibility pop
