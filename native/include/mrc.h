/*
 * mrc.h: Multipath Reliable Connection for applications, OCP MRC 1.0.1 in a software endpoint. Names, types, order and
 * layout are those of the published interface; what is ours alone is said to be.
 *
 * Devices, protection domains and memory regions are those of libibverbs: a program opens the device "mrc0" with
 * ibv_open_device and registers memory with ibv_reg_mr. Everything else is here. Link with -lmrc -libverbs, in that
 * order, so that the calls of libibverbs reach this library.
 *
 * Threads: every function may be called from any thread. Two threads may post to, poll or modify different objects at
 * the same time, and the same object too: calls on one object take turns. Destroying an object while another thread
 * uses it is an error of the program, as in verbs.
 *
 * Errors: "0 or errno" means that the function returns an errno value; "-1 with errno" that it sets errno.
 */
#ifndef MRC_H
#define MRC_H

#include <infiniband/verbs.h>
#include <mrc_api_ver.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The wire protocol is a bitmap: no bit leaves the choice to the library. */
enum mrc_protocol_version {
    MRC_PROTOCOL_VERSION_0 = 0, /* not specified */
    MRC_PROTOCOL_VERSION_1 = 1,
};

#define MRC_MAX_VENDOR_CFG_SIZE 128 /* bytes */

/* Objects, all owned by a context. */
struct mrc_context;
struct mrc_comp_channel;
struct mrc_cq;
struct mrc_qp; /* begins with a pointer to its struct ibv_qp */
struct mrc_qp_hint;

/* What the device can do. */

enum mrc_device_cap {
    MRC_DEVICE_CAP_TRIM_NACK = 1 << 0,   /* answers packets that a switch trimmed */
    MRC_DEVICE_CAP_DYNAMIC_MPR = 1 << 1, /* the responder may change its window */
    MRC_DEVICE_CAP_SVC_TIME = 1 << 2,    /* reports its service time; not offered here */
};

struct mrc_device_attr {
    uint32_t mrc_protocol_version; /* bitmap of mrc_protocol_version */
    struct {
        uint16_t max_wimm;      /* writes with immediate in flight, as requester */
        uint16_t max_wimm_dest; /* the same as responder */
    } wimm_attr;
    struct {
        uint8_t max_mpr;        /* window of the responder, unit 128 PSNs */
        uint8_t mpr_resolution; /* unit 128 PSNs */
    } mpr_attr;
    struct {
        uint32_t max_qp_hint;
    } qp_attr;
    uint32_t cap; /* mrc_device_cap */
};

struct mrc_context_attr {
    uint32_t mrc_api_version_used;        /* MRC_API_VER_USED; 0: not specified */
    uint32_t mrc_vendor_api_version_used; /* MRC_VENDOR_API_VER_USED; 0: not specified */
};

/* Fill `attr` if the device is one of ours, and say so in `supported`: 1 or 0. 0, or -1 with errno. */
int mrc_query_device(struct ibv_context *context, struct mrc_device_attr *attr, int *supported);

/* The same for a context of ours (since 1.0.1). */
int mrc_query_device_ex(struct ibv_context *context, struct mrc_context *mcontext, struct mrc_device_attr *attr,
                        int *supported);

/* Versions of the library; may be called before anything else. Any pointer may be NULL. */
void mrc_query_version(uint32_t *current, uint32_t *last_supported, uint32_t *vendor_current,
                       uint32_t *vendor_last_supported);

/* Ours: the version of this implementation and of the sources that it was built from, as text. */
const char *mrc_library_version(void);

/* A context on an open device; `attr` may be NULL. NULL with errno: EINVAL (not our device, a version too new). */
struct mrc_context *mrc_create_context(struct ibv_context *context, struct mrc_context_attr *attr);

/* 0, or -1 with errno: EBUSY while objects of it exist. The ibv_context stays open. */
int mrc_destroy_context(struct mrc_context *context);

/* Completion channels and queues, as in verbs. */

/* 0, or -1 with errno; the new channel in `channel`. */
int mrc_create_comp_channel(struct mrc_context *context, struct mrc_comp_channel **channel);

/* The descriptor that becomes readable with an event, for poll and epoll. 0, or -1 with errno. */
int mrc_get_comp_channel_fd(struct mrc_comp_channel *channel, int *fd);

/* 0 or errno: EBUSY while completion queues use it. */
int mrc_destroy_comp_channel(struct mrc_comp_channel *channel);

/* A queue of at least `cqe` completions (1 .. 1,048,575); `channel` may be NULL. NULL with errno: EINVAL, ENOMEM. */
struct mrc_cq *mrc_create_cq(struct mrc_context *context, int cqe, void *cq_context, struct mrc_comp_channel *channel,
                             int comp_vector);

/* Take at most `count` completions; the number taken, -1 if the queue overran. */
int mrc_poll_cq(struct mrc_cq *cq, int count, struct ibv_wc *wc);

/* Report the next completion, or the next solicited one, on the channel, once. 0 or errno. */
int mrc_req_notify_cq(struct mrc_cq *cq, int solicited_only);

/* Wait for an event, unless the descriptor does not block. 0, or -1 with errno. Every event must be acknowledged. */
int mrc_get_cq_event(struct mrc_comp_channel *channel, struct mrc_cq **cq, void **cq_context);
void mrc_ack_cq_events(struct mrc_cq *cq, unsigned int count);

/* 0 or errno: EBUSY while queue pairs use it. Waits until all its events are acknowledged. */
int mrc_destroy_cq(struct mrc_cq *cq);

/* Hints: what traffic a program expects, shared by queue pairs. They are kept and given back; nothing depends on them. */

struct mrc_qp_hint_attr {
    int num_qps_per_peer;      /* queue pairs to one destination address */
    int num_send_peers;        /* destinations at the same time */
    int num_remote_recv_peers; /* expected incast at the target */
    uint8_t vendor_cfg[MRC_MAX_VENDOR_CFG_SIZE];
};

struct mrc_qp_hint_init_attr {
    struct mrc_qp_hint_attr attr;
};

/* The last bit of a mask stands for what a vendor defines; kept and given back here. */
enum mrc_qp_hint_attr_mask {
    MRC_QP_HINT_NUM_QPS_PER_PEER = 1 << 0,
    MRC_QP_HINT_NUM_SEND_PEERS = 1 << 1,
    MRC_QP_HINT_NUM_REMOTE_RECV_PEERS = 1 << 2,
    MRC_QP_HINT_VENDOR_CFG = INT32_MIN,
};

/* NULL with errno. */
struct mrc_qp_hint *mrc_create_qp_hint(struct mrc_context *context, struct mrc_qp_hint_init_attr *init);

/* 0 or errno: EINVAL; destroy EBUSY while queue pairs use it. */
int mrc_query_qp_hint(struct mrc_qp_hint *hint, struct mrc_qp_hint_attr *attr, int mask);
int mrc_modify_qp_hint(struct mrc_qp_hint *hint, struct mrc_qp_hint_attr *attr, int mask);
int mrc_destroy_qp_hint(struct mrc_qp_hint *hint);

/* Queue pairs: reliable connections, RESET - INIT - RTR - RTS. Receives may be posted from RTR on, writes from RTS on. */

struct mrc_qp_init_attr {
    void *qp_context;
    struct mrc_cq *send_cq;
    struct mrc_cq *recv_cq;
    struct ibv_qp_cap cap; /* what was granted is written back */
    int sq_sig_all;        /* 1: every write completes, not only those that ask for it */
    struct ibv_pd *pd;
    uint64_t send_ops_flags; /* IBV_QP_EX_WITH_RDMA_WRITE, IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM; 0: both */
    enum mrc_protocol_version protocol_version; /* 0: the library chooses */
};

enum mrc_qp_cap {
    MRC_QP_CAP_TRIM_NACK_DEST_UNSUPPORTED = 1 << 0, /* the peer does not answer trimmed packets */
    MRC_QP_CAP_DYNAMIC_MPR = 1 << 1,                /* in effect if both ends ask for it */
    MRC_QP_CAP_SVC_TIME_DEST_UNSUPPORTED = 1 << 2,
};

struct mrc_qp_attr {
    struct {
        uint8_t mpr;      /* 1 .. 32, unit 128 PSNs: the window granted to the peer */
        uint8_t mpr_dest; /* the window granted by the peer */
    } mpr;
    struct {
        uint16_t max_wimm;      /* 1 .. 256 writes with immediate in flight */
        uint16_t max_wimm_dest; /* that the peer may have in flight */
    } wimm;
    uint8_t timeout; /* 1.024 us x 2^timeout, 0 .. 24 */
    struct {
        uint64_t ev_profile_id; /* of mrc_ctl.h, ONLINE, on the way to INIT; 0: the endpoint's own */
        uint64_t cc_profile_id; /* the same; connections to one peer name the same one (EBUSY) */
    } profile;
    struct {
        uint8_t linear_cnt; /* 0 .. 7 retries after one timeout each */
        uint8_t exp_cnt;    /* 0 .. 25 further ones, each after twice the time; 25: without end */
    } retry;
    struct mrc_qp_hint *qp_hint;
    uint32_t cap; /* mrc_qp_cap */
    uint8_t vendor_cfg[MRC_MAX_VENDOR_CFG_SIZE];
};

enum mrc_qp_attr_mask {
    MRC_QP_MAX_WIMM = 1 << 0,
    MRC_QP_MAX_WIMM_DEST = 1 << 1,
    MRC_QP_MPR = 1 << 2,
    MRC_QP_MPR_DEST = 1 << 3,
    MRC_QP_TIMEOUT = 1 << 4,
    MRC_QP_EV_PROFILE_ID = 1 << 5,
    MRC_QP_CC_PROFILE_ID = 1 << 6,
    MRC_QP_HINT = 1 << 7,
    MRC_QP_RETRY_CNT = 1 << 8,
    MRC_QP_CAP = 1 << 9,
    MRC_QP_VENDOR_CFG = INT32_MIN,
};

/* A queue pair in RESET. NULL with errno: EINVAL, ENOMEM, EOPNOTSUPP (operations or a protocol that are not offered). */
struct mrc_qp *mrc_create_qp(struct mrc_context *context, struct mrc_qp_init_attr *init);

/* 0 or errno. What was posted never completes. */
int mrc_destroy_qp(struct mrc_qp *qp);

/* Attributes as last set, and the state now, in any state. 0 or errno. Any pointer but `qp` may be NULL. */
int mrc_query_qp(struct mrc_qp *qp, struct ibv_qp_attr *attr, int mask, struct mrc_qp_attr *mrc_attr, int mrc_mask,
                 struct mrc_qp_init_attr *init);

/*
 * Set attributes, and with IBV_QP_STATE change the state. 0 or errno: EINVAL (range, transition, or one missing).
 *
 * Needed: RTR IBV_QP_AV (with the peer's GID) and IBV_QP_DEST_QPN. Where they were not given, peers may write
 * (IBV_QP_ACCESS_FLAGS), the path MTU is the port's, and PSNs begin at 0. MRC attributes that were never set have the
 * largest windows, a timeout of 16.8 ms and 7 + 7 retries. The verbs' own timeout and retry count are used where the MRC ones were not given; other verbs
 * attributes that MRC does not have are accepted and ignored, as programs pass them by habit.
 */
int mrc_modify_qp(struct mrc_qp *qp, struct ibv_qp_attr *attr, int mask, struct mrc_qp_attr *mrc_attr, int mrc_mask);

/* 0, or -1 with errno. The number stays until the queue pair is destroyed. */
int mrc_get_qpn(struct mrc_qp *qp, uint32_t *qpn);

/* 0, or -1 with errno and `bad` at the first request that was not posted: ENOMEM (full), EINVAL. */
int mrc_post_recv(struct mrc_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* The same; IBV_WR_RDMA_WRITE and IBV_WR_RDMA_WRITE_WITH_IMM, all others EOPNOTSUPP. */
int mrc_post_send(struct mrc_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);

/* Async events. */

struct mrc_async_event {
    union {
        struct mrc_cq *cq;
        struct mrc_qp *qp;
        int port_num; /* from 1 */
    } element;
    enum ibv_event_type event_type;
};

/* Wait for an event, unless async_fd of the ibv_context does not block. 0, or -1 with errno. All must be acknowledged. */
int mrc_get_async_event(struct mrc_context *context, struct mrc_async_event *event);
void mrc_ack_async_event(struct mrc_async_event *event);

#ifdef __cplusplus
}
#endif

#endif
