/*
 * SEND and READ, which MRC does not have, built over writes, if MRC_EMULATE names them at both ends.
 *
 * Every queue pair grants its peer a ring of slots. A SEND is a write with immediate into the next slots, which tells the
 * receiver; a receiver copies out when the program polls and has posted a receive. Slots that were copied out are granted
 * again by an empty write with immediate, so a sender waits where a NIC would be told that its receiver is not ready.
 * Writes with immediate take a slot for a header, so that order is kept.
 *
 * A READ is a slot with a question; the answer comes in slots. The program at the other end takes no part in it, so a
 * thread of ours serves queues whose program does not poll. It also serves while a queue is armed: the engine completes
 * more than programs see, and only what they see may wake them.
 *
 * Asked for `rnr`, an end says at once what it has copied out, and that a slot waits for a receive: a SEND or write with
 * immediate completes when a receive has taken it, and ends with RNR_RETRY_EXC_ERR if none comes in the time of rnr_retry.
 *
 * The ring's key follows from the queue pair's number, and the GID says what an end emulates: nothing is negotiated.
 */
#pragma once

#include "objects/objects.h"

/* What objects know of it. */
extern const struct emulator emulator;

int emulated_post_send(struct qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int emulated_post_recv(struct qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* Take one record of the engine; completions for the program go to its queue's `ready`. */
void emulated_record(struct qp *qp, const struct mrc_datapath_record *record);

/* Continue what waits for a grant or for room. */
void emulated_progress(struct qp *qp);

/* Hand what the engine published to its queue pairs; see to those that send to a queue and have something waiting. */
void emulated_sort(struct context *context, struct cq *cq);
void emulated_continue(struct context *context, struct cq *cq);

/* The thread that serves queues whose program does not poll; 0 or errno. */
int service_start(struct context *context);
void service_stop(struct context *context);
