/* Profiles in general, EV formats, and EVs as numbers. */
#include "control/profiles.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MOST_WIDTHS_GIVEN 256

struct profiles *profiles_open(void)
{
    struct profiles *profiles = calloc(1, sizeof *profiles);
    if (profiles == NULL)
        return NULL;
    pthread_mutex_init(&profiles->lock, NULL);
    for (int i = 0; i < MRC_MOST_PROFILES; i++) {
        struct ev_attributes *is = &profiles->evs[i].is;
        profiles->formats[i].mode = profiles->formats[i].count = MRC_UNSET;
        is->mode = is->format = is->count = is->min_active = is->event_mask = MRC_UNSET;
        profiles->ccs[i].algorithm = MRC_UNSET;
    }
    return profiles;
}

void profiles_close(struct profiles *profiles)
{
    for (int i = 0; profiles != NULL && i < MRC_MOST_PROFILES; i++)
        free(profiles->evs[i].array);
    free(profiles);
}

struct profiles *profiles_begin(struct mrc_context *context, uint64_t id, const void *attr, int mask, int known,
                                int *error)
{
    struct ctl *ctl = ctl_of(context, error);
    if (ctl == NULL)
        return NULL;
    if (!is_numbered(id) || attr == NULL || mask & ~known)
        return *error = EINVAL, NULL;
    pthread_mutex_lock(&ctl->profiles->lock);
    return ctl->profiles;
}

/* The first bits of an EV as a number; -1 if another one is set. */
static int64_t bits_of_ev(const struct mrc_ctl_ev *ev)
{
    static const uint8_t zeros[MRC_CTL_EV_MAX_BYTES];
    const int bytes = MRC_UDP_EV_BITS / 8;
    if (memcmp(ev->val + bytes, zeros, sizeof zeros - (size_t)bytes) != 0)
        return -1;
    return ev->val[0] << 8 | ev->val[1];
}

struct mrc_ctl_ev ev_of_bits(int64_t bits, int port)
{
    return (struct mrc_ctl_ev){.val = {(uint8_t)(bits >> 8), (uint8_t)bits}, .port = (uint8_t)port};
}

bool is_same_ev(const struct mrc_ctl_ev *one, const struct mrc_ctl_ev *other)
{
    return one->port == other->port && memcmp(one->val, other->val, sizeof one->val) == 0;
}

bool is_populated(const struct mrc_ctl_ev *ev)
{
    static const struct mrc_ctl_ev nothing;
    return !is_same_ev(ev, &nothing);
}

const struct format_profile *format_of(struct profiles *profiles, const struct ev_attributes *is)
{
    const struct format_profile *format = is->format == MRC_UNSET ? NULL : &profiles->formats[is->format - 1];
    bool known = format != NULL && format->mode != MRC_UNSET && format->count != MRC_UNSET && is->field_count > 0;
    return known ? format : NULL;
}

int64_t carried_by(const struct endpoint *endpoint, const struct format_profile *format,
                   const struct ev_attributes *is, const struct mrc_ctl_ev *ev)
{
    int64_t *fields = (int64_t *)(uintptr_t)is->fields, *widths = (int64_t *)(uintptr_t)format->widths;
    int64_t bits = bits_of_ev(ev), count = is->field_count;
    if (bits < 0 || ev->port < 1 || refused(mrc_ev_verdict(fields, count, MRC_FIELD_COLUMNS, bits, MRC_UDP_EV_BITS)))
        return -1;
    bits = mrc_expand_ev(fields, count, MRC_FIELD_COLUMNS, widths, format->count, bits, MRC_UDP_EV_BITS);
    struct mrc_ctl_ev on_the_wire = ev_of_bits(bits, ev->port);
    return port_of_ev(endpoint, &on_the_wire);
}

void limits_of(const struct endpoint *endpoint, int64_t limits[MRC_LIMIT_COLUMNS])
{
    limits[MRC_LIMIT_COLUMN_PORTS] = endpoint->addresses.count;
    limits[MRC_LIMIT_COLUMN_MAX_EVS] = endpoint->addresses.count * MRC_EVS_PER_PLANE;
    limits[MRC_LIMIT_COLUMN_MAX_FIELDS] = MRC_MOST_FIELDS;
}

/* Formats */

static const int FORMAT_MASK = MRC_CTL_EV_FMT_PROFILE_STATE | MRC_CTL_EV_FMT_PROFILE_CUR_STATE
    | MRC_CTL_EV_FMT_PROFILE_MODE | MRC_CTL_EV_FMT_PROFILE_OP | MRC_CTL_EV_FMT_VENDOR_CFG;

static int take_widths(struct format_profile *wanted, const struct mrc_ctl_ev_fmt_profile_attr *attr)
{
    int64_t given[MOST_WIDTHS_GIVEN];
    const struct mrc_ctl_ev_fmt_field *fields = attr->ev_fmt_op.fmt_fields;
    int count = attr->ev_fmt_op.fmt_field_count;
    if (attr->ev_fmt_op.op != MRC_CTL_EV_FMT_OP_MODIFY_FIELDS || count < 0 || (count > 0 && fields == NULL))
        return EINVAL;
    if (count > MOST_WIDTHS_GIVEN)
        return E2BIG;
    for (int i = 0; i < count; i++)
        given[i] = fields[i].width;
    int error = refused(mrc_widths_verdict(given, count, MRC_UDP_EV_BITS));
    if (error == 0) {
        memcpy(wanted->widths, given, (size_t)count * sizeof *given);
        wanted->count = count;
    }
    return error;
}

static int modify_format(struct format_profile *profile, const struct mrc_ctl_ev_fmt_profile_attr *attr, int mask)
{
    struct format_profile wanted = *profile;
    int64_t changed = mask & (MRC_CTL_EV_FMT_PROFILE_STATE | MRC_CTL_EV_FMT_PROFILE_MODE | MRC_CTL_EV_FMT_PROFILE_OP);
    int64_t target = mask & MRC_CTL_EV_FMT_PROFILE_STATE ? (int64_t)attr->profile_state : profile->state;
    if (target < MRC_PROFILE_STATE_INIT || target > MRC_PROFILE_STATE_ONLINE
        || (mask & MRC_CTL_EV_FMT_PROFILE_CUR_STATE && (int64_t)attr->cur_profile_state != profile->state))
        return EINVAL;
    int error = refused(mrc_change_verdict(MRC_PROFILE_KIND_FORMAT, profile->state, target, changed, profile->users));
    if (error == 0 && mask & MRC_CTL_EV_FMT_PROFILE_MODE) {
        wanted.mode = attr->ev_fmt_mode;
        error = attr->ev_fmt_mode == MRC_CTL_EV_FMT_MODE_UDP ? 0 : EINVAL; /* the mode that this endpoint carries */
    }
    if (error == 0 && mask & MRC_CTL_EV_FMT_PROFILE_OP)
        error = take_widths(&wanted, attr);
    int64_t known = (wanted.mode != MRC_UNSET ? MRC_FORMAT_ATTRIBUTE_MODE : 0)
        | (wanted.count != MRC_UNSET ? MRC_FORMAT_ATTRIBUTE_MODIFY_FIELDS : 0);
    if (error == 0)
        error = refused(mrc_missing_verdict(MRC_PROFILE_KIND_FORMAT, profile->state, target, known));
    if (error != 0)
        return error;
    if (mask & MRC_CTL_EV_FMT_VENDOR_CFG)
        memcpy(wanted.vendor_cfg, attr->vendor_cfg, sizeof wanted.vendor_cfg);
    wanted.state = target;
    if (target == MRC_PROFILE_STATE_INIT)
        wanted = (struct format_profile){.mode = MRC_UNSET, .count = MRC_UNSET};
    *profile = wanted;
    return 0;
}

static int query_widths(const struct format_profile *profile, struct mrc_ctl_ev_fmt_profile_attr *attr)
{
    struct mrc_ctl_ev_fmt_field *fields = attr->ev_fmt_op.fmt_fields;
    int room = attr->ev_fmt_op.fmt_field_count, count = profile->count == MRC_UNSET ? 0 : (int)profile->count;
    if (attr->ev_fmt_op.op != MRC_CTL_EV_FMT_OP_QUERY_FIELDS || room < 0 || (room > 0 && fields == NULL))
        return EINVAL;
    attr->ev_fmt_op.fmt_field_count = count;
    if (count > room)
        return E2BIG;
    for (int i = 0; i < count; i++)
        fields[i].width = (uint8_t)profile->widths[i];
    return 0;
}

#pragma GCC visibility push(default)

int mrc_ctl_modify_ev_fmt_profile(struct mrc_context *context, uint64_t id, struct mrc_ctl_ev_fmt_profile_attr *attr,
                                  int mask)
{
    int error;
    struct profiles *profiles = profiles_begin(context, id, attr, mask, FORMAT_MASK, &error);
    if (profiles != NULL) {
        error = modify_format(&profiles->formats[id - 1], attr, mask);
        pthread_mutex_unlock(&profiles->lock);
    }
    return error;
}

int mrc_ctl_query_ev_fmt_profile(struct mrc_context *context, uint64_t id, struct mrc_ctl_ev_fmt_profile_attr *attr,
                                 int mask)
{
    int error;
    struct profiles *profiles = profiles_begin(context, id, attr, mask, FORMAT_MASK, &error);
    if (profiles == NULL)
        return error;
    const struct format_profile *profile = &profiles->formats[id - 1];
    attr->profile_state = attr->cur_profile_state = (enum mrc_ctl_profile_state)profile->state;
    attr->ev_fmt_mode = (enum mrc_ctl_ev_fmt_mode)(profile->mode == MRC_UNSET ? 0 : profile->mode);
    memcpy(attr->vendor_cfg, profile->vendor_cfg, sizeof attr->vendor_cfg);
    if (mask & MRC_CTL_EV_FMT_PROFILE_OP)
        error = query_widths(profile, attr);
    pthread_mutex_unlock(&profiles->lock);
    return error;
}

#pragma GCC visibility pop
