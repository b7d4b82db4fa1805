/*
 * Bandwidth of writes through mrc.h, between two processes that poll.
 *
 *     server: mrc_bw                client: mrc_bw HOST
 *     -p PORT of TCP (18515)   -n WRITES of each size (1000)   -s LARGEST (65536)   -o: only the largest
 *     -t OUTSTANDING (128)     -l WRITES of each call of mrc_post_send (1)          -b: the server sleeps
 *     -c: also how long the client's calls of mrc_poll_cq took
 *
 * Queue pair number, GID, address and key are exchanged over TCP, as perftest does.
 */
#include <getopt.h>
#include <poll.h>
#include <stdbool.h>

#include "meeting.h"

#define MOST_LISTED 64
#define MOST_CALLS ((size_t)1 << 22) /* the last ones, of which times are kept */
#define POLLS_A_LOOK 1024 /* of the completion queue, to one of the TCP connection */

struct options {
    const char *host, *port;
    int writes, largest, depth, listed;
    bool only, blocks, clocks;
};

struct flow {
    const struct side *side;
    uint32_t *calls; /* ns, of mrc_poll_cq, or NULL */
    size_t polls;
    struct ibv_sge sge;
    struct ibv_send_wr list[MOST_LISTED];
};

/* Make a list of writes, of which each call posts the last ones. */
static void prepare(struct flow *flow, int size, int listed)
{
    flow->sge = (struct ibv_sge){(uintptr_t)flow->side->memory, (uint32_t)size, flow->side->mr->lkey};
    for (int i = 0; i < listed; i++) {
        struct ibv_send_wr *wr = &flow->list[i];
        *wr = (struct ibv_send_wr){.sg_list = &flow->sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE};
        wr->next = i + 1 < listed ? wr + 1 : NULL;
        wr->wr.rdma.remote_addr = flow->side->peer.address;
        wr->wr.rdma.rkey = flow->side->peer.rkey;
    }
}

/* Post `count` writes in one call, numbered from `posted` + 1; every `every`th and the last of all is signalled. */
static void post(const struct options *options, struct flow *flow, int posted, int count, int every)
{
    struct ibv_send_wr *first = &flow->list[options->listed - count], *bad;
    for (int i = 0; i < count; i++) {
        int number = posted + i + 1;
        first[i].wr_id = (uint64_t)number;
        first[i].send_flags = number % every == 0 || number == options->writes ? IBV_SEND_SIGNALED : 0;
    }
    if (mrc_post_send(flow->side->qp, first, &bad) != 0)
        DIE("post: %m");
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

static int poll_once(struct flow *flow, struct ibv_wc *wc, int room)
{
    if (flow->calls == NULL)
        return mrc_poll_cq(flow->side->cq, room, wc);
    double begun = seconds();
    int count = mrc_poll_cq(flow->side->cq, room, wc);
    flow->calls[flow->polls++ % MOST_CALLS] = (uint32_t)(1e9 * (seconds() - begun));
    return count;
}

/* Post all writes with `depth` outstanding, every quarter of these signalled; return the seconds they took. */
static double measure(const struct options *options, struct flow *flow)
{
    int posted = 0, completed = 0, every = options->depth < 4 ? 1 : options->depth / 4;
    double begun = seconds();
    while (completed < options->writes) {
        while (posted < options->writes && posted - completed < options->depth) {
            int count = least(options->listed, least(options->writes - posted, options->depth - (posted - completed)));
            post(options, flow, posted, count, every);
            posted += count;
        }
        struct ibv_wc wc[16];
        int count = poll_once(flow, wc, 16);
        for (int i = 0; i < count; i++) {
            if (wc[i].status != IBV_WC_SUCCESS)
                DIE("write %lu: %s", (unsigned long)wc[i].wr_id, ibv_wc_status_str(wc[i].status));
            completed = (int)wc[i].wr_id;
        }
    }
    return seconds() - begun;
}

/* Poll, as a server does that expects messages, until the client says over TCP that it is done. */
static void serve(const struct side *side)
{
    struct pollfd client = {side->fd, POLLIN, 0};
    struct ibv_wc wc;
    while (poll(&client, 1, 0) == 0)
        for (int i = 0; i < POLLS_A_LOOK; i++)
            if (mrc_poll_cq(side->cq, 1, &wc) != 0)
                DIE("a completion that nobody asked for");
}

static int by_length(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void print_calls(uint32_t *calls, size_t count)
{
    qsort(calls, count, sizeof *calls, by_length);
    printf("%10s %12s %12s %12s\n", "Polls", "Median(us)", "p99.9(us)", "Most(us)");
    printf("%10zu %12.2f %12.2f %12.2f\n", count, calls[count / 2] * 1e-3, calls[count - 1 - count / 1000] * 1e-3,
           calls[count - 1] * 1e-3);
}

static void print_rates(const struct options *options, const struct side *side)
{
    struct flow flow = {.side = side};
    if (options->clocks && (flow.calls = calloc(MOST_CALLS, sizeof *flow.calls)) == NULL)
        DIE("no memory");
    printf("%10s %10s %15s %15s\n", "MsgSize", "TotalOps", "BW_avg(Gbps)", "MsgRate(Mpps)");
    for (int size = options->only ? options->largest : 1; size <= options->largest; size *= 2) {
        prepare(&flow, size, options->listed);
        double rate = options->writes / measure(options, &flow);
        printf("%10d %10d %15.3f %15.3f\n", size, options->writes, rate * size * 8e-9, rate * 1e-6);
    }
    if (options->clocks)
        print_calls(flow.calls, flow.polls < MOST_CALLS ? flow.polls : MOST_CALLS);
    free(flow.calls);
}

static struct options read_options(int count, char **words)
{
    struct options options = {NULL, "18515", 1000, 65536, 128, 1, false, false, false};
    for (int option; (option = getopt(count, words, "p:n:s:t:l:obc")) != -1;)
        switch (option) {
        case 'p': options.port = optarg; break;
        case 'n': options.writes = atoi(optarg); break;
        case 's': options.largest = atoi(optarg); break;
        case 't': options.depth = atoi(optarg); break;
        case 'l': options.listed = atoi(optarg); break;
        case 'o': options.only = true; break;
        case 'b': options.blocks = true; break;
        case 'c': options.clocks = true; break;
        default: exit(2);
        }
    options.host = words[optind];
    if (options.writes < 1 || options.largest < 1 || options.depth < 1 || options.depth > MOST_OUTSTANDING
        || options.listed < 1 || options.listed > MOST_LISTED)
        DIE("-n and -s are at least 1, -t is in 1..%d, -l in 1..%d", MOST_OUTSTANDING, MOST_LISTED);
    return options;
}

int main(int count, char **words)
{
    struct options options = read_options(count, words);
    struct side side = meet(options.host, options.port, (size_t)options.largest);
    if (options.host != NULL)
        print_rates(&options, &side);
    else if (!options.blocks)
        serve(&side);
    part(&side);
    return 0;
}
