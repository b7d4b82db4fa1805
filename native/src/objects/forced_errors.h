/*
 * Errors on demand: MRC_FAIL_AFTER lets the Nth completion of every queue pair, or of one, or of one operation, fail, or an
 * async event come with it, for programs that handle failures.
 */
#pragma once

#include "objects/objects.h"

struct forced_error {
    int64_t after; /* completed requests of a queue pair, this one included; 0: none fails */
    int64_t qp;    /* the only queue pair, by the order in which they were made, from 1; 0: each */
    bool has_operation; /* only completions of `operation` count; else those of all requests that send */
    enum ibv_wc_opcode operation; /* IBV_WC_RECV: of every receive */
    enum ibv_wc_status status; /* SUCCESS: the event alone */
    int event;                 /* enum ibv_event_type; NO_EVENT: none */
};

#define NO_EVENT (-1)

/* What MRC_FAIL_AFTER asks for: "N", with words after colons; false, with a line on stderr, if it cannot be read. */
bool forced_error_wanted(struct forced_error *wanted);

/*
 * Count a completed request, and let it fail if it is the one: the queue pair is in ERROR from then on, and what
 * completes after it was flushed.
 */
void force_error(struct qp *qp, struct ibv_wc *wc);
