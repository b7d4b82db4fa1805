/* READ over slots, and the thread that works for programs that do not poll. See emulation.h. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "emulation/slots.h"

#define PROBE_PS (50 * 1000 * 1000 * MRC_PS_PER_NS) /* between two writes that show that a silent peer lives */
#define LOOK_MS 2 /* how soon the thread looks again after a queue whose program polls itself */

bool reads_ask(struct qp *qp, struct batch *batch, const struct request *request, int64_t issue)
{
    struct emulation *emulation = qp->emulation;
    if (emulation->used >= emulation->granted || emulation->last_read - emulation->first_read >= READS)
        return false;
    struct read *read = &emulation->reads[emulation->last_read++ % READS];
    *read = (struct read){.issue = issue, .target = {.count = request->wr.num_sge}};
    memcpy(read->target.pieces, request->pieces, sizeof read->target.pieces);
    struct header question = {READ, request->wr.wr.rdma.rkey, (uint32_t)request->length, 1,
                              request->wr.wr.rdma.remote_addr};
    add_header(qp, batch, issue, question);
    emulation->asked_at = endpoint_now(endpoint_of(qp));
    return true;
}

void reads_take(struct qp *qp, uint32_t note, const uint8_t *payload)
{
    struct emulation *emulation = qp->emulation;
    if (emulation->first_read == emulation->last_read)
        return; /* nobody asked */
    struct read *read = &emulation->reads[emulation->first_read % READS];
    struct issued *issued = &emulation->issued[read->issue % ISSUED];
    int64_t length = note & LENGTH;
    enum ibv_wc_status status = IBV_WC_BAD_RESP_ERR;
    if (length <= SLOT_PAYLOAD)
        status = scatter(qp, &read->target, read->filled, payload, length);
    read->filled += length;
    if (!(note & LAST) && status == IBV_WC_SUCCESS)
        return;
    emulation->first_read++;
    issued->is_answered = true;
    if (note & REFUSED)
        issued->status = IBV_WC_REM_ACCESS_ERR;
    else if (status == IBV_WC_LOC_PROT_ERR)
        issued->status = status;
    else if (status != IBV_WC_SUCCESS || read->filled != issued->length)
        issued->status = IBV_WC_BAD_RESP_ERR;
    if (issued->status != 0) {
        fail_qp(qp);
        emulation->failed = true;
    }
    emulated_report(qp);
}

/* Find where what is left of an answer lies; false if the peer may not read it. Where nothing is read no key is looked at. */
static bool find_readable(const struct qp *qp, const struct answer *answer, int64_t *at)
{
    struct ibv_sge piece = {answer->address + answer->done, (uint32_t)(answer->length - answer->done), answer->key};
    if (reads_at_once(endpoint_of(qp)) == 0 || !(qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_READ))
        return false;
    return piece.length == 0 || locate(qp, &piece, IBV_ACCESS_REMOTE_READ, at);
}

/* The answer is the last that the peer hears, as from a NIC: its queue pair and ours end. */
static void end_refused(struct qp *qp, struct mrc_datapath_commands *answer)
{
    answer->wr_id = FAREWELL;
    answer->signaled = 1;
    answer->immediate |= REFUSED;
    emulated_end(qp);
    raise_event(its_context(qp->verbs.context), IBV_EVENT_QP_ACCESS_ERR, qp);
}

void reads_note(struct qp *qp, const struct header *header)
{
    struct emulation *emulation = qp->emulation;
    if (emulation->last_answer - emulation->first_answer >= READS)
        return; /* more than it may ask at once: it will wait in vain */
    emulation->answers[emulation->last_answer++ % READS]
        = (struct answer){.address = header->address, .length = header->length, .key = header->immediate};
}

void reads_answer(struct qp *qp, struct batch *batch)
{
    struct emulation *emulation = qp->emulation;
    while (emulation->first_answer < emulation->last_answer && emulation->used < emulation->granted
           && !emulation->failed && has_room(qp, 1)) {
        struct answer *answer = &emulation->answers[emulation->first_answer % READS];
        int64_t at = 0;
        bool may = find_readable(qp, answer, &at);
        if (!may) /* never, or no more */
            answer->length = answer->done;
        uint64_t left = answer->length - answer->done, length = left < SLOT_PAYLOAD ? left : SLOT_PAYLOAD;
        uint64_t va = (uint64_t)(emulation->used++ % SLOTS) * SLOT_BYTES + SLOT_HEADER;
        struct mrc_datapath_commands *row
            = add_write(qp, batch, OWN, (const void *)(intptr_t)at, length, va, emulation->peer_key);
        row->l_key = length > 0 ? answer->key : 0;
        row->has_immediate = 1;
        row->immediate = ANSWER | (length == left ? LAST : 0) | (uint32_t)length;
        answer->done += length;
        emulation->first_answer += length == left;
        if (!may)
            end_refused(qp, row);
    }
}

void probe_peer(struct qp *qp, struct batch *batch)
{
    struct emulation *emulation = qp->emulation;
    int64_t now = endpoint_now(endpoint_of(qp));
    if (!awaits_peer(qp) || now - emulation->asked_at < PROBE_PS || !has_room(qp, 1))
        return;
    emulation->asked_at = now;
    add_write(qp, batch, OWN, NULL, 0, 0, emulation->peer_key);
}

/* Whether a program waits for an event of any queue. */
static bool is_armed(struct context *context)
{
    bool armed = false;
    for (int row = 0; row < MRC_CQS && !armed; row++) {
        struct cq *cq = __atomic_load_n(&context->cqs[row], __ATOMIC_ACQUIRE);
        if (cq == NULL)
            continue;
        pthread_mutex_lock(&cq->ready_lock);
        armed = cq->armed != 0;
        pthread_mutex_unlock(&cq->ready_lock);
    }
    return armed;
}

static bool has_waiting(const struct cq *cq)
{
    uint64_t any = 0;
    for (int word = 0; word < MRC_QPS / 64; word++)
        any |= __atomic_load_n(&cq->waiting[word], __ATOMIC_RELAXED);
    return any != 0;
}

/* Serve what has come to every queue; true if some program polls its own, or a queue pair waits. */
static bool serve(struct context *context)
{
    bool looks_again = false;
    pthread_mutex_lock(&context->serving);
    bool all = is_armed(context), none = !all && reads_at_once(context->endpoint) == 0;
    for (int row = 0; row < MRC_CQS && !none; row++) {
        struct cq *cq = __atomic_load_n(&context->cqs[row], __ATOMIC_ACQUIRE);
        if (cq == NULL)
            continue;
        unsigned polls = __atomic_load_n(&cq->polls, __ATOMIC_RELAXED);
        if (all || polls == cq->polls_seen)
            endpoint_alert(context->endpoint, row);
        else
            looks_again = true;
        cq->polls_seen = polls;
        emulated_sort(context, cq);
        emulated_continue(context, cq);
        looks_again = looks_again || has_waiting(cq);
    }
    pthread_mutex_unlock(&context->serving);
    return looks_again;
}

static void *run(void *argument)
{
    struct context *context = argument;
    struct pollfd slot = {context->serving_fd, POLLIN, 0};
    pthread_setname_np(pthread_self(), "mrc emulation");
    while (!atomic_load(&context->is_closing)) {
        bool looks_again = serve(context);
        eventfd_t count;
        if (poll(&slot, 1, looks_again ? LOOK_MS : -1) > 0)
            eventfd_read(context->serving_fd, &count);
    }
    return NULL;
}

int service_start(struct context *context)
{
    if (context->endpoint->addresses.emulates == 0)
        return 0;
    context->serving_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (context->serving_fd < 0)
        return errno;
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGSEGV); /* a fault whose signal is blocked ends the process */
    sigdelset(&all, SIGBUS);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&context->server, NULL, run, context);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    context->is_served = error == 0;
    return error;
}

void service_stop(struct context *context)
{
    atomic_store(&context->is_closing, true);
    if (context->is_served && endpoint_is_usable(context->endpoint)) {
        eventfd_write(context->serving_fd, 1);
        pthread_join(context->server, NULL);
    }
    if (context->serving_fd >= 0)
        close(context->serving_fd);
}
