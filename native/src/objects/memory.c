/* Memory regions: checked when they are registered, as a NIC that pins them does. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "endpoint/report.h"
#include "objects/objects.h"

#ifndef MADV_POPULATE_READ /* Linux 5.14, and the C library of that time */
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif
#define PROBES 1024 /* pages that one call reads a byte of, at most IOV_MAX */

#define RIGHTS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)
/* REMOTE_ATOMIC gives a right that nobody can use; HUGETLB and the optional range are hints. */
#define TAKEN (RIGHTS | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_HUGETLB | IBV_ACCESS_OPTIONAL_RANGE)

/* Read a byte of each page through the kernel, which answers where a load would fault. */
static bool can_read(uintptr_t begin, uintptr_t end, uintptr_t page)
{
    uint8_t bytes[PROBES];
    struct iovec pages[PROBES];
    while (begin < end) {
        size_t count = 0;
        for (; count < PROBES && begin < end; begin += page)
            pages[count++] = (struct iovec){(void *)begin, 1};
        struct iovec local = {bytes, count};
        ssize_t done = process_vm_readv(getpid(), &local, 1, pages, count, 0);
        if (done != (ssize_t)count && !(done < 0 && (errno == EPERM || errno == ENOSYS)))
            return false;
    }
    return true;
}

/* Whether the kernel knows this advice: on a page that is there it then has no reason to refuse. */
static bool knows_populate(uintptr_t page)
{
    static const char constant;
    return madvise((void *)((uintptr_t)&constant & -page), page, MADV_POPULATE_READ) == 0;
}

/*
 * Bring pages into memory, as if they were pinned: 0, EFAULT if a byte cannot be read, or written if `is_written`, ENOMEM
 * if there is no room for them.
 */
static int populate(const void *at, size_t length, bool is_written)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = (uintptr_t)at & -page, end = ((uintptr_t)at + length + page - 1) & -page;
    int error;
    do
        error = madvise((void *)begin, end - begin, is_written ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) == 0 ? 0 : errno;
    while (error == EINTR || error == EAGAIN);
    if (error == 0 || (error == EINVAL && !knows_populate(page) && can_read(begin, end, page)))
        return 0;
    return error == ENOMEM && can_read(begin, end, page) ? ENOMEM : EFAULT; /* of what is not mapped it is ENOMEM, too */
}

/* 0, or the error of errno for which memory is not registered. */
static int refusal(const void *at, size_t length, uint64_t iova, unsigned access)
{
    const unsigned remote = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
    const char *name = access & IBV_ACCESS_ON_DEMAND ? "on-demand paging (IBV_ACCESS_ON_DEMAND)"
                     : access & IBV_ACCESS_MW_BIND   ? "memory windows (IBV_ACCESS_MW_BIND)"
                                                     : NULL;
    if (name != NULL)
        return report("%s: not offered", name), EOPNOTSUPP;
    if (access & ~(unsigned)TAKEN)
        return report("ibv_reg_mr: access flags %#x are not known", access & ~(unsigned)TAKEN), EINVAL;
    if (access & remote && !(access & IBV_ACCESS_LOCAL_WRITE))
        return EINVAL;
    if (length == 0 || length > INT64_MAX || (uintptr_t)at + length < length || iova + (length - 1) < iova)
        return EINVAL;
    return populate(at, length, (access & IBV_ACCESS_LOCAL_WRITE) != 0);
}

struct ibv_mr *open_region(struct ibv_pd *pd, void *at, size_t length, uint64_t iova, unsigned access)
{
    struct endpoint *endpoint = its_context(pd->context)->endpoint;
    if (access & IBV_ACCESS_ZERO_BASED)
        iova = 0; /* offsets take the place of addresses */
    int error = endpoint_is_usable(endpoint) && is_whole_pd(pd) ? refusal(at, length, iova, access) : EINVAL;
    if (error != 0)
        return errno = error, NULL;
    struct region *region = calloc(1, sizeof *region);
    if (region == NULL)
        return NULL;
    uint32_t key
        = endpoint_register(endpoint, at, length, iova, (int)(access & RIGHTS), ((struct pd *)pd)->number);
    if (key == 0) {
        free(region);
        return errno = ENOMEM, NULL;
    }
    region->verbs = (struct ibv_mr){pd->context, pd, at, length, key, key, key};
    region->iova = iova;
    atomic_fetch_add(&((struct pd *)pd)->users, 1);
    return &region->verbs;
}

int close_region(struct ibv_mr *mr)
{
    struct endpoint *endpoint = its_context(mr->context)->endpoint;
    if (mr->handle != mr->lkey)
        return ENOENT;
    if (endpoint_is_usable(endpoint))
        endpoint_deregister(endpoint, mr->lkey);
    atomic_fetch_sub(&((struct pd *)mr->pd)->users, 1);
    free(mr);
    return 0;
}
