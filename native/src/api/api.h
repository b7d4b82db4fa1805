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
