/*
 * Round trips of writes with immediate through mrc.h, between two processes that poll.
 *
 *     server: mrc_pingpong          client: mrc_pingpong HOST
 *     -p PORT of TCP (18515)   -n ROUND TRIPS (1000)   -s BYTES (8)
 *
 * Each end checks that what it receives is what the other must have written.
 */
#include <getopt.h>
#include <stdbool.h>

#include "meeting.h"

#define RECEIVES 64
#define WARM 10 /* a tenth of the round trips is not counted */

struct options {
    const char *host, *port;
    int turns, size;
};

struct table {
    struct mrc_qp *qp;
    struct mrc_cq *cq;
    struct ibv_mr *mr;
    uint8_t *ours, *theirs; /* memory that we write from, and that the peer writes to */
};

static void post_receives(struct mrc_qp *qp, int count)
{
    struct ibv_recv_wr receive = {.wr_id = 1}, *bad;
    for (int i = 0; i < count; i++)
        if (mrc_post_recv(qp, &receive, &bad) != 0)
            DIE("receive: %m");
}

static void serve(const struct table *table, const struct options *options, const struct offer *peer, int turn)
{
    struct ibv_sge sge = {(uintptr_t)table->ours, (uint32_t)options->size, table->mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM}, *bad;
    memset(table->ours, turn, (size_t)options->size);
    wr.send_flags = turn % RECEIVES == 0 ? IBV_SEND_SIGNALED : 0;
    wr.wr.rdma.remote_addr = peer->address;
    wr.wr.rdma.rkey = peer->rkey;
    if (mrc_post_send(table->qp, &wr, &bad) != 0)
        DIE("write: %m");
}

static void receive(const struct table *table, const struct options *options, int turn)
{
    struct ibv_wc wc = {.opcode = IBV_WC_RDMA_WRITE};
    while (wc.opcode != IBV_WC_RECV_RDMA_WITH_IMM) {
        int count = mrc_poll_cq(table->cq, 1, &wc);
        if (count < 0 || (count > 0 && wc.status != IBV_WC_SUCCESS))
            DIE("turn %d: %s", turn, count < 0 ? "overrun" : ibv_wc_status_str(wc.status));
        if (count == 0)
            wc.opcode = IBV_WC_RDMA_WRITE;
    }
    if (table->theirs[0] != (uint8_t)turn || table->theirs[options->size - 1] != (uint8_t)turn)
        DIE("turn %d: other bytes than were written", turn);
    if (turn % (RECEIVES / 2) == 0)
        post_receives(table->qp, RECEIVES / 2);
}

static int compare(const void *one, const void *other)
{
    double difference = *(const double *)one - *(const double *)other;
    return (difference > 0) - (difference < 0);
}

static void play(const struct table *table, const struct options *options, const struct offer *peer)
{
    double *times = calloc((size_t)options->turns, sizeof *times);
    for (int turn = 0; turn < options->turns; turn++) {
        double begun = seconds();
        if (options->host != NULL)
            serve(table, options, peer, turn);
        receive(table, options, turn);
        if (options->host == NULL)
            serve(table, options, peer, turn);
        times[turn] = seconds() - begun;
    }
    int first = options->turns / WARM, counted = options->turns - first;
    qsort(times + first, (size_t)counted, sizeof *times, compare);
    if (options->host != NULL)
        printf("%8s %10s %12s %12s\n%8d %10d %12.2f %12.2f\n", "Bytes", "RoundTrips", "Median(us)", "p99(us)",
               options->size, counted, 1e6 * times[first + counted / 2], 1e6 * times[first + counted * 99 / 100]);
    free(times);
}

int main(int count, char **words)
{
    struct options options = {NULL, "18515", 1000, 8};
    for (int option; (option = getopt(count, words, "p:n:s:")) != -1;) {
        if (option == '?')
            return 2;
        if (option == 'p')
            options.port = optarg;
        else
            *(option == 'n' ? &options.turns : &options.size) = atoi(optarg);
    }
    options.host = words[optind];
    if (options.turns < 1 || options.size < 1)
        DIE("-n and -s are at least 1");

    size_t half = ((size_t)options.size + 4095) & ~(size_t)4095;
    struct table table = {.ours = aligned_alloc(4096, 2 * half)};
    struct ibv_context *device = open_device();
    struct mrc_context *context = mrc_create_context(device, NULL);
    struct ibv_pd *pd = ibv_alloc_pd(device);
    table.cq = mrc_create_cq(context, 4 * RECEIVES, NULL, NULL, 0);
    table.theirs = table.ours + half;
    table.mr = ibv_reg_mr(pd, table.ours, 2 * half, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    struct mrc_qp_init_attr init = {.send_cq = table.cq, .recv_cq = table.cq, .pd = pd, .cap = {128, 128, 1, 1, 0}};
    table.qp = mrc_create_qp(context, &init);
    if (table.mr == NULL || table.qp == NULL)
        DIE("set-up: %m");

    struct offer ours = {.psn = 0x1234, .rkey = table.mr->rkey, .address = (uintptr_t)table.theirs};
    mrc_get_qpn(table.qp, &ours.qpn);
    ibv_query_gid(device, 1, 3, &ours.gid);
    int fd = dial(options.host, options.port);
    struct offer theirs = exchange(fd, &ours);
    bring_up(table.qp, ours.psn, &theirs);
    post_receives(table.qp, RECEIVES);
    exchange(fd, &ours); /* both are up */
    play(&table, &options, &theirs);
    exchange(fd, &ours); /* both may go */
    close(fd);
    mrc_destroy_qp(table.qp);
    mrc_destroy_cq(table.cq);
    mrc_destroy_context(context);
    ibv_dereg_mr(table.mr);
    ibv_dealloc_pd(pd);
    ibv_close_device(device);
    free(table.ours);
    return 0;
}
