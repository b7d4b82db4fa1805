/* Sending over slots of the peer. See emulation.h. */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "endpoint/report.h"
#include "emulation/slots.h"

struct mrc_datapath_commands *add_write(struct qp *qp, struct batch *batch, int64_t issue, const void *local,
                                        uint64_t length, uint64_t va, uint32_t key)
{
    struct mrc_datapath_commands *row = next_row(batch);
    memset(row, 0, sizeof *row);
    row->qp = qp->row;
    row->wr_id = issue;
    row->local = (int64_t)(intptr_t)local;
    row->length = (int64_t)length;
    row->va = (int64_t)va;
    row->r_key = key;
    return row;
}

struct mrc_datapath_commands *add_header(struct qp *qp, struct batch *batch, int64_t issue, struct header header)
{
    struct emulation *emulation = qp->emulation;
    int64_t slot = emulation->used++;
    struct header *kept = &emulation->headers[slot % (2 * SLOTS)];
    *kept = header;
    struct mrc_datapath_commands *row
        = add_write(qp, batch, issue, kept, sizeof *kept, (uint64_t)(slot % SLOTS) * SLOT_BYTES, emulation->peer_key);
    row->has_immediate = 1;
    row->immediate = HEADED;
    return row;
}

bool has_room(const struct qp *qp, int writes)
{
    const struct endpoint *endpoint = endpoint_of(qp);
    /* Those of a batch that is not submitted yet are not counted: at most a command ring of them. */
    return endpoint->queues[2 * qp->row].posted + writes + MRC_COMMANDS
        - __atomic_load_n(&endpoint->qps[qp->row].message_head, __ATOMIC_ACQUIRE) <= MRC_SENDS;
}

/* Add writes of the request's bytes from `done` on, `length` of them, to `va`; pieces lie wherever the program has them. */
static struct mrc_datapath_commands *add_payload(struct qp *qp, struct batch *batch, struct request *request,
                                                 int64_t issue, uint64_t length, uint64_t va, uint32_t key)
{
    uint64_t begin = 0;
    struct mrc_datapath_commands *last = NULL;
    for (int i = 0; i < request->wr.num_sge && length > 0; i++) {
        const struct ibv_sge *piece = &request->pieces[i];
        uint64_t inside = request->done > begin ? request->done - begin : 0;
        begin += piece->length;
        if (inside >= piece->length)
            continue;
        struct ibv_sge part = *piece;
        part.addr += inside;
        part.length = (uint32_t)(piece->length - inside < length ? piece->length - inside : length);
        int64_t local = (int64_t)part.addr;
        if (request->inlined == NULL)
            locate(qp, &part, 0, &local);
        last = add_write(qp, batch, issue, (const void *)(intptr_t)local, part.length, va, key);
        last->l_key = part.lkey;
        va += part.length;
        length -= part.length;
        request->done += part.length;
    }
    return last != NULL ? last : add_write(qp, batch, issue, NULL, 0, va, key);
}

/* Write the next slot of a SEND; true if that was its last. */
static bool send_slot(struct qp *qp, struct batch *batch, struct request *request, int64_t issue)
{
    struct emulation *emulation = qp->emulation;
    uint64_t va = (uint64_t)(emulation->used % SLOTS) * SLOT_BYTES;
    uint64_t left = request->length - request->done, length = left < SLOT_PAYLOAD ? left : SLOT_PAYLOAD;
    struct mrc_datapath_commands *row
        = add_payload(qp, batch, request, issue, length, va + SLOT_HEADER, emulation->peer_key);
    if (request->wr.opcode == IBV_WR_SEND) {
        emulation->used++;
        row->has_immediate = 1;
        row->immediate = (length == left ? LAST : 0) | (uint32_t)length;
    } else
        row = add_header(qp, batch, issue,
                         (struct header){SEND, ntohl(request->wr.imm_data), (uint32_t)length, length == left, 0});
    row->solicited = (request->wr.send_flags & IBV_SEND_SOLICITED) != 0;
    row->signaled = length == left && emulation->issued[issue % ISSUED].is_signaled;
    return length == left;
}

static void write_to_peer(struct qp *qp, struct batch *batch, struct request *request, int64_t issue)
{
    const struct ibv_send_wr *wr = &request->wr;
    struct mrc_datapath_commands *row
        = add_payload(qp, batch, request, issue, request->length, wr->wr.rdma.remote_addr, wr->wr.rdma.rkey);
    if (wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
        struct header header = {WRITE_IMMEDIATE, ntohl(wr->imm_data), (uint32_t)request->length, 1, 0};
        row = add_header(qp, batch, issue, header);
        row->solicited = (wr->send_flags & IBV_SEND_SOLICITED) != 0;
    }
    row->signaled = qp->emulation->issued[issue % ISSUED].is_signaled;
}

static void note_issue(struct qp *qp, const struct request *request)
{
    struct emulation *emulation = qp->emulation;
    if (emulation->next_issue - emulation->oldest == ISSUED)
        emulation->oldest++; /* of requests that nobody wants to hear of */
    bool reads = request->wr.opcode == IBV_WR_RDMA_READ;
    emulation->issued[emulation->next_issue % ISSUED] = (struct issued){
        .wr_id = request->wr.wr_id,
        .opcode = reads ? IBV_WC_RDMA_READ : is_send(&request->wr) ? IBV_WC_SEND : IBV_WC_RDMA_WRITE,
        .length = (uint32_t)request->length,
        .is_signaled = request->wr.send_flags & IBV_SEND_SIGNALED || qp->init.sq_sig_all,
        .is_read = reads,
    };
}

/*
 * Whether the memory of a request is registered; it may have been deregistered while the request waited. That of a READ is
 * looked at when its bytes come, as by a NIC.
 */
static bool is_there(const struct qp *qp, const struct request *request)
{
    int64_t local;
    bool sends = request->inlined == NULL && request->wr.opcode != IBV_WR_RDMA_READ;
    for (int i = 0; i < request->wr.num_sge && sends; i++)
        if (request->pieces[i].length > 0 && !locate(qp, &request->pieces[i], 0, &local))
            return false;
    return true;
}

/* Issue a request as far as there are slots and room; true if that was all of it, or it failed. */
static bool issue(struct qp *qp, struct batch *batch, struct request *request)
{
    struct emulation *emulation = qp->emulation;
    int64_t number = emulation->next_issue;
    if (request->done == 0)
        note_issue(qp, request);
    if (!is_there(qp, request)) {
        emulation->issued[number % ISSUED].status = IBV_WC_LOC_PROT_ERR;
        emulation->failed = true;
        fail_qp(qp);
        return true;
    }
    if (request->wr.opcode == IBV_WR_RDMA_WRITE)
        return write_to_peer(qp, batch, request, number), true;
    if (request->wr.opcode == IBV_WR_RDMA_READ)
        return reads_ask(qp, batch, request, number);
    bool is_whole = false;
    struct issued *issued = &emulation->issued[number % ISSUED];
    while (!is_whole && emulation->used < emulation->granted && has_room(qp, 2 * MOST_SGES)) {
        is_whole = !is_send(&request->wr) || send_slot(qp, batch, request, number);
        if (!is_send(&request->wr))
            write_to_peer(qp, batch, request, number);
        issued->slot = emulation->used;
    }
    return is_whole;
}

void issue_waiting(struct qp *qp, struct batch *batch)
{
    struct emulation *emulation = qp->emulation;
    while (!emulation->failed && emulation->first < emulation->last && has_room(qp, 2 * MOST_SGES)) {
        if (!issue(qp, batch, &emulation->waiting[emulation->first % WAITING]))
            return;
        emulation->first++;
        emulation->issued[emulation->next_issue++ % ISSUED].end
            = endpoint_of(qp)->queues[2 * qp->row].posted + batch->place - batch->begun;
    }
}

/* Whether as many requests are open as the queue was granted. */
static bool is_full(struct qp *qp)
{
    struct emulation *emulation = qp->emulation;
    int64_t waiting = emulation->last - emulation->first, granted = qp->init.cap.max_send_wr;
    if (waiting + emulation->next_issue - emulation->settled < granted)
        return false;
    int64_t head = __atomic_load_n(&endpoint_of(qp)->qps[qp->row].message_head, __ATOMIC_ACQUIRE);
    if (emulation->settled < emulation->oldest)
        emulation->settled = emulation->oldest;
    for (; emulation->settled < emulation->next_issue; emulation->settled++) {
        const struct issued *issued = &emulation->issued[emulation->settled % ISSUED];
        bool is_untaken = awaits_receives(qp) && issued->slot > taken_by_peer(emulation);
        if (issued->end > head || is_untaken || (issued->is_read && !issued->is_answered))
            break;
    }
    return waiting + emulation->next_issue - emulation->settled >= granted;
}

static bool is_possible(const struct qp *qp, const struct ibv_send_wr *wr)
{
    if (is_send(wr) || wr->opcode == IBV_WR_RDMA_WRITE || wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
        return true;
    if (wr->opcode == IBV_WR_RDMA_READ && reads_at_once(endpoint_of(qp)) > 0)
        return true;
    report(wr->opcode == IBV_WR_RDMA_READ ? "RDMA READ was posted: MRC has none (MRC_EMULATE=read adds it)"
                                          : "an operation other than WRITE, SEND and READ was posted: MRC has no other");
    return false;
}

static int check(const struct qp *qp, const struct ibv_send_wr *wr, struct request *request)
{
    if (!is_possible(qp, wr))
        return EOPNOTSUPP;
    if (wr->num_sge < 0 || wr->num_sge > MOST_SGES)
        return EINVAL;
    bool is_inline = (wr->send_flags & IBV_SEND_INLINE) != 0;
    *request = (struct request){.wr = *wr};
    for (int i = 0; i < wr->num_sge; i++) {
        request->pieces[i] = wr->sg_list[i];
        request->length += wr->sg_list[i].length;
    }
    bool is_too_long = request->length > MRC_MAX_MESSAGE || (is_inline && request->length > MOST_INLINE);
    return is_too_long || (is_inline && wr->opcode == IBV_WR_RDMA_READ) ? EINVAL : 0;
}

static void keep_inlined(struct qp *qp, struct request *request)
{
    uint8_t *copy = qp->inlined + (size_t)(qp->emulation->next_inlined++ % MRC_SENDS) * MOST_INLINE;
    uint64_t length = 0;
    for (int i = 0; i < request->wr.num_sge; i++) {
        memcpy(copy + length, (const void *)(uintptr_t)request->pieces[i].addr, request->pieces[i].length);
        length += request->pieces[i].length;
    }
    request->inlined = copy;
    request->pieces[0] = (struct ibv_sge){(uintptr_t)copy, (uint32_t)length, 0};
    request->wr.num_sge = length > 0;
}

int emulated_post_send(struct qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    struct endpoint *endpoint = endpoint_of(qp);
    struct emulation *emulation = qp->emulation;
    int error = 0;
    pthread_mutex_lock(&emulation->lock);
    pthread_mutex_lock(&endpoint->posting);
    struct batch batch = batch_begin(endpoint);
    for (; wr != NULL; wr = wr->next) {
        struct request *request = &emulation->waiting[emulation->last % WAITING];
        int32_t state = __atomic_load_n(&endpoint->qps[qp->row].state, __ATOMIC_RELAXED);
        if ((state != MRC_QP_STATE_RTS || !qp->sends) && state != MRC_QP_STATE_ERROR && !qp->ends)
            error = EINVAL;
        else if (is_full(qp))
            error = ENOMEM;
        else
            error = check(qp, wr, request);
        if (error != 0)
            break;
        if (wr->send_flags & IBV_SEND_INLINE)
            keep_inlined(qp, request);
        emulation->last++;
        if (!emulation->failed)
            issue_waiting(qp, &batch);
    }
    submit(&batch);
    pthread_mutex_unlock(&endpoint->posting);
    bool failed = emulation->failed;
    emulated_note(qp);
    pthread_mutex_unlock(&emulation->lock);
    if (failed)
        emulated_progress(qp); /* flushes */
    if (error != 0)
        *bad = wr;
    return error;
}
