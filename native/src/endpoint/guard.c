/* See guard.h. */
#define _GNU_SOURCE
#include "endpoint/guard.h"

#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <ucontext.h>

/* Where a thread goes on if it faults now. */
struct guard {
    sigjmp_buf back;
    int64_t at; /* table handles of the endpoint that it works for */
    volatile uintptr_t address;
};

typedef int32_t half(int64_t *result, void **exception, int64_t at, int64_t first, int64_t second);

/* Volatile: the compiler knows that no copy reads it. */
static _Thread_local struct guard *volatile guarded __attribute__((tls_model("initial-exec")));
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* guards changes of the list */
static struct endpoint *first;
static struct sigaction earlier[2]; /* of SIGSEGV, of SIGBUS */

/* Called with the endpoint's regions in use, so that it is in the list and stays there. */
static bool is_registered(int64_t at, uintptr_t address)
{
    const struct endpoint *endpoint = __atomic_load_n(&first, __ATOMIC_ACQUIRE);
    while (endpoint != NULL && endpoint->at != at)
        endpoint = __atomic_load_n(&endpoint->next_guarded, __ATOMIC_ACQUIRE);
    for (int row = 0; endpoint != NULL && row < MRC_REGIONS; row++) {
        const struct mrc_engine_regions *region = &endpoint->regions[row];
        if (region->r_key != 0 && address - (uintptr_t)region->local < (uintptr_t)region->length)
            return true;
    }
    return false;
}

static void hand_on(int number, siginfo_t *info, void *context)
{
    const struct sigaction *before = &earlier[number == SIGBUS];
    if (before->sa_flags & SA_SIGINFO)
        before->sa_sigaction(number, info, context);
    else if (before->sa_handler != SIG_DFL && before->sa_handler != SIG_IGN)
        before->sa_handler(number);
    else { /* it faults again, or is sent again, and is dealt with as if we were not here */
        sigaction(number, before, NULL);
        if (info->si_code <= 0)
            raise(number);
    }
}

static void on_fault(int number, siginfo_t *info, void *context)
{
    struct guard *here = guarded;
    uintptr_t address = (uintptr_t)info->si_addr;
    if (here == NULL || info->si_code <= 0 || !is_registered(here->at, address))
        return hand_on(number, info, context);
    guarded = NULL;
    here->address = address;
    /* Who hands faults on to this handler may block more meanwhile, as ThreadSanitizer does: the next would be the end. */
    pthread_sigmask(SIG_SETMASK, &((const ucontext_t *)context)->uc_sigmask, NULL);
    siglongjmp(here->back, 1);
}

static void catch_faults(void)
{
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
    action.sa_sigaction = on_fault;
    sigaction(SIGSEGV, &action, &earlier[0]);
    sigaction(SIGBUS, &action, &earlier[1]);
}

static int32_t run(half *entry, int64_t *result, int64_t at, int64_t first_word, int64_t second, bool arriving)
{
    struct guard here; /* 200 bytes that need not be cleared in every iteration */
    void *exception;
    here.at = at;
    if (sigsetjmp(here.back, 0) == 0) {
        guarded = &here;
        int32_t status = entry(result, &exception, at, first_word, second);
        guarded = NULL;
        return status;
    }
    *result = 0;
    mrc_recover(at, (int64_t)here.address, arriving);
    return 0;
}

static int32_t take_in(int64_t *result, void **exception, int64_t at, int64_t ready, int64_t looks)
{
    (void)exception;
    return run(mrc_entry_take_in, result, at, ready, looks, true);
}

static int32_t send_out(int64_t *result, void **exception, int64_t at, int64_t limit, int64_t data_ahead)
{
    (void)exception;
    return run(mrc_entry_send_out, result, at, limit, data_ahead, false);
}

void guard_begin(struct endpoint *endpoint)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, catch_faults);
    endpoint->nic->take_in_at = (int64_t)(intptr_t)take_in;
    endpoint->nic->send_out_at = (int64_t)(intptr_t)send_out;
    pthread_mutex_lock(&mutex);
    endpoint->next_guarded = first;
    __atomic_store_n(&first, endpoint, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&mutex);
}

void guard_end(struct endpoint *endpoint)
{
    pthread_mutex_lock(&mutex);
    struct endpoint **each = &first;
    while (*each != NULL && *each != endpoint)
        each = &(*each)->next_guarded;
    if (*each != NULL)
        __atomic_store_n(each, endpoint->next_guarded, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&mutex);
}

bool guard_copy(const struct endpoint *endpoint, void *to, const void *from, size_t length)
{
    struct guard here = {.at = endpoint->at};
    if (sigsetjmp(here.back, 0) != 0)
        return false;
    guarded = &here;
    memcpy(to, from, length);
    guarded = NULL;
    return true;
}
