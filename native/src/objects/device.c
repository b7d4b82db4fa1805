/* The device, its contexts and its domains. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "objects/forced_errors.h"
#include "objects/objects.h"
#include "endpoint/report.h"

#define NO_VENDOR 0x4D5243 /* "MRC": a vendor that no program knows, so that it posts by ibv_post_send */

static struct ibv_device device = {
    .node_type = IBV_NODE_CA,
    .transport_type = IBV_TRANSPORT_IB,
    .name = "mrc0",
    .dev_name = "uverbs-mrc0",
    .dev_path = "/nonexistent/mrc0",
    .ibdev_path = "/nonexistent/mrc0",
};

struct ibv_device *the_device(void)
{
    return &device;
}

bool is_the_device(const struct ibv_device *each)
{
    return each == &device;
}

bool is_ours(const struct ibv_context *context)
{
    return context != NULL && context->device == &device;
}

static bool choose_planes(struct planes *planes)
{
    const char *given = getenv("MRC_PLANES");
    if (given == NULL || *given == '\0')
        return planes_find(planes);
    if (!planes_parse(given, planes))
        return false;
    if (planes_fit_gid(planes))
        return true;
    report("MRC_PLANES: a GID can only say IPv4 addresses with a common step from plane to plane, or IPv6 addresses that "
           "count planes in one byte, with seven bytes that are not zero");
    return false;
}

uint64_t device_guid(void)
{
    struct planes planes;
    uint64_t guid = 0;
    if (choose_planes(&planes)) {
        uint8_t bytes[8] = {0x02, 'M', 'R', 'C'};
        if (planes.address[0].version == 4)
            memcpy(bytes + 4, &planes.address[0].v4, 4);
        else /* of the last bytes, where hosts differ */
            memcpy(bytes + 4, planes.address[0].v6.s6_addr + 12, 4);
        memcpy(&guid, bytes, 8);
    }
    return guid;
}

static void say_what_was_chosen(const struct endpoint *endpoint)
{
    static const char *const emulated[]
        = {"", [EMULATES_EARLY] = ", SEND emulated by writes",
           [EMULATES_READ] = ", SEND, READ and RNR emulated by writes",
           [EMULATES_EARLY | EMULATES_READ] = ", SEND and READ emulated by writes"};
    char all[1024] = "", text[INET6_ADDRSTRLEN];
    size_t used = 0;
    for (int plane = 0; plane < endpoint->addresses.count && used < sizeof all; plane++)
        used += (size_t)snprintf(all + used, sizeof all - used, " %s",
                                 plane_text(&endpoint->addresses.address[plane], text));
    report("mrc0: %d plane%s %s%s, UDP port %d, path MTU %d%s", endpoint->addresses.count,
           endpoint->addresses.count == 1 ? "" : "s", endpoint->addresses.found ? "found" : "given", all,
           endpoint->addresses.port, endpoint->mtu, emulated[endpoint->addresses.emulates]);
}

static pthread_mutex_t listing = PTHREAD_MUTEX_INITIALIZER;
static struct context *newest; /* of the contexts of the process, the others follow */

static void list_context(struct context *context)
{
    pthread_mutex_lock(&listing);
    context->next = newest;
    newest = context;
    pthread_mutex_unlock(&listing);
}

static void unlist_context(const struct context *context)
{
    pthread_mutex_lock(&listing);
    for (struct context **each = &newest; *each != NULL; each = &(*each)->next)
        if (*each == context) {
            *each = context->next;
            break;
        }
    pthread_mutex_unlock(&listing);
}

static bool has_qp(struct context *context, uint32_t number)
{
    bool found = false;
    pthread_mutex_lock(&context->events);
    for (int row = 0; row < MRC_QPS && !found; row++)
        found = context->qps[row] != NULL && context->qps[row]->verbs.qp_num == number;
    pthread_mutex_unlock(&context->events);
    return found;
}

/* The context, other than this one, that has a queue pair of this number; NULL: none. `listing` is held. */
static struct context *other_with(const struct context *context, uint32_t number)
{
    struct context *each = newest;
    while (each != NULL && (each == context || !endpoint_is_usable(each->endpoint) || !has_qp(each, number)))
        each = each->next;
    return each;
}

void find_gid_in_process(struct context *context, uint32_t number, struct mrc_gid *gid)
{
    struct mrc_gid own = planes_gid(&context->endpoint->addresses);
    if (memcmp(gid, &own, sizeof own) != 0 || has_qp(context, number))
        return;
    pthread_mutex_lock(&listing);
    const struct context *found = other_with(context, number);
    if (found != NULL)
        *gid = planes_gid(&found->endpoint->addresses);
    pthread_mutex_unlock(&listing);
}

void list_qp(struct context *context, struct qp *qp)
{
    struct mrc_engine_qps *row = &context->endpoint->qps[qp->row];
    pthread_mutex_lock(&listing);
    while (other_with(context, (uint32_t)row->qpn) != NULL)
        mrc_renew_number(context->endpoint->at, qp->row, (int64_t)(random_bits() >> 1));
    qp->verbs.qp_num = (uint32_t)row->qpn;
    pthread_mutex_lock(&context->events);
    qp->ordinal = ++context->qps_made;
    __atomic_store_n(&context->qps[qp->row], qp, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&context->events);
    pthread_mutex_unlock(&listing);
}

static struct context *allocate(void)
{
    struct context *context = calloc(1, sizeof *context + sizeof *context->forced);
    if (context == NULL)
        return NULL;
    context->forced = (struct forced_error *)(context + 1);
    pthread_mutex_init(&context->events, NULL);
    pthread_mutex_init(&context->reporting, NULL);
    pthread_cond_init(&context->acknowledged, NULL);
    pthread_mutex_init(&context->serving, NULL);
    context->serving_fd = -1;
    atomic_init(&context->users, 1);
    context->mpr = MRC_MPR;
    context->max_wimm = MRC_WIMMS;
    struct ibv_context *verbs = &context->verbs.context;
    verbs->device = &device;
    verbs->cmd_fd = verbs->async_fd = -1;
    verbs->num_comp_vectors = 1;
    pthread_mutex_init(&verbs->mutex, NULL);
    fill_context_operations(&context->verbs);
    return context;
}

/* Open what a context works with; an error of errno if something is not to be had. */
static int begin(struct context *context, const struct planes *planes)
{
    struct ibv_context *verbs = &context->verbs.context;
    if (!forced_error_wanted(context->forced))
        return EINVAL;
    verbs->async_fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
    if (verbs->async_fd < 0)
        return errno;
    context->ctl = context->controller->open();
    if (context->ctl == NULL)
        return errno;
    bool opened = endpoint_open(&context->endpoint, planes, watcher_of(context));
    return opened ? context->emulator->start(context) : errno;
}

/* End whatever of it has begun. */
static void end(struct context *context)
{
    unlist_context(context);
    if (context->endpoint != NULL) {
        context->emulator->stop(context);
        endpoint_close(context->endpoint);
    }
    while (context->first != NULL) {
        struct async_record *next = context->first->next;
        free(context->first);
        context->first = next;
    }
    if (context->verbs.context.async_fd >= 0)
        close(context->verbs.context.async_fd);
    context->controller->close(context->ctl);
    free(context);
}

struct ibv_context *open_context(const struct emulator *emulator, const struct controller *controller)
{
    struct planes planes;
    if (!choose_planes(&planes))
        return errno = EINVAL, NULL;
    planes.emulates = emulator->wanted();
    if (planes.emulates < 0)
        return errno = EINVAL, NULL;
    struct context *context = allocate();
    if (context == NULL)
        return NULL;
    context->emulator = emulator;
    context->controller = controller;
    int error = begin(context, &planes);
    if (error != 0) {
        end(context);
        return errno = error, NULL;
    }
    list_context(context);
    say_what_was_chosen(context->endpoint);
    return &context->verbs.context;
}

void hold_context(struct ibv_context *verbs)
{
    atomic_fetch_add(&its_context(verbs)->users, 1);
}

void release_context(struct ibv_context *verbs)
{
    if (atomic_fetch_sub(&its_context(verbs)->users, 1) == 1)
        end(its_context(verbs));
}

/* Programs may close in any order: what they still have open keeps the context. */
int close_context(struct ibv_context *verbs)
{
    release_context(verbs);
    return 0;
}

void fill_device(struct context *context, struct ibv_device_attr *attr)
{
    memset(attr, 0, sizeof *attr);
    snprintf(attr->fw_ver, sizeof attr->fw_ver, "%s", MRC_LAYOUT_DIGEST);
    attr->node_guid = attr->sys_image_guid = device_guid();
    attr->max_mr_size = UINT64_MAX;
    attr->page_size_cap = 0xFFFFF000;
    attr->vendor_id = NO_VENDOR;
    attr->vendor_part_id = 1;
    attr->hw_ver = 1;
    attr->max_qp = MRC_QPS;
    attr->max_qp_wr = DEPTH_OF_A_QUEUE;
    attr->max_sge = MOST_SGES;
    attr->max_cq = MRC_CQS;
    attr->max_cqe = MOST_CQES;
    attr->max_mr = REGIONS;
    attr->max_pd = MOST_PDS;
    attr->atomic_cap = IBV_ATOMIC_NONE;
    attr->max_qp_rd_atom = attr->max_qp_init_rd_atom = reads_at_once(context->endpoint);
    attr->max_res_rd_atom = attr->max_qp_rd_atom * MRC_QPS;
    attr->max_pkeys = 1;
    attr->phys_port_cnt = 1;
}

enum ibv_mtu largest_mtu(const struct context *context)
{
    enum ibv_mtu mtu = IBV_MTU_256;
    for (int size = 256; size < context->endpoint->mtu; size *= 2)
        mtu++;
    return mtu;
}

int fill_port(struct context *context, int port, struct ibv_port_attr *attr)
{
    if (port != 1)
        return EINVAL;
    memset(attr, 0, sizeof *attr);
    bool works = false;
    for (int plane = 0; plane < context->endpoint->addresses.count; plane++)
        works = works || context->endpoint->planes[plane].faults == 0;
    attr->state = works ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
    attr->max_mtu = attr->active_mtu = largest_mtu(context);
    attr->gid_tbl_len = GID_ENTRIES;
    attr->max_msg_sz = (uint32_t)MRC_MAX_MESSAGE;
    attr->pkey_tbl_len = 1;
    attr->max_vl_num = 1;
    attr->active_width = 2;  /* 4X of EDR: about what a software endpoint is set for, 100 Gb/s */
    attr->active_speed = 32;
    attr->phys_state = works ? 5 : 3; /* link up, disabled */
    attr->link_layer = IBV_LINK_LAYER_ETHERNET;
    attr->flags = IBV_QPF_GRH_REQUIRED;
    return 0;
}

int fill_gid(struct context *context, int port, int index, union ibv_gid *gid)
{
    if (port != 1 || index < 0 || index >= GID_ENTRIES)
        return EINVAL;
    struct mrc_gid ours = planes_gid(&context->endpoint->addresses);
    memcpy(gid->raw, ours.raw, sizeof gid->raw);
    return 0;
}

struct ibv_pd *open_pd(struct ibv_context *context)
{
    atomic_int *open = &its_context(context)->pds_open;
    bool has_room = atomic_fetch_add(open, 1) < MOST_PDS;
    struct pd *pd = has_room ? calloc(1, sizeof *pd) : NULL;
    if (pd == NULL) {
        atomic_fetch_sub(open, 1);
        return errno = ENOMEM, NULL;
    }
    pd->verbs.context = pd->owner = context;
    pd->number = atomic_fetch_add(&its_context(context)->pds, 1) + 1;
    pd->verbs.handle = (uint32_t)pd->number;
    hold_context(context);
    return &pd->verbs;
}

int close_pd(struct ibv_pd *verbs)
{
    struct pd *pd = (struct pd *)verbs;
    struct ibv_context *context = verbs->context;
    if (!is_whole_pd(verbs))
        return ENOENT;
    if (atomic_load(&pd->users) > 0)
        return EBUSY;
    atomic_fetch_sub(&its_context(context)->pds_open, 1);
    free(pd);
    release_context(context);
    return 0;
}
