/* How the two ends of an example meet: over TCP, as perftest does, they exchange what each must know of the other. */
#pragma once

#include <mrc.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MOST_OUTSTANDING 1024 /* writes of a queue pair */

#define DIE(...)                                                                                                       \
    do {                                                                                                               \
        fprintf(stderr, "mrc example: " __VA_ARGS__);                                                                  \
        fputc('\n', stderr);                                                                                           \
        exit(1);                                                                                                       \
    } while (0)

struct offer {
    uint32_t qpn, psn, rkey, padding;
    uint64_t address;
    union ibv_gid gid;
};

static inline double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Connect to `host`, or wait for a guest if it is NULL. */
static inline int dial(const char *host, const char *port)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_family = AF_INET}, *found;
    int yes = 1, fd = -1;
    hints.ai_flags = host == NULL ? AI_PASSIVE : 0;
    if (getaddrinfo(host, port, &hints, &found) != 0)
        DIE("%s is unknown", host);
    for (int tries = 0; tries < 100 && fd < 0; tries++) { /* the server may not listen yet */
        fd = socket(found->ai_family, found->ai_socktype, 0);
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
        if (host == NULL) {
            if (bind(fd, found->ai_addr, found->ai_addrlen) != 0 || listen(fd, 1) != 0)
                DIE("cannot listen on port %s", port);
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

static inline struct offer exchange(int fd, const struct offer *ours)
{
    struct offer theirs;
    if (write(fd, ours, sizeof *ours) != sizeof *ours || read(fd, &theirs, sizeof theirs) != sizeof theirs)
        DIE("the peer has gone");
    return theirs;
}

/* RESET to RTS. */
static inline void bring_up(struct mrc_qp *qp, uint32_t psn, const struct offer *peer)
{
    struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_4096, .rq_psn = peer->psn};
    struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS, .sq_psn = psn};
    struct mrc_qp_attr mrc = {.timeout = 14, .mpr = {32, 32}, .wimm = {128, 128}, .retry = {7, 7}};
    rtr.dest_qp_num = peer->qpn;
    rtr.ah_attr = (struct ibv_ah_attr){.is_global = 1, .port_num = 1, .grh = {.dgid = peer->gid, .sgid_index = 3}};
    int error = mrc_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, &mrc,
                              MRC_QP_EV_PROFILE_ID | MRC_QP_CC_PROFILE_ID);
    if (error == 0)
        error = mrc_modify_qp(qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_PATH_MTU,
                              &mrc, MRC_QP_MAX_WIMM_DEST | MRC_QP_MPR_DEST | MRC_QP_CAP);
    if (error == 0)
        error = mrc_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_SQ_PSN, &mrc,
                              MRC_QP_MAX_WIMM | MRC_QP_MPR | MRC_QP_RETRY_CNT | MRC_QP_TIMEOUT);
    if (error != 0)
        DIE("modify: %s", strerror(error));
}

/* The first device, which must be one of MRC. */
static inline struct ibv_context *open_device(void)
{
    struct ibv_device **devices = ibv_get_device_list(NULL);
    struct ibv_context *device = devices != NULL && *devices != NULL ? ibv_open_device(*devices) : NULL;
    struct mrc_device_attr about;
    int supported = 0;
    if (device == NULL || mrc_query_device(device, &about, &supported) != 0 || !supported)
        DIE("no MRC device");
    ibv_free_device_list(devices);
    return device;
}

/* One end of a connection, and what it knows of the other. */
struct side {
    struct ibv_context *device;
    struct mrc_context *context;
    struct ibv_pd *pd;
    struct ibv_mr *mr;
    struct mrc_cq *cq;
    struct mrc_qp *qp;
    uint8_t *memory;
    struct offer peer;
    int fd; /* of TCP, to meet again at the end */
};

/* A connected queue pair with `size` bytes of memory that the other end may write to. */
static inline struct side meet(const char *host, const char *port, size_t size)
{
    struct side side = {.device = open_device(), .memory = aligned_alloc(4096, (size + 4095) & ~(size_t)4095)};
    side.context = mrc_create_context(side.device, NULL);
    side.pd = ibv_alloc_pd(side.device);
    side.cq = mrc_create_cq(side.context, 256, NULL, NULL, 0);
    side.mr = ibv_reg_mr(side.pd, side.memory, size, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    struct mrc_qp_init_attr init = {.send_cq = side.cq, .recv_cq = side.cq, .pd = side.pd};
    init.cap = (struct ibv_qp_cap){MOST_OUTSTANDING, 128, 1, 1, 0};
    side.qp = mrc_create_qp(side.context, &init);
    if (side.mr == NULL || side.qp == NULL)
        DIE("set-up: %m");
    struct offer ours = {.psn = 0x1234, .rkey = side.mr->rkey, .address = (uintptr_t)side.memory};
    mrc_get_qpn(side.qp, &ours.qpn);
    ibv_query_gid(side.device, 1, 3, &ours.gid);
    side.fd = dial(host, port);
    side.peer = exchange(side.fd, &ours);
    bring_up(side.qp, ours.psn, &side.peer);
    exchange(side.fd, &ours); /* both are up */
    return side;
}

/* Wait until the other end has done its part, too. */
static inline void part(struct side *side)
{
    struct offer nothing = {0};
    exchange(side->fd, &nothing);
    close(side->fd);
    mrc_destroy_qp(side->qp);
    mrc_destroy_cq(side->cq);
    mrc_destroy_context(side->context);
    ibv_dereg_mr(side->mr);
    ibv_dealloc_pd(side->pd);
    ibv_close_device(side->device);
    free(side->memory);
}
