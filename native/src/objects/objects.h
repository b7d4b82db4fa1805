/*
 * The objects of a context, for verbs and for mrc.h: both are other names for these.
 *
 * Each begins with, or ends in, the struct of verbs.h that programs see; `its_*` lead from one to the other.
 */
#pragma once

#include <infiniband/verbs.h>

#include "endpoint/endpoint.h"

#define DEPTH_OF_A_QUEUE 2048 /* requests; a queue may hold more writes, since a piece of a request is one */
#define MOST_SGES 8
#define MOST_INLINE 512 /* bytes */
#define GID_ENTRIES 4   /* all the same: index 3 is what programs ask for by habit */
#define MOST_CQES ((1 << 20) - 1)
#define MOST_PDS (1 << 16)
#define MOST_READS 16 /* of a queue pair, that its peer has not answered, where READ is emulated */

struct async_record {
    struct ibv_async_event event;
    struct async_record *next;
};

struct context;
struct cq;
struct qp;

/* What the floors above give to objects, which call them by these alone. */
struct emulator {
    int (*wanted)(void); /* what MRC_EMULATE names; -1, with a line on stderr, for a word that is not known */
    int (*start)(struct context *context); /* the thread that works for programs that do not poll; 0 or errno */
    void (*stop)(struct context *context);
    int (*open)(struct qp *qp); /* allocate what a new queue pair needs, 0 or errno; receives may be posted then */
    /* In INIT, before RTR: grant a ring to the queue pair `peer`; `domain` is what the engine shall hold as ours. */
    void (*begin)(struct qp *qp, uint32_t peer, int64_t domain);
    void (*reset)(struct qp *qp);                /* forget everything that was posted and has arrived */
    void (*close)(struct qp *qp);                /* free it; no other thread can find the queue pair any more */
    void (*lock)(struct qp *qp); /* hold off the thread that answers READs, which looks at the access flags */
    void (*unlock)(struct qp *qp);
    int (*post_send)(struct qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
    int (*post_recv)(struct qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
    void (*sort)(struct context *context, struct cq *cq);    /* hand what the engine published to its queue pairs */
    void (*proceed)(struct context *context, struct cq *cq); /* see to queue pairs that send to `cq` and wait */
};

struct ctl;

struct controller {
    struct ctl *(*open)(void); /* NULL with errno */
    void (*close)(struct ctl *ctl);
    /* In the endpoint's second thread; the first with `events` held. */
    void (*on_event)(struct context *context, const struct mrc_datapath_event_records *event);
    void (*on_events_taken)(struct context *context);
};

struct forced_error;

/*
 * Locks, in the order in which a thread may take several:
 *
 *   listing                  the contexts of the process
 *   context->serving         the thread that works for programs that do not poll, and who removes an object
 *   cq->lock                 the reader of a queue whose completions are emulated
 *   context->events          the objects of a context, queues of EV events
 *   ctl->requesting          requests of a controller that wait for answers
 *   profiles->lock
 *   emulation->lock          of a queue pair
 *   endpoint->posting        the command ring; memory cannot be deregistered meanwhile
 *   endpoint->control        rows that are in use, peers
 *   the loop's two mutexes   see openmrc/live/datapath
 *   context->reporting       async events
 *   cq->ready_lock           completions that programs see, and whether the queue is armed
 *   the queues' mutex        see openmrc/live/datapath
 *
 * channel->lock and the mutexes of verbs' own objects are taken alone. A library for tests ends the program that breaks the
 * order (native/tests/lock_ranks.h, which has the same list).
 */
struct context {
    struct endpoint *endpoint;
    const struct emulator *emulator;
    const struct controller *controller;
    struct ctl *ctl;
    struct forced_error *forced;
    pthread_mutex_t events; /* guards what follows */
    pthread_cond_t acknowledged;
    struct qp *qps[MRC_QPS];
    struct cq *cqs[MRC_CQS];
    int64_t qps_made;
    pthread_mutex_t reporting; /* guards what follows: async events that wait, and how many of each object were given */
    struct async_record *first, *last;
    atomic_int pds, pds_open; /* number of the next domain; how many there are */
    atomic_int users;         /* its program, and domains, queues and channels that are open */
    uint32_t mpr, max_wimm;
    struct context *next; /* that the process opened before */
    /* Of the thread that serves emulated operations; see emulation.h. */
    pthread_mutex_t serving; /* held while it looks at queues and queue pairs, which may not go meanwhile */
    pthread_t server;
    int serving_fd;
    bool is_served;
    atomic_bool is_closing;
    struct verbs_context verbs; /* the last field: what programs see is its end */
};

struct pd {
    struct ibv_pd verbs;
    struct ibv_context *owner; /* each context counts its domains from 1 */
    int number;
    atomic_int users;
};

struct region {
    struct ibv_mr verbs;
    uint64_t iova;
};

struct channel {
    struct ibv_comp_channel verbs;
    pthread_mutex_t lock;
    struct cq *first; /* its queues, that served longest ago first */
};

struct cq {
    struct ibv_cq verbs;
    int row;
    int capacity;
    int64_t *ring;
    size_t ring_bytes;
    pthread_mutex_t lock; /* one reader at a time, of a context that emulates */
    unsigned empty_polls;
    unsigned polls, polls_seen; /* by the program, and when the thread that serves READs looked last */
    uint64_t waiting[MRC_QPS / 64]; /* a bit for each row of a queue pair that sends here and has something waiting */
    int64_t events_taken;
    uint32_t events_given; /* async events; close waits until all are acknowledged */
    bool overrun_reported;
    struct cq *next; /* of its channel */
    void *wrapper;   /* the object of mrc.h, if it is one */
    atomic_int users;
    pthread_mutex_t ready_lock; /* guards what follows, of a context that emulates: completions that programs see */
    int64_t armed;
    struct ibv_wc *ready;
    int ready_count, ready_room;
};

struct emulation;

struct qp {
    struct ibv_qp verbs;
    int row, peer;
    int64_t depth; /* writes that its send queue holds, a power of two */
    struct ibv_qp_init_attr init;
    bool sends; /* the program has asked for RTS */
    bool ends;  /* in ERR for the program, while the engine's queue pair still tells its peer why */
    int64_t completed; /* requests that count for it, if one of them shall fail */
    int64_t ordinal;   /* which queue pair of its context it is, in the order in which they were made, from 1 */
    struct emulation *emulation; /* NULL unless SEND is emulated */
    struct ibv_qp_attr attr; /* as last set, for queries */
    uint8_t *inlined; /* a copy of each inline payload, by number of the write */
    size_t inlined_bytes;
    void *wrapper;        /* the object of mrc.h, if it is one */
    uint32_t events_given; /* async events; close waits until all are acknowledged */
};

static inline struct context *its_context(struct ibv_context *context)
{
    return (struct context *)((char *)context - offsetof(struct context, verbs)
                              - offsetof(struct verbs_context, context));
}

/* Whether an object is as it was made: a kernel finds objects by their handles alone, and programs get no other answer here. */
static inline bool is_whole_pd(const struct ibv_pd *pd)
{
    const struct pd *own = (const struct pd *)pd;
    return pd->handle == (uint32_t)own->number && pd->context == own->owner;
}

static inline bool is_whole_cq(const struct ibv_cq *cq)
{
    return cq->handle == (uint32_t)((const struct cq *)cq)->row;
}

static inline bool is_whole_qp(const struct ibv_qp *qp)
{
    return qp->handle == (uint32_t)((const struct qp *)qp)->row;
}

/* How many READs may be open on a queue pair; 0: READ is not emulated. */
static inline int reads_at_once(const struct endpoint *endpoint)
{
    return endpoint->addresses.emulates & EMULATES_READ ? MOST_READS : 0;
}

/* Whether this library made the context; all other objects name theirs. */
bool is_ours(const struct ibv_context *context);

/* The device list's only member. */
struct ibv_device *the_device(void);
bool is_the_device(const struct ibv_device *device);
uint64_t device_guid(void); /* in network byte order */

struct ibv_context *open_context(const struct emulator *emulator, const struct controller *controller);
int close_context(struct ibv_context *context);
void hold_context(struct ibv_context *context); /* for an object of it: the context ends when nobody holds it */
void release_context(struct ibv_context *context);
void fill_context_operations(struct verbs_context *verbs);
void fill_device(struct context *context, struct ibv_device_attr *attr);
enum ibv_mtu largest_mtu(const struct context *context);
int fill_port(struct context *context, int port, struct ibv_port_attr *attr);
int fill_gid(struct context *context, int port, int index, union ibv_gid *gid);

/*
 * Contexts of one NIC share its GID, and a program may address a queue pair of one of its contexts by the GID of another.
 * Ours have one each: put in that of the context that has the queue pair.
 */
void find_gid_in_process(struct context *context, uint32_t number, struct mrc_gid *gid);

/* Let events find a new queue pair, by a number that no other of the process has. */
void list_qp(struct context *context, struct qp *qp);

struct ibv_pd *open_pd(struct ibv_context *context);
int close_pd(struct ibv_pd *pd);
struct ibv_mr *open_region(struct ibv_pd *pd, void *at, size_t length, uint64_t iova, unsigned access);
int close_region(struct ibv_mr *mr);

struct ibv_comp_channel *open_channel(struct ibv_context *context);
int close_channel(struct ibv_comp_channel *channel);
int next_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context);
struct ibv_cq *open_cq(struct ibv_context *context, int cqe, void *cq_context, struct ibv_comp_channel *channel);
int close_cq(struct ibv_cq *cq);
void acknowledge_cq_events(struct ibv_cq *cq, unsigned count);
int poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *wc);
int arm_cq(struct ibv_cq *cq, int solicited_only);

/* Signal a queue that is armed for what was added to it; in a context that emulates with `ready_lock` held since. */
void announce_cq(struct cq *cq, bool is_solicited);

struct ibv_qp *open_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init);
int close_qp(struct ibv_qp *qp);
int modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
int modify_qp_with(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, const int64_t *words); /* MRC's attributes */
void fail_qp(struct qp *qp); /* to ERROR, as if the transport had given up */
int query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init);
int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* Async events: wait for one; report one of an object or of the port. */
void raise_event(struct context *context, enum ibv_event_type type, struct qp *qp); /* of the port, if not of a queue pair */
int next_async_event(struct ibv_context *context, struct ibv_async_event *event);
void acknowledge_async_event(struct ibv_async_event *event);
void forget_qp(struct context *context, struct qp *qp);
void forget_cq(struct context *context, struct cq *cq);
struct watcher watcher_of(struct context *context);
