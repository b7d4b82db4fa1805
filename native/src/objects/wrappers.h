/* Objects of mrc.h that more than one file knows: each leads to one of verbs. */
#pragma once

#include "mrc.h"
#include "objects/objects.h"

struct mrc_context {
    struct ibv_context *verbs;
    atomic_int users;
};

struct mrc_comp_channel {
    struct ibv_comp_channel *verbs;
    struct mrc_context *context;
};

struct ev_events;

struct mrc_cq {
    struct ibv_cq *verbs;
    struct mrc_context *context;
    struct ev_events *events; /* of a queue of EV events; NULL: of completions */
};

/* A completion queue of verbs with its wrapper; NULL with errno. Remove both: 0 or errno. */
struct mrc_cq *wrap_cq(struct mrc_context *context, int cqe, void *cq_context, struct mrc_comp_channel *channel,
                       int vector);
int unwrap_cq(struct mrc_cq *cq);
