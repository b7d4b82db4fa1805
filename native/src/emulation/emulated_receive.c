/* Receiving from our slots. See emulation.h. */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "emulation/slots.h"
#include "objects/forced_errors.h"
#include "endpoint/guard.h"

void post_receives(struct qp *qp, struct batch *batch, int64_t count)
{
    while (count-- > 0) {
        struct mrc_datapath_commands *row = next_row(batch);
        memset(row, 0, sizeof *row);
        row->qp = qp->row;
        row->is_receive = 1;
    }
}

/* The same, while the memory cannot be deregistered. */
static enum ibv_wc_status scatter_held(const struct qp *qp, const struct target *target, int64_t at,
                                       const uint8_t *from, int64_t length)
{
    for (int i = 0; i < target->count && length > 0; i++) {
        struct ibv_sge part = target->pieces[i];
        int64_t local;
        if (at >= part.length) {
            at -= part.length;
            continue;
        }
        part.addr += (uint64_t)at;
        part.length -= (uint32_t)at;
        part.length = part.length < length ? part.length : (uint32_t)length;
        if (!locate(qp, &part, IBV_ACCESS_LOCAL_WRITE, &local))
            return IBV_WC_LOC_PROT_ERR;
        if (!guard_copy(endpoint_of(qp), (void *)(intptr_t)local, from, part.length))
            return IBV_WC_LOC_PROT_ERR;
        from += part.length;
        length -= part.length;
        at = 0;
    }
    return length == 0 ? IBV_WC_SUCCESS : IBV_WC_LOC_LEN_ERR;
}

enum ibv_wc_status scatter(const struct qp *qp, const struct target *target, int64_t at, const uint8_t *from,
                           int64_t length)
{
    struct endpoint *endpoint = endpoint_of(qp);
    pthread_mutex_lock(&endpoint->posting);
    enum ibv_wc_status status = scatter_held(qp, target, at, from, length);
    pthread_mutex_unlock(&endpoint->posting);
    return status;
}

/* What a receive that ends so is for its sender (IBTA volume 1, 9.9.3: a NAK for an invalid request, or an operation error). */
static enum ibv_wc_status seen_by_sender(enum ibv_wc_status status)
{
    return status == IBV_WC_LOC_LEN_ERR ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_REM_OP_ERR;
}

static void end_message(struct qp *qp, const struct header *header, uint32_t note, enum ibv_wc_status status)
{
    bool has_immediate = (note & HEADED) != 0;
    struct emulation *emulation = qp->emulation;
    struct ibv_wc wc = {
        .wr_id = emulation->receives[emulation->first_receive++ % MRC_RECEIVES].wr_id,
        .status = status,
        .opcode = header->kind == SEND ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM,
        .byte_len = (uint32_t)emulation->filled,
        .wc_flags = has_immediate ? IBV_WC_WITH_IMM : 0,
        .imm_data = htonl(header->immediate),
    };
    emulation->filled = 0;
    force_error(qp, &wc);
    if (status != IBV_WC_SUCCESS) { /* before anybody can see it */
        emulation->farewell = seen_by_sender(status);
        emulated_end(qp);
    } else if (wc.status != IBV_WC_SUCCESS) {
        emulation->failed = true;
        fail_qp(qp);
    }
    emulated_complete(qp, qp->verbs.recv_cq, wc, (note & SOLICITED) != 0);
}

/* Copy out a slot of a SEND, or take the header of a write with immediate; a receive is there for it. */
static void take_message(struct qp *qp, const struct header *header, uint32_t note, const uint8_t *payload)
{
    struct emulation *emulation = qp->emulation;
    const struct target *target = &emulation->receives[emulation->first_receive % MRC_RECEIVES];
    enum ibv_wc_status status = IBV_WC_SUCCESS;
    if (header->kind == SEND)
        status = header->length <= SLOT_PAYLOAD ? scatter(qp, target, emulation->filled, payload, header->length)
                                                : IBV_WC_LOC_LEN_ERR;
    emulation->filled += header->length;
    if (header->is_last || status != IBV_WC_SUCCESS)
        end_message(qp, header, note, status);
}

/* Take the oldest slot that was filled; false if it has to wait for a receive. */
static bool take_slot(struct qp *qp)
{
    struct emulation *emulation = qp->emulation;
    const uint8_t *slot = emulation->ring + (size_t)(emulation->consumed % SLOTS) * SLOT_BYTES;
    uint32_t note = emulation->notes[emulation->consumed % SLOTS];
    struct header header = {SEND, 0, note & LENGTH, (note & LAST) != 0, 0};
    if (note & HEADED)
        memcpy(&header, slot, sizeof header);
    if (note & ANSWER)
        reads_take(qp, note, slot + SLOT_HEADER);
    else if (note & HEADED && header.kind == READ)
        reads_note(qp, &header);
    else if (emulation->first_receive == emulation->last_receive)
        return false;
    else
        take_message(qp, &header, note, slot + SLOT_HEADER);
    emulation->consumed += emulation->failed ? 0 : 1;
    return true;
}

/* Grant what was copied out, and say if the next slot waits for a receive, or ends the connection. */
static void tell_peer(struct qp *qp, struct batch *batch, bool refuses)
{
    struct emulation *emulation = qp->emulation;
    struct mrc_datapath_commands *row
        = add_write(qp, batch, emulation->farewell != 0 ? FAREWELL : OWN, NULL, 0, 0, emulation->peer_key);
    row->has_immediate = 1;
    row->immediate = GRANT | (uint32_t)(emulation->consumed & COUNT);
    emulation->told = emulation->consumed;
    if (refuses) {
        row->immediate |= NOT_READY | (uint32_t)(qp->attr.min_rnr_timer & 31) << TIMER_AT;
        emulation->refused = emulation->consumed + 1;
    }
    if (emulation->farewell != 0) {
        row->signaled = 1;
        row->immediate |= ENDS | (uint32_t)emulation->farewell << STATUS_AT;
        emulation->farewell = 0;
    }
}

void emulated_match(struct qp *qp)
{
    struct emulation *emulation = qp->emulation;
    struct endpoint *endpoint = endpoint_of(qp);
    while (!emulation->failed && emulation->consumed < emulation->arrived && take_slot(qp))
        ;
    bool works = !emulation->failed, ends = emulation->farewell != 0;
    bool grants = works && emulation->consumed - emulation->told >= (awaits_receives(qp) ? 1 : GRANT_EVERY);
    bool refuses = works && awaits_receives(qp) && emulation->consumed < emulation->arrived
        && emulation->refused != emulation->consumed + 1;
    if (!grants && !refuses && !ends && emulation->taken < GRANT_EVERY)
        return;
    pthread_mutex_lock(&endpoint->posting);
    struct batch batch = batch_begin(endpoint);
    post_receives(qp, &batch, emulation->taken);
    emulation->taken = 0;
    if ((grants || refuses || ends) && has_room(qp, 1) && endpoint->qps[qp->row].state == MRC_QP_STATE_RTS)
        tell_peer(qp, &batch, refuses);
    submit(&batch);
    pthread_mutex_unlock(&endpoint->posting);
}

int emulated_post_recv(struct qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    struct emulation *emulation = qp->emulation;
    int error = 0;
    pthread_mutex_lock(&emulation->lock);
    for (; wr != NULL; wr = wr->next) {
        if (endpoint_of(qp)->qps[qp->row].state == MRC_QP_STATE_RESET || wr->num_sge < 0 || wr->num_sge > MOST_SGES)
            error = EINVAL;
        else if (emulation->last_receive - emulation->first_receive >= MRC_RECEIVES)
            error = ENOMEM;
        if (error != 0)
            break;
        struct target *target = &emulation->receives[emulation->last_receive++ % MRC_RECEIVES];
        target->wr_id = wr->wr_id;
        target->count = wr->num_sge;
        if (wr->num_sge > 0)
            memcpy(target->pieces, wr->sg_list, (size_t)wr->num_sge * sizeof *wr->sg_list);
    }
    emulated_match(qp);
    bool failed = emulation->failed;
    pthread_mutex_unlock(&emulation->lock);
    if (failed)
        emulated_progress(qp); /* flushes */
    if (error != 0)
        *bad = wr;
    return error;
}
