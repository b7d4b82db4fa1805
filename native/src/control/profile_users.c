/* Which queue pairs use which profiles, and what that changes in the engine. */
#include <errno.h>
#include <string.h>

#include "control/profiles.h"

int profiles_bind(struct context *context, int row, uint64_t ev, uint64_t cc)
{
    struct profiles *profiles = context->ctl->profiles;
    profiles_unbind(context, row);
    pthread_mutex_lock(&profiles->lock);
    bool usable = (ev == 0 || profiles->evs[ev - 1].state == MRC_PROFILE_STATE_ONLINE)
        && (cc == 0 || profiles->ccs[cc - 1].state == MRC_PROFILE_STATE_ONLINE);
    if (usable) {
        profiles->bound[row] = (struct bound){(uint8_t)ev, (uint8_t)cc, true};
        if (ev != 0)
            profiles->evs[ev - 1].users++;
        if (cc != 0)
            profiles->ccs[cc - 1].users++;
    }
    pthread_mutex_unlock(&profiles->lock);
    return usable ? 0 : EINVAL;
}

void profiles_unbind(struct context *context, int row)
{
    struct profiles *profiles = context->ctl->profiles;
    pthread_mutex_lock(&profiles->lock);
    struct bound *bound = &profiles->bound[row];
    if (bound->is_bound && bound->ev != 0)
        profiles->evs[bound->ev - 1].users--;
    if (bound->is_bound && bound->cc != 0)
        profiles->ccs[bound->cc - 1].users--;
    *bound = (struct bound){0};
    pthread_mutex_unlock(&profiles->lock);
}

/* Another queue pair that is connected to this peer; NO_ROW if there is none. */
static int other_to(const struct endpoint *endpoint, int row, int peer)
{
    for (int other = 0; other < MRC_QPS; other++)
        if (other != row && endpoint->qps[other].peer == peer && endpoint->qps[other].state >= MRC_QP_STATE_RTR)
            return other;
    return NO_ROW;
}

int profiles_check(struct context *context, int row, const union ibv_gid *gid)
{
    struct profiles *profiles = context->ctl->profiles;
    int peer = endpoint_find_peer(context->endpoint, gid->raw);
    pthread_mutex_lock(&profiles->lock);
    int other = peer == NO_ROW ? NO_ROW : other_to(context->endpoint, row, peer);
    int error = other != NO_ROW && profiles->bound[other].cc != profiles->bound[row].cc ? EBUSY : 0;
    pthread_mutex_unlock(&profiles->lock);
    return error;
}

/* Give a queue pair the EVs of a profile instead of all that the endpoint has; those that are denied, it gets so. */
static void give_evs(struct endpoint *endpoint, struct profiles *profiles, int row, const struct ev_profile *profile)
{
    const struct format_profile *format = format_of(profiles, &profile->is);
    int64_t values[MRC_MOST_PLANES][MRC_EVS_PER_PLANE], counts[MRC_MOST_PLANES] = {0};
    for (int plane = 0; plane < MRC_MOST_PLANES; plane++)
        for (int k = 0; k < MRC_EVS_PER_PLANE; k++)
            values[plane][k] = MRC_NO_EV;
    for (int64_t i = 0; i < profile->length; i++) {
        int64_t value = carried_by(endpoint, format, &profile->is, &profile->array[i].ev);
        int plane = (int)profile->array[i].ev.port - 1, k = 0;
        while (k < counts[plane] && values[plane][k] != value)
            k++;
        if (k == counts[plane])
            values[plane][counts[plane]++] = value;
    }
    int64_t min_active = profile->is.min_active == MRC_UNSET ? 0 : profile->is.min_active;
    mrc_give(endpoint->at, row, values[0], endpoint->addresses.count, MRC_EVS_PER_PLANE, min_active);
    for (int64_t i = 0; i < profile->length; i++)
        if (profile->array[i].state == MRC_CTL_EV_DENIED)
            mrc_turn_ev(endpoint->at, row, carried_by(endpoint, format, &profile->is, &profile->array[i].ev),
                        MRC_EV_EVENT_DENY);
}

void profiles_apply(struct context *context, int row)
{
    struct profiles *profiles = context->ctl->profiles;
    struct endpoint *endpoint = context->endpoint;
    const struct mrc_engine_peers *peers = endpoint->tables[MRC_TABLE_ENGINE_PEERS];
    pthread_mutex_lock(&profiles->lock);
    struct bound bound = profiles->bound[row];
    int peer = (int)endpoint->qps[row].peer;
    if (peer != NO_ROW && peers[peer].params != bound.cc)
        mrc_control_window(endpoint->at, peer, bound.cc, other_to(endpoint, row, peer) == NO_ROW);
    if (bound.ev != 0) {
        const struct ev_profile *profile = &profiles->evs[bound.ev - 1];
        if (profile->is.mode == MRC_EV_MODE_AUTO)
            mrc_keep_active(endpoint->at, row, profile->is.min_active);
        else
            give_evs(endpoint, profiles, row, profile);
    }
    pthread_mutex_unlock(&profiles->lock);
}

static int64_t event_of(enum mrc_ctl_ev_state state)
{
    return state == MRC_CTL_EV_DENIED ? MRC_EV_EVENT_DENY
        : state == MRC_CTL_EV_ASSUMED_BAD ? MRC_EV_EVENT_SACK_ALWAYS_SKIP
                                                : MRC_EV_EVENT_ALLOW;
}

static const struct ev_entry *entry_of(const struct ev_profile *profile, const struct mrc_ctl_ev *ev)
{
    for (int64_t i = 0; i < profile->length; i++)
        if (is_same_ev(&profile->array[i].ev, ev))
            return &profile->array[i];
    return NULL;
}

void profiles_carry_over(struct context *context, const struct ev_profile *profile,
                         const struct mrc_ctl_ev_op_entry *entry, bool replaces)
{
    struct profiles *profiles = context->ctl->profiles;
    struct endpoint *endpoint = context->endpoint;
    const struct format_profile *format = format_of(profiles, &profile->is);
    const struct mrc_ctl_ev *new = replaces ? &entry->ev_new : &entry->ev;
    int64_t id = profile - profiles->evs + 1;
    if (format == NULL)
        return;
    int64_t old_value = carried_by(endpoint, format, &profile->is, &entry->ev);
    int64_t new_value = carried_by(endpoint, format, &profile->is, new);
    const struct ev_entry *old_left = entry_of(profile, &entry->ev), *new_left = entry_of(profile, new);
    for (int row = 0; row < MRC_QPS; row++) {
        if (profiles->bound[row].ev != id || endpoint->qps[row].state < MRC_QP_STATE_RTR)
            continue;
        if (replaces && old_left == NULL)
            mrc_exchange_ev(endpoint->at, row, old_value, new_value);
        if (old_left != NULL)
            mrc_turn_ev(endpoint->at, row, old_value, event_of(old_left->state));
        if (replaces && new_left != NULL)
            mrc_turn_ev(endpoint->at, row, new_value, event_of(new_left->state));
    }
}

/* The entry whose packets leave from this source port. */
static struct ev_entry *entry_carried_by(const struct endpoint *endpoint, struct profiles *profiles,
                                         struct ev_profile *profile, const struct mrc_ctl_ev *on_the_wire)
{
    const struct format_profile *format = format_of(profiles, &profile->is);
    int64_t port = port_of_ev(endpoint, on_the_wire);
    for (int64_t i = 0; format != NULL && i < profile->length; i++)
        if (profile->array[i].ev.port == on_the_wire->port
            && carried_by(endpoint, format, &profile->is, &profile->array[i].ev) == port)
            return &profile->array[i];
    return NULL;
}

static bool learn(struct ev_profile *profile, struct ev_entry *found, enum mrc_ctl_ev_state state)
{
    int64_t good = 0, copies = 0;
    for (int64_t i = 0; i < profile->length; i++) {
        good += profile->array[i].state == MRC_CTL_EV_GOOD;
        copies += is_same_ev(&profile->array[i].ev, &found->ev);
    }
    int64_t lesson = mrc_lesson((uint32_t)found->state, state, good, copies, profile->is.min_active, profile->is.event_mask);
    struct mrc_ctl_ev ev = found->ev;
    for (int64_t i = 0; lesson & MRC_LEARN && i < profile->length; i++)
        if (is_same_ev(&profile->array[i].ev, &ev))
            profile->array[i].state = state;
    return lesson & MRC_REPORT;
}

bool profiles_learn(struct context *context, int row, struct mrc_ctl_ev_event *report)
{
    struct profiles *profiles = context->ctl->profiles;
    const int reported = MRC_CTL_EV_GOOD | MRC_CTL_EV_ASSUMED_BAD;
    bool wanted;
    pthread_mutex_lock(&profiles->lock);
    report->profile_id = profiles->bound[row].ev;
    if (report->profile_id == 0) {
        wanted = report->state & reported;
    } else {
        struct ev_profile *profile = &profiles->evs[report->profile_id - 1];
        struct ev_entry *found = entry_carried_by(context->endpoint, profiles, profile, &report->ev);
        int64_t mask = profile->is.event_mask == MRC_UNSET ? 0 : profile->is.event_mask;
        wanted = found != NULL ? learn(profile, found, report->state) : (mask & report->state) != 0;
        if (found != NULL)
            report->ev = found->ev;
    }
    pthread_mutex_unlock(&profiles->lock);
    return wanted;
}
