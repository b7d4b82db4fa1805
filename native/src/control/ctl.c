/* Control of an endpoint: what it can do, its ports, and where its events go. */
#include "control/profiles.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define UDP_BYTES 2 /* of an EV that is a UDP source port */

static struct ctl *open(void)
{
    struct ctl *ctl = calloc(1, sizeof *ctl);
    if (ctl == NULL || (ctl->profiles = profiles_open()) == NULL) {
        free(ctl);
        return NULL;
    }
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&ctl->answered, &clock);
    pthread_condattr_destroy(&clock);
    pthread_mutex_init(&ctl->requesting, NULL);
    return ctl;
}

static void close(struct ctl *ctl)
{
    if (ctl != NULL)
        profiles_close(ctl->profiles);
    free(ctl);
}

struct ctl *ctl_of(struct mrc_context *context, int *error)
{
    *error = context == NULL ? EINVAL : endpoint_is_usable(its_context(context->verbs)->endpoint) ? 0 : EIO;
    return *error == 0 ? its_context(context->verbs)->ctl : NULL;
}

static void on_event(struct context *context, const struct mrc_datapath_event_records *event)
{
    if (event->kind == MRC_EVENT_KIND_ENDPOINT_RESPONSE)
        ep_requests_on_response(context->ctl, event);
    else if (event->kind == MRC_EVENT_KIND_EV_STATE)
        ev_events_on_state(context, event);
}

const struct controller controller = {open, close, on_event, ev_events_on_taken};

struct mrc_ctl_ev ev_of_port(int plane, int64_t port)
{
    struct mrc_ctl_ev ev = {.port = (uint8_t)(plane + 1)};
    ev.val[0] = (uint8_t)(port >> 8);
    ev.val[1] = (uint8_t)port;
    return ev;
}

int64_t port_of_ev(const struct endpoint *endpoint, const struct mrc_ctl_ev *ev)
{
    static const uint8_t zeros[MRC_CTL_EV_MAX_BYTES];
    int64_t port = ev->val[0] << 8 | ev->val[1];
    if (ev->port < 1 || ev->port > endpoint->addresses.count
        || memcmp(ev->val + UDP_BYTES, zeros, sizeof zeros - UDP_BYTES) != 0)
        return -1;
    int first = source_port(&endpoint->addresses, (int)ev->port - 1, 0);
    return port >= first && port < first + MRC_EVS_PER_PLANE ? port : -1;
}

static void fill_ev_limits(struct context *context, struct mrc_ctl_device_attr *attr)
{
    struct profiles *profiles = context->ctl->profiles;
    int64_t limits[MRC_LIMIT_COLUMNS], used = 0;
    limits_of(context->endpoint, limits);
    pthread_mutex_lock(&profiles->lock);
    for (int i = 0; i < MRC_MOST_PROFILES; i++)
        used += profiles->evs[i].length;
    pthread_mutex_unlock(&profiles->lock);
    attr->ev.ev_max_fmt_profiles = attr->ev.ev_max_profiles = MRC_MOST_PROFILES;
    attr->ev.ev_max_count_profile = (uint32_t)limits[MRC_LIMIT_COLUMN_MAX_EVS];
    attr->ev.ev_max_count = MRC_MOST_PROFILES * attr->ev.ev_max_count_profile;
    attr->ev.ev_free_count = attr->ev.ev_max_count - (uint32_t)used;
    attr->ev.ev_count_align = 1;
    attr->ev.ev_max_width = MRC_UDP_EV_BITS;
    attr->ev.ev_fmt_mode_mask = MRC_CTL_EV_FMT_MODE_UDP;
    attr->ev.ev_mode_mask = MRC_CTL_EV_MODE_AUTO | MRC_CTL_EV_MODE_EXP | MRC_CTL_EV_MODE_GEN;
    attr->ev.ev_op_max_entries = 0; /* no limit */
}

#pragma GCC visibility push(default)

void mrc_ctl_query_version(uint32_t *current, uint32_t *last_supported, uint32_t *vendor_current,
                           uint32_t *vendor_last_supported)
{
    if (current != NULL)
        *current = MRC_CTL_API_CURRENT_VERSION;
    if (last_supported != NULL)
        *last_supported = MRC_CTL_API_LAST_SUPPORTED_VERSION;
    if (vendor_current != NULL)
        *vendor_current = MRC_CTL_VENDOR_API_CURRENT_VERSION;
    if (vendor_last_supported != NULL)
        *vendor_last_supported = MRC_CTL_VENDOR_API_LAST_SUPPORTED_VERSION;
}

int mrc_ctl_query_device(struct ibv_context *verbs, struct mrc_ctl_device_attr *attr)
{
    static const char *algorithms[] = {MRC_CTL_CC_NSCC, NULL};
    if (verbs == NULL || attr == NULL)
        return EINVAL;
    if (!is_ours(verbs))
        return EOPNOTSUPP;
    const struct endpoint *endpoint = its_context(verbs)->endpoint;
    memset(attr, 0, sizeof *attr);
    fill_ev_limits(its_context(verbs), attr);
    attr->cc.cc_max_profiles = MRC_MOST_PROFILES;
    attr->cc.algorithms = algorithms;
    attr->phy_port_mask = ((1u << endpoint->addresses.count) - 1) << 1;
    attr->opt_attr = MRC_CTL_OPT_CAP_EV_PROFILE_MODIFY_ONLINE | MRC_CTL_OPT_CAP_CC_PROFILE_MODIFY_ONLINE | MRC_CTL_OPT_CAP_EV_EVENT | MRC_CTL_OPT_CAP_EV_EVENT_PRECISE_DROP_CNT | MRC_CTL_OPT_CAP_EP_OP_EV_PROBE;
    attr->mrc_ctl_protocol_version = MRC_CTL_PROTOCOL_VERSION_1;
    return 0;
}

int mrc_ctl_query_device_ex(struct ibv_context *verbs, struct mrc_context *mcontext, struct mrc_ctl_device_attr *attr,
                            int *supported)
{
    if (verbs == NULL && mcontext != NULL)
        verbs = mcontext->verbs;
    if (supported != NULL && verbs != NULL)
        *supported = is_ours(verbs);
    int error = mrc_ctl_query_device(verbs, attr);
    return error == EOPNOTSUPP && supported != NULL ? 0 : error;
}

static int check_port(const struct endpoint *endpoint, int port, const void *attr, int mask)
{
    bool known = port >= 1 && port <= endpoint->addresses.count;
    return known && attr != NULL && (mask & ~MRC_CTL_PORT_ADMIN_STATE) == 0 ? 0 : EINVAL;
}

int mrc_ctl_query_port(struct mrc_context *context, uint8_t port, struct mrc_ctl_port_attr *attr, int mask)
{
    int error;
    if (ctl_of(context, &error) == NULL)
        return error;
    struct endpoint *endpoint = its_context(context->verbs)->endpoint;
    error = check_port(endpoint, port, attr, mask);
    if (error == 0) {
        int64_t faults = __atomic_load_n(&endpoint->planes[port - 1].faults, __ATOMIC_RELAXED);
        attr->port_admin_state = faults & MRC_FAULT_DISABLED ? MRC_CTL_PORT_ADMIN_DISABLED : MRC_CTL_PORT_ADMIN_ENABLED;
    }
    return error;
}

int mrc_ctl_modify_port(struct mrc_context *context, uint8_t port, struct mrc_ctl_port_attr *attr, int mask)
{
    int error;
    if (ctl_of(context, &error) == NULL)
        return error;
    struct endpoint *endpoint = its_context(context->verbs)->endpoint;
    error = check_port(endpoint, port, attr, mask);
    if (error != 0 || !(mask & MRC_CTL_PORT_ADMIN_STATE))
        return error;
    if (attr->port_admin_state != MRC_CTL_PORT_ADMIN_DISABLED && attr->port_admin_state != MRC_CTL_PORT_ADMIN_ENABLED)
        return EINVAL;
    mrc_note_fault(endpoint->at, port - 1, MRC_FAULT_DISABLED, attr->port_admin_state == MRC_CTL_PORT_ADMIN_DISABLED);
    endpoint_iterate(endpoint); /* peers hear of it at once */
    return 0;
}

#pragma GCC visibility pop
