/*
 * What controllers have of a context: queues of EV events, requests to other endpoints that are out, and profiles.
 *
 * The rules are those of the compiled entries, which endpoints in Python go by as well; here are memory and waiting.
 */
#pragma once

#include "mrc_ctl.h"
#include "objects/wrappers.h"

struct endpoint_batch;
struct profiles;

struct ctl {
    struct profiles *profiles;
    pthread_mutex_t requesting; /* guards what follows */
    pthread_cond_t answered;
    struct endpoint_batch *batches; /* calls that wait */
    int64_t next_number;
    /* Guarded by `context->events`. */
    struct ev_events *queues;
    int queue_count;
    int64_t events_lost; /* by the engine's own ring, as last seen */
};

/* What objects know of it. */
extern const struct controller controller;

/* The ctl of a context whose endpoint can be used; NULL with an errno value in `error`. */
struct ctl *ctl_of(struct mrc_context *context, int *error);

/* A queue that is to be destroyed: no event goes there any more; its memory goes once its completion queue has gone. */
void ev_events_detach(struct mrc_cq *cq);
void ev_events_free(struct ev_events *events);

void ev_events_on_taken(struct context *context);
void ev_events_on_state(struct context *context, const struct mrc_datapath_event_records *event);
void ep_requests_on_response(struct ctl *ctl, const struct mrc_datapath_event_records *event);

/* A UDP source port as an EV, and back; -1: no packet of this plane carries it. */
struct mrc_ctl_ev ev_of_port(int plane, int64_t port);
int64_t port_of_ev(const struct endpoint *endpoint, const struct mrc_ctl_ev *ev);
