/*
 * A library to preload: system and library calls made by libmrc.so fail when a test says so, others' never do.
 *
 * failing_set(name, error, first, count): of the calls of `name` from now on, those from the `first` (1, ...) on fail,
 * `count` of them, with errno `error`. failing_seen(): how many calls of that name there were since.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "failing.h"

static char chosen[32];
static int chosen_error;
static long chosen_first, chosen_count;
static atomic_long seen;

void failing_set(const char *name, int error, long first, long count)
{
    chosen[0] = '\0';
    chosen_error = error;
    chosen_first = first;
    chosen_count = count;
    atomic_store(&seen, 0);
    atomic_thread_fence(memory_order_seq_cst);
    strncpy(chosen, name, sizeof chosen - 1);
}

long failing_seen(void)
{
    return atomic_load(&seen);
}

static bool fails(const char *name, void *caller)
{
    Dl_info from;
    if (strcmp(name, chosen) != 0 || dladdr(caller, &from) == 0 || strstr(from.dli_fname, "libmrc.so") == NULL)
        return false;
    long number = atomic_fetch_add(&seen, 1) + 1;
    if (number < chosen_first || number - chosen_first >= chosen_count)
        return false;
    errno = chosen_error;
    return true;
}

/* glibc's own: dlsym may itself allocate. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);

#define CALLER __builtin_extract_return_addr(__builtin_return_address(0))

void *malloc(size_t bytes)
{
    return fails("malloc", CALLER) ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    return fails("calloc", CALLER) ? NULL : __libc_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    return fails("realloc", CALLER) ? NULL : __libc_realloc(memory, bytes);
}

/* The next definition of a function, looked up once: two threads that both do find the same. */
#define NEXT(name)                                                                                                     \
    static _Atomic(void *) next;                                                                                       \
    if (atomic_load(&next) == NULL)                                                                                    \
        atomic_store(&next, dlsym(RTLD_NEXT, #name));                                                                  \
    __typeof__(&name) real = (__typeof__(&name))(uintptr_t)atomic_load(&next)

#define FAILING(type, otherwise, name, parameters, arguments)                                                          \
    type name parameters                                                                                               \
    {                                                                                                                  \
        if (fails(#name, CALLER))                                                                                      \
            return otherwise;                                                                                          \
        NEXT(name);                                                                                                    \
        return real arguments;                                                                                         \
    }

struct ifaddrs;
int eventfd(unsigned count, int flags);
int getifaddrs(struct ifaddrs **all);

FAILING(int, -1, socket, (int family, int type, int protocol), (family, type, protocol))
FAILING(int, -1, bind, (int fd, const struct sockaddr *name, socklen_t length), (fd, name, length))
FAILING(int, -1, setsockopt, (int fd, int level, int option, const void *value, socklen_t length),
        (fd, level, option, value, length))
FAILING(int, -1, eventfd, (unsigned count, int flags), (count, flags))
FAILING(int, -1, getifaddrs, (struct ifaddrs **all), (all))
FAILING(void *, MAP_FAILED, mmap, (void *at, size_t bytes, int protection, int flags, int fd, off_t offset),
        (at, bytes, protection, flags, fd, offset))
FAILING(int, -1, madvise, (void *at, size_t bytes, int advice), (at, bytes, advice))
FAILING(int, -1, memfd_create, (const char *name, unsigned flags), (name, flags))
FAILING(int, -1, ftruncate, (int fd, off_t bytes), (fd, bytes))
FAILING(int, chosen_error, pthread_create,
        (pthread_t * thread, const pthread_attr_t *attr, void *(*run)(void *), void *argument),
        (thread, attr, run, argument))
FAILING(int, -1, sendmmsg, (int fd, struct mmsghdr *messages, unsigned count, int flags), (fd, messages, count, flags))
FAILING(int, -1, recvmmsg, (int fd, struct mmsghdr *messages, unsigned count, int flags, struct timespec *limit),
        (fd, messages, count, flags, limit))
FAILING(int, -1, ppoll, (struct pollfd * slots, nfds_t count, const struct timespec *limit, const sigset_t *mask),
        (slots, count, limit, mask))
