/*
 * A prober: is every path to another host there, and how long is it?
 *
 *     other end: mrc_prober          prober: mrc_prober HOST
 *     -p PORT of TCP (18517)   -n ROUNDS of probes (20)   -i MILLISECONDS between rounds (50)   -t MILLISECONDS to wait (200)
 *
 * Each round probes each entropy value of each port. A line for each path:
 *
 *     port  EV  state  probes  answered  median and longest round trip (us)
 *
 * Its status is 1 if a path never answered.
 */
#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <mrc_ctl.h>

#include "meeting.h"

#define MOST_PATHS 256
#define NS_PER_MS 1000000ULL

struct path {
    struct mrc_ctl_ev ev;
    enum mrc_ctl_ev_state state;
    int answered;
    uint64_t *rtts; /* ns */
};

struct options {
    const char *port;
    int rounds, interval, timeout; /* ms */
};

/* The EVs of the endpoint itself, which are listed as those of profile 0. */
static int list_paths(struct mrc_context *context, struct path *paths, int rounds)
{
    static struct mrc_ctl_ev_op_entry entries[MOST_PATHS];
    struct mrc_ctl_ev_profile_attr attr = {.ev_op = {MRC_CTL_EV_OP_QUERY_EV_ARRAY, entries, MOST_PATHS}};
    int error = mrc_ctl_query_ev_profile(context, 0, &attr, MRC_CTL_EV_PROFILE_EV_OP);
    if (error != 0)
        DIE("query of EVs: %s", strerror(error));
    for (int i = 0; i < attr.ev_op.entry_count; i++) {
        paths[i] = (struct path){.ev = entries[i].ev, .state = entries[i].state};
        paths[i].rtts = calloc((size_t)rounds, sizeof *paths[i].rtts);
    }
    return attr.ev_op.entry_count;
}

static void probe_all(const struct side *side, struct path *paths, int count, const struct options *options)
{
    static struct mrc_ctl_ep_req requests[MOST_PATHS];
    static struct mrc_ctl_ep_rsp answers[MOST_PATHS];
    int came = MOST_PATHS;
    for (int i = 0; i < count; i++)
        requests[i] = (struct mrc_ctl_ep_req){.req_id = (uint16_t)i, .dgid = side->peer.gid,
                                              .ev_fmt_mode = MRC_CTL_EV_FMT_MODE_UDP, .req_ev = paths[i].ev};
    int error = mrc_ctl_ep_batch_send_wait(side->context, 0, MRC_CTL_EP_OP_EV_PROBE, requests, count,
                                           (uint32_t)(options->timeout * NS_PER_MS), answers, &came);
    if (error != 0 && error != ETIMEDOUT)
        DIE("probes: %s", strerror(error));
    for (int i = 0; i < came; i++) {
        struct path *path = &paths[answers[i].req_id];
        path->rtts[path->answered++] = answers[i].rtt;
    }
}

static int compare(const void *one, const void *other)
{
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return (a > b) - (a < b);
}

static const char *name_of(enum mrc_ctl_ev_state state)
{
    return state == MRC_CTL_EV_GOOD ? "GOOD" : state == MRC_CTL_EV_ASSUMED_BAD ? "ASSUMED_BAD" : "DENIED";
}

static bool print_path(struct path *path, int rounds)
{
    qsort(path->rtts, (size_t)path->answered, sizeof *path->rtts, compare);
    printf("%5u  %02x%02x %-12s %6d %8d", path->ev.port, path->ev.val[0], path->ev.val[1], name_of(path->state),
           rounds, path->answered);
    if (path->answered > 0)
        printf(" %10.1f %10.1f", 1e-3 * (double)path->rtts[path->answered / 2],
               1e-3 * (double)path->rtts[path->answered - 1]);
    putchar('\n');
    free(path->rtts);
    return path->answered > 0;
}

static bool probe(const struct side *side, const struct options *options)
{
    struct path paths[MOST_PATHS];
    int count = list_paths(side->context, paths, options->rounds);
    bool all = true;
    for (int round = 0; round < options->rounds; round++) {
        probe_all(side, paths, count, options);
        nanosleep(&(struct timespec){options->interval / 1000, options->interval % 1000 * (long)NS_PER_MS}, NULL);
    }
    printf("%5s  %-4s %-12s %6s %8s %10s %10s\n", "Port", "EV", "State", "Probes", "Answered", "Median(us)", "Most(us)");
    for (int i = 0; i < count; i++)
        all = print_path(&paths[i], options->rounds) && all;
    return all;
}

int main(int count, char **words)
{
    struct options options = {"18517", 20, 50, 200};
    for (int option; (option = getopt(count, words, "p:n:i:t:")) != -1;) {
        if (option == '?')
            return 2;
        if (option == 'p')
            options.port = optarg;
        else
            *(option == 'n' ? &options.rounds : option == 'i' ? &options.interval : &options.timeout) = atoi(optarg);
    }
    if (options.rounds < 1 || options.interval < 0 || options.timeout < 1 || options.timeout > 4000)
        DIE("-n is at least 1, -t 1 to 4000, -i at least 0");
    struct side side = meet(words[optind], options.port, 4096);
    bool all = words[optind] == NULL || probe(&side, &options);
    part(&side);
    return all ? 0 : 1;
}
