/* What the parts of the emulation share: the ring of slots, what was posted, what was issued. See emulation.h. */
#pragma once

#include "emulation/emulation.h"
#include "objects/posting.h"

#define SLOTS 64
#define SLOT_HEADER 64 /* bytes of a slot before its payload: a cache line */
#define SLOT_PAYLOAD 65536
#define SLOT_BYTES (SLOT_HEADER + SLOT_PAYLOAD)
#define GRANT_EVERY (SLOTS / 4)
#define OWN_RECEIVES (SLOTS + 4 * GRANT_EVERY) /* of the engine: for slots, and for grants */
#define MORE_RECEIVES (2 * SLOTS) /* of an end that awaits receives: it is told of every slot, perhaps twice */
#define WAITING DEPTH_OF_A_QUEUE /* requests that wait for a grant, a power of two */
#define ISSUED (4 * MRC_SENDS)
#define READS MOST_READS

/*
 * Immediates: one grants slots, or says that a slot was filled, and with what. Where 32 bits can say it all, nothing but
 * payload is written.
 */
#define GRANT 0x80000000u   /* how many slots were copied out, ever, in the low bits */
#define COUNT 0x00FFFFFFu   /* these bits */
#define NOT_READY 0x40000000u /* with GRANT: the next slot waits for a receive */
#define TIMER_AT 24           /* and this is the code of min_rnr_timer */
#define ENDS 0x20000000u      /* with GRANT: what came in the next slot ends the connection, for its sender as STATUS_AT says */
#define STATUS_AT 24          /* enum ibv_wc_status, five bits */
#define HEADED 0x40000000u  /* the slot begins with a header */
#define LAST 0x20000000u    /* it ends a SEND or an answer, whose bytes in the slot are in the low bits */
#define ANSWER 0x10000000u  /* it holds bytes that a READ asked for */
#define REFUSED 0x08000000u /* that READ asked for memory that it may not see */
#define SOLICITED 0x04000000u /* of ours: the sender wants its receiver woken */
#define LENGTH 0x1FFFFFu

enum kind { SEND = 1, WRITE_IMMEDIATE, READ };

struct header {
    uint32_t kind, immediate, length, is_last;
    uint64_t address; /* of a READ, with the key as its immediate */
};

struct request {
    struct ibv_send_wr wr;
    struct ibv_sge pieces[MOST_SGES];
    uint64_t length, done; /* bytes, and those that were written */
    uint8_t *inlined;
};

/* A request that was handed to the engine, or to the peer that shall answer it, until its completion is reported. */
struct issued {
    uint64_t wr_id;
    enum ibv_wc_opcode opcode;
    uint32_t length;
    int status; /* enum ibv_wc_status, of a request that failed */
    int64_t end;  /* writes of the send queue, up to its last */
    int64_t slot; /* slots of the peer, up to the last that a receive must take; 0: none */
    bool is_signaled, is_read, is_answered;
};

/* Memory of the program where something arrives. */
struct target {
    uint64_t wr_id;
    int count;
    struct ibv_sge pieces[MOST_SGES];
};

struct read {
    int64_t issue;
    int64_t filled; /* bytes that have come */
    struct target target;
};

struct answer {
    uint64_t address, length, done;
    uint32_t key;
};

struct emulation {
    pthread_mutex_t lock;
    uint8_t *ring;
    uint32_t key, peer_key;
    bool failed;
    bool has_ended; /* a request was reported with an error: those after it are flushed, as from a NIC */
    int64_t used, granted;     /* slots of the peer: written to, may be written to, ever */
    int64_t arrived, consumed; /* slots of ours: written to, copied out, ever */
    int64_t told, taken;       /* of those, granted again; receives of the engine to be posted again */
    int64_t refused;           /* `consumed` + 1 when the peer was told last that the next slot waits for a receive */
    int64_t gives_up_at;       /* ps, unless the peer posts a receive, or has heard why it ends; 0: never */
    int farewell;              /* enum ibv_wc_status that the peer has yet to be told; 0: none */
    int64_t filled;            /* bytes of the message that is being copied out */
    int64_t first, last;       /* requests that wait, by number */
    int64_t oldest, next_issue, next_inlined;
    int64_t settled; /* requests before this one need no place in the send queue; brought up when it seems full */
    int64_t acknowledged; /* every write of the requests before this one was acknowledged */
    int64_t first_receive, last_receive;
    int64_t first_read, last_read, first_answer, last_answer;
    int64_t asked_at; /* ps, when something was last written that a dead peer leaves unanswered */
    struct header headers[2 * SLOTS]; /* until they are sent */
    uint32_t notes[SLOTS];            /* immediate with which each slot of ours was filled */
    struct read reads[READS];
    struct answer answers[READS];
    struct request waiting[WAITING];
    struct issued issued[ISSUED];
    struct target receives[MRC_RECEIVES];
};

static inline struct endpoint *endpoint_of(const struct qp *qp)
{
    return its_context(qp->verbs.context)->endpoint;
}

/* Whether a request completes when a receive has taken it, as of a NIC, and not when it has arrived. */
static inline bool awaits_receives(const struct qp *qp)
{
    return !(endpoint_of(qp)->addresses.emulates & EMULATES_EARLY);
}

/* Slots that the peer has copied out, as far as it said. */
static inline int64_t taken_by_peer(const struct emulation *emulation)
{
    return emulation->granted - SLOTS;
}

/* Whether something that the peer has acknowledged waits for its answer: bytes to read, or that a receive has taken it. */
static inline bool awaits_peer(const struct qp *qp)
{
    const struct emulation *emulation = qp->emulation;
    return emulation->first_read < emulation->last_read
        || (awaits_receives(qp) && emulation->used > 0 && taken_by_peer(emulation) < emulation->used);
}

static inline bool is_send(const struct ibv_send_wr *wr)
{
    return wr->opcode == IBV_WR_SEND || wr->opcode == IBV_WR_SEND_WITH_IMM;
}

/* All that follows is called with `lock` held; what takes a batch, with `posting` too. */

/* Report a completion to the program; one with an error is solicited, too. */
void emulated_complete(struct qp *qp, struct ibv_cq *cq, struct ibv_wc wc, bool is_solicited);

/* Note with its send queue that it has something waiting, if it has: polls look at those that have. */
void emulated_note(struct qp *qp);

/* Report, in order, the requests that are done. */
void emulated_report(struct qp *qp);

/* To ERR, as the program sees it; the engine's queue pair goes there once its peer has acknowledged the last write. */
void emulated_end(struct qp *qp);

/* Copy out what has arrived and has a receive, and grant its slots again. */
void emulated_match(struct qp *qp);

/* Issue what waits, in order, as far as there are slots and room. */
void issue_waiting(struct qp *qp, struct batch *batch);

/* Room in the engine's send queue for so many more writes. */
bool has_room(const struct qp *qp, int writes);
/* A write of the request `issue`, OWN of none, FAREWELL of none and the last of its queue pair. */
#define OWN (-1)
#define FAREWELL (-2)
struct mrc_datapath_commands *add_write(struct qp *qp, struct batch *batch, int64_t issue, const void *local,
                                        uint64_t length, uint64_t va, uint32_t key);
/* A header in the next slot, with an immediate. */
struct mrc_datapath_commands *add_header(struct qp *qp, struct batch *batch, int64_t issue, struct header header);
/* Give the engine receives for as many immediates as were taken. */
void post_receives(struct qp *qp, struct batch *batch, int64_t count);
/* Copy bytes to where the program wants them, from its byte `at` on; an error if that is no memory, or too little. */
enum ibv_wc_status scatter(const struct qp *qp, const struct target *target, int64_t at, const uint8_t *from,
                           int64_t length);

/* READ: ask; hand on what has come; note what the peer asks for; answer it as far as there are slots. */
bool reads_ask(struct qp *qp, struct batch *batch, const struct request *request, int64_t issue);
void reads_take(struct qp *qp, uint32_t note, const uint8_t *payload);
void reads_note(struct qp *qp, const struct header *header);
void reads_answer(struct qp *qp, struct batch *batch);
/* A peer that died after it had a question, or a SEND, would leave it open for ever: write something that it must acknowledge. */
void probe_peer(struct qp *qp, struct batch *batch);
