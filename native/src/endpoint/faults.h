/*
 * Faults on demand: what happens to packets that arrive, and when.
 *
 * The words of a schedule are read by `mrc run --faults`; it leaves the numbers in MRC_FAULT_STEPS, one step for each
 * change of a plane, in order of time:
 *     at_ps plane down delay jitter rate loss corruption duplicate reorder trim ; ...
 * Times count from the first packet; what a step at 0 says holds from the beginning.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct endpoint;

bool faults_begin(struct endpoint *endpoint); /* false with errno; with a line on stderr if it cannot be read */
void faults_advance(struct endpoint *endpoint); /* apply the steps that are due */
void faults_set_back(struct endpoint *endpoint, int64_t by); /* the endpoint's clock is set back by so much (ps) */
void faults_end(struct endpoint *endpoint);
