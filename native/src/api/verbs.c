/*
 * The functions of libibverbs: on our objects they are answered here, all others go to the library that is installed.
 *
 * What is inline in verbs.h reaches us through the operations of the context, see `fill_context_operations`.
 */
#include "api/forward.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "control/ctl.h"
#include "emulation/emulation.h"
#include "endpoint/report.h"

#define IB_1_0 "IBVERBS_1.0"
#define IB_1_1 "IBVERBS_1.1"

/* Hand a call on to the installed library, or fail with `otherwise` and ENOSYS. */
#define HAND_ON(otherwise, name, version, ...)                                                                         \
    do {                                                                                                               \
        if (REAL(name, version) == NULL)                                                                               \
            return errno = ENOSYS, otherwise;                                                                          \
        return REAL(name, version)(__VA_ARGS__);                                                                       \
    } while (0)

#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

#pragma GCC visibility push(default)

/*
 * The connection manager has its own library and asks the kernel for it: where there is none, a program that wants it
 * hears why.
 */
struct rdma_event_channel;

struct rdma_event_channel *rdma_create_event_channel(void)
{
    static __typeof__(&rdma_create_event_channel) real;
    if (real == NULL)
        *(void **)&real = dlvsym(RTLD_NEXT, "rdma_create_event_channel", "RDMACM_1.0");
    struct rdma_event_channel *channel = real != NULL ? real() : (errno = ENOSYS, NULL);
    if (channel == NULL)
        report("RDMA CM: not offered for mrc0 (no -R): programs that exchange their addresses themselves are served");
    return channel;
}
__asm__(".symver rdma_create_event_channel, rdma_create_event_channel@@RDMACM_1.0");

/* The list of devices: ours, then those of the kernel. The kernel's list stands before it, to be freed with it. */

struct device_list {
    struct ibv_device **others;
    struct ibv_device *devices[];
};

void verbs_free_device_list(struct ibv_device **list);

struct ibv_device **verbs_get_device_list(int *count)
{
    int others = 0;
    struct ibv_device **real = NULL;
    if (REAL(get_device_list, IB_1_1) != NULL)
        real = REAL(get_device_list, IB_1_1)(&others);
    if (real == NULL)
        others = 0;
    struct device_list *list = calloc(1, sizeof *list + (size_t)(others + 2) * sizeof *list->devices);
    if (list == NULL) {
        if (real != NULL)
            REAL(free_device_list, IB_1_1)(real);
        return errno = ENOMEM, NULL;
    }
    list->others = real;
    list->devices[0] = the_device();
    for (int i = 0; i < others; i++)
        list->devices[1 + i] = real[i];
    if (count != NULL)
        *count = others + 1;
    errno = 0;
    return list->devices;
}
EXPORT(get_device_list, IB_1_1);

/* A program that is linked with libibverbs first calls that one, which does not know the device. */
__attribute__((constructor)) static void check_order(void)
{
    void *program = dlopen(NULL, RTLD_LAZY); /* what it was linked with; not what opens us by path */
    void *first = program != NULL ? dlsym(program, "ibv_get_device_list") : NULL;
    if (first != NULL && dlsym(program, "mrc_library_version") != NULL && first != (void *)verbs_get_device_list)
        report("libibverbs comes before libmrc in the order of linking, so the device is not found: -lmrc first");
    if (program != NULL)
        dlclose(program);
}

void verbs_free_device_list(struct ibv_device **devices)
{
    struct device_list *list = (struct device_list *)(void *)((char *)devices - offsetof(struct device_list, devices));
    if (list->others != NULL)
        REAL(free_device_list, IB_1_1)(list->others);
    free(list);
}
EXPORT(free_device_list, IB_1_1);

const char *verbs_get_device_name(struct ibv_device *device)
{
    return device->name;
}
EXPORT(get_device_name, IB_1_1);

uint64_t verbs_get_device_guid(struct ibv_device *device)
{
    if (is_the_device(device))
        return device_guid();
    HAND_ON(0, get_device_guid, IB_1_1, device);
}
EXPORT(get_device_guid, IB_1_1);

int verbs_get_device_index(struct ibv_device *device)
{
    if (is_the_device(device))
        return 0;
    HAND_ON(-1, get_device_index, "IBVERBS_1.9", device);
}
EXPORT(get_device_index, "IBVERBS_1.9");

struct ibv_context *verbs_open_device(struct ibv_device *device)
{
    if (is_the_device(device))
        return open_context(&emulator, &controller);
    HAND_ON(NULL, open_device, IB_1_1, device);
}
EXPORT(open_device, IB_1_1);

int verbs_close_device(struct ibv_context *context)
{
    if (is_ours(context))
        return close_context(context);
    HAND_ON(-1, close_device, IB_1_1, context);
}
EXPORT(close_device, IB_1_1);

struct ibv_context *verbs_import_device(int fd)
{
    HAND_ON(NULL, import_device, "IBVERBS_1.10", fd);
}
EXPORT(import_device, "IBVERBS_1.10");

/* As libibverbs does: an error is returned, and is errno, too. */
static int told(int error)
{
    if (error != 0)
        errno = error;
    return error;
}

/* What a device and its port are */

int verbs_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
    if (is_ours(context))
        return fill_device(its_context(context), attr), 0;
    HAND_ON(ENOSYS, query_device, IB_1_1, context, attr);
}
EXPORT(query_device, IB_1_1);

int verbs_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr)
{
    if (!is_ours(context))
        HAND_ON(ENOSYS, query_port, IB_1_1, context, port, attr);
    struct ibv_port_attr whole;
    int error = fill_port(its_context(context), port, &whole);
    if (error == 0) /* callers of this form have the struct of before 2018, without its last two fields */
        memcpy(attr, &whole, offsetof(struct ibv_port_attr, port_cap_flags2));
    return error;
}
EXPORT(query_port, IB_1_1);

static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr, size_t bytes)
{
    struct ibv_port_attr whole;
    int error = fill_port(its_context(context), port, &whole);
    if (error == 0)
        memcpy(attr, &whole, bytes < sizeof whole ? bytes : sizeof whole);
    return error;
}

int verbs_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
    if (is_ours(context)) {
        errno = fill_gid(its_context(context), port, index, gid);
        return errno == 0 ? 0 : -1;
    }
    HAND_ON(-1, query_gid, IB_1_1, context, port, index, gid);
}
EXPORT(query_gid, IB_1_1);

int verbs_query_gid_type(struct ibv_context *context, uint8_t port, unsigned index, int *type)
{
    union ibv_gid gid;
    if (is_ours(context)) {
        *type = 1; /* RoCE v2, in the numbers of sysfs that this private function uses */
        errno = fill_gid(its_context(context), port, (int)index, &gid);
        return errno == 0 ? 0 : -1;
    }
    HAND_ON(-1, query_gid_type, "IBVERBS_PRIVATE_34", context, port, index, type);
}
EXPORT(query_gid_type, "IBVERBS_PRIVATE_34");

static int fill_gid_entry(struct context *context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry)
{
    memset(entry, 0, sizeof *entry);
    entry->gid_index = index;
    entry->port_num = port;
    entry->gid_type = IBV_GID_TYPE_ROCE_V2;
    entry->ndev_ifindex = (uint32_t)context->endpoint->planes[0].interface;
    return fill_gid(context, (int)port, (int)index, &entry->gid);
}

int verbs__query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry,
                        uint32_t flags, size_t bytes)
{
    static __typeof__(&verbs__query_gid_ex) real;
    if (is_ours(context)) {
        struct ibv_gid_entry whole;
        int error = flags != 0 ? EOPNOTSUPP : fill_gid_entry(its_context(context), port, index, &whole);
        if (error == 0)
            memcpy(entry, &whole, bytes < sizeof whole ? bytes : sizeof whole);
        return error == EINVAL ? ENODATA : error;
    }
    if (real == NULL)
        *(void **)&real = dlvsym(RTLD_NEXT, "_ibv_query_gid_ex", "IBVERBS_1.11");
    return real == NULL ? ENOSYS : real(context, port, index, entry, flags, bytes);
}
__asm__(".symver verbs__query_gid_ex, _ibv_query_gid_ex@@IBVERBS_1.11");

ssize_t verbs__query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t most, uint32_t flags,
                               size_t bytes)
{
    static __typeof__(&verbs__query_gid_table) real;
    if (is_ours(context)) {
        struct ibv_gid_entry whole;
        size_t count = 0;
        if (flags != 0)
            return -EOPNOTSUPP;
        while (fill_gid_entry(its_context(context), 1, (uint32_t)count, &whole) == 0) {
            if (count == most)
                return -EINVAL; /* as the manual page says: not a part of the table */
            memcpy((char *)entries + count++ * bytes, &whole, bytes < sizeof whole ? bytes : sizeof whole);
        }
        return (ssize_t)count;
    }
    if (real == NULL)
        *(void **)&real = dlvsym(RTLD_NEXT, "_ibv_query_gid_table", "IBVERBS_1.11");
    return real == NULL ? -ENOSYS : real(context, entries, most, flags, bytes);
}
__asm__(".symver verbs__query_gid_table, _ibv_query_gid_table@@IBVERBS_1.11");

int verbs_query_pkey(struct ibv_context *context, uint8_t port, int index, uint16_t *pkey)
{
    if (is_ours(context)) {
        *pkey = 0xFFFF; /* the default partition, full member: the same in both byte orders */
        return port == 1 && index == 0 ? 0 : -1;
    }
    HAND_ON(-1, query_pkey, IB_1_1, context, port, index, pkey);
}
EXPORT(query_pkey, IB_1_1);

int verbs_get_pkey_index(struct ibv_context *context, uint8_t port, uint16_t pkey)
{
    if (is_ours(context))
        return port == 1 && pkey == 0xFFFF ? 0 : -1;
    HAND_ON(-1, get_pkey_index, "IBVERBS_1.5", context, port, pkey);
}
EXPORT(get_pkey_index, "IBVERBS_1.5");

/* Domains and memory */

struct ibv_pd *verbs_alloc_pd(struct ibv_context *context)
{
    if (is_ours(context))
        return open_pd(context);
    HAND_ON(NULL, alloc_pd, IB_1_1, context);
}
EXPORT(alloc_pd, IB_1_1);

int verbs_dealloc_pd(struct ibv_pd *pd)
{
    if (is_ours(pd->context))
        return told(close_pd(pd));
    HAND_ON(ENOSYS, dealloc_pd, IB_1_1, pd);
}
EXPORT(dealloc_pd, IB_1_1);

/* Say what is not offered; EOPNOTSUPP, also as errno. */
static int refuse(const char *what)
{
    report("%s: not offered, MRC has reliable connections and RDMA WRITE only", what);
    return errno = EOPNOTSUPP;
}

struct ibv_mr *verbs_reg_mr(struct ibv_pd *pd, void *at, size_t length, int access)
{
    if (is_ours(pd->context))
        return open_region(pd, at, length, (uintptr_t)at, (unsigned)access);
    HAND_ON(NULL, reg_mr, IB_1_1, pd, at, length, access);
}
EXPORT(reg_mr, IB_1_1);

struct ibv_mr *verbs_reg_mr_iova(struct ibv_pd *pd, void *at, size_t length, uint64_t iova, int access)
{
    if (is_ours(pd->context))
        return open_region(pd, at, length, iova, (unsigned)access);
    HAND_ON(NULL, reg_mr_iova, "IBVERBS_1.7", pd, at, length, iova, access);
}
EXPORT(reg_mr_iova, "IBVERBS_1.7");

struct ibv_mr *verbs_reg_mr_iova2(struct ibv_pd *pd, void *at, size_t length, uint64_t iova, unsigned access)
{
    if (is_ours(pd->context))
        return open_region(pd, at, length, iova, access);
    HAND_ON(NULL, reg_mr_iova2, "IBVERBS_1.8", pd, at, length, iova, access);
}
EXPORT(reg_mr_iova2, "IBVERBS_1.8");

struct ibv_mr *verbs_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access)
{
    if (is_ours(pd->context)) {
        report("memory of devices (dmabuf) cannot be registered: a software endpoint reads and writes host memory");
        return errno = EOPNOTSUPP, NULL;
    }
    HAND_ON(NULL, reg_dmabuf_mr, "IBVERBS_1.12", pd, offset, length, iova, fd, access);
}
EXPORT(reg_dmabuf_mr, "IBVERBS_1.12");

int verbs_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *at, size_t length, int access)
{
    if (is_ours(mr->context))
        return refuse("ibv_rereg_mr"), IBV_REREG_MR_ERR_CMD;
    HAND_ON(IBV_REREG_MR_ERR_CMD, rereg_mr, IB_1_1, mr, flags, pd, at, length, access);
}
EXPORT(rereg_mr, IB_1_1);

int verbs_dereg_mr(struct ibv_mr *mr)
{
    if (is_ours(mr->context))
        return told(close_region(mr));
    HAND_ON(ENOSYS, dereg_mr, IB_1_1, mr);
}
EXPORT(dereg_mr, IB_1_1);

/* Completion queues and channels */

struct ibv_comp_channel *verbs_create_comp_channel(struct ibv_context *context)
{
    if (is_ours(context))
        return open_channel(context);
    HAND_ON(NULL, create_comp_channel, IB_1_0, context);
}
EXPORT(create_comp_channel, IB_1_0);

int verbs_destroy_comp_channel(struct ibv_comp_channel *channel)
{
    if (is_ours(channel->context))
        return told(close_channel(channel));
    HAND_ON(ENOSYS, destroy_comp_channel, IB_1_0, channel);
}
EXPORT(destroy_comp_channel, IB_1_0);

struct ibv_cq *verbs_create_cq(struct ibv_context *context, int cqe, void *cq_context, struct ibv_comp_channel *channel,
                               int vector)
{
    if (is_ours(context) && (vector < 0 || vector >= context->num_comp_vectors))
        return errno = EINVAL, NULL;
    if (is_ours(context))
        return open_cq(context, cqe, cq_context, channel);
    HAND_ON(NULL, create_cq, IB_1_1, context, cqe, cq_context, channel, vector);
}
EXPORT(create_cq, IB_1_1);

int verbs_resize_cq(struct ibv_cq *cq, int cqe)
{
    if (is_ours(cq->context))
        return cqe < 1 ? EINVAL : cqe <= cq->cqe ? 0 : refuse("resizing of completion queues");
    HAND_ON(ENOSYS, resize_cq, IB_1_1, cq, cqe);
}
EXPORT(resize_cq, IB_1_1);

int verbs_destroy_cq(struct ibv_cq *cq)
{
    if (is_ours(cq->context))
        return told(close_cq(cq));
    HAND_ON(ENOSYS, destroy_cq, IB_1_1, cq);
}
EXPORT(destroy_cq, IB_1_1);

int verbs_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
    if (is_ours(channel->context))
        return next_cq_event(channel, cq, cq_context);
    HAND_ON(-1, get_cq_event, IB_1_1, channel, cq, cq_context);
}
EXPORT(get_cq_event, IB_1_1);

void verbs_ack_cq_events(struct ibv_cq *cq, unsigned count)
{
    if (is_ours(cq->context))
        acknowledge_cq_events(cq, count);
    else if (REAL(ack_cq_events, IB_1_1) != NULL)
        REAL(ack_cq_events, IB_1_1)(cq, count);
}
EXPORT(ack_cq_events, IB_1_1);

/* Queue pairs */

struct ibv_qp *verbs_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
    if (is_ours(pd->context))
        return open_qp(pd, init);
    HAND_ON(NULL, create_qp, IB_1_1, pd, init);
}
EXPORT(create_qp, IB_1_1);

int verbs_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
    if (is_ours(qp->context))
        return told(query_qp(qp, attr, mask, init));
    HAND_ON(ENOSYS, query_qp, IB_1_1, qp, attr, mask, init);
}
EXPORT(query_qp, IB_1_1);

int verbs_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    if (is_ours(qp->context))
        return told(modify_qp(qp, attr, mask));
    HAND_ON(ENOSYS, modify_qp, IB_1_1, qp, attr, mask);
}
EXPORT(modify_qp, IB_1_1);

int verbs_destroy_qp(struct ibv_qp *qp)
{
    if (is_ours(qp->context))
        return told(close_qp(qp));
    HAND_ON(ENOSYS, destroy_qp, IB_1_1, qp);
}
EXPORT(destroy_qp, IB_1_1);

struct ibv_qp_ex *verbs_qp_to_qp_ex(struct ibv_qp *qp)
{
    if (is_ours(qp->context))
        return NULL; /* posts go through ibv_post_send */
    HAND_ON(NULL, qp_to_qp_ex, "IBVERBS_1.6", qp);
}
EXPORT(qp_to_qp_ex, "IBVERBS_1.6");

int verbs_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
    if (is_ours(qp->context))
        return ece->vendor_id == 0 ? 0 : EOPNOTSUPP;
    HAND_ON(ENOSYS, set_ece, "IBVERBS_1.10", qp, ece);
}
EXPORT(set_ece, "IBVERBS_1.10");

int verbs_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
    if (is_ours(qp->context))
        return memset(ece, 0, sizeof *ece), 0;
    HAND_ON(ENOSYS, query_ece, "IBVERBS_1.10", qp, ece);
}
EXPORT(query_ece, "IBVERBS_1.10");

int verbs_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
{
    if (is_ours(qp->context))
        return 0; /* packets place their data as they arrive, on many paths */
    HAND_ON(0, query_qp_data_in_order, "IBVERBS_1.14", qp, op, flags);
}
EXPORT(query_qp_data_in_order, "IBVERBS_1.14");

/* What MRC does not have: shared receive queues, datagrams, multicast */

struct ibv_srq *verbs_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *init)
{
    if (is_ours(pd->context))
        return refuse("a shared receive queue"), NULL;
    HAND_ON(NULL, create_srq, IB_1_1, pd, init);
}
EXPORT(create_srq, IB_1_1);

struct ibv_ah *verbs_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
    if (is_ours(pd->context))
        return refuse("an address handle"), NULL;
    HAND_ON(NULL, create_ah, IB_1_1, pd, attr);
}
EXPORT(create_ah, IB_1_1);

struct ibv_ah *verbs_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh, uint8_t port)
{
    if (is_ours(pd->context))
        return refuse("an address handle"), NULL;
    HAND_ON(NULL, create_ah_from_wc, IB_1_1, pd, wc, grh, port);
}
EXPORT(create_ah_from_wc, IB_1_1);

int verbs_init_ah_from_wc(struct ibv_context *context, uint8_t port, struct ibv_wc *wc, struct ibv_grh *grh,
                          struct ibv_ah_attr *attr)
{
    if (is_ours(context))
        return EOPNOTSUPP;
    HAND_ON(ENOSYS, init_ah_from_wc, IB_1_1, context, port, wc, grh, attr);
}
EXPORT(init_ah_from_wc, IB_1_1);

int verbs_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
    if (is_ours(qp->context))
        return refuse("multicast");
    HAND_ON(ENOSYS, attach_mcast, IB_1_1, qp, gid, lid);
}
EXPORT(attach_mcast, IB_1_1);

int verbs_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
    if (is_ours(qp->context))
        return EOPNOTSUPP;
    HAND_ON(ENOSYS, detach_mcast, IB_1_1, qp, gid, lid);
}
EXPORT(detach_mcast, IB_1_1);

int verbs_resolve_eth_l2_from_gid(struct ibv_context *context, struct ibv_ah_attr *attr, uint8_t *mac, uint16_t *vid)
{
    if (is_ours(context))
        return EOPNOTSUPP;
    HAND_ON(ENOSYS, resolve_eth_l2_from_gid, IB_1_1, context, attr, mac, vid);
}
EXPORT(resolve_eth_l2_from_gid, IB_1_1);

/* Async events and fork */

int verbs_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
    if (is_ours(context))
        return next_async_event(context, event);
    HAND_ON(-1, get_async_event, IB_1_1, context, event);
}
EXPORT(get_async_event, IB_1_1);

void verbs_ack_async_event(struct ibv_async_event *event)
{
    struct ibv_context *context = NULL;
    if (event->event_type == IBV_EVENT_CQ_ERR)
        context = event->element.cq->context;
    else if (event->event_type <= IBV_EVENT_PATH_MIG_ERR || event->event_type == IBV_EVENT_QP_LAST_WQE_REACHED)
        context = event->element.qp->context;
    if (is_ours(context))
        acknowledge_async_event(event);
    else if (REAL(ack_async_event, IB_1_1) != NULL && context != NULL)
        REAL(ack_async_event, IB_1_1)(event);
}
EXPORT(ack_async_event, IB_1_1);

int verbs_fork_init(void)
{
    /* Our memory is ordinary memory: a fork copies it as any other. */
    return REAL(fork_init, IB_1_1) == NULL ? 0 : REAL(fork_init, IB_1_1)();
}
EXPORT(fork_init, IB_1_1);

enum ibv_fork_status verbs_is_fork_initialized(void)
{
    return REAL(is_fork_initialized, "IBVERBS_1.13") == NULL ? IBV_FORK_UNNEEDED
                                                             : REAL(is_fork_initialized, "IBVERBS_1.13")();
}
EXPORT(is_fork_initialized, "IBVERBS_1.13");

/* Words for numbers */

#define WORD_OF(words, number, unknown)                                                                                \
    ((size_t)(number) < sizeof(words) / sizeof *(words) && (words)[number] != NULL ? (words)[number] : (unknown))

const char *verbs_wc_status_str(enum ibv_wc_status status)
{
    static const char *const words[] = {
        [IBV_WC_SUCCESS] = "success",
        [IBV_WC_LOC_LEN_ERR] = "local length error",
        [IBV_WC_LOC_QP_OP_ERR] = "local QP operation error",
        [IBV_WC_LOC_PROT_ERR] = "local protection error",
        [IBV_WC_WR_FLUSH_ERR] = "Work Request Flushed Error",
        [IBV_WC_REM_INV_REQ_ERR] = "remote invalid request error",
        [IBV_WC_REM_ACCESS_ERR] = "remote access error",
        [IBV_WC_REM_OP_ERR] = "remote operation error",
        [IBV_WC_RETRY_EXC_ERR] = "transport retry counter exceeded",
        [IBV_WC_RNR_RETRY_EXC_ERR] = "RNR retry counter exceeded",
        [IBV_WC_FATAL_ERR] = "fatal error",
        [IBV_WC_RESP_TIMEOUT_ERR] = "response timeout error",
        [IBV_WC_GENERAL_ERR] = "general error",
    };
    return WORD_OF(words, status, "unknown");
}
EXPORT(wc_status_str, IB_1_1);

const char *verbs_event_type_str(enum ibv_event_type event)
{
    static const char *const words[] = {
        [IBV_EVENT_CQ_ERR] = "CQ error",
        [IBV_EVENT_QP_FATAL] = "local work queue catastrophic error",
        [IBV_EVENT_QP_REQ_ERR] = "invalid request local work queue error",
        [IBV_EVENT_QP_ACCESS_ERR] = "local access violation work queue error",
        [IBV_EVENT_COMM_EST] = "communication established",
        [IBV_EVENT_SQ_DRAINED] = "send queue drained",
        [IBV_EVENT_DEVICE_FATAL] = "local catastrophic error",
        [IBV_EVENT_PORT_ACTIVE] = "port active",
        [IBV_EVENT_PORT_ERR] = "port error",
        [IBV_EVENT_GID_CHANGE] = "GID table change",
    };
    return WORD_OF(words, event, "unknown event");
}
EXPORT(event_type_str, IB_1_1);

const char *verbs_node_type_str(enum ibv_node_type type)
{
    if (type == IBV_NODE_CA)
        return "InfiniBand channel adapter";
    HAND_ON("unknown", node_type_str, IB_1_1, type);
}
EXPORT(node_type_str, IB_1_1);

const char *verbs_port_state_str(enum ibv_port_state state)
{
    static const char *const words[] = {
        [IBV_PORT_NOP] = "no state change",
        [IBV_PORT_DOWN] = "down",
        [IBV_PORT_INIT] = "init",
        [IBV_PORT_ARMED] = "armed",
        [IBV_PORT_ACTIVE] = "active",
        [IBV_PORT_ACTIVE_DEFER] = "active defer",
    };
    return WORD_OF(words, state, "unknown");
}
EXPORT(port_state_str, IB_1_1);

#pragma GCC visibility pop

/* Operations that verbs.h calls inline */

static struct ibv_mw *refuse_window(struct ibv_pd *pd, enum ibv_mw_type type)
{
    (void)pd, (void)type;
    return refuse("a memory window"), NULL;
}

static int refuse_shared_receive(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    (void)srq;
    return *bad = wr, EOPNOTSUPP;
}

void fill_context_operations(struct verbs_context *verbs)
{
    verbs->sz = sizeof *verbs;
    verbs->context.abi_compat = __VERBS_ABI_IS_EXTENDED;
    verbs->query_port = query_port;
    verbs->context.ops.alloc_mw = refuse_window;
    verbs->context.ops.poll_cq = poll_cq;
    verbs->context.ops.req_notify_cq = arm_cq;
    verbs->context.ops.post_srq_recv = refuse_shared_receive;
    verbs->context.ops.post_send = post_send;
    verbs->context.ops.post_recv = post_recv;
}
