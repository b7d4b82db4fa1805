/* Completion queues and the channels on which armed ones report. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "objects/forced_errors.h"
#include "objects/wrappers.h"

/*
 * A program that polls a queue again and again works at the sockets itself: an answer then needs no other thread. One
 * that looks now and then, and spins on memory in between, needs the endpoint's thread there.
 */
#define POLLS_IN_A_ROW 16

struct ibv_comp_channel *open_channel(struct ibv_context *context)
{
    struct channel *channel = calloc(1, sizeof *channel);
    if (channel == NULL)
        return NULL;
    channel->verbs.context = context;
    channel->verbs.fd = eventfd(0, EFD_CLOEXEC);
    if (channel->verbs.fd < 0) {
        free(channel);
        return NULL;
    }
    pthread_mutex_init(&channel->lock, NULL);
    hold_context(context);
    return &channel->verbs;
}

int close_channel(struct ibv_comp_channel *verbs)
{
    struct channel *channel = (struct channel *)verbs;
    pthread_mutex_lock(&channel->lock);
    bool busy = channel->first != NULL;
    pthread_mutex_unlock(&channel->lock);
    if (busy)
        return EBUSY;
    struct ibv_context *context = verbs->context;
    close(verbs->fd);
    free(channel);
    release_context(context);
    return 0;
}

static void join_channel(struct channel *channel, struct cq *cq)
{
    pthread_mutex_lock(&channel->lock);
    struct cq **end = &channel->first;
    while (*end != NULL)
        end = &(*end)->next;
    *end = cq;
    cq->next = NULL;
    pthread_mutex_unlock(&channel->lock);
}

static void leave_channel(struct channel *channel, struct cq *cq)
{
    pthread_mutex_lock(&channel->lock);
    struct cq **at = &channel->first;
    while (*at != NULL && *at != cq)
        at = &(*at)->next;
    if (*at != NULL)
        *at = cq->next;
    pthread_mutex_unlock(&channel->lock);
}

/* The queue with an event that was served longest ago; `more`: another has one too. */
static struct cq *find_event(struct channel *channel, bool *more)
{
    struct endpoint *endpoint = its_context(channel->verbs.context)->endpoint;
    struct cq *found = NULL;
    for (struct cq *cq = channel->first; cq != NULL; cq = cq->next) {
        int64_t pending = __atomic_load_n(&endpoint->cqs[cq->row].events, __ATOMIC_ACQUIRE) - cq->events_taken;
        if (found == NULL && pending > 0)
            found = cq;
        *more = *more || (pending > 0 && (found != cq || pending > 1));
    }
    return found;
}

int next_cq_event(struct ibv_comp_channel *verbs, struct ibv_cq **cq, void **cq_context)
{
    struct channel *channel = (struct channel *)verbs;
    for (;;) {
        eventfd_t count;
        if (eventfd_read(verbs->fd, &count) != 0) /* EAGAIN if the program made it non-blocking */
            return -1;
        bool more = false;
        pthread_mutex_lock(&channel->lock);
        struct cq *found = find_event(channel, &more);
        if (found != NULL)
            found->events_taken++;
        pthread_mutex_unlock(&channel->lock);
        if (more)
            eventfd_write(verbs->fd, 1);
        if (found != NULL) {
            leave_channel(channel, found);
            join_channel(channel, found);
            *cq = &found->verbs;
            *cq_context = found->verbs.cq_context;
            return 0;
        }
    }
}

struct ibv_cq *open_cq(struct ibv_context *context, int cqe, void *cq_context, struct ibv_comp_channel *channel)
{
    struct endpoint *endpoint = its_context(context)->endpoint;
    if (cqe < 1 || cqe > MOST_CQES || !endpoint_is_usable(endpoint))
        return errno = EINVAL, NULL;
    struct cq *cq = calloc(1, sizeof *cq);
    if (cq == NULL)
        return NULL;
    /* What the engine completes for emulated operations is more than the program sees, and as soon taken. */
    int64_t rows = 1, wanted = cqe + (endpoint->addresses.emulates ? 1 << 16 : 0);
    while (rows < wanted)
        rows *= 2;
    cq->ring_bytes = (size_t)(rows * MRC_RECORD_BYTES);
    cq->ring = mmap(NULL, cq->ring_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cq->row = cq->ring == MAP_FAILED ? NO_ROW : endpoint_take_cq(endpoint);
    if (cq->row == NO_ROW) {
        if (cq->ring != MAP_FAILED)
            munmap(cq->ring, cq->ring_bytes);
        free(cq);
        return errno = ENOMEM, NULL;
    }
    cq->verbs.context = context;
    cq->verbs.channel = channel;
    cq->verbs.cq_context = cq_context;
    cq->verbs.handle = (uint32_t)cq->row;
    cq->verbs.cqe = cq->capacity = cqe;
    pthread_mutex_init(&cq->verbs.mutex, NULL);
    pthread_cond_init(&cq->verbs.cond, NULL);
    pthread_mutex_init(&cq->lock, NULL);
    pthread_mutex_init(&cq->ready_lock, NULL);
    struct mrc_datapath_cqs *row = &endpoint->cqs[cq->row];
    memset(row, 0, sizeof *row);
    row->ring = (int64_t)(intptr_t)cq->ring;
    row->mask = rows - 1;
    row->capacity = wanted;
    row->descriptor = channel != NULL ? channel->fd : -1;
    row->channel = NO_ROW;
    row->wakeup = its_context(context)->serving_fd;
    __atomic_store_n(&its_context(context)->cqs[cq->row], cq, __ATOMIC_RELEASE);
    if (channel != NULL)
        join_channel((struct channel *)channel, cq);
    if (row->wakeup >= 0)
        eventfd_write((int)row->wakeup, 1); /* its server shall look at this one too */
    hold_context(context);
    return &cq->verbs;
}

int close_cq(struct ibv_cq *verbs)
{
    struct cq *cq = (struct cq *)verbs;
    struct context *context = its_context(verbs->context);
    if (!is_whole_cq(verbs))
        return ENOENT;
    if (atomic_load(&cq->users) > 0)
        return EBUSY;
    pthread_mutex_lock(&verbs->mutex);
    while (endpoint_is_usable(context->endpoint)
           && (verbs->comp_events_completed != (uint32_t)cq->events_taken
               || verbs->async_events_completed != cq->events_given))
        pthread_cond_wait(&verbs->cond, &verbs->mutex);
    pthread_mutex_unlock(&verbs->mutex);
    forget_cq(context, cq);
    if (verbs->channel != NULL)
        leave_channel((struct channel *)verbs->channel, cq);
    endpoint_give_cq(context->endpoint, cq->row);
    munmap(cq->ring, cq->ring_bytes);
    free(cq->ready);
    free(cq);
    release_context(&context->verbs.context);
    return 0;
}

void acknowledge_cq_events(struct ibv_cq *cq, unsigned count)
{
    pthread_mutex_lock(&cq->mutex);
    cq->comp_events_completed += count;
    pthread_cond_signal(&cq->cond);
    pthread_mutex_unlock(&cq->mutex);
}

void announce_cq(struct cq *cq, bool is_solicited)
{
    struct endpoint *endpoint = its_context(cq->verbs.context)->endpoint;
    if (!endpoint->addresses.emulates)
        return endpoint_announce(endpoint, cq->row);
    if (cq->armed == 0 || (cq->armed == MRC_ARMED_SOLICITED && !is_solicited) || cq->verbs.channel == NULL)
        return;
    cq->armed = 0;
    __atomic_fetch_add(&endpoint->cqs[cq->row].events, 1, __ATOMIC_RELEASE);
    eventfd_write(cq->verbs.channel->fd, 1);
}

/* The engine completes more than the program sees, so it signals nobody: the thread that serves sorts it out. */
static void arm_emulated(struct context *context, struct cq *cq, int64_t kind)
{
    context->emulator->sort(context, cq); /* what has come before causes no event */
    pthread_mutex_lock(&cq->ready_lock);
    if (cq->armed != MRC_ARMED_ANY)
        cq->armed = kind;
    pthread_mutex_unlock(&cq->ready_lock);
    eventfd_write(context->serving_fd, 1);
}

int arm_cq(struct ibv_cq *verbs, int solicited_only)
{
    struct cq *cq = (struct cq *)verbs;
    struct endpoint *endpoint = its_context(verbs->context)->endpoint;
    int64_t kind = solicited_only ? MRC_ARMED_SOLICITED : MRC_ARMED_ANY;
    if (!endpoint_is_usable(endpoint))
        return EIO;
    if (!is_whole_cq(verbs))
        return ENOENT;
    if (endpoint->addresses.emulates)
        return arm_emulated(its_context(verbs->context), cq, kind), 0;
    mrc_arm(endpoint->at, cq->row, kind); /* its lock orders this before a poll that follows */
    return 0;
}

/* Return the row of the queue pair, too. */
static int64_t fill_completion(const struct mrc_datapath_record *record, struct ibv_wc *wc)
{
    memset(wc, 0, sizeof *wc);
    wc->wr_id = (uint64_t)record->wr_id;
    wc->status = (enum ibv_wc_status)record->status;
    wc->opcode = record->kind == MRC_COMPLETION_KIND_SEND ? IBV_WC_RDMA_WRITE : IBV_WC_RECV_RDMA_WITH_IMM;
    wc->byte_len = (uint32_t)record->length;
    wc->qp_num = (uint32_t)record->qpn;
    if (record->has_immediate) {
        wc->imm_data = htonl((uint32_t)record->immediate);
        wc->wc_flags = IBV_WC_WITH_IMM;
    }
    return record->qp;
}

/* How many completions the loop has ever published to a queue: it stores the number with release order. */
static int64_t published(struct endpoint *endpoint, const struct cq *cq)
{
    return __atomic_load_n(&endpoint->cqs[cq->row].published, __ATOMIC_ACQUIRE);
}

static void force_error_of(struct context *context, int64_t qp, struct ibv_wc *wc)
{
    if (context->forced->after == 0)
        return;
    pthread_mutex_lock(&context->events);
    if (context->qps[qp] != NULL)
        force_error(context->qps[qp], wc);
    pthread_mutex_unlock(&context->events);
}

/*
 * Take completions beside other threads that poll, without a lock that one of them may hold while it is kept from its
 * processor: a record is read, then claimed. Until it is claimed the loop does not overwrite it.
 */
static int take(struct endpoint *endpoint, struct cq *cq, int count, struct ibv_wc *wc)
{
    struct mrc_datapath_cqs *row = &endpoint->cqs[cq->row];
    const struct mrc_datapath_record *records = (const struct mrc_datapath_record *)cq->ring;
    int64_t number = __atomic_load_n(&row->taken, __ATOMIC_ACQUIRE);
    int taken = 0;
    while (taken < count && number != published(endpoint, cq)) {
        int64_t qp = fill_completion(&records[number & row->mask], &wc[taken]);
        if (!__atomic_compare_exchange_n(&row->taken, &number, number + 1, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            continue;
        force_error_of(its_context(cq->verbs.context), qp, &wc[taken++]);
        number++;
    }
    return taken;
}

static int take_ready(struct cq *cq, int count, struct ibv_wc *wc)
{
    pthread_mutex_lock(&cq->ready_lock);
    int taken = cq->ready_count < count ? cq->ready_count : count;
    if (taken > 0) {
        memcpy(wc, cq->ready, (size_t)taken * sizeof *wc);
        cq->ready_count -= taken;
        memmove(cq->ready, cq->ready + taken, (size_t)cq->ready_count * sizeof *wc);
    }
    pthread_mutex_unlock(&cq->ready_lock);
    return taken;
}

static bool has_gathered(const struct endpoint *endpoint)
{
    return __atomic_load_n(&endpoint->nic->posted, __ATOMIC_RELAXED)
        != __atomic_load_n(&endpoint->nic->taken, __ATOMIC_RELAXED);
}

/* A poll ends a burst of posts: those that were gathered are sent. A burst of one has most often been sent already. */
static void end_burst(const struct endpoint *endpoint, const struct cq *cq)
{
    int64_t posts = __atomic_load_n(&endpoint->bursts->posts, __ATOMIC_RELAXED);
    if (posts > 1 || (posts == 1 && has_gathered(endpoint)))
        mrc_poll(endpoint->at, cq->row);
    else if (posts == 1)
        __atomic_store_n(&endpoint->bursts->posts, 0, __ATOMIC_RELAXED);
}

/* Whether the program polls again and again, or did, and the endpoint's thread leaves the work to it. */
static bool spins(const struct endpoint *endpoint, struct cq *cq)
{
    unsigned polls = __atomic_load_n(&cq->empty_polls, __ATOMIC_RELAXED) + 1; /* of some thread: this is no account */
    __atomic_store_n(&cq->empty_polls, polls, __ATOMIC_RELAXED);
    return polls > POLLS_IN_A_ROW
        || __atomic_load_n(&endpoint->lease->attendant, __ATOMIC_RELAXED) == MRC_ATTENDANT_POLLER;
}

static int poll_emulated(struct context *context, struct cq *cq, int count, struct ibv_wc *wc)
{
    __atomic_fetch_add(&cq->polls, 1, __ATOMIC_RELAXED);
    context->emulator->sort(context, cq);
    int taken = take_ready(cq, count, wc);
    end_burst(context->endpoint, cq);
    if (taken > 0 || __atomic_load_n(&context->endpoint->cqs[cq->row].overrun, __ATOMIC_ACQUIRE))
        return __atomic_store_n(&cq->empty_polls, 0, __ATOMIC_RELAXED), taken > 0 ? taken : -EIO;
    if (spins(context->endpoint, cq))
        mrc_poll(context->endpoint->at, cq->row);
    context->emulator->proceed(context, cq);
    context->emulator->sort(context, cq);
    return take_ready(cq, count, wc);
}

int poll_cq(struct ibv_cq *verbs, int count, struct ibv_wc *wc)
{
    struct cq *cq = (struct cq *)verbs;
    struct endpoint *endpoint = its_context(verbs->context)->endpoint;
    if (!endpoint_is_usable(endpoint))
        return -EIO;
    if (endpoint->addresses.emulates)
        return poll_emulated(its_context(verbs->context), cq, count, wc);
    int taken = take(endpoint, cq, count, wc);
    end_burst(endpoint, cq);
    if (taken > 0)
        __atomic_store_n(&cq->empty_polls, 0, __ATOMIC_RELAXED);
    else if (__atomic_load_n(&endpoint->cqs[cq->row].overrun, __ATOMIC_RELAXED))
        taken = -EIO;
    else if (spins(endpoint, cq)) {
        mrc_poll(endpoint->at, cq->row);
        taken = take(endpoint, cq, count, wc);
    }
    return taken;
}

struct mrc_cq *wrap_cq(struct mrc_context *context, int cqe, void *cq_context, struct mrc_comp_channel *channel,
                       int vector)
{
    if (vector < 0 || vector >= context->verbs->num_comp_vectors)
        return errno = EINVAL, NULL;
    struct mrc_cq *cq = calloc(1, sizeof *cq);
    if (cq == NULL)
        return NULL;
    cq->context = context;
    cq->verbs = open_cq(context->verbs, cqe, cq_context, channel != NULL ? channel->verbs : NULL);
    if (cq->verbs == NULL) {
        free(cq);
        return NULL;
    }
    ((struct cq *)cq->verbs)->wrapper = cq;
    atomic_fetch_add(&context->users, 1);
    return cq;
}

int unwrap_cq(struct mrc_cq *cq)
{
    struct mrc_context *context = cq->context;
    int error = close_cq(cq->verbs);
    if (error == 0) {
        atomic_fetch_sub(&context->users, 1);
        free(cq);
    }
    return error;
}
