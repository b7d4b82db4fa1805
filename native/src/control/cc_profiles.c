/* Congestion control profiles: values, and the row of tunables that each becomes. */
#include <errno.h>
#include <string.h>

#include "control/profiles.h"

static const int CC_MASK = MRC_CTL_CC_PROFILE_STATE | MRC_CTL_CC_PROFILE_CUR_STATE
    | MRC_CTL_CC_PROFILE_ALGORITHM | MRC_CTL_CC_PROFILE_CONFIG | MRC_CTL_CC_PROFILE_VENDOR_CFG;

/* In the order of mrc_cc_fields. */
static void values_of(const struct mrc_ctl_cc_nscc_cfg *config, double values[CC_VALUES])
{
    const double all[]
        = {config->disable_qa, (double)config->adjust_bytes_threshold, (double)config->adjust_period_threshold,
           (double)config->base_rtt, config->eta, config->fi, config->fi_scale, config->gamma, config->max_md_jump,
           (double)config->max_cwnd, config->qa_gate, (double)config->qa_threshold, (double)config->target_delay};
    _Static_assert(sizeof all == CC_VALUES * sizeof *all, "a value of mrc_cc_fields is missing");
    memcpy(values, all, sizeof all);
}

static void fill_config(const double values[CC_VALUES], struct mrc_ctl_cc_nscc_cfg *config)
{
    *config = (struct mrc_ctl_cc_nscc_cfg){
        values[0] != 0,      (uint32_t)values[1],  (uint32_t)values[2], (uint32_t)values[3], (float)values[4],
        (float)values[5],    (float)values[6],     (float)values[7],    (float)values[8],    (uint32_t)values[9],
        (uint8_t)values[10], (uint32_t)values[11], (uint32_t)values[12]};
}

static uint8_t *row_of(struct endpoint *endpoint, uint64_t number)
{
    return (uint8_t *)endpoint->tables[MRC_TABLE_ENGINE_PARAMS] + number * sizeof(struct mrc_engine_params);
}

/* The endpoint's own values, as it chose them for its network. */
static void own_values(struct endpoint *endpoint, double values[CC_VALUES])
{
    for (size_t i = 0; i < CC_VALUES; i++) {
        const void *at = row_of(endpoint, 0) + mrc_cc_fields[i].offset;
        double value = mrc_cc_fields[i].kind == 'd' ? *(const double *)at
            : mrc_cc_fields[i].kind == '?' ? *(const uint8_t *)at
                                           : (double)*(const int64_t *)at;
        values[i] = value / (double)mrc_cc_fields[i].scale;
    }
}

static bool are_in_range(const double values[CC_VALUES])
{
    for (size_t i = 0; i < CC_VALUES; i++)
        if (!(values[i] >= mrc_cc_fields[i].least && values[i] <= mrc_cc_fields[i].most)) /* nor is NaN */
            return false;
    return true;
}

/* Connections read the row as they go. */
static void write_row(struct endpoint *endpoint, uint64_t number, const struct cc_profile *profile)
{
    endpoint_lock(endpoint);
    uint8_t *row = row_of(endpoint, number);
    memcpy(row, row_of(endpoint, 0), sizeof(struct mrc_engine_params));
    ((struct mrc_engine_params *)(void *)row)->algorithm = profile->algorithm;
    for (size_t i = 0; i < CC_VALUES; i++) {
        double value = profile->values[i] * (double)mrc_cc_fields[i].scale;
        void *at = row + mrc_cc_fields[i].offset;
        if (mrc_cc_fields[i].kind == 'd')
            *(double *)at = value;
        else if (mrc_cc_fields[i].kind == '?')
            *(uint8_t *)at = value != 0;
        else
            *(int64_t *)at = (int64_t)value;
    }
    endpoint_unlock(endpoint);
}

static int take(struct endpoint *endpoint, struct cc_profile *wanted, const struct mrc_ctl_cc_profile_attr *attr,
                int mask)
{
    if (mask & MRC_CTL_CC_PROFILE_ALGORITHM) {
        if (attr->algorithm != NULL && strcmp(attr->algorithm, MRC_CTL_CC_NSCC) != 0)
            return EINVAL;
        wanted->algorithm = attr->algorithm == NULL ? MRC_CONGESTION_ALGORITHM_NONE : MRC_CONGESTION_ALGORITHM_NSCC;
    }
    if (mask & MRC_CTL_CC_PROFILE_CONFIG) {
        wanted->has_values = true;
        if (attr->cc_config == NULL)
            own_values(endpoint, wanted->values);
        else
            values_of(attr->cc_config, wanted->values);
        return attr->cc_config == NULL || are_in_range(wanted->values) ? 0 : EINVAL;
    }
    return 0;
}

static int modify(struct endpoint *endpoint, struct cc_profile *profile, uint64_t id,
                  const struct mrc_ctl_cc_profile_attr *attr, int mask)
{
    struct cc_profile wanted = *profile;
    int64_t changed = mask & (MRC_CTL_CC_PROFILE_STATE | MRC_CTL_CC_PROFILE_ALGORITHM | MRC_CTL_CC_PROFILE_CONFIG);
    int64_t target = mask & MRC_CTL_CC_PROFILE_STATE ? (int64_t)attr->profile_state : profile->state;
    if (target < MRC_PROFILE_STATE_INIT || target > MRC_PROFILE_STATE_ONLINE
        || (mask & MRC_CTL_CC_PROFILE_CUR_STATE && (int64_t)attr->cur_profile_state != profile->state))
        return EINVAL;
    int error = refused(mrc_change_verdict(MRC_PROFILE_KIND_CC, profile->state, target, changed, profile->users));
    if (error == 0)
        error = take(endpoint, &wanted, attr, mask);
    int64_t known = (wanted.algorithm != MRC_UNSET ? MRC_CC_ATTRIBUTE_ALGORITHM : 0)
        | (wanted.has_values ? MRC_CC_ATTRIBUTE_CONFIG : 0);
    if (error == 0)
        error = refused(mrc_missing_verdict(MRC_PROFILE_KIND_CC, profile->state, target, known));
    if (error != 0)
        return error;
    if (mask & MRC_CTL_CC_PROFILE_VENDOR_CFG)
        memcpy(wanted.vendor_cfg, attr->vendor_cfg, sizeof wanted.vendor_cfg);
    wanted.state = target;
    if (target == MRC_PROFILE_STATE_INIT)
        wanted = (struct cc_profile){.algorithm = MRC_UNSET};
    *profile = wanted;
    if (profile->has_values && profile->algorithm != MRC_UNSET)
        write_row(endpoint, id, profile);
    return 0;
}

#pragma GCC visibility push(default)

int mrc_ctl_modify_cc_profile(struct mrc_context *context, uint64_t id, struct mrc_ctl_cc_profile_attr *attr, int mask)
{
    int error;
    struct profiles *profiles = profiles_begin(context, id, attr, mask, CC_MASK, &error);
    if (profiles != NULL) {
        error = modify(its_context(context->verbs)->endpoint, &profiles->ccs[id - 1], id, attr, mask);
        pthread_mutex_unlock(&profiles->lock);
    }
    return error;
}

int mrc_ctl_query_cc_profile(struct mrc_context *context, uint64_t id, struct mrc_ctl_cc_profile_attr *attr, int mask)
{
    int error;
    struct profiles *profiles = profiles_begin(context, id, attr, mask, CC_MASK, &error);
    if (profiles == NULL)
        return error;
    const struct cc_profile *profile = &profiles->ccs[id - 1];
    double values[CC_VALUES];
    own_values(its_context(context->verbs)->endpoint, values);
    attr->profile_state = attr->cur_profile_state = (enum mrc_ctl_profile_state)profile->state;
    attr->algorithm = profile->algorithm == MRC_CONGESTION_ALGORITHM_NSCC ? MRC_CTL_CC_NSCC : NULL;
    memcpy(attr->vendor_cfg, profile->vendor_cfg, sizeof attr->vendor_cfg);
    if (mask & MRC_CTL_CC_PROFILE_CONFIG && attr->cc_config != NULL)
        fill_config(profile->has_values ? profile->values : values, (void *)(uintptr_t)attr->cc_config);
    pthread_mutex_unlock(&profiles->lock);
    return 0;
}

#pragma GCC visibility pop
