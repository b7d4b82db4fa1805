/*
 * Memory that a program registered and then unmapped: the fault of a thread of ours, or of one that works for us, ends in
 * an error completion, not in a dead process. One handler of SIGSEGV and SIGBUS for the process; faults that are not of
 * registered memory, or not of our copies, go to whoever had the signal before.
 */
#pragma once

#include "endpoint/endpoint.h"

/* Let faults in the regions of an endpoint be caught, until it ends. */
void guard_begin(struct endpoint *endpoint);
void guard_end(struct endpoint *endpoint);

/* Copy to, or from, memory in a region; false if it is not there. */
bool guard_copy(const struct endpoint *endpoint, void *to, const void *from, size_t length);
