#define _GNU_SOURCE
#include "endpoint/endpoint.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "endpoint/faults.h"
#include "endpoint/guard.h"
#include "endpoint/link_watch.h"
#include "endpoint/published.h"
#include "endpoint/report.h"
#include "endpoint/sockets.h"
#include "endpoint/tables.h"

#define REST_NS 2000000 /* after each run of the second thread: a burst of events costs one wake-up, not one each */
#define SLICE_NS 100000 /* the kernel's minimum */

static atomic_int forks;

static void on_fork_in_child(void)
{
    atomic_fetch_add(&forks, 1);
}

__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, on_fork_in_child);
}

bool endpoint_is_usable(const struct endpoint *endpoint)
{
    return endpoint->forks == atomic_load_explicit(&forks, memory_order_relaxed);
}

uint64_t random_bits(void)
{
    uint64_t bits = 0;
    while (getrandom(&bits, sizeof bits, 0) != sizeof bits)
        ;
    return bits;
}

int64_t endpoint_now(const struct endpoint *endpoint)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (time.tv_sec - endpoint->nic->epoch) * MRC_PS_PER_S + time.tv_nsec * MRC_PS_PER_NS;
}

static pthread_mutex_t *mutex_at(const struct endpoint *endpoint, int place)
{
    int64_t (*mutexes)[MRC_MUTEX_WORDS] = endpoint->tables[MRC_TABLE_DATAPATH_MUTEX];
    return (pthread_mutex_t *)mutexes[place];
}

/* As `event_loop.acquire`: a thread holds the first mutex while it waits for the second. */
void endpoint_lock(struct endpoint *endpoint)
{
    pthread_mutex_lock(mutex_at(endpoint, 0));
    pthread_mutex_lock(mutex_at(endpoint, 1));
    pthread_mutex_unlock(mutex_at(endpoint, 0));
}

void endpoint_unlock(struct endpoint *endpoint)
{
    pthread_mutex_unlock(mutex_at(endpoint, 1));
}

/* Times are 64 bits of picoseconds, which last for 53 days: take 24 from each, see openmrc.core.rebase. */
static void clock_set_back(struct endpoint *endpoint)
{
    endpoint_lock(endpoint);
    for (size_t i = 0; i < sizeof mrc_instants / sizeof *mrc_instants; i++) {
        const struct mrc_instant *instant = &mrc_instants[i];
        uint8_t *row = endpoint->tables[instant->table];
        int64_t rows = mrc_lengths[endpoint->addresses.count - 1][instant->table];
        for (int64_t number = 0; number < rows; number++, row += instant->bytes) {
            int64_t *time = (int64_t *)(void *)(row + instant->offset);
            if (*time > 0 && *time < MRC_NEVER)
                *time = *time > MRC_SET_BACK ? *time - MRC_SET_BACK : 1;
        }
    }
    endpoint->nic->epoch += MRC_SET_BACK / MRC_PS_PER_S;
    faults_set_back(endpoint, MRC_SET_BACK);
    endpoint_unlock(endpoint);
}

/* The first struct sched_attr of Linux; the C library has no name for it yet. */
struct scheduling {
    uint32_t bytes, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t slice_ns, deadline_ns, period_ns;
};

/*
 * A thread with short slices is scheduled sooner where programs spin on every processor, with the same total share (Linux
 * 6.12; others refuse, which does no harm). Its timers are not put off to be served together with others'.
 */
static void ask_for_short_delays(void)
{
    struct scheduling wanted = {.bytes = sizeof wanted, .policy = SCHED_OTHER, .slice_ns = SLICE_NS};
    wanted.nice = getpriority(PRIO_PROCESS, 0);
    if (sched_getscheduler(0) == SCHED_OTHER)
        syscall(SYS_sched_setattr, 0, &wanted, 0);
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
}

static void *run_loop(void *argument)
{
    struct endpoint *endpoint = argument;
    pthread_setname_np(pthread_self(), "mrc endpoint");
    ask_for_short_delays();
    mrc_serve(endpoint->at);
    return NULL;
}

static void report_events(struct endpoint *endpoint)
{
    const struct mrc_datapath_event_records *records = endpoint->tables[MRC_TABLE_DATAPATH_EVENT_RECORDS];
    int64_t count;
    do {
        count = mrc_take_events(endpoint->at);
        for (int64_t i = 0; i < count; i++) {
            published_on_event(endpoint, &records[i]);
            endpoint->watcher.on_event(endpoint->watcher.owner, &records[i]);
        }
    } while (count == MRC_RECORDS);
    endpoint->watcher.on_events_taken(endpoint->watcher.owner);
}

/* What the loop does not do itself: report events, overruns, and let faults begin and end. */
static void *run_service(void *argument)
{
    struct endpoint *endpoint = argument;
    pthread_setname_np(pthread_self(), "mrc events");
    const struct timespec rest = {0, REST_NS};
    for (;;) {
        eventfd_t count;
        eventfd_read(endpoint->service_fd, &count);
        if (__atomic_load_n(&endpoint->nic->stop, __ATOMIC_ACQUIRE))
            return NULL;
        report_events(endpoint);
        if (__atomic_load_n(&endpoint->nic->overruns, __ATOMIC_ACQUIRE) > 0)
            endpoint->watcher.on_overrun(endpoint->watcher.owner);
        faults_advance(endpoint);
        if (__atomic_exchange_n(&endpoint->nic->links_changed, 0, __ATOMIC_RELAXED))
            link_watch_look(endpoint); /* carriers are the loop's */
        if (__atomic_load_n(&endpoint->nic->now, __ATOMIC_RELAXED) > MRC_OLD)
            clock_set_back(endpoint);
        nanosleep(&rest, NULL);
    }
}

static bool start_thread(pthread_t *thread, void *(*run)(void *), struct endpoint *endpoint)
{
    /* A program's signal handlers shall not run in threads that it does not know. */
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGSEGV); /* a fault whose signal is blocked ends the process */
    sigdelset(&all, SIGBUS);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(thread, NULL, run, endpoint);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return error == 0;
}

/* 1 or 0, whether the last packet of a write waits for all before it; -1 with a line on stderr. */
static int in_order_is_wanted(void)
{
    const char *value = getenv("MRC_IN_ORDER");
    if (value == NULL || *value == '\0' || strcmp(value, "0") == 0)
        return 0;
    if (strcmp(value, "1") == 0)
        return 1;
    return report("MRC_IN_ORDER: %s is neither 0 nor 1", value), -1;
}

static void fill_nic(struct endpoint *endpoint)
{
    struct mrc_datapath_nic *nic = endpoint->nic;
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    nic->epoch = time.tv_sec - 1; /* engine times are above 0, which means never */
    nic->source_key = (int64_t)(random_bits() & 0x7FFFFFFF);
    nic->segmentation = endpoint->segmentation;
    nic->in_order = (uint8_t)in_order_is_wanted();
    nic->wake_fd = endpoint->wake_fd;
    nic->python_wake_fd = endpoint->service_fd;
}

static void fill_sockets(struct endpoint *endpoint)
{
    struct planes *planes = &endpoint->addresses;
    struct pollfd *poll = endpoint->tables[MRC_TABLE_DATAPATH_POLL];
    struct mrc_datapath_senders *senders = endpoint->tables[MRC_TABLE_DATAPATH_SENDERS];
    int64_t *ev_values = endpoint->tables[MRC_TABLE_DATAPATH_EV_VALUES];
    int16_t *sender_of = endpoint->tables[MRC_TABLE_DATAPATH_SENDER_OF];
    for (int plane = 0; plane < planes->count; plane++) {
        endpoint->planes[plane].descriptor = endpoint->receivers[plane];
        endpoint->planes[plane].random = plane + 1;
        endpoint->planes[plane].interface = plane_interface(&planes->address[plane]);
        poll[plane] = (struct pollfd){endpoint->receivers[plane], POLLIN, 0};
        poll[planes->count + MRC_OWN_SLOTS + plane] = poll[plane];
        int first = plane * (int)MRC_EVS_PER_PLANE;
        /* Replies carry the entropy value of what they answer: each must lead to some sender. */
        for (int port = 0; port < 1 << 16; port++)
            sender_of[plane * (1 << 16) + port] = (int16_t)(first + port % MRC_EVS_PER_PLANE);
        for (int k = 0; k < MRC_EVS_PER_PLANE; k++) {
            int port = source_port(planes, plane, k);
            senders[first + k].descriptor = endpoint->senders[plane][k];
            senders[first + k].plane = plane;
            senders[first + k].port = port;
            ev_values[first + k] = port;
            sender_of[plane * (1 << 16) + port] = (int16_t)(first + k);
        }
    }
    poll[planes->count] = (struct pollfd){endpoint->wake_fd, POLLIN, 0};
    poll[planes->count + 1] = (struct pollfd){-1, 0, 0};
    poll[2 * planes->count + MRC_OWN_SLOTS] = (struct pollfd){-1, POLLIN, 0}; /* a waiter's own descriptor */
}

static void fill_params(struct endpoint *endpoint)
{
    size_t row = 0;
    while (mrc_mtus[row] > endpoint->mtu)
        row++;
    memcpy(endpoint->tables[MRC_TABLE_ENGINE_PARAMS], mrc_params[row][endpoint->segmentation],
           sizeof mrc_params[row][0]);
}

/* QPNs must be guessed by an attacker: each starts at a random one. */
static void draw_numbers(struct endpoint *endpoint)
{
    for (int qp = 0; qp < MRC_QPS; qp++)
        mrc_renew_number(endpoint->at, qp, (int64_t)(random_bits() >> 1));
}

static bool start(struct endpoint *endpoint)
{
    if (!start_thread(&endpoint->loop, run_loop, endpoint))
        return false;
    endpoint->started = true;
    if (start_thread(&endpoint->service, run_service, endpoint))
        return true;
    endpoint->nic->stop = 1;
    eventfd_write(endpoint->wake_fd, 1);
    pthread_join(endpoint->loop, NULL);
    endpoint->started = false;
    return false;
}

bool endpoint_open(struct endpoint **made, const struct planes *planes, struct watcher watcher)
{
    *made = NULL;
    if (!publishing_is_understood() || in_order_is_wanted() < 0)
        return errno = EINVAL, false;
    struct endpoint *endpoint = calloc(1, sizeof *endpoint);
    if (endpoint == NULL)
        return false;
    endpoint->addresses = *planes;
    endpoint->watcher = watcher;
    endpoint->forks = atomic_load(&forks);
    endpoint->link_fd = endpoint->published_fd = -1;
    sockets_forget(endpoint);
    endpoint->ports_up = (1LL << planes->count) - 1;
    endpoint->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    endpoint->service_fd = eventfd(0, EFD_CLOEXEC);
    pthread_mutex_init(&endpoint->posting, NULL);
    pthread_mutex_init(&endpoint->control, NULL);
    bool opened = endpoint->wake_fd >= 0 && endpoint->service_fd >= 0 && sockets_open(endpoint);
    if (opened && tables_allocate(endpoint)) {
        fill_params(endpoint);
        mrc_set_up(endpoint->at, (int64_t)(random_bits() & 0x7FFFFFFF), planes->address[0].version);
        fill_nic(endpoint);
        guard_begin(endpoint);
        fill_sockets(endpoint);
        draw_numbers(endpoint);
        link_watch_open(endpoint);
        published_open(endpoint);
        *made = endpoint;
        if (faults_begin(endpoint) && start(endpoint))
            return true;
    }
    int error = errno;
    *made = NULL;
    endpoint_close(endpoint);
    return errno = error, false;
}

void endpoint_close(struct endpoint *endpoint)
{
    if (endpoint->started && endpoint_is_usable(endpoint)) {
        __atomic_store_n(&endpoint->nic->stop, 1, __ATOMIC_RELEASE);
        eventfd_write(endpoint->wake_fd, 1);
        eventfd_write(endpoint->service_fd, 1);
        pthread_join(endpoint->loop, NULL);
        pthread_join(endpoint->service, NULL);
    }
    guard_end(endpoint);
    sockets_close(endpoint);
    link_watch_close(endpoint);
    if (endpoint->wake_fd >= 0)
        close(endpoint->wake_fd);
    if (endpoint->service_fd >= 0)
        close(endpoint->service_fd);
    faults_end(endpoint);
    published_close(endpoint);
    tables_free(endpoint);
    free(endpoint);
}

static int take_row(struct endpoint *endpoint, bool *used, int count)
{
    int found = NO_ROW;
    pthread_mutex_lock(&endpoint->control);
    for (int row = 0; row < count && found == NO_ROW; row++)
        if (!used[row])
            found = row;
    if (found != NO_ROW)
        used[found] = true;
    pthread_mutex_unlock(&endpoint->control);
    if (found == NO_ROW)
        errno = ENOMEM;
    return found;
}

static void give_row(struct endpoint *endpoint, bool *used, int row)
{
    pthread_mutex_lock(&endpoint->control);
    used[row] = false;
    pthread_mutex_unlock(&endpoint->control);
}

int endpoint_take_qp(struct endpoint *endpoint)
{
    return take_row(endpoint, endpoint->qp_used, MRC_QPS);
}

void endpoint_give_qp(struct endpoint *endpoint, int row)
{
    give_row(endpoint, endpoint->qp_used, row);
}

int endpoint_take_cq(struct endpoint *endpoint)
{
    return take_row(endpoint, endpoint->cq_used, MRC_CQS);
}

void endpoint_give_cq(struct endpoint *endpoint, int row)
{
    give_row(endpoint, endpoint->cq_used, row);
}

uint32_t endpoint_register(struct endpoint *endpoint, void *memory, size_t length, uint64_t va, int access, int pd)
{
    pthread_mutex_lock(&endpoint->control);
    int64_t row = endpoint->region_of_next, tried = 0;
    while (endpoint->region_used[row] && tried++ < REGIONS)
        row = (row + 1) % REGIONS;
    bool found = !endpoint->region_used[row];
    if (found) {
        endpoint->region_used[row] = true;
        endpoint->region_of_next = (row + 1) % REGIONS;
    }
    pthread_mutex_unlock(&endpoint->control);
    if (!found)
        return errno = ENOMEM, 0;
    uint32_t key = 0; /* the low bits find the row, all others must be guessed; 0 means no region */
    while (key == 0)
        key = (uint32_t)(random_bits() % ((1ULL << 32) / MRC_REGIONS)) * (uint32_t)MRC_REGIONS + (uint32_t)row;
    mrc_add_region(endpoint->at, key, (int64_t)va, (int64_t)length, access, pd, (int64_t)(intptr_t)memory);
    return key;
}

void endpoint_deregister(struct endpoint *endpoint, uint32_t key)
{
    pthread_mutex_lock(&endpoint->posting);
    endpoint_iterate(endpoint); /* the engine has what was posted, and finds it */
    if (mrc_remove_region(endpoint->at, key) > 0)
        endpoint_iterate(endpoint); /* completions are published */
    pthread_mutex_unlock(&endpoint->posting);
    give_row(endpoint, endpoint->region_used, (int)(key % MRC_REGIONS));
}

static void words_of(const struct plane_address *address, int64_t *high, int64_t *low)
{
    *high = 0;
    if (address->version == 4) {
        *low = address->v4.s_addr;
    } else {
        memcpy(high, address->v6.s6_addr, 8);
        memcpy(low, address->v6.s6_addr + 8, 8);
    }
}

static void describe_ways(struct peer *peer, const struct planes *ours, const struct planes *theirs)
{
    for (int plane = 0; plane < ours->count; plane++) {
        int64_t *way = peer->ways + plane * MRC_WAYS;
        way[MRC_WAY_VERSION] = ours->address[plane].version;
        words_of(&ours->address[plane], &way[MRC_WAY_OUR_HIGH], &way[MRC_WAY_OUR_LOW]);
        words_of(&theirs->address[plane], &way[MRC_WAY_THEIR_HIGH], &way[MRC_WAY_THEIR_LOW]);
        way[MRC_WAY_THEIR_PORT] = theirs->port;
        way[MRC_WAY_OUR_PORT] = ours->port;
        way[MRC_WAY_SCOPE] = ours->address[plane].scope;
        for (int k = 0; k < MRC_EVS_PER_PLANE; k++)
            peer->ports[plane * MRC_EVS_PER_PLANE + k] = source_port(theirs, plane, k);
    }
}

int endpoint_take_peer(struct endpoint *endpoint, const struct mrc_gid *gid)
{
    struct planes theirs;
    if (!planes_of_gid(gid, &theirs)) {
        report("the peer's GID is not one of MRC: both ends must run with this library");
        return errno = EINVAL, NO_ROW;
    }
    if (theirs.emulates != endpoint->addresses.emulates) {
        report("the two ends emulate different operations: MRC_EMULATE must be the same at both");
        return errno = EINVAL, NO_ROW;
    }
    if (theirs.count != endpoint->addresses.count) {
        report("the peer has %d planes, this endpoint %d", theirs.count, endpoint->addresses.count);
        return errno = EINVAL, NO_ROW;
    }
    int found = NO_ROW, unused = NO_ROW;
    int64_t planes = theirs.count;
    pthread_mutex_lock(&endpoint->control);
    for (int row = 0; row < MRC_PEERS && found == NO_ROW; row++) {
        if (endpoint->peers[row].users == 0)
            unused = unused == NO_ROW ? row : unused;
        else if (memcmp(&endpoint->peers[row].gid, gid, sizeof *gid) == 0)
            found = row;
    }
    if (found == NO_ROW && unused != NO_ROW) {
        struct peer *peer = &endpoint->peers[unused];
        peer->gid = *gid;
        describe_ways(peer, &endpoint->addresses, &theirs);
        int64_t sources = planes * MRC_EVS_PER_PLANE;
        if (mrc_add_peer(endpoint->at, unused, peer->ways, planes, MRC_WAYS, peer->ports, planes, MRC_EVS_PER_PLANE)
            == sources)
            found = unused;
    }
    if (found != NO_ROW)
        endpoint->peers[found].users++;
    pthread_mutex_unlock(&endpoint->control);
    if (found == NO_ROW)
        errno = ENOMEM;
    return found;
}

int endpoint_find_peer(struct endpoint *endpoint, const uint8_t gid[16])
{
    int found = NO_ROW;
    pthread_mutex_lock(&endpoint->control);
    for (int row = 0; row < MRC_PEERS && found == NO_ROW; row++)
        if (endpoint->peers[row].users > 0 && memcmp(endpoint->peers[row].gid.raw, gid, 16) == 0)
            found = row;
    pthread_mutex_unlock(&endpoint->control);
    return found;
}

void endpoint_give_peer(struct endpoint *endpoint, int row)
{
    struct peer *peer = &endpoint->peers[row];
    int64_t planes = endpoint->addresses.count;
    pthread_mutex_lock(&endpoint->control);
    if (--peer->users == 0)
        mrc_remove_peer(endpoint->at, row, peer->ways, planes, MRC_WAYS, peer->ports, planes, MRC_EVS_PER_PLANE);
    pthread_mutex_unlock(&endpoint->control);
}

void endpoint_announce(struct endpoint *endpoint, int cq)
{
    struct mrc_datapath_cqs *row = &endpoint->cqs[cq];
    pthread_mutex_lock(mutex_at(endpoint, 2));
    if (row->armed != 0) {
        row->armed = 0;
        row->events++;
        eventfd_write((int)row->descriptor, 1);
    }
    pthread_mutex_unlock(mutex_at(endpoint, 2));
}

void endpoint_alert(struct endpoint *endpoint, int cq)
{
    pthread_mutex_lock(mutex_at(endpoint, 2));
    endpoint->cqs[cq].sleeping = 1;
    pthread_mutex_unlock(mutex_at(endpoint, 2));
}
