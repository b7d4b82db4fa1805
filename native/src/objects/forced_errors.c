#include "objects/forced_errors.h"

#include <stdlib.h>
#include <string.h>

#include "endpoint/report.h"

static const struct {
    const char *name;
    enum ibv_wc_status status;
    int event;
} names[] = { /* as in openmrc/programs/run.py */
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

static const struct {
    const char *name;
    enum ibv_wc_opcode operation;
} operations[] = {
    {"write", IBV_WC_RDMA_WRITE},
    {"send", IBV_WC_SEND},
    {"read", IBV_WC_RDMA_READ},
    {"recv", IBV_WC_RECV},
};

/* Read a word that a colon precedes: what happens, which operation, or which queue pair. */
static bool understand(const char *word, size_t length, struct forced_error *wanted)
{
    char *end;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i].name) == length && strncmp(word, names[i].name, length) == 0) {
            wanted->status = names[i].status;
            wanted->event = names[i].event;
            return true;
        }
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
        if (strlen(operations[i].name) == length && strncmp(word, operations[i].name, length) == 0) {
            wanted->has_operation = true;
            wanted->operation = operations[i].operation;
            return true;
        }
    if (strncmp(word, "qp", 2) != 0)
        return false;
    wanted->qp = strtoll(word + 2, &end, 10);
    return wanted->qp > 0 && end == word + length;
}

bool forced_error_wanted(struct forced_error *wanted)
{
    const char *text = getenv("MRC_FAIL_AFTER");
    char *end;
    *wanted = (struct forced_error){0};
    if (text == NULL || *text == '\0')
        return true;
    *wanted = (struct forced_error){.after = strtoll(text, &end, 10), .status = names[0].status, .event = names[0].event};
    bool is_known = wanted->after > 0;
    while (is_known && *end == ':') {
        size_t length = strcspn(end + 1, ":");
        is_known = understand(end + 1, length, wanted);
        end += 1 + length;
    }
    if (is_known && *end == '\0')
        return true;
    report("MRC_FAIL_AFTER: %s is not a count from 1 on, alone or with colons and words of `mrc run --help`", text);
    return false;
}

static bool counts(const struct forced_error *forced, const struct ibv_wc *wc)
{
    bool is_receive = (wc->opcode & IBV_WC_RECV) != 0, wants_receives = forced->operation == IBV_WC_RECV;
    if (!forced->has_operation)
        return !is_receive;
    return is_receive ? wants_receives : !wants_receives && wc->opcode == forced->operation;
}

void force_error(struct qp *qp, struct ibv_wc *wc)
{
    struct context *context = its_context(qp->verbs.context);
    const struct forced_error *forced = context->forced;
    if (forced->after == 0 || wc->status != IBV_WC_SUCCESS || (forced->qp != 0 && forced->qp != qp->ordinal))
        return;
    if (qp->completed >= forced->after) { /* it has happened */
        wc->status = forced->status == IBV_WC_SUCCESS ? IBV_WC_SUCCESS : IBV_WC_WR_FLUSH_ERR;
        return;
    }
    if (!counts(forced, wc) || ++qp->completed < forced->after)
        return;
    if (forced->event != NO_EVENT)
        raise_event(context, (enum ibv_event_type)forced->event, qp);
    wc->status = forced->status;
    if (forced->status != IBV_WC_SUCCESS)
        fail_qp(qp);
}
