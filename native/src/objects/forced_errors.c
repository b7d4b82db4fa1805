#include "objects/forced_errors.h"

#include <stdlib.h>
#include <string.h>

#include "endpoint/report.h"

static const struct {
    const char *name;
    enum ibv_wc_status status;
} names[] = {
    {"retry", IBV_WC_RETRY_EXC_ERR},
    {"access", IBV_WC_REM_ACCESS_ERR},
    {"operation", IBV_WC_REM_OP_ERR},
    {"fatal", IBV_WC_FATAL_ERR},
};

struct forced_error forced_error_wanted(void)
{
    const char *text = getenv("MRC_FAIL_AFTER");
    char *end;
    if (text == NULL || *text == '\0')
        return (struct forced_error){0};
    struct forced_error wanted = {strtoll(text, &end, 10), IBV_WC_RETRY_EXC_ERR};
    bool is_known = *end == '\0';
    for (size_t i = 0; i < sizeof names / sizeof *names && *end == ':'; i++)
        if (strcmp(end + 1, names[i].name) == 0) {
            wanted.status = names[i].status;
            is_known = true;
        }
    if (is_known && wanted.after > 0)
        return wanted;
    report("MRC_FAIL_AFTER: %s is not a count from 1 on, alone or with :retry, :access, :operation or :fatal", text);
    return (struct forced_error){0};
}

void force_error(struct qp *qp, struct ibv_wc *wc)
{
    struct context *context = its_context(qp->verbs.context);
    const struct forced_error *forced = context->forced;
    if (forced->after == 0 || wc->status != IBV_WC_SUCCESS || ++qp->completed < forced->after)
        return;
    wc->status = qp->completed == forced->after ? forced->status : IBV_WC_WR_FLUSH_ERR;
    if (qp->completed == forced->after)
        fail_qp(qp);
}
