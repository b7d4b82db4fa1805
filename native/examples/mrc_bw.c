/*
 * Bandwidth of writes through mrc.h, between two processes.
 *
 *     server: mrc_bw                client: mrc_bw HOST
 *     -p PORT of TCP (18515)   -n WRITES of each size (1000)   -s LARGEST (65536)   -t OUTSTANDING (128)
 *
 * Queue pair number, GID, address and key are exchanged over TCP, as perftest does.
 */
#include <getopt.h>
#include <mrc.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define DIE(...)                                                                                                       \
    do {                                                                                                               \
        fprintf(stderr, "mrc_bw: " __VA_ARGS__);                                                                       \
        fputc('\n', stderr);                                                                                           \
        exit(1);                                                                                                       \
    } while (0)

struct offer {
    uint32_t qpn, psn, rkey, padding;
    uint64_t address;
    union ibv_gid gid;
};

struct options {
    const char *host, *port;
    int writes, largest, depth;
};

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int dial(const struct options *options)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_family = AF_INET}, *found;
    int yes = 1, fd = -1;
    hints.ai_flags = options->host == NULL ? AI_PASSIVE : 0;
    if (getaddrinfo(options->host, options->port, &hints, &found) != 0)
        DIE("%s is unknown", options->host);
    for (int tries = 0; tries < 100 && fd < 0; tries++) { /* the server may not listen yet */
        fd = socket(found->ai_family, found->ai_socktype, 0);
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
        if (options->host == NULL) {
            if (bind(fd, found->ai_addr, found->ai_addrlen) != 0 || listen(fd, 1) != 0)
                DIE("cannot listen on port %s", options->port);
            int guest = accept(fd, NULL, NULL);
            close(fd);
            fd = guest;
        } else if (connect(fd, found->ai_addr, found->ai_addrlen) != 0) {
            close(fd);
            fd = -1;
            nanosleep(&(struct timespec){0, 100000000}, NULL);
        }
    }
    freeaddrinfo(found);
    if (fd < 0)
        DIE("no server");
    return fd;
}

static struct offer exchange(int fd, const struct offer *ours)
{
    struct offer theirs;
    if (write(fd, ours, sizeof *ours) != sizeof *ours || read(fd, &theirs, sizeof theirs) != sizeof theirs)
        DIE("the peer has gone");
    return theirs;
}

static void bring_up(struct mrc_qp *qp, uint32_t psn, const struct offer *peer)
{
    struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_4096, .rq_psn = peer->psn};
    struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS, .sq_psn = psn};
    struct mrc_qp_attr mrc = {.timeout = 14, .mpr = {32, 32}, .wimm = {128, 128}, .retry = {7, 7}};
    rtr.dest_qp_num = peer->qpn;
    rtr.ah_attr = (struct ibv_ah_attr){.is_global = 1, .port_num = 1, .grh = {.dgid = peer->gid, .sgid_index = 3}};
    int error = mrc_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, &mrc,
                              MRC_QP_ATTR_EV_PROFILE_ID | MRC_QP_ATTR_CC_PROFILE_ID);
    if (error == 0)
        error = mrc_modify_qp(qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_PATH_MTU,
                              &mrc, MRC_QP_ATTR_MAX_WIMM_DEST | MRC_QP_ATTR_MPR_DEST | MRC_QP_ATTR_CAP);
    if (error == 0)
        error = mrc_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_SQ_PSN, &mrc,
                              MRC_QP_ATTR_MAX_WIMM | MRC_QP_ATTR_MPR | MRC_QP_ATTR_RETRY_CNT | MRC_QP_ATTR_TIMEOUT);
    if (error != 0)
        DIE("modify: %s", strerror(error));
}

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

    struct ibv_device **devices = ibv_get_device_list(NULL);
    struct ibv_context *device = devices != NULL && *devices != NULL ? ibv_open_device(*devices) : NULL;
    struct mrc_device_attr about;
    bool supported = false;
    if (device == NULL || mrc_query_device(device, &about, &supported) != 0 || !supported)
        DIE("no MRC device");
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
    int fd = dial(&options);
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
    ibv_free_device_list(devices);
    free(memory);
    return 0;
}
