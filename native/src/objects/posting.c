/* Posting: requests are checked, written to the command ring, and submitted together. */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "objects/objects.h"
#include "objects/posting.h"
#include "endpoint/report.h"

struct batch batch_begin(struct endpoint *endpoint)
{
    return (struct batch){endpoint, endpoint->nic->posted, endpoint->nic->posted};
}

void submit(struct batch *batch)
{
    int64_t count = batch->place - batch->begun;
    if (count > 0)
        mrc_post(batch->endpoint->at, count);
    batch->begun = batch->place;
}

struct mrc_datapath_commands *next_row(struct batch *batch)
{
    struct mrc_datapath_nic *nic = batch->endpoint->nic;
    while (batch->place - __atomic_load_n(&nic->taken, __ATOMIC_ACQUIRE) >= MRC_COMMANDS) {
        submit(batch);
        endpoint_iterate(batch->endpoint);
    }
    return &batch->endpoint->commands[batch->place++ & (MRC_COMMANDS - 1)];
}

bool locate(const struct qp *qp, const struct ibv_sge *sge, int64_t access, int64_t *local)
{
    const struct endpoint *endpoint = its_context(qp->verbs.context)->endpoint;
    const struct mrc_engine_regions *region = &endpoint->regions[sge->lkey % MRC_REGIONS];
    uint64_t offset = sge->addr - (uint64_t)region->va;
    if (region->r_key != (int64_t)sge->lkey || region->pd != ((struct pd *)qp->verbs.pd)->number
        || (region->access & access) != access || offset > (uint64_t)region->length
        || sge->length > (uint64_t)region->length - offset)
        return false;
    *local = region->local + (int64_t)offset;
    return true;
}

/* Say what was posted that MRC does not have, and what adds it. */
static void refuse_operation(enum ibv_wr_opcode opcode)
{
    if (opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM)
        report("SEND was posted: MRC has RDMA WRITE alone (MRC_EMULATE=send adds it)");
    else if (opcode == IBV_WR_RDMA_READ)
        report("RDMA READ was posted: MRC has RDMA WRITE alone (MRC_EMULATE=read adds it)");
    else
        report("an operation was posted that is neither WRITE, SEND nor READ: MRC has RDMA WRITE alone");
}

static int check(const struct ibv_send_wr *wr, uint64_t *length)
{
    if (wr->opcode != IBV_WR_RDMA_WRITE && wr->opcode != IBV_WR_RDMA_WRITE_WITH_IMM)
        return refuse_operation(wr->opcode), EOPNOTSUPP;
    if (wr->num_sge < 0 || wr->num_sge > MOST_SGES)
        return EINVAL;
    *length = 0;
    for (int i = 0; i < wr->num_sge; i++)
        *length += wr->sg_list[i].length;
    if (*length > MRC_MAX_MESSAGE || (wr->send_flags & IBV_SEND_INLINE && *length > MOST_INLINE))
        return EINVAL;
    return 0;
}

/* What a write sends. */
struct source {
    int64_t local, length;
    uint32_t key; /* 0: memory of ours */
};

static void fill_write(struct mrc_datapath_commands *row, const struct qp *qp, const struct ibv_send_wr *wr,
                       struct source source, uint64_t offset, bool is_last)
{
    memset(row, 0, sizeof *row);
    row->qp = qp->row;
    row->wr_id = (int64_t)wr->wr_id;
    row->local = source.local;
    row->length = source.length;
    row->l_key = source.key;
    row->va = (int64_t)(wr->wr.rdma.remote_addr + offset);
    row->r_key = wr->wr.rdma.rkey;
    row->continues = !is_last;
    if (!is_last)
        return;
    row->signaled = (wr->send_flags & IBV_SEND_SIGNALED) != 0 || qp->init.sq_sig_all;
    row->solicited = (wr->send_flags & IBV_SEND_SOLICITED) != 0;
    row->has_immediate = wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    row->immediate = row->has_immediate ? ntohl(wr->imm_data) : 0;
}

/* Writes of a request: one, or one for each piece of memory; they complete together, with the last. */
static int writes_of(const struct ibv_send_wr *wr)
{
    return wr->send_flags & IBV_SEND_INLINE || wr->num_sge < 2 ? 1 : wr->num_sge;
}

static void add_inline(struct batch *batch, struct qp *qp, const struct ibv_send_wr *wr, int64_t number)
{
    uint8_t *copy = qp->inlined + (size_t)(number % qp->depth) * MOST_INLINE;
    int64_t length = 0;
    for (int i = 0; i < wr->num_sge; i++) {
        memcpy(copy + length, (const void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
        length += wr->sg_list[i].length;
    }
    fill_write(next_row(batch), qp, wr, (struct source){(int64_t)(intptr_t)copy, length, 0}, 0, true);
}

/* False, and nothing is added, if some memory of the request is in no region. */
static bool add_gathered(struct batch *batch, struct qp *qp, const struct ibv_send_wr *wr)
{
    struct source sources[MOST_SGES];
    const int count = writes_of(wr);
    for (int i = 0; i < count; i++) {
        sources[i] = (struct source){0};
        if (wr->num_sge == 0 || wr->sg_list[i].length == 0)
            continue;
        sources[i].length = wr->sg_list[i].length;
        sources[i].key = wr->sg_list[i].lkey;
        if (!locate(qp, &wr->sg_list[i], 0, &sources[i].local))
            return false;
    }
    uint64_t offset = 0;
    for (int i = 0; i < count; i++) {
        fill_write(next_row(batch), qp, wr, sources[i], offset, i == count - 1);
        offset += (uint64_t)sources[i].length;
    }
    return true;
}

int post_send(struct ibv_qp *verbs, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    struct qp *qp = (struct qp *)verbs;
    struct endpoint *endpoint = its_context(verbs->context)->endpoint;
    uint64_t length;
    int error = endpoint_is_usable(endpoint) ? 0 : EIO;
    if (error != 0)
        return *bad = wr, error;
    if (qp->emulation != NULL)
        return its_context(verbs->context)->emulator->post_send(qp, wr, bad);
    pthread_mutex_lock(&endpoint->posting);
    struct batch batch = batch_begin(endpoint);
    int64_t number = endpoint->queues[2 * qp->row].posted;
    for (; wr != NULL && error == 0; wr = error == 0 ? wr->next : wr) {
        int32_t state = __atomic_load_n(&endpoint->qps[qp->row].state, __ATOMIC_RELAXED); /* the loop looks again */
        if (state != MRC_QP_STATE_RTS && state != MRC_QP_STATE_ERROR)
            error = EINVAL;
        else if ((error = check(wr, &length)) != 0)
            continue;
        else if (number + writes_of(wr) - __atomic_load_n(&endpoint->qps[qp->row].message_head, __ATOMIC_ACQUIRE)
                 > qp->depth)
            error = ENOMEM;
        else {
            if (wr->send_flags & IBV_SEND_INLINE)
                add_inline(&batch, qp, wr, number++);
            else if (add_gathered(&batch, qp, wr))
                number += writes_of(wr);
            else { /* the engine fails it */
                fill_write(next_row(&batch), qp, wr, (struct source){0, 0, (uint32_t)MRC_UNREGISTERED}, 0, true);
                number++;
            }
        }
    }
    submit(&batch);
    pthread_mutex_unlock(&endpoint->posting);
    if (error != 0)
        *bad = wr;
    return error;
}

int post_recv(struct ibv_qp *verbs, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    struct qp *qp = (struct qp *)verbs;
    struct endpoint *endpoint = its_context(verbs->context)->endpoint;
    int error = endpoint_is_usable(endpoint) ? 0 : EIO;
    if (error != 0)
        return *bad = wr, error;
    if (qp->emulation != NULL)
        return its_context(verbs->context)->emulator->post_recv(qp, wr, bad);
    pthread_mutex_lock(&endpoint->posting);
    struct batch batch = batch_begin(endpoint);
    int64_t number = endpoint->queues[2 * qp->row + 1].posted;
    for (; wr != NULL && error == 0; wr = error == 0 ? wr->next : wr) {
        if (__atomic_load_n(&endpoint->qps[qp->row].state, __ATOMIC_RELAXED) == MRC_QP_STATE_RESET)
            error = EINVAL;
        else if (number - __atomic_load_n(&endpoint->qps[qp->row].receive_head, __ATOMIC_ACQUIRE) >= MRC_RECEIVES)
            error = ENOMEM;
        else {
            struct mrc_datapath_commands *row = next_row(&batch);
            memset(row, 0, sizeof *row);
            row->qp = qp->row;
            row->wr_id = (int64_t)wr->wr_id;
            row->is_receive = 1;
            number++;
        }
    }
    submit(&batch);
    pthread_mutex_unlock(&endpoint->posting);
    if (error != 0)
        *bad = wr;
    return error;
}
