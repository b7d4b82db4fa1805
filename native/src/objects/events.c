/* Async events: what a context reports of its queue pairs, completion queues and planes. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#include "endpoint/report.h"
#include "objects/objects.h"

static void append(struct context *context, struct ibv_async_event event)
{
    struct async_record *record = malloc(sizeof *record);
    if (record == NULL)
        return report("out of memory: an async event is lost");
    *record = (struct async_record){event, NULL};
    pthread_mutex_lock(&context->reporting);
    if (context->first == NULL)
        context->first = record;
    else
        context->last->next = record;
    context->last = record;
    pthread_mutex_unlock(&context->reporting);
    eventfd_write(context->verbs.context.async_fd, 1);
}

static bool any_plane_works(const struct endpoint *endpoint)
{
    for (int plane = 0; plane < endpoint->addresses.count; plane++)
        if (__atomic_load_n(&endpoint->planes[plane].faults, __ATOMIC_RELAXED) == 0)
            return true;
    return false;
}

/*
 * Whether a queue pair's failure is reported as an event, and as which: at the end that answers requests. At the end that
 * posts them a completion says what is wrong, and who moved it to ERROR knows.
 */
static bool is_news(int64_t cause, enum ibv_event_type *type)
{
    switch (cause) {
    case MRC_CAUSE_ACCESS_VIOLATION:
        *type = IBV_EVENT_QP_ACCESS_ERR;
        return true;
    case MRC_CAUSE_WIMM_OVERFLOW:
    case MRC_CAUSE_UNEXPECTED_EVENT:
        *type = IBV_EVENT_QP_REQ_ERR;
        return true;
    case MRC_CAUSE_NO_RECEIVE:
        report("a write with immediate came and no receive was posted: MRC knows no RNR, post receives first "
               "(MRC_EMULATE=rnr lets such a write wait)");
        *type = IBV_EVENT_QP_FATAL;
        return true;
    default:
        return false;
    }
}

static bool is_of_qp(enum ibv_event_type type)
{
    return type == IBV_EVENT_QP_FATAL || type == IBV_EVENT_QP_REQ_ERR || type == IBV_EVENT_QP_ACCESS_ERR;
}

void raise_event(struct context *context, enum ibv_event_type type, struct qp *qp)
{
    struct ibv_async_event news = {.event_type = type, .element.port_num = 1};
    if (is_of_qp(type))
        news.element.qp = &qp->verbs;
    append(context, news);
}

static void on_event(void *owner, const struct mrc_datapath_event_records *event)
{
    struct context *context = owner;
    enum ibv_event_type type;
    pthread_mutex_lock(&context->events);
    struct qp *qp = event->qp >= 0 && event->qp < MRC_QPS ? context->qps[event->qp] : NULL;
    if (event->kind == MRC_EVENT_KIND_QP_ERROR && qp != NULL && is_news(event->state, &type))
        raise_event(context, type, qp);
    else if (event->kind == MRC_EVENT_KIND_LOCAL_PORTS)
        raise_event(context, any_plane_works(context->endpoint) ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR, NULL);
    context->controller->on_event(context, event);
    pthread_mutex_unlock(&context->events);
}

static void on_events_taken(void *owner)
{
    struct context *context = owner;
    context->controller->on_events_taken(context);
}

/* A queue that overran loses completions: its queue pairs fail, so that nobody waits for one that is lost. */
static void fail_qps_of(struct context *context, const struct cq *cq)
{
    for (int row = 0; row < MRC_QPS; row++) {
        struct qp *qp = context->qps[row];
        if (qp != NULL && (qp->verbs.send_cq == &cq->verbs || qp->verbs.recv_cq == &cq->verbs))
            fail_qp(qp);
    }
}

static void on_overrun(void *owner)
{
    struct context *context = owner;
    pthread_mutex_lock(&context->events);
    /* Exchanged, so that what was counted last is seen to be overrun: a store could undo a count unseen. */
    __atomic_exchange_n(&context->endpoint->nic->overruns, 0, __ATOMIC_ACQ_REL);
    for (int row = 0; row < MRC_CQS; row++) {
        struct cq *cq = context->cqs[row];
        if (cq != NULL && __atomic_load_n(&context->endpoint->cqs[row].overrun, __ATOMIC_ACQUIRE) == 1
            && !cq->overrun_reported) {
            struct ibv_async_event news = {.event_type = IBV_EVENT_CQ_ERR, .element.cq = &cq->verbs};
            cq->overrun_reported = true;
            append(context, news);
            fail_qps_of(context, cq);
        }
    }
    pthread_mutex_unlock(&context->events);
}

struct watcher watcher_of(struct context *context)
{
    return (struct watcher){on_event, on_events_taken, on_overrun, context};
}

/* Each event that a program gets must be acknowledged before its object can go. */
static void count_given(const struct ibv_async_event *event)
{
    if (is_of_qp(event->event_type))
        ((struct qp *)event->element.qp)->events_given++;
    else if (event->event_type == IBV_EVENT_CQ_ERR)
        ((struct cq *)event->element.cq)->events_given++;
}

int next_async_event(struct ibv_context *verbs, struct ibv_async_event *event)
{
    struct context *context = its_context(verbs);
    eventfd_t count;
    for (;;) {
        if (eventfd_read(verbs->async_fd, &count) != 0)
            return -1;
        pthread_mutex_lock(&context->reporting);
        struct async_record *record = context->first;
        if (record != NULL)
            context->first = record->next;
        if (record != NULL) {
            *event = record->event;
            count_given(event);
            free(record);
        }
        pthread_mutex_unlock(&context->reporting);
        if (record != NULL)
            return 0;
    }
}

/* Drop the events of an object that is about to be destroyed; takes `context->reporting`. */
static void drop_events(struct context *context, const void *object)
{
    pthread_mutex_lock(&context->reporting);
    struct async_record **at = &context->first;
    context->last = NULL;
    while (*at != NULL) {
        struct async_record *record = *at;
        bool is_its = record->event.event_type == IBV_EVENT_CQ_ERR || is_of_qp(record->event.event_type);
        if (is_its && (const void *)record->event.element.qp == object) {
            *at = record->next;
            free(record);
        } else {
            context->last = record;
            at = &record->next;
        }
    }
    pthread_mutex_unlock(&context->reporting);
}

void forget_qp(struct context *context, struct qp *qp)
{
    pthread_mutex_lock(&context->serving);
    pthread_mutex_lock(&context->events);
    context->qps[qp->row] = NULL;
    drop_events(context, &qp->verbs);
    pthread_mutex_unlock(&context->events);
    pthread_mutex_unlock(&context->serving);
}

void forget_cq(struct context *context, struct cq *cq)
{
    pthread_mutex_lock(&context->serving);
    pthread_mutex_lock(&context->events);
    context->cqs[cq->row] = NULL;
    drop_events(context, &cq->verbs);
    pthread_mutex_unlock(&context->events);
    pthread_mutex_unlock(&context->serving);
}

void acknowledge_async_event(struct ibv_async_event *event)
{
    if (event->event_type == IBV_EVENT_CQ_ERR) {
        struct ibv_cq *cq = event->element.cq;
        pthread_mutex_lock(&cq->mutex);
        cq->async_events_completed++;
        pthread_cond_signal(&cq->cond);
        pthread_mutex_unlock(&cq->mutex);
    } else if (is_of_qp(event->event_type)) {
        struct ibv_qp *qp = event->element.qp;
        pthread_mutex_lock(&qp->mutex);
        qp->events_completed++;
        pthread_cond_signal(&qp->cond);
        pthread_mutex_unlock(&qp->mutex);
    }
}
