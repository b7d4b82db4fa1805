/* Requests on their way into the command ring; the endpoint's `posting` mutex is held from begin to submit. */
#pragma once

#include "objects/objects.h"

struct batch {
    struct endpoint *endpoint;
    int64_t begun, place; /* numbers in the command ring: first of this batch, next to be written */
};

struct batch batch_begin(struct endpoint *endpoint);
void submit(struct batch *batch);

/* The next free row of the ring; a full ring is emptied first. */
struct mrc_datapath_commands *next_row(struct batch *batch);

/* Find what a piece of local memory is; false if it is not in a region of this domain that allows `access`. */
bool locate(const struct qp *qp, const struct ibv_sge *sge, int64_t access, int64_t *local);
