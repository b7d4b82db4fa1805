/* An emulating queue pair's life, and what the engine says of it. See emulation.h. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include "objects/forced_errors.h"
#include "endpoint/report.h"
#include "emulation/slots.h"

#define WAITS_FOR_EVER 7 /* of rnr_retry */
#define KEYS MRC_QPS     /* the last rows of the regions, one for each queue pair */
#define FAREWELL_PS (500 * 1000 * 1000 * MRC_PS_PER_NS) /* a peer that has not acknowledged why it ends by then is not told */

static int wanted(void)
{
    const char *words = getenv("MRC_EMULATE");
    int emulates = 0;
    bool waits = false;
    while (words != NULL && *words != '\0') {
        size_t length = strcspn(words, ", ");
        if (length == 4 && strncmp(words, "read", length) == 0)
            emulates |= EMULATES_READ | EMULATES_EARLY;
        else if (length == 4 && strncmp(words, "send", length) == 0)
            emulates |= EMULATES_EARLY;
        else if (length == 3 && strncmp(words, "rnr", length) == 0)
            waits = true;
        else if (length > 0)
            return report("MRC_EMULATE: %.*s is none of send, read and rnr", (int)length, words), -1;
        words += length + strspn(words + length, ", ");
    }
    return waits ? EMULATES_READ : emulates;
}

/* Of a queue pair's number: its low bits choose one of the rows that are set aside, the others must be guessed. */
static uint32_t key_of(uint32_t number)
{
    return number / KEYS * (uint32_t)MRC_REGIONS + (uint32_t)(MRC_REGIONS - KEYS) + number % KEYS;
}

static int open_of(struct qp *qp)
{
    struct emulation *emulation
        = mmap(NULL, sizeof *emulation, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (emulation == MAP_FAILED)
        return ENOMEM;
    emulation->ring
        = mmap(NULL, SLOTS * SLOT_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (emulation->ring == MAP_FAILED) {
        munmap(emulation, sizeof *emulation);
        return ENOMEM;
    }
    pthread_mutex_init(&emulation->lock, NULL);
    qp->emulation = emulation;
    return 0;
}

static void begin(struct qp *qp, uint32_t peer, int64_t domain)
{
    struct endpoint *endpoint = endpoint_of(qp);
    struct emulation *emulation = qp->emulation;
    struct context *context = its_context(qp->verbs.context);
    /* What the engine completed for the last connection is dropped while there is no key. */
    emulated_sort(context, (struct cq *)qp->verbs.send_cq);
    emulated_sort(context, (struct cq *)qp->verbs.recv_cq);
    emulation->granted = SLOTS;
    emulation->key = key_of(qp->verbs.qp_num);
    emulation->peer_key = key_of(peer);
    mrc_add_region(endpoint->at, emulation->key, 0, SLOTS * SLOT_BYTES,
                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, domain,
                   (int64_t)(intptr_t)emulation->ring);
    pthread_mutex_lock(&endpoint->posting);
    struct batch batch = batch_begin(endpoint);
    post_receives(qp, &batch, OWN_RECEIVES + (awaits_receives(qp) ? MORE_RECEIVES : 0));
    submit(&batch);
    pthread_mutex_unlock(&endpoint->posting);
    endpoint_iterate(endpoint); /* the engine has the receives before a packet of the peer may need one */
}

static void lock(struct qp *qp)
{
    if (qp->emulation != NULL)
        pthread_mutex_lock(&qp->emulation->lock);
}

static void unlock(struct qp *qp)
{
    if (qp->emulation != NULL)
        pthread_mutex_unlock(&qp->emulation->lock);
}

static void reset(struct qp *qp)
{
    struct emulation *emulation = qp->emulation;
    pthread_mutex_lock(&emulation->lock);
    if (emulation->key != 0 && endpoint_is_usable(endpoint_of(qp)))
        mrc_remove_region(endpoint_of(qp)->at, emulation->key);
    emulation->key = emulation->peer_key = 0;
    emulation->failed = emulation->has_ended = false;
    emulation->used = emulation->granted = emulation->arrived = emulation->consumed = 0;
    emulation->told = emulation->taken = emulation->filled = emulation->refused = emulation->gives_up_at = 0;
    emulation->farewell = 0;
    __atomic_store_n(&qp->ends, false, __ATOMIC_RELEASE);
    emulation->first = emulation->last = emulation->oldest = emulation->next_issue = emulation->next_inlined = 0;
    emulation->settled = 0;
    emulation->acknowledged = emulation->first_receive = emulation->last_receive = 0;
    emulation->first_read = emulation->last_read = emulation->first_answer = emulation->last_answer = 0;
    pthread_mutex_unlock(&emulation->lock);
}

static void close_of(struct qp *qp)
{
    reset(qp);
    munmap(qp->emulation->ring, SLOTS * SLOT_BYTES);
    munmap(qp->emulation, sizeof *qp->emulation);
}

/* As the engine does with its own: a completion is lost; the endpoint's thread reports it and fails the queue pairs. */
static void overrun(struct endpoint *endpoint, const struct cq *cq)
{
    __atomic_store_n(&endpoint->cqs[cq->row].overrun, 1, __ATOMIC_RELEASE);
    __atomic_fetch_add(&endpoint->nic->overruns, 1, __ATOMIC_RELEASE);
    eventfd_write(endpoint->wake_fd, 1);
}

void emulated_complete(struct qp *qp, struct ibv_cq *verbs, struct ibv_wc wc, bool is_solicited)
{
    struct cq *cq = (struct cq *)verbs;
    wc.qp_num = qp->verbs.qp_num;
    pthread_mutex_lock(&cq->ready_lock);
    if (cq->ready_count == cq->capacity || __atomic_load_n(&endpoint_of(qp)->cqs[cq->row].overrun, __ATOMIC_ACQUIRE)) {
        pthread_mutex_unlock(&cq->ready_lock);
        return overrun(endpoint_of(qp), cq);
    }
    if (cq->ready_count == cq->ready_room) {
        int room = cq->ready_room == 0 ? 64 : 2 * cq->ready_room;
        struct ibv_wc *more = realloc(cq->ready, (size_t)room * sizeof *more);
        if (more == NULL) {
            pthread_mutex_unlock(&cq->ready_lock);
            return report("out of memory: a completion is lost");
        }
        cq->ready = more;
        cq->ready_room = room;
    }
    cq->ready[cq->ready_count++] = wc;
    announce_cq(cq, is_solicited || wc.status != IBV_WC_SUCCESS);
    pthread_mutex_unlock(&cq->ready_lock);
}

static bool is_done(const struct qp *qp, const struct issued *issued)
{
    const struct emulation *emulation = qp->emulation;
    bool is_untaken = awaits_receives(qp) && issued->slot > taken_by_peer(emulation);
    return issued->status != 0
        || (issued->is_read ? issued->is_answered : emulation->oldest < emulation->acknowledged && !is_untaken);
}

void emulated_report(struct qp *qp)
{
    struct emulation *emulation = qp->emulation;
    for (; emulation->oldest < emulation->next_issue; emulation->oldest++) {
        const struct issued *issued = &emulation->issued[emulation->oldest % ISSUED];
        if (!is_done(qp, issued))
            return;
        struct ibv_wc wc = {.wr_id = issued->wr_id, .status = (enum ibv_wc_status)issued->status,
                            .opcode = issued->opcode, .byte_len = issued->length};
        if (emulation->has_ended && wc.status == IBV_WC_SUCCESS) /* it may have been done, but nobody may rely on that */
            wc.status = IBV_WC_WR_FLUSH_ERR;
        force_error(qp, &wc);
        emulation->has_ended = emulation->has_ended || wc.status != IBV_WC_SUCCESS;
        emulation->failed = emulation->failed || emulation->has_ended;
        if (issued->is_signaled || wc.status != IBV_WC_SUCCESS)
            emulated_complete(qp, qp->verbs.send_cq, wc, false);
    }
}

void emulated_end(struct qp *qp)
{
    struct emulation *emulation = qp->emulation;
    emulation->failed = true;
    emulation->gives_up_at = endpoint_now(endpoint_of(qp)) + FAREWELL_PS;
    __atomic_store_n(&qp->ends, true, __ATOMIC_RELEASE);
}

/* A request of which some slots have gone may be the one that ends. */
static void count_half_issued(struct emulation *emulation)
{
    if (emulation->first == emulation->last || emulation->waiting[emulation->first % WAITING].done == 0)
        return;
    emulation->first++;
    emulation->next_issue++;
}

/* A write of ours says what became of the peer: the first request that it has acknowledged and not answered ends so. */
static void end_unanswered(struct qp *qp, enum ibv_wc_status status)
{
    struct emulation *emulation = qp->emulation;
    if (awaits_receives(qp))
        count_half_issued(emulation);
    for (int64_t number = emulation->oldest; number < emulation->next_issue; number++) {
        struct issued *issued = &emulation->issued[number % ISSUED];
        bool is_untaken = awaits_receives(qp) && issued->slot > taken_by_peer(emulation);
        if (issued->status == 0 && (is_untaken || (issued->is_read && !issued->is_answered))) {
            issued->status = (int)status;
            return;
        }
    }
}

static void on_sent(struct qp *qp, const struct mrc_datapath_record *record)
{
    struct emulation *emulation = qp->emulation;
    if (record->wr_id == FAREWELL) {
        emulation->gives_up_at = 0;
        fail_qp(qp);
    }
    if (record->wr_id < 0 && (record->status == IBV_WC_RETRY_EXC_ERR || record->status == IBV_WC_REM_OP_ERR))
        end_unanswered(qp, (enum ibv_wc_status)record->status);
    if (record->wr_id < 0)
        return;
    if (record->status == 0) {
        emulation->acknowledged = record->wr_id + 1;
        return;
    }
    struct issued *issued = &emulation->issued[record->wr_id % ISSUED];
    if (issued->status == 0 || issued->status == IBV_WC_WR_FLUSH_ERR) /* of one of its writes: the reason, if known */
        issued->status = (int)record->status;
    if (emulation->acknowledged < record->wr_id) /* the engine completes in order */
        emulation->acknowledged = record->wr_id;
}

/* What a code of min_rnr_timer says (IBTA volume 1, table 45), in ps. */
static int64_t rnr_timer_ps(uint32_t code)
{
    code = code == 0 ? 32 : code;
    return ((code & 1 ? 6LL : 4LL) << code / 2 >> 2) * 10 * 1000 * MRC_PS_PER_NS;
}

/* The first request that has a slot which the peer has not taken ends so, those after it are flushed. */
static void end_untaken(struct qp *qp, enum ibv_wc_status status)
{
    struct emulation *emulation = qp->emulation;
    int64_t number = emulation->oldest;
    while (number < emulation->next_issue && emulation->issued[number % ISSUED].slot <= taken_by_peer(emulation))
        number++;
    for (; number < emulation->next_issue; number++, status = IBV_WC_WR_FLUSH_ERR)
        if (emulation->issued[number % ISSUED].status == 0)
            emulation->issued[number % ISSUED].status = (int)status;
}

/* The peer does not take what is in its next slot: the connection ends. */
static void end_open(struct qp *qp, enum ibv_wc_status status)
{
    struct emulation *emulation = qp->emulation;
    count_half_issued(emulation);
    end_untaken(qp, status);
    emulation->failed = true;
    fail_qp(qp);
}

/* The peer has copied out more slots, or waits for a receive. */
static void on_grant(struct qp *qp, uint32_t immediate)
{
    struct emulation *emulation = qp->emulation;
    emulation->granted += ((int64_t)(immediate & COUNT) - taken_by_peer(emulation)) & COUNT;
    if (emulation->failed)
        return;
    emulation->gives_up_at = 0;
    if (immediate & ENDS)
        end_open(qp, immediate >> STATUS_AT & 31);
    else if (immediate & NOT_READY && qp->attr.rnr_retry != WAITS_FOR_EVER)
        emulation->gives_up_at = endpoint_now(endpoint_of(qp))
            + qp->attr.rnr_retry * rnr_timer_ps(immediate >> TIMER_AT & 31);
    emulated_report(qp);
}

static void on_arrived(struct qp *qp, const struct mrc_datapath_record *record)
{
    struct emulation *emulation = qp->emulation;
    uint32_t immediate = (uint32_t)record->immediate;
    emulation->taken++;
    if (immediate & GRANT)
        on_grant(qp, immediate);
    else
        emulation->notes[emulation->arrived++ % SLOTS]
            = (immediate & ~SOLICITED) | (record->solicited ? SOLICITED : 0);
}

/*
 * Whether the engine has said of every write what became of it, and that was taken. It moves `message_head` some time before
 * the completions are published, which is waited for: else a write that has failed would look like one that succeeded.
 */
static bool is_quiet(const struct qp *qp)
{
    struct endpoint *endpoint = endpoint_of(qp);
    const struct mrc_datapath_cqs *cq = &endpoint->cqs[((struct cq *)qp->verbs.send_cq)->row];
    if (__atomic_load_n(&endpoint->queues[2 * qp->row].posted, __ATOMIC_ACQUIRE)
        != __atomic_load_n(&endpoint->qps[qp->row].message_head, __ATOMIC_ACQUIRE))
        return false;
    endpoint_iterate(endpoint);
    return __atomic_load_n(&cq->published, __ATOMIC_ACQUIRE) == __atomic_load_n(&cq->taken, __ATOMIC_ACQUIRE);
}

/* The peer's program has posted no receive in the time that ours set, or the peer has not heard why it ends. */
static void give_up(struct qp *qp)
{
    qp->emulation->gives_up_at = 0;
    if (qp->emulation->failed)
        fail_qp(qp);
    else
        end_open(qp, IBV_WC_RNR_RETRY_EXC_ERR);
}

/* The queue pair failed: everything that the program posted completes, requests after those that were issued. */
static void flush(struct qp *qp)
{
    struct emulation *emulation = qp->emulation;
    struct ibv_wc wc = {.status = IBV_WC_WR_FLUSH_ERR};
    for (; emulation->first_receive < emulation->last_receive; emulation->first_receive++) {
        wc.wr_id = emulation->receives[emulation->first_receive % MRC_RECEIVES].wr_id;
        emulated_complete(qp, qp->verbs.recv_cq, wc, true);
    }
    if (!is_quiet(qp))
        return;
    if (awaits_receives(qp))
        end_untaken(qp, IBV_WC_WR_FLUSH_ERR);
    emulation->acknowledged = emulation->next_issue;
    for (; emulation->first_read < emulation->last_read; emulation->first_read++) {
        struct issued *issued = &emulation->issued[emulation->reads[emulation->first_read % READS].issue % ISSUED];
        issued->status = issued->status != 0 ? issued->status : IBV_WC_WR_FLUSH_ERR;
    }
    emulated_report(qp);
    for (; emulation->first < emulation->last; emulation->first++) {
        wc.wr_id = emulation->waiting[emulation->first % WAITING].wr.wr_id;
        emulated_complete(qp, qp->verbs.send_cq, wc, true);
    }
}

void emulated_record(struct qp *qp, const struct mrc_datapath_record *record)
{
    struct emulation *emulation = qp->emulation;
    pthread_mutex_lock(&emulation->lock);
    if (emulation->key == 0) /* of a connection that has ended */
        return (void)pthread_mutex_unlock(&emulation->lock);
    emulation->failed = emulation->failed || record->status != 0;
    if (record->kind == MRC_COMPLETION_KIND_SEND) {
        on_sent(qp, record);
        emulated_report(qp);
    } else if (record->status == 0)
        on_arrived(qp, record);
    emulated_match(qp);
    pthread_mutex_unlock(&emulation->lock);
    emulated_progress(qp);
}

/* Whether anything of a queue pair will not go on by itself when the engine publishes something for it. */
static bool waits(const struct qp *qp)
{
    const struct emulation *emulation = qp->emulation;
    bool is_unreported = emulation->failed && emulation->oldest < emulation->next_issue;
    return is_unreported || emulation->gives_up_at != 0 || emulation->first < emulation->last
        || emulation->first_answer < emulation->last_answer || awaits_peer(qp);
}

void emulated_note(struct qp *qp)
{
    struct cq *cq = (struct cq *)qp->verbs.send_cq;
    if (waits(qp))
        __atomic_fetch_or(&cq->waiting[qp->row / 64], 1ULL << qp->row % 64, __ATOMIC_RELEASE);
}

void emulated_progress(struct qp *qp)
{
    struct emulation *emulation = qp->emulation;
    struct endpoint *endpoint = endpoint_of(qp);
    pthread_mutex_lock(&emulation->lock);
    if (emulation->gives_up_at != 0 && endpoint_now(endpoint) >= emulation->gives_up_at)
        give_up(qp);
    if (emulation->farewell != 0)
        emulated_match(qp);
    if (emulation->failed)
        flush(qp);
    else if (waits(qp)) {
        pthread_mutex_lock(&endpoint->posting);
        struct batch batch = batch_begin(endpoint);
        reads_answer(qp, &batch);
        issue_waiting(qp, &batch);
        probe_peer(qp, &batch);
        submit(&batch);
        pthread_mutex_unlock(&endpoint->posting);
    }
    emulated_note(qp);
    pthread_mutex_unlock(&emulation->lock);
}

/* How many completions the loop has ever published to a queue: it stores the number with release order. */
static int64_t published(const struct context *context, const struct cq *cq)
{
    return __atomic_load_n(&context->endpoint->cqs[cq->row].published, __ATOMIC_ACQUIRE);
}

void emulated_sort(struct context *context, struct cq *cq)
{
    struct mrc_datapath_cqs *row = &context->endpoint->cqs[cq->row];
    const struct mrc_datapath_record *records = (const struct mrc_datapath_record *)cq->ring;
    pthread_mutex_lock(&cq->lock);
    while (published(context, cq) != row->taken) {
        struct mrc_datapath_record record = records[row->taken & row->mask];
        __atomic_store_n(&row->taken, row->taken + 1, __ATOMIC_RELEASE);
        pthread_mutex_lock(&context->events);
        struct qp *qp = context->qps[record.qp];
        if (qp != NULL && qp->emulation != NULL)
            emulated_record(qp, &record);
        pthread_mutex_unlock(&context->events);
    }
    pthread_mutex_unlock(&cq->lock);
}

/* See to a queue pair that waits; return the queue on which it learns of grants. */
static struct cq *continue_one(struct context *context, const struct cq *cq, int row)
{
    struct cq *partner = NULL;
    pthread_mutex_lock(&context->events);
    struct qp *qp = context->qps[row];
    if (qp != NULL && qp->emulation != NULL && qp->verbs.send_cq == &cq->verbs) {
        partner = (struct cq *)qp->verbs.recv_cq;
        emulated_progress(qp);
    }
    pthread_mutex_unlock(&context->events);
    return partner;
}

/* A sender that only polls its send queue would never see grants: the queues on which they come are sorted, too. */
void emulated_continue(struct context *context, struct cq *cq)
{
    struct cq *sorted = cq;
    for (int word = 0; word < MRC_QPS / 64; word++) {
        uint64_t rows = __atomic_load_n(&cq->waiting[word], __ATOMIC_RELAXED);
        if (rows != 0) /* progress sets them again */
            rows = __atomic_exchange_n(&cq->waiting[word], 0, __ATOMIC_ACQ_REL);
        for (; rows != 0; rows &= rows - 1) {
            struct cq *partner = continue_one(context, cq, 64 * word + __builtin_ctzll(rows));
            if (partner != NULL && partner != sorted)
                emulated_sort(context, partner);
            sorted = partner != NULL ? partner : sorted;
        }
    }
}

const struct emulator emulator = {
    .wanted = wanted,
    .start = service_start,
    .stop = service_stop,
    .open = open_of,
    .begin = begin,
    .reset = reset,
    .close = close_of,
    .lock = lock,
    .unlock = unlock,
    .post_send = emulated_post_send,
    .post_recv = emulated_post_recv,
    .sort = emulated_sort,
    .proceed = emulated_continue,
};
