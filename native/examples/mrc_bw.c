/*
 * Bandwidth of writes through mrc.h, between two processes.
 *
 *     server: mrc_bw                client: mrc_bw HOST
 *     -p PORT of TCP (18515)   -n WRITES of each size (1000)   -s LARGEST (65536)   -t OUTSTANDING (128)
 *
 * Queue pair number, GID, address and key are exchanged over TCP, as perftest does.
 */
#include <getopt.h>

#include "meeting.h"

struct options {
    const char *host, *port;
    int writes, largest, depth;
};

/* Post `writes` writes with `depth` outstanding, every 64th and the last signalled; return the seconds they took. */
static double measure(const struct options *options, struct mrc_qp *qp, struct mrc_cq *cq, struct ibv_mr *mr,
                      const struct offer *peer, int size)
{
    int posted = 0, completed = 0, every = options->depth < 64 ? options->depth : 64;
    double begun = seconds();
    while (completed < options->writes) {
        while (posted < options->writes && posted - completed < options->depth) {
            struct ibv_sge sge = {(uintptr_t)mr->addr, (uint32_t)size, mr->lkey};
            struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
            wr.wr_id = (uint64_t)++posted;
            wr.send_flags = posted % every == 0 || posted == options->writes ? IBV_SEND_SIGNALED : 0;
            wr.wr.rdma.remote_addr = peer->address;
            wr.wr.rdma.rkey = peer->rkey;
            if (mrc_post_send(qp, &wr, &bad) != 0)
                DIE("post: %m");
        }
        struct ibv_wc wc[16];
        int count = mrc_poll_cq(cq, 16, wc);
        for (int i = 0; i < count; i++) {
            if (wc[i].status != IBV_WC_SUCCESS)
                DIE("write %lu: %s", (unsigned long)wc[i].wr_id, ibv_wc_status_str(wc[i].status));
            completed = (int)wc[i].wr_id;
        }
    }
    return seconds() - begun;
}

int main(int count, char **words)
{
    struct options options = {NULL, "18515", 1000, 65536, 128};
    for (int option; (option = getopt(count, words, "p:n:s:t:")) != -1;) {
        if (option == '?')
            return 2;
        if (option == 'p')
            options.port = optarg;
        else
            *(option == 'n' ? &options.writes : option == 's' ? &options.largest : &options.depth) = atoi(optarg);
    }
    options.host = words[optind];

    struct ibv_context *device = open_device();
    struct mrc_context *context = mrc_create_context(device, NULL);
    struct ibv_pd *pd = ibv_alloc_pd(device);
    struct mrc_cq *cq = mrc_create_cq(context, 256, NULL, NULL, 0);
    void *memory = aligned_alloc(4096, ((size_t)options.largest + 4095) & ~(size_t)4095);
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, (size_t)options.largest, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    struct mrc_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .pd = pd, .cap = {128, 16, 1, 1, 0}};
    struct mrc_qp *qp = mrc_create_qp(context, &init);
    if (mr == NULL || qp == NULL)
        DIE("set-up: %m");

    struct offer ours = {.psn = 0x1234, .rkey = mr->rkey, .address = (uintptr_t)memory};
    mrc_get_qpn(qp, &ours.qpn);
    ibv_query_gid(device, 1, 3, &ours.gid);
    int fd = dial(options.host, options.port);
    struct offer theirs = exchange(fd, &ours);
    bring_up(qp, ours.psn, &theirs);
    exchange(fd, &ours); /* both are up */

    if (options.host != NULL) {
        printf("%10s %10s %15s %15s\n", "MsgSize", "TotalOps", "BW_avg(Gbps)", "MsgRate(Mpps)");
        for (int size = 1; size <= options.largest; size *= 2) {
            double took = measure(&options, qp, cq, mr, &theirs, size);
            double rate = options.writes / took;
            printf("%10d %10d %15.3f %15.3f\n", size, options.writes, rate * size * 8e-9, rate * 1e-6);
        }
    }
    exchange(fd, &ours); /* both may go */
    close(fd);
    mrc_destroy_qp(qp);
    mrc_destroy_cq(cq);
    mrc_destroy_context(context);
    ibv_dereg_mr(mr);
    ibv_dealloc_pd(pd);
    ibv_close_device(device);
    free(memory);
    return 0;
}
