/*
 * mrc_ctl.h: control of an MRC endpoint, OCP MRC 1.0.1 in a software endpoint. Names, types, order and layout are those
 * of the published interface; what is ours alone is said to be.
 *
 * A controller looks at ports, paths and profiles and changes them. In hardware one controller of a node does so for
 * all programs; here every process has an endpoint of its own, and a program controls its own with these functions,
 * through a context of mrc.h. Programs in other processes are reached by `mrc ctl` instead, see docs/ctl.md.
 *
 * Units: ports count from 1. A mask of ports has bit N for port N. Times are nanoseconds, sizes bytes.
 *
 * Threads: every function may be called from any thread at any time; calls on one context take turns, but for
 * mrc_ctl_ep_batch_send_wait, during which others go on.
 *
 * Errors: functions that return int return 0 or an errno value, unless their comment says otherwise. EINVAL: a pointer
 * that must not be NULL, a number out of range, a mask bit that is not known. EIO: a child of fork, which has no
 * endpoint. What needs rights in hardware (EPERM) needs none here, since the endpoint belongs to the process. A call
 * that fails changes nothing, except where its comment says what stays.
 */
#ifndef MRC_CTL_H
#define MRC_CTL_H

#include <mrc.h>
#include <mrc_ctl_api_ver.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Versions of the library; may be called before anything else. Any pointer may be NULL. */
void mrc_ctl_query_version(uint32_t *current, uint32_t *last_supported, uint32_t *vendor_current,
                           uint32_t *vendor_last_supported);

/* Entropy values (EVs). */

#define MRC_CTL_EV_MAX_BYTES 32
#define MRC_CTL_MAX_VENDOR_CFG_SIZE 128 /* bytes */

/* Where a packet carries its EV. An endpoint carries one of these; a mask in the device's attributes. */
enum mrc_ctl_ev_fmt_mode {
    MRC_CTL_EV_FMT_MODE_STEV = 1 << 0, /* UDP source port and IPv6 flow label: the first 4 bytes */
    MRC_CTL_EV_FMT_MODE_SRV6 = 1 << 1, /* outer destination address, then the segment of an SRH: 16 bytes each */
    MRC_CTL_EV_FMT_MODE_UDP = 1 << 2,  /* UDP source port: the first 2 bytes */
};

/* Who chooses the EVs of a profile; a mask in the device's attributes. */
enum mrc_ctl_ev_mode {
    MRC_CTL_EV_MODE_AUTO = 1 << 0, /* the endpoint; its EVs cannot be listed */
    MRC_CTL_EV_MODE_EXP = 1 << 1,  /* the controller lists each (EXPLICIT) */
    MRC_CTL_EV_MODE_GEN = 1 << 2,  /* the endpoint, within the fields of the profile (GENERATED) */
};

/* State of an EV; the endpoint's own state SKIP counts as GOOD here. */
enum mrc_ctl_ev_state {
    MRC_CTL_EV_GOOD = 1 << 0,
    MRC_CTL_EV_ASSUMED_BAD = 1 << 1, /* carries no data until probes are answered */
    MRC_CTL_EV_DENIED = 1 << 2,      /* carries nothing until a controller allows it */
    MRC_CTL_EV_UNKNOWN = INT32_MIN,  /* bit 31: of an entry that is not populated */
};

/* An EV: bits as packets carry them, first byte first, and the port that it leaves from. */
typedef uint8_t mrc_ctl_ev_t[MRC_CTL_EV_MAX_BYTES];

struct mrc_ctl_ev {
    mrc_ctl_ev_t val;
    uint8_t port; /* from 1 */
};

#define MRC_CTL_EV_UNPOPULATED ((struct mrc_ctl_ev){.val = {0}, .port = 0})

/* What the endpoint can do. */

enum mrc_ctl_attr_opt {
    MRC_CTL_OPT_CAP_EV_PROFILE_MODIFY_ONLINE = 1 << 0, /* event mask, entries and fields of EV profiles that are ONLINE */
    MRC_CTL_OPT_CAP_CC_PROFILE_MODIFY_ONLINE = 1 << 1, /* configuration of congestion control profiles that are ONLINE */
    MRC_CTL_OPT_CAP_EV_EVENT = 1 << 2,                 /* reports EVs that fail and recover */
    MRC_CTL_OPT_CAP_EV_EXPLICIT_RANGE = 1 << 3,        /* takes contiguous EVs only; not so here */
    MRC_CTL_OPT_CAP_EV_EVENT_PRECISE_DROP_CNT = 1 << 4, /* drop counts are numbers, not 0 or 1 */
    MRC_CTL_OPT_CAP_EP_OP_EV_PROBE = 1 << 5,           /* sends EV probes */
};

/* The control protocol is a bitmap, as in mrc.h. */
enum mrc_ctl_protocol_version {
    MRC_CTL_PROTOCOL_VERSION_0 = 0, /* not specified */
    MRC_CTL_PROTOCOL_VERSION_1 = 1,
};

struct mrc_ctl_device_attr {
    uint32_t mrc_ctl_protocol_version; /* mrc_ctl_protocol_version */
    struct {
        uint32_t ev_max_fmt_profiles;  /* numbered from 1 */
        uint32_t ev_max_profiles;      /* numbered from 1; 0 is the endpoint's own */
        uint32_t ev_max_count;         /* EVs of all profiles together */
        uint32_t ev_free_count;        /* of these, not used by a profile now */
        uint32_t ev_max_count_profile; /* EVs of one profile */
        uint32_t ev_count_align;       /* the length of an array is rounded up to a multiple */
        uint32_t ev_max_width;         /* bits of an expanded EV in the mode that is carried */
        uint32_t ev_fmt_mode_mask;     /* mrc_ctl_ev_fmt_mode */
        uint32_t ev_mode_mask;         /* mrc_ctl_ev_mode */
        uint32_t ev_op_max_entries;    /* of one call; 0: no limit */
    } ev;
    struct {
        uint32_t cc_max_profiles; /* numbered from 1; 0 is the endpoint's own */
        const char **algorithms;  /* ends with NULL; belongs to the library */
    } cc;
    uint32_t phy_port_mask; /* bit N: there is a port N */
    uint32_t opt_attr;      /* mrc_ctl_attr_opt */
};

/* Fill `attr`. EOPNOTSUPP: the device is not one of ours. */
int mrc_ctl_query_device(struct ibv_context *context, struct mrc_ctl_device_attr *attr);

/* The same (since 1.0.1); whether it is one of ours is `supported`, which may be NULL. `context` may be NULL, too. */
int mrc_ctl_query_device_ex(struct ibv_context *context, struct mrc_context *mcontext,
                            struct mrc_ctl_device_attr *attr, int *supported);

/* Ports: each is a plane of the endpoint. */

enum mrc_ctl_port_admin_state {
    MRC_CTL_PORT_ADMIN_DISABLED = 0, /* no data leaves it, peers are told */
    MRC_CTL_PORT_ADMIN_ENABLED = 1,  /* used while its interface works */
};

struct mrc_ctl_port_attr {
    enum mrc_ctl_port_admin_state port_admin_state;
};

enum mrc_ctl_port_attr_mask {
    MRC_CTL_PORT_ADMIN_STATE = 1 << 0,
};

/*
 * Query or set a port. The port of the verbs device is DOWN (ibv_query_port) once none of them is usable. EINVAL: no such
 * port.
 */
int mrc_ctl_query_port(struct mrc_context *context, uint8_t port, struct mrc_ctl_port_attr *attr, int mask);
int mrc_ctl_modify_port(struct mrc_context *context, uint8_t port, struct mrc_ctl_port_attr *attr, int mask);

/* Profiles: INIT - OFFLINE - ONLINE - OFFLINE - INIT. From INIT to ONLINE in one call is accepted. */

enum mrc_ctl_profile_state {
    MRC_CTL_PROFILE_INIT = 0,    /* not configured */
    MRC_CTL_PROFILE_OFFLINE = 1, /* being configured */
    MRC_CTL_PROFILE_ONLINE = 2,  /* usable */
};

/*
 * EV format profiles: the widths of the fields of an expanded EV. To OFFLINE: MODE. To ONLINE: fields (OP with
 * MODIFY_FIELDS). While ONLINE only its state may change, and nothing while an EV profile is ONLINE with it.
 */

enum mrc_ctl_ev_fmt_op {
    MRC_CTL_EV_FMT_OP_MODIFY_FIELDS = 0,
    MRC_CTL_EV_FMT_OP_QUERY_FIELDS = 1,
};

struct mrc_ctl_ev_fmt_field {
    uint8_t width; /* bits, 1 .. 255 */
};

struct mrc_ctl_ev_fmt_profile_attr {
    enum mrc_ctl_profile_state profile_state;
    enum mrc_ctl_profile_state cur_profile_state; /* if its bit is set, the call fails in another state */
    enum mrc_ctl_ev_fmt_mode ev_fmt_mode;
    struct {
        enum mrc_ctl_ev_fmt_op op;
        struct mrc_ctl_ev_fmt_field *fmt_fields;
        int fmt_field_count; /* a query returns how many there are, also with E2BIG */
    } ev_fmt_op;
    uint8_t vendor_cfg[MRC_CTL_MAX_VENDOR_CFG_SIZE]; /* kept and given back */
};

enum mrc_ctl_ev_fmt_profile_attr_mask {
    MRC_CTL_EV_FMT_PROFILE_STATE = 1 << 0,
    MRC_CTL_EV_FMT_PROFILE_CUR_STATE = 1 << 1,
    MRC_CTL_EV_FMT_PROFILE_MODE = 1 << 2,
    MRC_CTL_EV_FMT_PROFILE_OP = 1 << 3,
    MRC_CTL_EV_FMT_VENDOR_CFG = INT32_MIN,
};

/* EBUSY: an EV profile is ONLINE with it. E2BIG: no packet carries that many bits. */
int mrc_ctl_modify_ev_fmt_profile(struct mrc_context *context, uint64_t id, struct mrc_ctl_ev_fmt_profile_attr *attr,
                                  int mask);

/* E2BIG: there are more fields than room for them (the count returns the number). */
int mrc_ctl_query_ev_fmt_profile(struct mrc_context *context, uint64_t id, struct mrc_ctl_ev_fmt_profile_attr *attr,
                                 int mask);

/*
 * EV profiles: the EVs of queue pairs.
 *
 * To OFFLINE: MODE, FMT_ID, COUNT, fields (EV_FIELDS_OP with MODIFY_FIELDS); in mode AUTO only MODE. To ONLINE:
 * MIN_ACTIVE, EVENT_MASK, and in mode EXP a REPLACE_EV of every entry. While ONLINE: state, MODIFY_EV_STATE, EVENT_MASK,
 * REPLACE_EV and fields; nothing but entries and the event mask while queue pairs use it, and an EV is then replaced on
 * its own port only.
 *
 * How a packet's bits follow from an EV: each field begins as `init_val`. For each bit of `mask`, from the highest, the
 * next bit of the EV is put there, beginning with the highest bit of byte 0. Fields follow each other, each in the width
 * that the format gives it, narrower ones with zeros on their left.
 */

struct mrc_ctl_ev_field {
    uint32_t width;    /* bits, 1 .. 32, at most that of the format's field */
    uint32_t init_val; /* where the mask is clear */
    uint32_t min_val;  /* bounds of a generated number, before it is spread over the mask; */
    uint32_t max_val;  /* both 0: none */
    uint32_t mask;     /* bits that the EV gives; 0: a fixed field */
};

enum mrc_ctl_ev_op {
    MRC_CTL_EV_OP_REPLACE_EV = 0,      /* ev, ev_new, state; flags */
    MRC_CTL_EV_OP_MODIFY_EV_STATE = 1, /* ev, state; flags */
    MRC_CTL_EV_OP_QUERY_EV_STATE = 2,  /* ev; returns state */
    MRC_CTL_EV_OP_QUERY_EV_ARRAY = 3,  /* returns ev and state of every entry, in order */
};

enum mrc_ctl_ev_fields_op {
    MRC_CTL_EV_FIELDS_OP_MODIFY_FIELDS = 0,
    MRC_CTL_EV_FIELDS_OP_QUERY_FIELDS = 1,
};

enum mrc_ctl_ev_op_flags {
    MRC_CTL_EV_OP_F_ALL_COPIES = 1 << 0, /* every entry with this EV; else one of them */
};

struct mrc_ctl_ev_op_entry {
    struct mrc_ctl_ev ev;
    struct mrc_ctl_ev ev_new;
    enum mrc_ctl_ev_state state;
    uint32_t flags; /* mrc_ctl_ev_op_flags */
};

struct mrc_ctl_ev_profile_attr {
    enum mrc_ctl_profile_state profile_state;
    enum mrc_ctl_profile_state cur_profile_state; /* if its bit is set, the call fails in another state */
    enum mrc_ctl_ev_mode ev_mode;
    uint64_t ev_fmt_profile_id;
    uint32_t ev_count;      /* EVs of the array */
    uint32_t ev_min_active; /* EVs that stay in use whatever their state, at most `ev_count` */
    int ev_event_mask;      /* of GOOD and ASSUMED_BAD: new states that are reported */
    struct {
        enum mrc_ctl_ev_op op;
        struct mrc_ctl_ev_op_entry *entries;
        int entry_count; /* QUERY_EV_ARRAY returns how many there are, also with E2BIG */
    } ev_op;
    struct {
        enum mrc_ctl_ev_fields_op op;
        struct mrc_ctl_ev_field *fields;
        int field_count; /* a query returns how many there are, also with E2BIG */
    } ev_fields_op;
    uint8_t vendor_cfg[MRC_CTL_MAX_VENDOR_CFG_SIZE]; /* kept and given back */
};

enum mrc_ctl_ev_profile_attr_mask {
    MRC_CTL_EV_PROFILE_STATE = 1 << 0,
    MRC_CTL_EV_PROFILE_CUR_STATE = 1 << 1,
    MRC_CTL_EV_PROFILE_MODE = 1 << 2,
    MRC_CTL_EV_PROFILE_FMT_ID = 1 << 3,
    MRC_CTL_EV_PROFILE_COUNT = 1 << 4,
    MRC_CTL_EV_PROFILE_MIN_ACTIVE = 1 << 5,
    MRC_CTL_EV_PROFILE_EVENT_MASK = 1 << 6,
    MRC_CTL_EV_PROFILE_EV_OP = 1 << 7,        /* not together with the next */
    MRC_CTL_EV_PROFILE_EV_FIELDS_OP = 1 << 8,
    MRC_CTL_EV_PROFILE_VENDOR_CFG = INT32_MIN,
};

/*
 * Attributes are set first, then EV_OP is carried out, then the profile goes ONLINE. EV_OP stops at the first entry that
 * fails: the entries before it, and the attributes, stay as they are then; query to learn how far it came.
 *
 * EINVAL also: EV_OP and EV_FIELDS_OP together, an attribute that is missing or may not change now, an EV that the
 * endpoint's packets cannot carry, no EV on some port. E2BIG: more EVs, fields or entries than the device takes. ENOENT:
 * an EV that is not in the array. EBUSY: queue pairs use it.
 */
int mrc_ctl_modify_ev_profile(struct mrc_context *context, uint64_t id, struct mrc_ctl_ev_profile_attr *attr, int mask);

/* E2BIG: more entries or fields than room for them (the count returns the number). ENOENT: EV not in the array. */
int mrc_ctl_query_ev_profile(struct mrc_context *context, uint64_t id, struct mrc_ctl_ev_profile_attr *attr, int mask);

/*
 * Congestion control profiles. To OFFLINE: ALGORITHM. To ONLINE: CONFIG. While ONLINE, CONFIG may change, and acts on
 * running connections at once. Connections to one peer share a window, so they must name the same profile.
 */

/* Ours: the name of the algorithm. */
#define MRC_CTL_CC_NSCC "uet-1.0-nscc"

/*
 * Configuration of NSCC. Every value counts: begin with those that a query returns, which are the endpoint's own as long
 * as none were set. A window, a delay or a threshold of 0 that would stop the sender is refused.
 */
struct mrc_ctl_cc_nscc_cfg {
    uint8_t disable_qa;               /* 1: no quick adaptation */
    uint32_t adjust_bytes_threshold;  /* bytes between two adjustments */
    uint32_t adjust_period_threshold; /* ns between two adjustments */
    uint32_t base_rtt;                /* ns */
    float eta;                        /* bytes */
    float fi;                         /* bytes */
    float fi_scale;
    float gamma;       /* 0 .. 1 */
    float max_md_jump; /* 0 .. 1 */
    uint32_t max_cwnd; /* bytes */
    uint8_t qa_gate;   /* 0 .. 62 */
    uint32_t qa_threshold; /* ns */
    uint32_t target_delay; /* ns */
};

struct mrc_ctl_cc_profile_attr {
    enum mrc_ctl_profile_state profile_state;
    enum mrc_ctl_profile_state cur_profile_state; /* if its bit is set, the call fails in another state */
    const char *algorithm;                        /* of the device's list; NULL: no congestion control */
    const void *cc_config; /* struct mrc_ctl_cc_nscc_cfg, which a query fills; NULL: the endpoint's own */
    uint8_t vendor_cfg[MRC_CTL_MAX_VENDOR_CFG_SIZE]; /* kept and given back */
};

enum mrc_ctl_cc_profile_attr_mask {
    MRC_CTL_CC_PROFILE_STATE = 1 << 0,
    MRC_CTL_CC_PROFILE_CUR_STATE = 1 << 1,
    MRC_CTL_CC_PROFILE_ALGORITHM = 1 << 2,
    MRC_CTL_CC_PROFILE_CONFIG = 1 << 3,
    MRC_CTL_CC_PROFILE_VENDOR_CFG = INT32_MIN,
};

/* EINVAL also: an unknown algorithm, a configuration out of range. EBUSY: queue pairs use it. */
int mrc_ctl_modify_cc_profile(struct mrc_context *context, uint64_t id, struct mrc_ctl_cc_profile_attr *attr, int mask);

/* `cc_config` is filled if it is not NULL; `algorithm` belongs to the library. */
int mrc_ctl_query_cc_profile(struct mrc_context *context, uint64_t id, struct mrc_ctl_cc_profile_attr *attr, int mask);

/* EV events: an EV became GOOD or ASSUMED_BAD. */

struct mrc_ctl_ev_event {
    uint64_t profile_id; /* 0: the endpoint's own, which reports both states */
    struct mrc_ctl_ev ev;
    uint32_t drop_count; /* events before this one that this queue had to drop: an exact number */
    enum mrc_ctl_ev_state state; /* since 1.0.1 */
};

/*
 * A queue for `cqe` events at least (1 .. 65,536) that cannot overrun: a full one drops its oldest event and counts.
 * It is armed, waited for and destroyed as any completion queue; `channel` may be NULL. NULL with errno: EINVAL, ENOMEM
 * (16 of a context are the most).
 */
struct mrc_cq *mrc_ctl_create_ev_event_cq(struct mrc_context *context, int cqe, void *cq_context,
                                          struct mrc_comp_channel *channel, int comp_vector);

/* Take at most `count` events, oldest first. How many, or a negative errno: -EINVAL (not a queue of events). */
int mrc_ctl_poll_ev_event(struct mrc_cq *cq, int count, struct mrc_ctl_ev_event *events);

/* Requests to other endpoints. */

enum mrc_ctl_ep_op_type {
    MRC_CTL_EP_OP_EV_PROBE = 0,           /* does this path work, and how long is it? */
    MRC_CTL_EP_OP_PORT_STATUS_UPDATE = 1, /* which of our ports work */
};

struct mrc_ctl_ep_req {
    uint16_t req_id;    /* unique while it is outstanding */
    union ibv_gid sgid; /* ours, or all zero */
    union ibv_gid dgid; /* of a peer that a queue pair is connected to */
    enum mrc_ctl_ev_fmt_mode ev_fmt_mode;
    struct mrc_ctl_ev req_ev; /* bits as the packet carries them, and the port that it leaves from */
    union {
        struct {
            uint32_t port_status; /* bit N: port N works */
        } port_status_update;
    } op;
};

struct mrc_ctl_ep_rsp {
    uint16_t req_id;
    uint8_t port;         /* that the answer arrived on */
    unsigned int rtt;     /* ns, in steps of 1,000; of software, with its waits */
    uint8_t adj_svc_time; /* 1: the time in the peer is not part of rtt; never so here */
};

/*
 * Send requests of one kind and wait until all are answered, or `rsp_timeout` (ns, from 1) is over. Answers are
 * in the order of arrival; `num_rsp` is the room in `rsp`, at least `num_req`, and returns how many came. They are not
 * kept between calls. `req_tc` (DSCP, 0 .. 63) is for hardware: here they travel in the class of control packets.
 *
 * ETIMEDOUT: some answers did not come; those that did are there. EINVAL: 0 or more than 1,024 requests, an id that comes
 * twice, a peer that is not connected, a port that is not there, an EV that no packet carries, too little room. ENOTSUP:
 * an unknown kind, a format that this endpoint does not carry. EAGAIN: the queue of control packets is full; requests
 * before that one were sent, and their answers are ignored.
 */
int mrc_ctl_ep_batch_send_wait(struct mrc_context *context, uint8_t req_tc, enum mrc_ctl_ep_op_type op_type,
                               struct mrc_ctl_ep_req *req, int num_req, uint32_t rsp_timeout,
                               struct mrc_ctl_ep_rsp *rsp, int *num_rsp);

#ifdef __cplusplus
}
#endif

#endif
