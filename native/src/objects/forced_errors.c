#include "objects/forced_errors.h"

#include <stdlib.h>
#include <string.h>

#include "endpoint/report.h"

static const struct {
    const char *name;
    enum ibv_wc_status status;
    int event;
} names[] = { /* as in openmrc/programs/library/run.py */
    {"retry", IBV_WC_RETRY_EXC_ERR, NO_EVENT},
    {"access", IBV_WC_REM_ACCESS_ERR, NO_EVENT},
    {"operation", IBV_WC_REM_OP_ERR, NO_EVENT},
    {"fatal", IBV_WC_FATAL_ERR, NO_EVENT},
    {"local", IBV_WC_LOC_PROT_ERR, NO_EVENT},
    {"rnr", IBV_WC_RNR_RETRY_EXC_ERR, NO_EVENT},
    {"flush", IBV_WC_WR_FLUSH_ERR, NO_EVENT},
    {"access-event", IBV_WC_WR_FLUSH_ERR, IBV_EVENT_QP_ACCESS_ERR},
    {"fatal-event", IBV_WC_WR_FLUSH_ERR, IBV_EVENT_QP_FATAL},
    {"port-down", IBV_WC_SUCCESS, IBV_EVENT_PORT_ERR},
    {"port-up", IBV_WC_SUCCESS, IBV_EVENT_PORT_ACTIVE},
    {"gid-change", IBV_WC_SUCCESS, IBV_EVENT_GID_CHANGE},
};

bool forced_error_wanted(struct forced_error *wanted)
{
    const char *text = getenv("MRC_FAIL_AFTER");
    char *end;
    *wanted = (struct forced_error){0};
    if (text == NULL || *text == '\0')
        return true;
    *wanted = (struct forced_error){strtoll(text, &end, 10), names[0].status, names[0].event};
    bool is_known = *end == '\0';
    for (size_t i = 0; i < sizeof names / sizeof *names && *end == ':'; i++)
        if (strcmp(end + 1, names[i].name) == 0) {
            wanted->status = names[i].status;
            wanted->event = names[i].event;
            is_known = true;
        }
    if (is_known && wanted->after > 0)
        return true;
    report("MRC_FAIL_AFTER: %s is not a count from 1 on, alone or with a colon and one of `mrc run --help`", text);
    return false;
}

void force_error(struct qp *qp, struct ibv_wc *wc)
{
    struct context *context = its_context(qp->verbs.context);
    const struct forced_error *forced = context->forced;
    if (forced->after == 0 || wc->status != IBV_WC_SUCCESS || ++qp->completed < forced->after)
        return;
    bool is_first = qp->completed == forced->after;
    if (is_first && forced->event != NO_EVENT)
        raise_event(context, (enum ibv_event_type)forced->event, qp);
    if (forced->status == IBV_WC_SUCCESS)
        return;
    wc->status = is_first ? forced->status : IBV_WC_WR_FLUSH_ERR;
    if (is_first)
        fail_qp(qp);
}
