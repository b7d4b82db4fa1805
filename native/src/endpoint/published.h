/*
 * The tables of an endpoint, published for `mrc metrics` and `mrc top` where MRC_METRICS or MRC_CTL asks for it.
 *
 * They lie in a memory file then, which a small file of the controllers' folder leads to; a reader of this user maps it
 * through /proc and counts nothing itself. Nothing of it costs the endpoint anything.
 */
#pragma once

#include "endpoint/endpoint.h"

/* What the tables do not keep: read by openmrc.native.shared_tables. */
struct published_counts {
    int64_t token; /* that the file which leads here has too */
    int64_t queue_pair_errors;
    int64_t downs[MRC_MOST_PLANES]; /* times that a port stopped being used */
    int64_t ended[MRC_TOTALS];      /* of queue pairs that went to RESET, in the order of mrc_totals */
};

/* Whether MRC_METRICS and MRC_CTL can be read; false with a line on stderr. */
bool publishing_is_understood(void);
bool publishing_is_wanted(void);

/* Memory for tables that can be published, `bytes` long, and its descriptor; MAP_FAILED with errno. */
void *published_memory(size_t bytes, int *descriptor);

/* Write the file that leads to the memory; without it nobody finds the tables, which is said in a line on stderr. */
void published_open(struct endpoint *endpoint);
void published_close(struct endpoint *endpoint);

void published_on_event(struct endpoint *endpoint, const struct mrc_datapath_event_records *event);

/* A queue pair goes to RESET, where its counters begin again. */
void published_before_end(struct endpoint *endpoint, int qp);
