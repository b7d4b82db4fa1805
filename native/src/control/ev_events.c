/* Queues of EV events: an event goes to each; its completion queue, which is otherwise empty, wakes the reader. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "control/profiles.h"

struct ev_events {
    struct ev_events *next;
    struct mrc_cq *cq;
    int64_t ring[MRC_RING_COLUMNS];
    struct mrc_ctl_ev_event at[];
};

static void push(struct context *context, const struct mrc_ctl_ev_event *event)
{
    for (struct ev_events *queue = context->ctl->queues; queue != NULL; queue = queue->next) {
        queue->at[mrc_push_event(queue->ring, MRC_RING_COLUMNS)] = *event;
        struct cq *cq = (struct cq *)queue->cq->verbs;
        pthread_mutex_lock(&cq->ready_lock);
        announce_cq(cq, true);
        pthread_mutex_unlock(&cq->ready_lock);
    }
}

void ev_events_on_state(struct context *context, const struct mrc_datapath_event_records *event)
{
    static const enum mrc_ctl_ev_state states[] = {
        [MRC_EV_STATE_GOOD] = MRC_CTL_EV_GOOD, [MRC_EV_STATE_SKIP] = MRC_CTL_EV_GOOD,
        [MRC_EV_STATE_ASSUMED_BAD] = MRC_CTL_EV_ASSUMED_BAD, [MRC_EV_STATE_DENIED] = MRC_CTL_EV_DENIED};
    struct mrc_ctl_ev_event report = {.ev = ev_of_port((int)event->port, event->entropy), .state = states[event->state]};
    if (profiles_learn(context, (int)event->qp, &report))
        push(context, &report);
}

void ev_events_on_taken(struct context *context)
{
    const struct mrc_engine_endpoints *engine = context->endpoint->tables[MRC_TABLE_ENGINE_ENDPOINTS];
    int64_t lost = __atomic_load_n(&engine->events_dropped, __ATOMIC_RELAXED);
    pthread_mutex_lock(&context->events);
    for (struct ev_events *queue = context->ctl->queues; queue != NULL; queue = queue->next)
        mrc_lose_events(queue->ring, MRC_RING_COLUMNS, lost - context->ctl->events_lost);
    context->ctl->events_lost = lost;
    pthread_mutex_unlock(&context->events);
}

static int attach(struct context *context, struct ev_events *queue)
{
    pthread_mutex_lock(&context->events);
    bool room = context->ctl->queue_count < MRC_MOST_EV_QUEUES;
    if (room) {
        context->ctl->queue_count++;
        queue->next = context->ctl->queues;
        context->ctl->queues = queue;
    }
    pthread_mutex_unlock(&context->events);
    return room ? 0 : ENOMEM;
}

void ev_events_detach(struct mrc_cq *cq)
{
    if (cq->events == NULL)
        return;
    struct ctl *ctl = its_context(cq->context->verbs)->ctl;
    pthread_mutex_t *lock = &its_context(cq->context->verbs)->events;
    pthread_mutex_lock(lock);
    struct ev_events **at = &ctl->queues;
    while (*at != NULL && *at != cq->events)
        at = &(*at)->next;
    if (*at != NULL) {
        *at = cq->events->next;
        ctl->queue_count--;
    }
    pthread_mutex_unlock(lock);
}

void ev_events_free(struct ev_events *events)
{
    free(events);
}

#pragma GCC visibility push(default)

struct mrc_cq *mrc_ctl_create_ev_event_cq(struct mrc_context *context, int cqe, void *cq_context,
                                          struct mrc_comp_channel *channel, int comp_vector)
{
    int error;
    if (ctl_of(context, &error) == NULL)
        return errno = error, NULL;
    if (cqe < 1 || cqe > MRC_MOST_EV_EVENTS)
        return errno = EINVAL, NULL;
    struct mrc_cq *cq = wrap_cq(context, 1, cq_context, channel, comp_vector);
    if (cq == NULL)
        return NULL;
    cq->events = calloc(1, sizeof *cq->events + (size_t)cqe * sizeof *cq->events->at);
    error = cq->events == NULL ? ENOMEM : 0;
    if (error == 0) {
        cq->events->cq = cq;
        cq->events->ring[MRC_RING_COLUMN_CAPACITY] = cqe;
        error = attach(its_context(context->verbs), cq->events);
    }
    if (error != 0) {
        free(cq->events);
        unwrap_cq(cq);
        return errno = error, NULL;
    }
    return cq;
}

int mrc_ctl_poll_ev_event(struct mrc_cq *cq, int count, struct mrc_ctl_ev_event *events)
{
    if (cq == NULL || cq->events == NULL || count < 0 || (events == NULL && count > 0))
        return -EINVAL;
    pthread_mutex_t *lock = &its_context(cq->context->verbs)->events;
    int taken = 0;
    pthread_mutex_lock(lock);
    for (int64_t place; taken < count && (place = mrc_take_event(cq->events->ring, MRC_RING_COLUMNS)) >= 0; taken++) {
        events[taken] = cq->events->at[place];
        events[taken].drop_count = (uint32_t)cq->events->ring[MRC_RING_COLUMN_REPORTED];
    }
    pthread_mutex_unlock(lock);
    return taken;
}

#pragma GCC visibility pop
