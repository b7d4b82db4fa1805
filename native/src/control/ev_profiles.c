/* EV profiles: attributes, the array that follows from them, and the order in which a change takes effect. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "control/profiles.h"

static const int EV_MASK = MRC_CTL_EV_PROFILE_STATE | MRC_CTL_EV_PROFILE_CUR_STATE | MRC_CTL_EV_PROFILE_MODE
    | MRC_CTL_EV_PROFILE_FMT_ID | MRC_CTL_EV_PROFILE_COUNT | MRC_CTL_EV_PROFILE_MIN_ACTIVE
    | MRC_CTL_EV_PROFILE_EVENT_MASK | MRC_CTL_EV_PROFILE_EV_OP | MRC_CTL_EV_PROFILE_EV_FIELDS_OP
    | MRC_CTL_EV_PROFILE_VENDOR_CFG;

static int64_t kind_of(int64_t mode)
{
    return mode == MRC_EV_MODE_AUTO ? MRC_PROFILE_KIND_AUTO
        : mode == MRC_EV_MODE_GENERATED ? MRC_PROFILE_KIND_GENERATED
                                        : MRC_PROFILE_KIND_EXPLICIT; /* the strictest, as long as none is known */
}

/* The attributes that a call changes, as the rules number them. */
static int64_t changed_by(const struct mrc_ctl_ev_profile_attr *attr, int mask)
{
    int64_t changed = mask & ((MRC_CTL_EV_PROFILE_EVENT_MASK << 1) - 1) & ~MRC_CTL_EV_PROFILE_CUR_STATE;
    if (mask & MRC_CTL_EV_PROFILE_EV_FIELDS_OP)
        changed |= MRC_EV_ATTRIBUTE_MODIFY_FIELDS;
    if (mask & MRC_CTL_EV_PROFILE_EV_OP)
        changed |= attr->ev_op.op == MRC_CTL_EV_OP_REPLACE_EV ? MRC_EV_ATTRIBUTE_REPLACE_EV
                                                          : MRC_EV_ATTRIBUTE_MODIFY_EV_STATE;
    return changed;
}

static int64_t known_of(const struct ev_attributes *is)
{
    return (is->mode != MRC_UNSET ? MRC_EV_ATTRIBUTE_MODE : 0) | (is->format != MRC_UNSET ? MRC_EV_ATTRIBUTE_FMT_ID : 0)
        | (is->count != MRC_UNSET ? MRC_EV_ATTRIBUTE_COUNT : 0)
        | (is->min_active != MRC_UNSET ? MRC_EV_ATTRIBUTE_MIN_ACTIVE : 0)
        | (is->event_mask != MRC_UNSET ? MRC_EV_ATTRIBUTE_EVENT_MASK : 0)
        | (is->field_count > 0 ? MRC_EV_ATTRIBUTE_MODIFY_FIELDS : 0)
        | MRC_EV_ATTRIBUTE_REPLACE_EV; /* entries that are not populated are found at the end */
}

static bool is_possible(const struct mrc_ctl_ev_profile_attr *attr, int mask)
{
    enum mrc_ctl_ev_op op = attr->ev_op.op;
    int entries = attr->ev_op.entry_count, fields = attr->ev_fields_op.field_count;
    if (mask & MRC_CTL_EV_PROFILE_EV_OP && mask & MRC_CTL_EV_PROFILE_EV_FIELDS_OP)
        return false;
    if (mask & MRC_CTL_EV_PROFILE_EV_OP
        && ((op != MRC_CTL_EV_OP_REPLACE_EV && op != MRC_CTL_EV_OP_MODIFY_EV_STATE) || entries < 0
            || (attr->ev_op.entries == NULL && entries > 0)))
        return false;
    if (mask & MRC_CTL_EV_PROFILE_EV_FIELDS_OP
        && (attr->ev_fields_op.op != MRC_CTL_EV_FIELDS_OP_MODIFY_FIELDS || fields < 0
            || (attr->ev_fields_op.fields == NULL && fields > 0)))
        return false;
    return !(mask & MRC_CTL_EV_PROFILE_FMT_ID) || is_numbered(attr->ev_fmt_profile_id);
}

/* What the attributes are after a change, checked; `fields` may be more than there is room for. */
static int merge(const struct endpoint *endpoint, struct ev_attributes *wanted,
                 const struct mrc_ctl_ev_profile_attr *attr, int mask)
{
    int64_t limits[MRC_LIMIT_COLUMNS];
    int count = attr->ev_fields_op.field_count;
    limits_of(endpoint, limits);
#define TAKE(bit, field, value) wanted->field = mask & (bit) ? (int64_t)(value) : wanted->field
    TAKE(MRC_CTL_EV_PROFILE_MODE, mode, attr->ev_mode);
    TAKE(MRC_CTL_EV_PROFILE_FMT_ID, format, attr->ev_fmt_profile_id);
    TAKE(MRC_CTL_EV_PROFILE_MIN_ACTIVE, min_active, attr->ev_min_active);
    TAKE(MRC_CTL_EV_PROFILE_EVENT_MASK, event_mask, attr->ev_event_mask);
    TAKE(MRC_CTL_EV_PROFILE_COUNT, count, attr->ev_count);
    TAKE(MRC_CTL_EV_PROFILE_EV_FIELDS_OP, field_count, count);
#undef TAKE
    int error = refused(mrc_attributes_verdict(wanted->mode, wanted->count, wanted->min_active, wanted->event_mask,
                                               wanted->field_count, limits, MRC_LIMIT_COLUMNS));
    if (error != 0 || !(mask & MRC_CTL_EV_PROFILE_EV_FIELDS_OP))
        return error;
    memset(wanted->fields, 0, sizeof wanted->fields);
    for (int i = 0; i < count; i++) {
        const struct mrc_ctl_ev_field *field = &attr->ev_fields_op.fields[i];
        wanted->fields[i][MRC_FIELD_COLUMN_WIDTH] = field->width;
        wanted->fields[i][MRC_FIELD_COLUMN_INIT] = field->init_val;
        wanted->fields[i][MRC_FIELD_COLUMN_MIN] = field->min_val;
        wanted->fields[i][MRC_FIELD_COLUMN_MAX] = field->max_val;
        wanted->fields[i][MRC_FIELD_COLUMN_MASK] = field->mask;
    }
    return count == 0 ? EINVAL : 0;
}

/* The EVs of this endpoint within the fields, of all ports in turn. */
static int generate(const struct endpoint *endpoint, const struct format_profile *format,
                    const struct ev_attributes *wanted, int64_t seed, struct ev_entry *array)
{
    int64_t order[MRC_MOST_PLANES][MRC_EVS_PER_PLANE], bits[MRC_MOST_PLANES][MRC_EVS_PER_PLANE];
    int64_t lengths[MRC_MOST_PLANES] = {0}, available = 0, planes = endpoint->addresses.count;
    int64_t *fields = (int64_t *)(uintptr_t)wanted->fields, *widths = (int64_t *)(uintptr_t)format->widths;
    for (int plane = 0; plane < planes; plane++)
        for (int k = 0; k < MRC_EVS_PER_PLANE; k++) {
            int64_t found = mrc_contract_ev(fields, wanted->field_count, MRC_FIELD_COLUMNS, widths, format->count,
                                            source_port(&endpoint->addresses, plane, k), MRC_UDP_EV_BITS);
            if (found >= 0) {
                bits[plane][lengths[plane]++] = found;
                available++;
            }
        }
    if (wanted->count > available)
        return E2BIG;
    mrc_order_evs(order[0], planes, MRC_EVS_PER_PLANE, lengths, planes, seed);
    for (int plane = 0; plane < planes; plane++)
        for (int k = 0; k < lengths[plane]; k++)
            if (order[plane][k] < wanted->count)
                array[order[plane][k]]
                    = (struct ev_entry){ev_of_bits(bits[plane][k], plane + 1), MRC_CTL_EV_GOOD};
    return 0;
}

/* Whether the present array is the one of these attributes. */
static bool is_kept(const struct ev_profile *profile, const struct ev_attributes *wanted, int64_t source)
{
    const struct ev_attributes *from = &profile->made_from;
    if (profile->array == NULL || source == MRC_ARRAY_SOURCE_NOWHERE || from->mode != wanted->mode
        || from->count != wanted->count)
        return false;
    return source == MRC_ARRAY_SOURCE_UNPOPULATED
        || (from->field_count == wanted->field_count
            && memcmp(from->fields, wanted->fields, sizeof from->fields) == 0);
}

/* The array of these attributes in `array`: the present one, a new one, or none. */
static int array_for(const struct endpoint *endpoint, struct profiles *profiles, const struct ev_profile *profile,
                     const struct ev_attributes *wanted, struct ev_entry **array, int64_t *length)
{
    const struct format_profile *format = format_of(profiles, wanted);
    int64_t source = mrc_array_source(wanted->mode, wanted->count, format != NULL);
    if (is_kept(profile, wanted, source)) {
        *array = profile->array;
        *length = profile->length;
        return 0;
    }
    *array = NULL;
    *length = 0;
    if (source == MRC_ARRAY_SOURCE_NOWHERE)
        return 0;
    *array = calloc((size_t)wanted->count, sizeof **array);
    if (*array == NULL)
        return ENOMEM;
    *length = wanted->count;
    for (int64_t i = 0; i < wanted->count; i++)
        (*array)[i].state = MRC_CTL_EV_UNKNOWN;
    int error = 0;
    if (source == MRC_ARRAY_SOURCE_DEVICE)
        error = generate(endpoint, format, wanted, profile - profiles->evs + 1, *array);
    if (error != 0)
        free(*array);
    return error;
}

/* EINVAL for an entry that is not populated or not carried, and for a port without any. */
static int check_array(const struct endpoint *endpoint, struct profiles *profiles, const struct ev_attributes *is,
                       const struct ev_entry *array, int64_t length)
{
    const struct format_profile *format = format_of(profiles, is);
    unsigned ports = 0;
    for (int64_t i = 0; i < length; i++) {
        if (!is_populated(&array[i].ev) || (format != NULL && carried_by(endpoint, format, is, &array[i].ev) < 0))
            return EINVAL;
        ports |= 1u << array[i].ev.port;
    }
    return is->mode == MRC_EV_MODE_AUTO || ports == ((1u << endpoint->addresses.count) - 1) << 1 ? 0 : EINVAL;
}

/* In use, an EV is replaced on its own port only: queue pairs keep their planes. */
static bool keeps_ports(const struct ev_profile *profile, const struct mrc_ctl_ev_profile_attr *attr)
{
    bool replaces = attr->ev_op.op == MRC_CTL_EV_OP_REPLACE_EV;
    for (int i = 0; profile->users > 0 && replaces && i < attr->ev_op.entry_count; i++)
        if (attr->ev_op.entries[i].ev.port != attr->ev_op.entries[i].ev_new.port)
            return false;
    return true;
}

static void enter(struct profiles *profiles, struct ev_profile *profile, int64_t state)
{
    if (profile->is.format != MRC_UNSET)
        profiles->formats[profile->is.format - 1].users
            += (state == MRC_PROFILE_STATE_ONLINE) - (profile->state == MRC_PROFILE_STATE_ONLINE);
    profile->state = state;
    if (state == MRC_PROFILE_STATE_INIT) {
        free(profile->array);
        *profile = (struct ev_profile){.is = {MRC_UNSET, MRC_UNSET, MRC_UNSET, MRC_UNSET, MRC_UNSET, 0, {{0}}}};
    }
}

/* All that must be true before anything is changed; the array of what is wanted. */
static int prepare(const struct endpoint *endpoint, struct profiles *profiles, const struct ev_profile *profile,
                   const struct mrc_ctl_ev_profile_attr *attr, int mask, int64_t target,
                   struct ev_attributes *wanted, struct ev_entry **array, int64_t *length)
{
    int64_t changed = changed_by(attr, mask);
    int error = refused(mrc_change_verdict(kind_of(wanted->mode), profile->state, target, changed, profile->users));
    if (error == 0)
        error = merge(endpoint, wanted, attr, mask);
    const struct format_profile *format = error == 0 ? format_of(profiles, wanted) : NULL;
    if (format != NULL)
        error = refused(mrc_fields_verdict(wanted->fields[0], wanted->field_count, MRC_FIELD_COLUMNS,
                                           (int64_t *)(uintptr_t)format->widths, format->count));
    if (error == 0)
        error = refused(mrc_missing_verdict(kind_of(wanted->mode), profile->state, target, known_of(wanted)));
    bool goes_online = target == MRC_PROFILE_STATE_ONLINE && profile->state != target;
    if (error == 0 && goes_online && wanted->format != MRC_UNSET
        && profiles->formats[wanted->format - 1].state != MRC_PROFILE_STATE_ONLINE)
        error = EINVAL;
    if (error == 0)
        error = array_for(endpoint, profiles, profile, wanted, array, length);
    if (error != 0)
        return error;
    if (*array == profile->array && *array != NULL && profile->state == MRC_PROFILE_STATE_ONLINE)
        error = check_array(endpoint, profiles, wanted, *array, *length); /* its fields may have changed */
    if (error == 0 && mask & MRC_CTL_EV_PROFILE_EV_OP)
        error = !keeps_ports(profile, attr)
            ? EINVAL
            : refused(mrc_operation_verdict(attr->ev_op.op, wanted->mode, *length));
    if (error != 0 && *array != profile->array)
        free(*array);
    return error;
}

static int modify(struct context *context, struct ev_profile *profile, const struct mrc_ctl_ev_profile_attr *attr,
                  int mask)
{
    struct profiles *profiles = context->ctl->profiles;
    const struct endpoint *endpoint = context->endpoint;
    struct ev_attributes wanted = profile->is;
    struct ev_entry *array = NULL;
    int64_t length = 0, target = mask & MRC_CTL_EV_PROFILE_STATE ? (int64_t)attr->profile_state : profile->state;
    if (target < MRC_PROFILE_STATE_INIT || target > MRC_PROFILE_STATE_ONLINE || !is_possible(attr, mask)
        || (mask & MRC_CTL_EV_PROFILE_CUR_STATE && (int64_t)attr->cur_profile_state != profile->state))
        return EINVAL;
    int error = prepare(endpoint, profiles, profile, attr, mask, target, &wanted, &array, &length);
    if (error != 0)
        return error;
    bool goes_online = target == MRC_PROFILE_STATE_ONLINE && profile->state != target;
    if (array != profile->array)
        free(profile->array);
    profile->array = array;
    profile->length = length;
    profile->is = profile->made_from = wanted;
    if (mask & MRC_CTL_EV_PROFILE_VENDOR_CFG)
        memcpy(profile->vendor_cfg, attr->vendor_cfg, sizeof profile->vendor_cfg);
    if (target != MRC_PROFILE_STATE_ONLINE)
        enter(profiles, profile, target);
    else if (profile->state == MRC_PROFILE_STATE_INIT)
        enter(profiles, profile, MRC_PROFILE_STATE_OFFLINE); /* where it stays if what follows fails */
    if (mask & MRC_CTL_EV_PROFILE_EV_OP)
        error = ev_ops_apply(context, profile, attr);
    if (error == 0 && goes_online)
        error = check_array(endpoint, profiles, &profile->is, profile->array, profile->length);
    if (error == 0 && goes_online)
        enter(profiles, profile, MRC_PROFILE_STATE_ONLINE);
    return error;
}

static int query_fields(const struct ev_attributes *is, struct mrc_ctl_ev_profile_attr *attr)
{
    struct mrc_ctl_ev_field *fields = attr->ev_fields_op.fields;
    int room = attr->ev_fields_op.field_count;
    if (attr->ev_fields_op.op != MRC_CTL_EV_FIELDS_OP_QUERY_FIELDS || room < 0 || (room > 0 && fields == NULL))
        return EINVAL;
    attr->ev_fields_op.field_count = (int)is->field_count;
    if (is->field_count > room)
        return E2BIG;
    for (int64_t i = 0; i < is->field_count; i++)
        fields[i] = (struct mrc_ctl_ev_field){
            (uint32_t)is->fields[i][MRC_FIELD_COLUMN_WIDTH], (uint32_t)is->fields[i][MRC_FIELD_COLUMN_INIT],
            (uint32_t)is->fields[i][MRC_FIELD_COLUMN_MIN], (uint32_t)is->fields[i][MRC_FIELD_COLUMN_MAX],
            (uint32_t)is->fields[i][MRC_FIELD_COLUMN_MASK]};
    return 0;
}

static int query(const struct ev_profile *profile, struct mrc_ctl_ev_profile_attr *attr, int mask)
{
    const struct ev_attributes *is = &profile->is;
#define GIVE(field, kind, value) attr->field = (kind)((value) == MRC_UNSET ? 0 : (value))
    attr->profile_state = attr->cur_profile_state = (enum mrc_ctl_profile_state)profile->state;
    GIVE(ev_mode, enum mrc_ctl_ev_mode, is->mode);
    GIVE(ev_fmt_profile_id, uint64_t, is->format);
    GIVE(ev_count, uint32_t, is->count);
    GIVE(ev_min_active, uint32_t, is->min_active);
    GIVE(ev_event_mask, int, is->event_mask);
#undef GIVE
    memcpy(attr->vendor_cfg, profile->vendor_cfg, sizeof attr->vendor_cfg);
    if (mask & MRC_CTL_EV_PROFILE_EV_OP)
        return ev_ops_query(profile->array, profile->length, attr);
    return mask & MRC_CTL_EV_PROFILE_EV_FIELDS_OP ? query_fields(is, attr) : 0;
}

/* The worst state of each of the endpoint's own EVs over all queue pairs that it connects. */
static void look_at_own(struct endpoint *endpoint, struct ev_entry *array)
{
    const struct mrc_engine_evs *evs = endpoint->tables[MRC_TABLE_ENGINE_EVS];
    static const enum mrc_ctl_ev_state states[] = {
        [MRC_EV_STATE_GOOD] = MRC_CTL_EV_GOOD, [MRC_EV_STATE_SKIP] = MRC_CTL_EV_GOOD,
        [MRC_EV_STATE_ASSUMED_BAD] = MRC_CTL_EV_ASSUMED_BAD, [MRC_EV_STATE_DENIED] = MRC_CTL_EV_DENIED};
    int64_t length = endpoint->addresses.count * MRC_EVS_PER_PLANE;
    for (int64_t i = 0; i < length; i++)
        array[i] = (struct ev_entry){ev_of_port((int)(i / MRC_EVS_PER_PLANE),
                                                source_port(&endpoint->addresses, (int)(i / MRC_EVS_PER_PLANE),
                                                            (int)(i % MRC_EVS_PER_PLANE))),
                                     MRC_CTL_EV_GOOD};
    endpoint_lock(endpoint);
    for (int qp = 0; qp < MRC_QPS; qp++) {
        const struct mrc_engine_qps *row = &endpoint->qps[qp];
        for (int64_t i = row->ev_base; row->state >= MRC_QP_STATE_RTR && i < row->ev_base + row->ev_count; i++) {
            int64_t plane = evs[i].port, k = (int64_t)evs[i].value - source_port(&endpoint->addresses, (int)plane, 0);
            bool is_ours = k >= 0 && k < MRC_EVS_PER_PLANE;
            struct ev_entry *entry = is_ours ? &array[plane * MRC_EVS_PER_PLANE + k] : NULL;
            if (is_ours && states[evs[i].state] > entry->state)
                entry->state = states[evs[i].state];
        }
    }
    endpoint_unlock(endpoint);
}

static int query_own(struct endpoint *endpoint, struct mrc_ctl_ev_profile_attr *attr, int mask)
{
    struct ev_entry array[MRC_MOST_PLANES * MRC_EVS_PER_PLANE];
    attr->profile_state = attr->cur_profile_state = MRC_CTL_PROFILE_ONLINE;
    attr->ev_mode = MRC_CTL_EV_MODE_AUTO;
    attr->ev_fmt_profile_id = 0;
    attr->ev_count = (uint32_t)(endpoint->addresses.count * MRC_EVS_PER_PLANE);
    attr->ev_min_active = 1;
    attr->ev_event_mask = MRC_CTL_EV_GOOD | MRC_CTL_EV_ASSUMED_BAD;
    memset(attr->vendor_cfg, 0, sizeof attr->vendor_cfg);
    if (mask & MRC_CTL_EV_PROFILE_EV_FIELDS_OP)
        return EINVAL;
    if (!(mask & MRC_CTL_EV_PROFILE_EV_OP))
        return 0;
    look_at_own(endpoint, array);
    return ev_ops_query(array, attr->ev_count, attr);
}

#pragma GCC visibility push(default)

int mrc_ctl_modify_ev_profile(struct mrc_context *context, uint64_t id, struct mrc_ctl_ev_profile_attr *attr, int mask)
{
    int error;
    struct profiles *profiles = profiles_begin(context, id, attr, mask, EV_MASK, &error);
    if (profiles != NULL) {
        error = modify(its_context(context->verbs), &profiles->evs[id - 1], attr, mask);
        pthread_mutex_unlock(&profiles->lock);
    }
    return error;
}

int mrc_ctl_query_ev_profile(struct mrc_context *context, uint64_t id, struct mrc_ctl_ev_profile_attr *attr, int mask)
{
    int error;
    struct profiles *profiles = profiles_begin(context, id == 0 ? 1 : id, attr, mask, EV_MASK, &error);
    if (profiles != NULL) {
        error = id == 0 ? query_own(its_context(context->verbs)->endpoint, attr, mask)
                        : query(&profiles->evs[id - 1], attr, mask);
        pthread_mutex_unlock(&profiles->lock);
    }
    return error;
}

#pragma GCC visibility pop
