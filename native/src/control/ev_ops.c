/* Operations on the EVs of a profile: batches in order up to the first entry that fails; what was done stays. */
#include <errno.h>

#include "control/profiles.h"

/* The first entry with an EV, from `at` on; `length` if there is none. */
static int64_t find(const struct ev_entry *array, int64_t length, int64_t at, const struct mrc_ctl_ev *ev)
{
    while (at < length && !is_same_ev(&array[at].ev, ev))
        at++;
    return at;
}

static int check_new(struct context *context, const struct ev_profile *profile, const struct mrc_ctl_ev *ev)
{
    const struct format_profile *format = format_of(context->ctl->profiles, &profile->is);
    if (ev->port < 1 || ev->port > context->endpoint->addresses.count)
        return EINVAL;
    return format == NULL || carried_by(context->endpoint, format, &profile->is, ev) >= 0 ? 0 : EINVAL;
}

static int apply_one(struct context *context, struct ev_profile *profile, enum mrc_ctl_ev_op type,
                     const struct mrc_ctl_ev_op_entry *entry)
{
    bool every = entry->flags & MRC_CTL_EV_OP_F_ALL_COPIES, replaces = type == MRC_CTL_EV_OP_REPLACE_EV;
    bool has_new = true; /* the API's structure holds one in any case */
    int error = refused(mrc_entry_verdict(type, (uint32_t)entry->state, is_populated(&entry->ev), has_new));
    int64_t at = find(profile->array, profile->length, 0, &entry->ev);
    if (error == 0 && entry->flags & ~(uint32_t)MRC_CTL_EV_OP_F_ALL_COPIES)
        error = EINVAL;
    if (error == 0 && at == profile->length)
        error = ENOENT;
    if (error == 0 && replaces)
        error = check_new(context, profile, &entry->ev_new);
    for (; error == 0 && at < profile->length; at = find(profile->array, profile->length, at + 1, &entry->ev)) {
        profile->array[at] = (struct ev_entry){replaces ? entry->ev_new : entry->ev, entry->state};
        if (!every)
            break;
    }
    return error;
}

int ev_ops_apply(struct context *context, struct ev_profile *profile, const struct mrc_ctl_ev_profile_attr *attr)
{
    const struct mrc_ctl_ev_op_entry *entries = attr->ev_op.entries;
    for (int i = 0; i < attr->ev_op.entry_count; i++) {
        int error = apply_one(context, profile, attr->ev_op.op, &entries[i]);
        if (error != 0)
            return error;
        if (profile->users > 0)
            profiles_carry_over(context, profile, &entries[i], attr->ev_op.op == MRC_CTL_EV_OP_REPLACE_EV);
    }
    return 0;
}

static int query_array(const struct ev_entry *array, int64_t length, struct mrc_ctl_ev_profile_attr *attr)
{
    int room = attr->ev_op.entry_count;
    attr->ev_op.entry_count = (int)length;
    if (length > room)
        return E2BIG;
    for (int64_t i = 0; i < length; i++)
        attr->ev_op.entries[i] = (struct mrc_ctl_ev_op_entry){.ev = array[i].ev, .state = array[i].state};
    return 0;
}

int ev_ops_query(const struct ev_entry *array, int64_t length, struct mrc_ctl_ev_profile_attr *attr)
{
    struct mrc_ctl_ev_op_entry *entries = attr->ev_op.entries;
    if (attr->ev_op.entry_count < 0 || (entries == NULL && attr->ev_op.entry_count > 0))
        return EINVAL;
    if (attr->ev_op.op == MRC_CTL_EV_OP_QUERY_EV_ARRAY)
        return query_array(array, length, attr);
    if (attr->ev_op.op != MRC_CTL_EV_OP_QUERY_EV_STATE)
        return EINVAL;
    for (int i = 0; i < attr->ev_op.entry_count; i++) {
        int64_t at = find(array, length, 0, &entries[i].ev);
        if (at == length)
            return ENOENT;
        entries[i].state = array[at].state;
    }
    return 0;
}
