#include "endpoint/faults.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "endpoint/endpoint.h"
#include "endpoint/report.h"

enum { AT, PLANE, DOWN, DELAY, JITTER, RATE, LOSS, CORRUPTION, DUPLICATE, REORDER, TRIM, WORDS };

#define LOOK (2 * 1000000 * MRC_PS_PER_NS) /* ps between looks for the first packet */

struct faults {
    int64_t begun; /* ps, when the first packet was seen; 0: none was */
    size_t count, next;
    int64_t steps[][WORDS];
};

static size_t count_steps(const char *text)
{
    size_t count = 1;
    for (; *text != '\0'; text++)
        count += *text == ';';
    return count;
}

bool faults_begin(struct endpoint *endpoint)
{
    const char *text = getenv("MRC_FAULT_STEPS");
    if (text == NULL || *text == '\0')
        return true;
    size_t most = count_steps(text);
    struct faults *faults = calloc(1, sizeof *faults + most * sizeof faults->steps[0]);
    if (faults == NULL)
        return false;
    for (size_t i = 0; i < most; i++) {
        int64_t *step = faults->steps[faults->count];
        char *end = (char *)(uintptr_t)text;
        int words = 0;
        for (; words < WORDS; words++) {
            const char *begin = end;
            step[words] = strtoll(begin, &end, 10);
            if (begin == end)
                break;
        }
        if (words < WORDS || (*end != ';' && *end != '\0')) {
            report("MRC_FAULT_STEPS: step %zu is not %d numbers", i + 1, WORDS);
            free(faults);
            return errno = EINVAL, false;
        }
        text = end + (*end == ';');
        faults->count += step[PLANE] >= 0 && step[PLANE] < endpoint->addresses.count;
    }
    endpoint->faults = faults;
    faults_advance(endpoint);
    return true;
}

static void apply(struct endpoint *endpoint, const int64_t *step)
{
    struct mrc_datapath_planes *row = &endpoint->planes[step[PLANE]];
    row->down = step[DOWN];
    row->delay = step[DELAY];
    row->jitter = step[JITTER];
    row->rate = step[RATE];
    row->loss = step[LOSS];
    row->corruption = step[CORRUPTION];
    row->duplicate = step[DUPLICATE];
    row->reorder = step[REORDER];
    row->trim = step[TRIM];
    row->slow = step[DELAY] > 0 || step[JITTER] > 0 || step[RATE] > 0;
    int64_t any = 0;
    for (int word = DOWN; word < WORDS; word++)
        any |= step[word];
    row->impaired = any != 0;
}

/* Whether a packet has left or arrived. */
static bool has_begun(const struct endpoint *endpoint)
{
    int64_t packets = 0;
    for (int plane = 0; plane < endpoint->addresses.count; plane++) {
        packets += __atomic_load_n(&endpoint->planes[plane].arrived, __ATOMIC_RELAXED);
        packets += __atomic_load_n(&endpoint->ports[plane].sent_packets, __ATOMIC_RELAXED);
        packets += __atomic_load_n(&endpoint->ports[plane].control_sent, __ATOMIC_RELAXED);
    }
    return packets > 0;
}

void faults_advance(struct endpoint *endpoint)
{
    struct faults *faults = endpoint->faults;
    if (faults == NULL)
        return;
    int64_t now = endpoint_now(endpoint);
    if (faults->begun == 0 && has_begun(endpoint))
        faults->begun = now;
    int64_t past = faults->begun != 0 ? now - faults->begun : 0;
    endpoint_lock(endpoint); /* a packet shall meet one step or the next, not some of both */
    while (faults->next < faults->count && faults->steps[faults->next][AT] <= past)
        apply(endpoint, faults->steps[faults->next++]);
    if (faults->next == faults->count)
        endpoint->nic->step_at = MRC_NEVER;
    else
        endpoint->nic->step_at = faults->begun != 0 ? faults->begun + faults->steps[faults->next][AT] : now + LOOK;
    endpoint_unlock(endpoint);
}

void faults_set_back(struct endpoint *endpoint, int64_t by)
{
    if (endpoint->faults != NULL && endpoint->faults->begun != 0)
        endpoint->faults->begun -= by;
}

void faults_end(struct endpoint *endpoint)
{
    free(endpoint->faults);
    endpoint->faults = NULL;
}
