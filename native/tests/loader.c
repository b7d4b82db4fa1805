/*
 * A program that opens libibverbs by path, as NCCL does with NCCL_IBVERBS_LIB: dlopen, then dlvsym of each name.
 * Names and versions are those of NCCL's ibvsymbols; all of the first list must be there.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <string.h>

static const char *const mandatory[] = {
    "ibv_get_device_list", "ibv_free_device_list", "ibv_get_device_name", "ibv_open_device", "ibv_close_device",
    "ibv_get_async_event", "ibv_ack_async_event", "ibv_query_device", "ibv_query_port", "ibv_query_gid", "ibv_query_qp",
    "ibv_alloc_pd", "ibv_dealloc_pd", "ibv_reg_mr", "ibv_dereg_mr", "ibv_create_cq", "ibv_destroy_cq", "ibv_create_qp",
    "ibv_modify_qp", "ibv_destroy_qp", "ibv_fork_init", "ibv_event_type_str",
};

static const char *const optional[][2] = {
    {"ibv_reg_mr_iova2", "IBVERBS_1.8"}, {"ibv_query_ece", "IBVERBS_1.10"},      {"ibv_set_ece", "IBVERBS_1.10"},
    {"ibv_reg_dmabuf_mr", "IBVERBS_1.12"},
};

int main(int count, char **words)
{
    void *library = count > 1 ? dlopen(words[1], RTLD_NOW) : NULL;
    if (library == NULL)
        return fprintf(stderr, "%s\n", dlerror()), 1;
    for (size_t i = 0; i < sizeof mandatory / sizeof *mandatory; i++)
        if (dlvsym(library, mandatory[i], "IBVERBS_1.1") == NULL)
            return fprintf(stderr, "%s is missing\n", mandatory[i]), 1;
    for (size_t i = 0; i < sizeof optional / sizeof *optional; i++)
        if (dlvsym(library, optional[i][0], optional[i][1]) == NULL)
            return fprintf(stderr, "%s is missing\n", optional[i][0]), 1;

    /* The first steps of its set-up: the device, its port, and a GID that it can use. */
    struct ibv_device **(*list)(int *) = (struct ibv_device * *(*)(int *)) dlvsym(library, mandatory[0], "IBVERBS_1.1");
    struct ibv_context *(*open)(struct ibv_device *);
    *(void **)&open = dlvsym(library, "ibv_open_device", "IBVERBS_1.1");
    int (*close)(struct ibv_context *), (*gid)(struct ibv_context *, uint8_t, int, union ibv_gid *);
    *(void **)&close = dlvsym(library, "ibv_close_device", "IBVERBS_1.1");
    *(void **)&gid = dlvsym(library, "ibv_query_gid", "IBVERBS_1.1");
    int devices = 0;
    struct ibv_device **all = list(&devices);
    if (all == NULL || devices != 1)
        return fprintf(stderr, "%d devices\n", devices), 1;
    struct ibv_context *context = open(all[0]);
    struct ibv_port_attr port = {0};
    union ibv_gid address;
    if (context == NULL || verbs_get_ctx_op(context, query_port)->query_port(context, 1, &port, sizeof port) != 0
        || port.state != IBV_PORT_ACTIVE || port.link_layer != IBV_LINK_LAYER_ETHERNET)
        return fputs("no active port\n", stderr), 1;
    if (gid(context, 1, 3, &address) != 0 || gid(context, 1, port.gid_tbl_len, &address) == 0)
        return fputs("GIDs\n", stderr), 1;
    return close(context);
}
