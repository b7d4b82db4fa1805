/*
 * The profiles of an endpoint: formats, EVs, congestion control, and which queue pairs use them.
 *
 * Every rule is a compiled entry, which answers with a verdict; here are the profiles themselves. An endpoint of this
 * library carries EVs as UDP source ports, so the bits of an EV that count are the first MRC_UDP_EV_BITS.
 */
#pragma once

#include "control/ctl.h"

#define MOST_WIDTHS MRC_UDP_EV_BITS /* a field has a bit at least */
#define CC_VALUES (sizeof mrc_cc_fields / sizeof *mrc_cc_fields)

struct format_profile {
    int64_t state, mode, count; /* MRC_UNSET: not known */
    int64_t widths[MOST_WIDTHS];
    int64_t users; /* EV profiles that are ONLINE with it */
    uint8_t vendor_cfg[MRC_MAX_VENDOR_CFG_SIZE];
};

struct ev_attributes {
    int64_t mode, format, count, min_active, event_mask; /* MRC_UNSET: not known */
    int64_t field_count;                                 /* 0: not known */
    int64_t fields[MRC_MOST_FIELDS][MRC_FIELD_COLUMNS];
};

struct ev_entry {
    struct mrc_ctl_ev ev;
    enum mrc_ctl_ev_state state;
};

struct ev_profile {
    int64_t state;
    struct ev_attributes is;
    struct ev_attributes made_from; /* what the array was made from, if there is one */
    struct ev_entry *array;
    int64_t length;
    int64_t users; /* queue pairs */
    uint8_t vendor_cfg[MRC_MAX_VENDOR_CFG_SIZE];
};

struct cc_profile {
    int64_t state, algorithm; /* MRC_UNSET: not known; else of the engine */
    bool has_values;
    double values[CC_VALUES]; /* in the order of mrc_cc_fields */
    int64_t users;            /* queue pairs */
    uint8_t vendor_cfg[MRC_MAX_VENDOR_CFG_SIZE];
};

struct bound {
    uint8_t ev, cc;
    bool is_bound;
};

struct profiles {
    pthread_mutex_t lock; /* of everything; taken after `context->events`, before the loop mutex */
    struct format_profile formats[MRC_MOST_PROFILES];
    struct ev_profile evs[MRC_MOST_PROFILES];
    struct cc_profile ccs[MRC_MOST_PROFILES];
    struct bound bound[MRC_QPS]; /* of each queue pair, from INIT to RESET */
};

struct profiles *profiles_open(void); /* NULL with errno */
void profiles_close(struct profiles *profiles);

/* The errno of a verdict; 0: not refused. */
static inline int refused(int64_t verdict)
{
    return mrc_refusals[verdict & ((1 << MRC_REFUSAL_BITS) - 1)];
}

/* Whether a number is that of a profile of a controller. */
static inline bool is_numbered(uint64_t id)
{
    return id >= 1 && id <= MRC_MOST_PROFILES;
}

/* What a call begins with: the profiles, locked; NULL with `error` EINVAL or EIO. */
struct profiles *profiles_begin(struct mrc_context *context, uint64_t id, const void *attr, int mask, int known,
                                int *error);

struct mrc_ctl_ev ev_of_bits(int64_t bits, int port);
bool is_same_ev(const struct mrc_ctl_ev *one, const struct mrc_ctl_ev *other);
bool is_populated(const struct mrc_ctl_ev *ev);

/* The format of these attributes, if it and the fields are known; else NULL. */
const struct format_profile *format_of(struct profiles *profiles, const struct ev_attributes *is);

/* The source port that carries an EV; -1: none does, or the fields cannot hold it. */
int64_t carried_by(const struct endpoint *endpoint, const struct format_profile *format,
                   const struct ev_attributes *is, const struct mrc_ctl_ev *ev);

void limits_of(const struct endpoint *endpoint, int64_t limits[MRC_LIMIT_COLUMNS]);

/* EV operations; the profiles are locked. */
int ev_ops_apply(struct context *context, struct ev_profile *profile, const struct mrc_ctl_ev_profile_attr *attr);
int ev_ops_query(const struct ev_entry *array, int64_t length, struct mrc_ctl_ev_profile_attr *attr);

/* Queue pairs. Bind on the way to INIT; EINVAL unless the profiles are ONLINE. */
int profiles_bind(struct context *context, int row, uint64_t ev, uint64_t cc);
void profiles_unbind(struct context *context, int row);

/* Before RTR: EBUSY if connections to the peer are under another congestion control profile. After: take effect. */
int profiles_check(struct context *context, int row, const union ibv_gid *peer);
void profiles_apply(struct context *context, int row);

/* Bring the queue pairs of a profile to what its array says of an entry of an operation. */
void profiles_carry_over(struct context *context, const struct ev_profile *profile,
                         const struct mrc_ctl_ev_op_entry *entry, bool replaces);

/*
 * Learn that the transport found an EV in another state: `report` has it as the packets carry it, and gets the profile
 * and the EV as that lists it. Whether it shall be reported.
 */
bool profiles_learn(struct context *context, int row, struct mrc_ctl_ev_event *report);
