/*
 * An endpoint: the engine's tables, the sockets of its planes, and two threads.
 *
 * Everything of the protocol is in the compiled entries that `description.h` declares. What is here is what they
 * cannot do: allocate, open sockets, start threads.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "description.h"
#include "endpoint/planes.h"

/* Row of a queue pair, of a completion queue, or of a peer that is none. */
#define NO_ROW (-1)

/* Regions that programs may register; the others are set aside for emulated operations, one for each queue pair. */
#define REGIONS (MRC_REGIONS - MRC_QPS)

struct peer {
    struct mrc_gid gid;
    int users; /* queue pairs; 0: free */
    int64_t ways[MRC_MOST_PLANES * MRC_WAYS];
    int64_t ports[MRC_MOST_PLANES * MRC_EVS_PER_PLANE];
};

/* What the owner of an endpoint learns of it, in the endpoint's second thread. */
struct watcher {
    void (*on_event)(void *owner, const struct mrc_datapath_event_records *event);
    void (*on_events_taken)(void *owner); /* after each run of them */
    void (*on_overrun)(void *owner);
    void *owner;
};

struct published_counts;

struct endpoint {
    int64_t at; /* address of the table handles */
    uint8_t *memory;
    size_t memory_bytes;
    void *tables[MRC_TABLES];

    /* The tables that are used here, out of the list above. */
    struct mrc_engine_qps *qps;
    struct mrc_engine_regions *regions;
    struct mrc_engine_ports *ports;
    struct mrc_datapath_nic *nic;
    struct mrc_datapath_leases *lease;
    struct mrc_datapath_bursts *bursts;
    struct mrc_datapath_planes *planes;
    struct mrc_datapath_cqs *cqs;
    struct mrc_datapath_commands *commands;
    struct mrc_datapath_queues *queues;
    int64_t *cq_of;

    struct published_counts *counts; /* behind the tables, if they are published */
    int published_fd;
    int64_t ports_up; /* as last reported */
    char lead[600];   /* the file that leads to them; empty: none */

    struct planes addresses;
    int receivers[MRC_MOST_PLANES];
    int senders[MRC_MOST_PLANES][MRC_EVS_PER_PLANE];
    int mtu; /* bytes, the largest path MTU that every plane supports */
    bool segmentation;

    int wake_fd, service_fd, link_fd;
    pthread_t loop, service;
    bool started;
    struct watcher watcher;
    struct faults *faults;

    pthread_mutex_t posting; /* the command ring has one writer at a time */
    pthread_mutex_t control; /* guards what follows */
    struct peer peers[MRC_PEERS];
    int64_t region_of_next; /* where the search for a free row begins */
    bool region_used[REGIONS];
    bool qp_used[MRC_QPS];
    bool cq_used[MRC_CQS];
    int forks; /* count of forks when it was opened: in a child it is unusable */
    struct endpoint *next_guarded; /* see guard.h */
};

/*
 * Open an endpoint on these planes; false with errno, and a line on stderr, if it is impossible. Who watches may be told of
 * events before this returns: the endpoint is put where they look for it before its threads start.
 */
bool endpoint_open(struct endpoint **made, const struct planes *planes, struct watcher watcher);
void endpoint_close(struct endpoint *endpoint);

/* Whether this process opened it; in a forked child its threads do not exist, and its mutexes may be locked. */
bool endpoint_is_usable(const struct endpoint *endpoint);

/* The endpoint's time (ps). */
int64_t endpoint_now(const struct endpoint *endpoint);

/* Let the engine work in this thread: take requests and send. */
static inline void endpoint_iterate(struct endpoint *endpoint)
{
    mrc_settle(endpoint->at);
}

/* Rows; NO_ROW with errno = ENOMEM if all are in use. */
int endpoint_take_qp(struct endpoint *endpoint);
void endpoint_give_qp(struct endpoint *endpoint, int row);
int endpoint_take_cq(struct endpoint *endpoint);
void endpoint_give_cq(struct endpoint *endpoint, int row);

/* Register memory that peers address from `va`; return its key, 0 with errno if there is no room. */
uint32_t endpoint_register(struct endpoint *endpoint, void *memory, size_t length, uint64_t va, int access, int pd);

/* Deregister it; what is open on it ends with an error, and no thread of the library reads it any more. */
void endpoint_deregister(struct endpoint *endpoint, uint32_t key);

/* The peer with this GID, added if it is new; NO_ROW with errno. Each must be given back. */
int endpoint_take_peer(struct endpoint *endpoint, const struct mrc_gid *gid);

/* The peer with this GID that a queue pair is connected to; NO_ROW if there is none. */
int endpoint_find_peer(struct endpoint *endpoint, const uint8_t gid[16]);
void endpoint_give_peer(struct endpoint *endpoint, int peer);

/* The loop mutex, for what is read or written in tables directly; threads get it in turn. */
void endpoint_lock(struct endpoint *endpoint);
void endpoint_unlock(struct endpoint *endpoint);

/* Signal an armed completion queue, as the loop does for what it publishes. */
void endpoint_announce(struct endpoint *endpoint, int cq);

/* Have the next completion of a queue signal its `wakeup`. */
void endpoint_alert(struct endpoint *endpoint, int cq);

/* Random bits of the operating system. */
uint64_t random_bits(void);
