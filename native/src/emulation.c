#define _GNU_SOURCE
#include "emulation.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include "posting.h"
#include "report.h"

#define SLOTS 64
#define HEADER 64 /* bytes of a slot before its payload: a cache line */
#define PAYLOAD 65536
#define SLOT_BYTES (HEADER + PAYLOAD)
#define GRANT 0x80000000u  /* an immediate that grants slots: how many were copied out, ever, in the low bits */
#define GRANT_EVERY (SLOTS / 4)
#define OWN_RECEIVES (SLOTS + 4 * GRANT_EVERY) /* of the engine: for slots, and for grants */
#define KEYS MRC_QPS       /* the last rows of the regions, one for each queue pair */
#define WAITING MRC_SENDS  /* requests that wait for a grant, a power of two */
#define ISSUED (4 * MRC_SENDS)

enum kind { SEND = 1, WRITE_IMMEDIATE };

struct header {
    uint32_t kind, immediate, has_immediate, length, is_last, solicited;
};

struct request {
    struct ibv_send_wr wr;
    struct ibv_sge pieces[MOST_SGES];
    uint64_t length, done; /* bytes, and those that were written */
    uint8_t *inlined;
};

struct issued {
    uint64_t wr_id;
    enum ibv_wc_opcode opcode;
    uint32_t length;
    bool is_own, reported;
};

struct receive {
    uint64_t wr_id;
    int count;
    struct ibv_sge pieces[MOST_SGES];
};

struct emulation {
    pthread_mutex_t lock;
    uint8_t *ring;
    uint32_t key, peer_key;
    int64_t used, granted;     /* slots of the peer: written to, may be written to, ever */
    int64_t arrived, consumed; /* slots of ours: written to, copied out, ever */
    int64_t told, taken;       /* of those, granted again; receives of the engine to be posted again */
    int64_t filled;            /* bytes of the message that is being copied out */
    int64_t first, last;       /* requests that wait, by number */
    int64_t next_issue, next_inlined;
    int64_t first_receive, last_receive;
    struct header headers[2 * SLOTS]; /* until they are sent */
    struct request waiting[WAITING];
    struct issued issued[ISSUED];
    struct receive receives[MRC_RECEIVES];
};

bool emulation_is_wanted(void)
{
    const char *wanted = getenv("MRC_EMULATE");
    return wanted != NULL && strstr(wanted, "send") != NULL;
}

/* Of a queue pair's number: its low bits choose one of the rows that are set aside, the others must be guessed. */
static uint32_t key_of(uint32_t number)
{
    return number / KEYS * (uint32_t)MRC_REGIONS + (uint32_t)(MRC_REGIONS - KEYS) + number % KEYS;
}

static struct endpoint *endpoint_of(const struct qp *qp)
{
    return its_context(qp->verbs.context)->endpoint;
}

/* Give the engine receives for as many immediates as were taken; `posting` is held. */
static void post_receives(struct qp *qp, struct batch *batch, int64_t count)
{
    while (count-- > 0) {
        struct mrc_datapath_commands *row = next_row(batch);
        memset(row, 0, sizeof *row);
        row->qp = qp->row;
        row->is_receive = 1;
    }
}

int emulation_open(struct qp *qp)
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

void emulation_begin(struct qp *qp, uint32_t peer)
{
    struct endpoint *endpoint = endpoint_of(qp);
    struct emulation *emulation = qp->emulation;
    emulation->granted = SLOTS;
    emulation->key = key_of(qp->verbs.qp_num);
    emulation->peer_key = key_of(peer);
    mrc_add_region(endpoint->at, emulation->key, 0, SLOTS * SLOT_BYTES,
                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, ((struct pd *)qp->verbs.pd)->number,
                   (int64_t)(intptr_t)emulation->ring);
    pthread_mutex_lock(&endpoint->posting);
    struct batch batch = batch_begin(endpoint);
    post_receives(qp, &batch, OWN_RECEIVES);
    submit(&batch);
    pthread_mutex_unlock(&endpoint->posting);
    endpoint_iterate(endpoint); /* the engine has the receives before a packet of the peer may need one */
}

void emulation_reset(struct qp *qp)
{
    struct emulation *emulation = qp->emulation;
    pthread_mutex_lock(&emulation->lock);
    if (emulation->key != 0 && endpoint_is_usable(endpoint_of(qp)))
        mrc_remove_region(endpoint_of(qp)->at, emulation->key);
    emulation->key = emulation->peer_key = 0;
    emulation->used = emulation->granted = emulation->arrived = emulation->consumed = 0;
    emulation->told = emulation->taken = emulation->filled = 0;
    emulation->first = emulation->last = emulation->next_issue = emulation->next_inlined = 0;
    emulation->first_receive = emulation->last_receive = 0;
    pthread_mutex_unlock(&emulation->lock);
}

void emulation_close(struct qp *qp)
{
    struct emulation *emulation = qp->emulation;
    emulation_reset(qp);
    munmap(emulation->ring, SLOTS * SLOT_BYTES);
    munmap(emulation, sizeof *emulation);
}

/* Completions for the program, and a wake-up if it armed the queue and the engine's record has not caused one. */

static void complete(struct qp *qp, struct ibv_cq *verbs, struct ibv_wc wc)
{
    struct cq *cq = (struct cq *)verbs;
    struct endpoint *endpoint = endpoint_of(qp);
    wc.qp_num = qp->verbs.qp_num;
    pthread_mutex_lock(&cq->ready_lock);
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
    pthread_mutex_unlock(&cq->ready_lock);
    if (verbs->channel != NULL)
        endpoint_announce(endpoint, cq->row);
}

/* Sending: `lock` and `posting` are held. */

static struct mrc_datapath_commands *add_write(struct qp *qp, struct batch *batch, int64_t issue, const void *local,
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

/* Add writes of the request's bytes from `done` on, `length` of them, to `va`; pieces lie wherever the program has them. */
static int add_payload(struct qp *qp, struct batch *batch, struct request *request, int64_t issue, uint64_t length,
                       uint64_t va, uint32_t key, struct mrc_datapath_commands **last)
{
    uint64_t begin = 0;
    int writes = 0;
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
            locate(qp, &part, &local);
        *last = add_write(qp, batch, issue, (const void *)(intptr_t)local, part.length, va, key);
        va += part.length;
        length -= part.length;
        request->done += part.length;
        writes++;
    }
    return writes;
}

static bool has_room(const struct qp *qp, int writes)
{
    const struct endpoint *endpoint = endpoint_of(qp);
    /* Those of a batch that is not submitted yet are not counted: at most a command ring of them. */
    return endpoint->queues[2 * qp->row].posted + writes + MRC_COMMANDS
        - __atomic_load_n(&endpoint->qps[qp->row].message_head, __ATOMIC_ACQUIRE) <= MRC_SENDS;
}

/* Write the next slot of a message, or the header of a write with immediate; true if that was its last. */
static bool fill_slot(struct qp *qp, struct batch *batch, struct request *request, int64_t issue)
{
    struct emulation *emulation = qp->emulation;
    int64_t slot = emulation->used++;
    uint64_t va = (uint64_t)(slot % SLOTS) * SLOT_BYTES;
    struct header *header = &emulation->headers[slot % (2 * SLOTS)];
    struct mrc_datapath_commands *last;
    bool is_send = request->wr.opcode == IBV_WR_SEND || request->wr.opcode == IBV_WR_SEND_WITH_IMM;
    uint64_t left = request->length - request->done, length = is_send ? (left < PAYLOAD ? left : PAYLOAD) : left;
    *header = (struct header){is_send ? SEND : WRITE_IMMEDIATE, ntohl(request->wr.imm_data),
                              request->wr.opcode != IBV_WR_SEND, (uint32_t)length, length == left,
                              (request->wr.send_flags & IBV_SEND_SOLICITED) != 0};
    if (is_send)
        add_payload(qp, batch, request, issue, length, va + HEADER, emulation->peer_key, &last);
    else
        add_payload(qp, batch, request, issue, length, request->wr.wr.rdma.remote_addr, request->wr.wr.rdma.rkey, &last);
    last = add_write(qp, batch, issue, header, sizeof *header, va, emulation->peer_key);
    last->has_immediate = 1;
    last->solicited = header->solicited;
    if (header->is_last)
        last->signaled = request->wr.send_flags & IBV_SEND_SIGNALED || qp->init.sq_sig_all;
    return header->is_last != 0;
}

static void start(struct qp *qp, struct request *request, int64_t issue)
{
    enum ibv_wc_opcode opcode = request->wr.opcode == IBV_WR_SEND || request->wr.opcode == IBV_WR_SEND_WITH_IMM
        ? IBV_WC_SEND : IBV_WC_RDMA_WRITE;
    qp->emulation->issued[issue % ISSUED]
        = (struct issued){request->wr.wr_id, opcode, (uint32_t)request->length, false, false};
}

/* Issue what waits, in order, as far as there are slots and room. */
static void issue_waiting(struct qp *qp, struct batch *batch)
{
    struct emulation *emulation = qp->emulation;
    while (emulation->first < emulation->last && has_room(qp, 2 * MOST_SGES)) {
        struct request *request = &emulation->waiting[emulation->first % WAITING];
        int64_t issue = emulation->next_issue;
        struct mrc_datapath_commands *last;
        start(qp, request, issue);
        if (request->wr.opcode == IBV_WR_RDMA_WRITE) {
            if (request->length == 0)
                last = add_write(qp, batch, issue, NULL, 0, request->wr.wr.rdma.remote_addr, request->wr.wr.rdma.rkey);
            else
                add_payload(qp, batch, request, issue, request->length, request->wr.wr.rdma.remote_addr,
                            request->wr.wr.rdma.rkey, &last);
            last->signaled = request->wr.send_flags & IBV_SEND_SIGNALED || qp->init.sq_sig_all;
        } else {
            bool is_done = false;
            while (!is_done && emulation->used < emulation->granted && has_room(qp, 2 * MOST_SGES))
                is_done = fill_slot(qp, batch, request, issue);
            if (!is_done)
                return;
        }
        emulation->first++;
        emulation->next_issue++;
    }
}

static int check(const struct qp *qp, const struct ibv_send_wr *wr, struct request *request)
{
    int64_t local;
    bool is_known = wr->opcode == IBV_WR_SEND || wr->opcode == IBV_WR_SEND_WITH_IMM || wr->opcode == IBV_WR_RDMA_WRITE
        || wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    if (!is_known)
        return report("an operation other than RDMA WRITE and SEND was posted: MRC has no other"), EOPNOTSUPP;
    if (wr->num_sge < 0 || wr->num_sge > MOST_SGES)
        return EINVAL;
    *request = (struct request){.wr = *wr};
    for (int i = 0; i < wr->num_sge; i++) {
        request->pieces[i] = wr->sg_list[i];
        request->length += wr->sg_list[i].length;
        if (!(wr->send_flags & IBV_SEND_INLINE) && wr->sg_list[i].length > 0 && !locate(qp, &wr->sg_list[i], &local))
            return EINVAL;
    }
    bool is_inline = (wr->send_flags & IBV_SEND_INLINE) != 0;
    return request->length > MRC_MAX_MESSAGE || (is_inline && request->length > MOST_INLINE) ? EINVAL : 0;
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
        int32_t state = endpoint->qps[qp->row].state;
        if (state != MRC_QP_STATE_RTS && state != MRC_QP_STATE_ERROR)
            error = EINVAL;
        else if (emulation->last - emulation->first >= WAITING)
            error = ENOMEM;
        else
            error = check(qp, wr, request);
        if (error != 0)
            break;
        if (wr->send_flags & IBV_SEND_INLINE)
            keep_inlined(qp, request);
        emulation->last++;
        issue_waiting(qp, &batch);
    }
    submit(&batch);
    pthread_mutex_unlock(&endpoint->posting);
    pthread_mutex_unlock(&emulation->lock);
    if (error != 0)
        *bad = wr;
    return error;
}

/* Receiving: `lock` is held. */

/* Copy bytes to where a receive wants them, from its byte `at` on; false if it is too short. */
static bool scatter(const struct qp *qp, const struct receive *receive, int64_t at, const uint8_t *from, int64_t length)
{
    for (int i = 0; i < receive->count && length > 0; i++) {
        struct ibv_sge part = receive->pieces[i];
        int64_t local;
        if (at >= part.length) {
            at -= part.length;
            continue;
        }
        part.addr += (uint64_t)at;
        part.length -= (uint32_t)at;
        part.length = part.length < length ? part.length : (uint32_t)length;
        if (!locate(qp, &part, &local))
            return false;
        memcpy((void *)(intptr_t)local, from, part.length);
        from += part.length;
        length -= part.length;
        at = 0;
    }
    return length == 0;
}

/* Copy out what has arrived and has a receive, and grant its slots again. */
static void match(struct qp *qp)
{
    struct emulation *emulation = qp->emulation;
    struct endpoint *endpoint = endpoint_of(qp);
    while (emulation->consumed < emulation->arrived && emulation->first_receive < emulation->last_receive) {
        const uint8_t *slot = emulation->ring + (size_t)(emulation->consumed % SLOTS) * SLOT_BYTES;
        struct header header;
        memcpy(&header, slot, sizeof header);
        const struct receive *receive = &emulation->receives[emulation->first_receive % MRC_RECEIVES];
        struct ibv_wc wc = {.wr_id = receive->wr_id};
        bool fits = header.length <= PAYLOAD || header.kind == WRITE_IMMEDIATE;
        if (header.kind == SEND && fits)
            fits = scatter(qp, receive, emulation->filled, slot + HEADER, header.length);
        emulation->filled += header.length;
        emulation->consumed++;
        if (!header.is_last && fits)
            continue;
        wc.status = fits ? IBV_WC_SUCCESS : IBV_WC_LOC_LEN_ERR;
        wc.opcode = header.kind == SEND ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM;
        wc.byte_len = (uint32_t)emulation->filled;
        wc.wc_flags = header.has_immediate ? IBV_WC_WITH_IMM : 0;
        wc.imm_data = htonl(header.immediate);
        emulation->filled = 0;
        emulation->first_receive++;
        complete(qp, qp->verbs.recv_cq, wc);
    }
    bool grants = emulation->consumed - emulation->told >= GRANT_EVERY;
    if (!grants && emulation->taken < GRANT_EVERY)
        return;
    pthread_mutex_lock(&endpoint->posting);
    struct batch batch = batch_begin(endpoint);
    post_receives(qp, &batch, emulation->taken);
    emulation->taken = 0;
    if (grants && has_room(qp, 1) && endpoint->qps[qp->row].state == MRC_QP_STATE_RTS) {
        emulation->issued[emulation->next_issue % ISSUED] = (struct issued){.is_own = true};
        struct mrc_datapath_commands *row
            = add_write(qp, &batch, emulation->next_issue++, NULL, 0, 0, emulation->peer_key);
        row->has_immediate = 1;
        row->immediate = GRANT | (uint32_t)(emulation->consumed & ~(int64_t)GRANT);
        emulation->told = emulation->consumed;
    }
    submit(&batch);
    pthread_mutex_unlock(&endpoint->posting);
}

int emulated_post_recv(struct qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    struct emulation *emulation = qp->emulation;
    int error = 0;
    pthread_mutex_lock(&emulation->lock);
    for (; wr != NULL; wr = wr->next) {
        if (wr->num_sge < 0 || wr->num_sge > MOST_SGES)
            error = EINVAL;
        else if (emulation->last_receive - emulation->first_receive >= MRC_RECEIVES)
            error = ENOMEM;
        if (error != 0)
            break;
        struct receive *receive = &emulation->receives[emulation->last_receive++ % MRC_RECEIVES];
        receive->wr_id = wr->wr_id;
        receive->count = wr->num_sge;
        if (wr->num_sge > 0)
            memcpy(receive->pieces, wr->sg_list, (size_t)wr->num_sge * sizeof *wr->sg_list);
    }
    match(qp);
    pthread_mutex_unlock(&emulation->lock);
    if (error != 0)
        *bad = wr;
    return error;
}

/* The queue pair failed: everything that the program posted completes. */
static void flush(struct qp *qp)
{
    struct emulation *emulation = qp->emulation;
    struct ibv_wc wc = {.status = IBV_WC_WR_FLUSH_ERR};
    for (; emulation->first < emulation->last; emulation->first++) {
        wc.wr_id = emulation->waiting[emulation->first % WAITING].wr.wr_id;
        complete(qp, qp->verbs.send_cq, wc);
    }
    for (; emulation->first_receive < emulation->last_receive; emulation->first_receive++) {
        wc.wr_id = emulation->receives[emulation->first_receive % MRC_RECEIVES].wr_id;
        complete(qp, qp->verbs.recv_cq, wc);
    }
}

void emulated_record(struct qp *qp, const struct mrc_datapath_record *record)
{
    struct emulation *emulation = qp->emulation;
    pthread_mutex_lock(&emulation->lock);
    if (record->kind == MRC_COMPLETION_KIND_SEND) {
        struct issued *issued = &emulation->issued[record->wr_id % ISSUED];
        if (!issued->is_own && !issued->reported) {
            issued->reported = true;
            struct ibv_wc wc = {.wr_id = issued->wr_id, .status = (enum ibv_wc_status)record->status};
            wc.opcode = issued->opcode;
            wc.byte_len = issued->length;
            complete(qp, qp->verbs.send_cq, wc);
        }
    } else if (record->status == 0) {
        emulation->taken++;
        uint32_t immediate = (uint32_t)record->immediate;
        if (immediate & GRANT) {
            int64_t consumed = emulation->granted - SLOTS; /* as far as we knew */
            emulation->granted += ((int64_t)(immediate & ~GRANT) - consumed) & 0x7FFFFFFF;
        } else {
            emulation->arrived++;
        }
    }
    if (record->status != 0)
        flush(qp);
    match(qp);
    pthread_mutex_unlock(&emulation->lock);
    emulated_progress(qp);
}

void emulated_progress(struct qp *qp)
{
    struct emulation *emulation = qp->emulation;
    struct endpoint *endpoint = endpoint_of(qp);
    pthread_mutex_lock(&emulation->lock);
    if (emulation->first < emulation->last) {
        pthread_mutex_lock(&endpoint->posting);
        struct batch batch = batch_begin(endpoint);
        issue_waiting(qp, &batch);
        submit(&batch);
        pthread_mutex_unlock(&endpoint->posting);
    }
    pthread_mutex_unlock(&emulation->lock);
}
