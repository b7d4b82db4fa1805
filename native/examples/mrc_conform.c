/*
 * An adapter for `mrc conform`: plays the device under test with the functions of mrc.h.
 *
 *     mrc conform --device libmrc --peer libmrc                      builds it and runs it
 *     MRC_PLANES=192.0.2.1,198.51.100.1 mrc_conform                         the same by hand
 *
 * Requests come as one line of JSON each on stdin, answers and events leave as lines on stdout; docs/conform.md has the
 * table of them. The library makes 8 paths a plane, and takes packets of a peer from the 8 source ports that its GID
 * says; ports are the interfaces', so this program sets none.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <mrc.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_PLANES 16
#define LARGEST_WRITE (1 << 21)
#define MAX_SENDS 512
#define FIRST_PSN 0x5000
#define PERIOD 251 /* of the pattern that writes carry */
#define LINE (1 << 14)
#define PATHS 8 /* of a plane, of one process */
#define IDLE_MS 1

struct device {
    struct ibv_context *verbs;
    struct mrc_context *context;
    struct ibv_pd *pd;
    struct mrc_cq *sends, *receives;
    struct mrc_qp *qp;
    struct ibv_mr *region, *source;
    uint8_t *memory, *out;
    uint64_t length, remote_address;
    uint32_t remote_key;
    int mtu, mpr, max_wimm, first_psn, posted, timeout, linear, exponential;
    bool dynamic_mpr, writable;
};

static char addresses[MOST_PLANES][INET_ADDRSTRLEN];
static int planes_given;

/* Answers, one line each. */

static void say(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    vprintf(format, values);
    va_end(values);
    putchar('\n');
    fflush(stdout);
}

static bool unsupported(const char *why)
{
    say("{\"unsupported\": \"%s\"}", why);
    return false;
}

static bool failed(const char *what, int error)
{
    say("{\"unsupported\": \"%s: %s\"}", what, strerror(error));
    return false;
}

/* Requests: flat enough that a field is found by its name; nothing that the tester sends needs more. */

static const char *field(const char *line, const char *name)
{
    char key[64];
    snprintf(key, sizeof key, "\"%s\":", name);
    const char *at = strstr(line, key);
    if (at == NULL)
        return NULL;
    at += strlen(key);
    while (*at == ' ')
        at++;
    return strncmp(at, "null", 4) == 0 ? NULL : at;
}

static int64_t number(const char *line, const char *name, int64_t otherwise)
{
    const char *at = field(line, name);
    if (at == NULL)
        return otherwise;
    if (*at == 't' || *at == 'f')
        return *at == 't';
    return (int64_t)strtoull(at, NULL, 10);
}

/* The address of plane 0 of the peer, the step to the next and its port, as a GID of the library says them. */
static bool gid_of_peer(const char *line, union ibv_gid *gid)
{
    uint32_t address[MOST_PLANES] = {0};
    int port = 0, count = 0;
    const char *at = field(line, "planes");
    const char *end = at != NULL ? strchr(at, ']') : NULL;
    for (; at != NULL && end != NULL && count < MOST_PLANES && (at = strchr(at, '"')) != NULL && at < end; count++) {
        char text[64] = {0};
        struct in_addr found;
        size_t length = strcspn(++at, "\"");
        memcpy(text, at, length < sizeof text ? length : sizeof text - 1);
        char *colon = strchr(text, ':');
        port = colon != NULL ? atoi(colon + 1) : 4791;
        if (colon != NULL)
            *colon = 0;
        if (inet_pton(AF_INET, text, &found) != 1)
            return false;
        address[count] = ntohl(found.s_addr);
        at += length + 1;
    }
    uint32_t step = count > 1 ? address[1] - address[0] : 0;
    for (int plane = 1; plane < count; plane++)
        if (address[plane] - address[plane - 1] != step)
            return false;
    if (count == 0 || step > 0xFFFF)
        return false;
    const uint8_t start[] = {0xFD, 'M', 'R', 'C', (uint8_t)(0x10 | (count - 1)), 0, (uint8_t)(port >> 8), (uint8_t)port,
                             (uint8_t)(number(line, "first_path", 0) / PATHS), 0, (uint8_t)(step >> 8), (uint8_t)step};
    memcpy(gid->raw, start, sizeof start);
    uint32_t first = htonl(address[0]);
    memcpy(gid->raw + sizeof start, &first, sizeof first);
    return true;
}

static enum ibv_mtu mtu_code(int bytes)
{
    for (int code = IBV_MTU_256; code <= IBV_MTU_4096; code++)
        if (128 << code == bytes)
            return (enum ibv_mtu)code;
    return 0;
}

/* Opening and closing. */

static void close_device(struct device *device)
{
    if (device->qp != NULL)
        mrc_destroy_qp(device->qp);
    if (device->sends != NULL)
        mrc_destroy_cq(device->sends);
    if (device->receives != NULL)
        mrc_destroy_cq(device->receives);
    if (device->region != NULL)
        ibv_dereg_mr(device->region);
    if (device->source != NULL)
        ibv_dereg_mr(device->source);
    if (device->context != NULL)
        mrc_destroy_context(device->context);
    if (device->pd != NULL)
        ibv_dealloc_pd(device->pd);
    if (device->verbs != NULL)
        ibv_close_device(device->verbs);
    free(device->memory);
    free(device->out);
    memset(device, 0, sizeof *device);
}

static struct ibv_context *open_verbs(int planes)
{
    char list[MOST_PLANES * (INET_ADDRSTRLEN + 1)] = "";
    for (int plane = 0; plane < planes; plane++) {
        strcat(list, plane > 0 ? "," : "");
        strcat(list, addresses[plane]);
    }
    setenv("MRC_PLANES", list, 1);
    struct ibv_device **devices = ibv_get_device_list(NULL);
    struct ibv_context *verbs = devices != NULL && *devices != NULL ? ibv_open_device(*devices) : NULL;
    if (devices != NULL)
        ibv_free_device_list(devices);
    return verbs;
}

static bool read_wanted(struct device *device, const char *line)
{
    device->length = (uint64_t)number(line, "bytes", 1 << 16);
    device->mtu = (int)number(line, "mtu", 1024);
    device->mpr = (int)number(line, "mpr", 8);
    device->max_wimm = (int)number(line, "max_wimm", 4);
    device->first_psn = (int)number(line, "first_psn", FIRST_PSN);
    device->posted = (int)number(line, "receives", 16);
    device->timeout = (int)number(line, "timeout", 14);
    device->linear = (int)number(line, "linear", 7);
    device->exponential = (int)number(line, "exponential", 7);
    device->dynamic_mpr = number(line, "dynamic_mpr", 0) != 0;
    device->writable = number(line, "writable", 1) != 0;
    if (mtu_code(device->mtu) == 0)
        return unsupported("verbs have path MTUs of 256 to 4096 bytes");
    if (device->mpr > 32 || device->max_wimm > 256)
        return unsupported("larger than the windows of this library");
    if (number(line, "evs", 4) > PATHS)
        return unsupported("the library has 8 paths a plane");
    if (number(line, "planes", 2) > planes_given)
        return unsupported("not so many planes were named in MRC_PLANES");
    return true;
}

static bool make_objects(struct device *device)
{
    device->context = mrc_create_context(device->verbs, NULL);
    device->pd = ibv_alloc_pd(device->verbs);
    device->sends = mrc_create_cq(device->context, 2 * MAX_SENDS, NULL, NULL, 0);
    device->receives = mrc_create_cq(device->context, 4096, NULL, NULL, 0);
    size_t whole = (device->length + 4095) & ~(size_t)4095;
    device->memory = aligned_alloc(4096, whole);
    device->out = aligned_alloc(4096, LARGEST_WRITE);
    if (device->pd == NULL || device->sends == NULL || device->receives == NULL || device->memory == NULL)
        return false;
    memset(device->memory, 0, whole);
    int access = IBV_ACCESS_LOCAL_WRITE | (device->writable ? IBV_ACCESS_REMOTE_WRITE : 0);
    device->region = ibv_reg_mr(device->pd, device->memory, device->length, access);
    device->source = ibv_reg_mr(device->pd, device->out, LARGEST_WRITE, IBV_ACCESS_LOCAL_WRITE);
    uint32_t receives = device->posted > 0 ? (uint32_t)device->posted : 1;
    struct mrc_qp_init_attr init = {.send_cq = device->sends, .recv_cq = device->receives, .sq_sig_all = 1};
    init.pd = device->pd;
    init.cap = (struct ibv_qp_cap){MAX_SENDS, receives, 1, 1, 0};
    device->qp = mrc_create_qp(device->context, &init);
    return device->region != NULL && device->source != NULL && device->qp != NULL;
}

static bool open_device(struct device *device, const char *line)
{
    close_device(device);
    if (!read_wanted(device, line))
        return false;
    int planes = (int)number(line, "planes", 2);
    device->verbs = open_verbs(planes);
    if (device->verbs == NULL || !make_objects(device))
        return failed("opening", errno);
    char list[MOST_PLANES * (INET_ADDRSTRLEN + 8)] = "";
    for (int plane = 0; plane < planes; plane++)
        sprintf(list + strlen(list), "%s\"%s:4791\"", plane > 0 ? ", " : "", addresses[plane]);
    uint32_t qpn = 0;
    mrc_get_qpn(device->qp, &qpn);
    say("{\"device\": \"libmrc %s\", \"planes\": [%s], \"qpn\": %" PRIu32 ", \"psn\": %d, \"addr\": %" PRIu64
        ", \"r_key\": %" PRIu32 ", \"length\": %" PRIu64 ", \"mtu\": %d, \"mpr\": %d, \"max_wimm\": %d, "
        "\"dynamic_mpr\": %s}",
        mrc_library_version(), list, qpn, device->first_psn, (uint64_t)(uintptr_t)device->memory, device->region->rkey,
        device->length, device->mtu, device->mpr, device->max_wimm, device->dynamic_mpr ? "true" : "false");
    return true;
}

static int post_receives(struct device *device)
{
    struct ibv_recv_wr receive = {.wr_id = 1}, *bad;
    for (int i = 0; i < device->posted; i++)
        if (mrc_post_recv(device->qp, &receive, &bad) != 0)
            return errno;
    return 0;
}

static bool bring_up(struct device *device, const char *line)
{
    struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR}, rts = {.qp_state = IBV_QPS_RTS};
    int mtu = (int)number(line, "mtu", device->mtu), mpr = (int)number(line, "mpr", device->mpr);
    int wimm = (int)number(line, "max_wimm", device->max_wimm);
    struct mrc_qp_attr mrc = {.timeout = (uint8_t)device->timeout};
    mrc.mpr.mpr = (uint8_t)device->mpr;
    mrc.mpr.mpr_dest = (uint8_t)(mpr < device->mpr ? mpr : device->mpr);
    mrc.wimm.max_wimm = (uint16_t)(wimm < device->max_wimm ? wimm : device->max_wimm);
    mrc.wimm.max_wimm_dest = (uint16_t)device->max_wimm;
    mrc.retry.linear_cnt = (uint8_t)device->linear;
    mrc.retry.exp_cnt = (uint8_t)device->exponential;
    mrc.cap = number(line, "trim_nack", 1) ? 0 : MRC_QP_CAP_TRIM_NACK_DEST_UNSUPPORTED;
    mrc.cap |= device->dynamic_mpr && number(line, "dynamic_mpr", 0) ? MRC_QP_CAP_DYNAMIC_MPR : 0;
    rtr.path_mtu = mtu_code(mtu < device->mtu ? mtu : device->mtu);
    rtr.rq_psn = (uint32_t)number(line, "psn", 0);
    rtr.dest_qp_num = (uint32_t)number(line, "qpn", 0);
    rtr.ah_attr = (struct ibv_ah_attr){.is_global = 1, .port_num = 1, .grh = {.sgid_index = 3}};
    rts.sq_psn = (uint32_t)device->first_psn;
    if (!gid_of_peer(line, &rtr.ah_attr.grh.dgid))
        return unsupported("the tester's addresses must be IPv4 with a constant step from plane to plane");
    int error = mrc_modify_qp(device->qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
                              &mrc, 0);
    if (error == 0)
        error = mrc_modify_qp(device->qp, &rtr,
                              IBV_QP_STATE | IBV_QP_AV | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_PATH_MTU, &mrc,
                              MRC_QP_MAX_WIMM_DEST | MRC_QP_MPR | MRC_QP_MPR_DEST | MRC_QP_CAP);
    if (error == 0)
        error = post_receives(device);
    if (error == 0)
        error = mrc_modify_qp(device->qp, &rts, IBV_QP_STATE | IBV_QP_SQ_PSN, &mrc,
                              MRC_QP_MAX_WIMM | MRC_QP_MPR | MRC_QP_RETRY_CNT | MRC_QP_TIMEOUT);
    if (error != 0)
        return failed("connecting", error);
    device->remote_address = (uint64_t)number(line, "addr", 0);
    device->remote_key = (uint32_t)number(line, "r_key", 0);
    say("{}");
    return true;
}

/* Writes, memory, completions. */

static bool post_writes(struct device *device, const char *line)
{
    uint64_t length = (uint64_t)number(line, "length", 0), offset = (uint64_t)number(line, "offset", 0);
    int fill = (int)number(line, "fill", 1), count = (int)number(line, "count", 1);
    if (length > LARGEST_WRITE)
        return unsupported("a write larger than 2 MiB");
    for (uint64_t at = 0; at < length; at++)
        device->out[at] = (uint8_t)((offset % PERIOD + at % PERIOD) % PERIOD * 7 % PERIOD + (uint64_t)fill) % PERIOD;
    struct ibv_sge sge = {(uintptr_t)device->out, (uint32_t)length, device->source->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
    wr.wr.rdma.remote_addr = device->remote_address + offset;
    wr.wr.rdma.rkey = device->remote_key;
    if (field(line, "immediate") != NULL) {
        wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
        wr.imm_data = htonl((uint32_t)number(line, "immediate", 0));
    }
    for (int posted = 0; posted < count; posted++)
        if (mrc_post_send(device->qp, &wr, &bad) != 0)
            return failed("posting a write", errno);
    say("{}");
    return true;
}

static void show_memory(const struct device *device, const char *line)
{
    uint64_t offset = (uint64_t)number(line, "offset", 0), length = (uint64_t)number(line, "length", 0);
    printf("{\"data\": \"");
    for (uint64_t at = offset; at < offset + length && at < device->length; at++)
        printf("%02x", ((volatile uint8_t *)device->memory)[at]);
    say("\"}");
}

/* Statuses by the names that enum ibv_wc_status has without its prefix. */
static const char *status_name(enum ibv_wc_status status)
{
    static const char *const names[] = {
        [IBV_WC_SUCCESS] = "SUCCESS",
        [IBV_WC_LOC_LEN_ERR] = "LOC_LEN_ERR",
        [IBV_WC_LOC_QP_OP_ERR] = "LOC_QP_OP_ERR",
        [IBV_WC_LOC_PROT_ERR] = "LOC_PROT_ERR",
        [IBV_WC_WR_FLUSH_ERR] = "WR_FLUSH_ERR",
        [IBV_WC_LOC_ACCESS_ERR] = "LOC_ACCESS_ERR",
        [IBV_WC_REM_INV_REQ_ERR] = "REM_INV_REQ_ERR",
        [IBV_WC_REM_ACCESS_ERR] = "REM_ACCESS_ERR",
        [IBV_WC_REM_OP_ERR] = "REM_OP_ERR",
        [IBV_WC_RETRY_EXC_ERR] = "RETRY_EXC_ERR",
        [IBV_WC_RNR_RETRY_EXC_ERR] = "RNR_RETRY_EXC_ERR",
        [IBV_WC_FATAL_ERR] = "FATAL_ERR",
        [IBV_WC_RESP_TIMEOUT_ERR] = "RESP_TIMEOUT_ERR",
        [IBV_WC_GENERAL_ERR] = "GENERAL_ERR",
    };
    bool known = status < sizeof names / sizeof *names && names[status] != NULL;
    return known ? names[status] : "GENERAL_ERR";
}

static void report(struct mrc_cq *cq, const char *kind)
{
    struct ibv_wc wc;
    while (cq != NULL && mrc_poll_cq(cq, 1, &wc) == 1) {
        char immediate[48] = "";
        if (wc.status == IBV_WC_SUCCESS && wc.wc_flags & IBV_WC_WITH_IMM)
            snprintf(immediate, sizeof immediate, ", \"immediate\": %" PRIu32, ntohl(wc.imm_data));
        say("{\"event\": \"%s\", \"status\": \"%s\", \"length\": %" PRIu32 "%s}", kind, status_name(wc.status),
            wc.status == IBV_WC_SUCCESS ? wc.byte_len : 0, immediate);
    }
}

static void answer(struct device *device, const char *line)
{
    const char *what = field(line, "do");
    if (what == NULL)
        unsupported("a request without `do`");
    else if (strncmp(what, "\"open\"", 6) == 0)
        open_device(device, line);
    else if (strncmp(what, "\"close\"", 7) == 0)
        close_device(device), say("{}");
    else if (device->qp == NULL)
        unsupported("not open");
    else if (strncmp(what, "\"connect\"", 9) == 0)
        bring_up(device, line);
    else if (strncmp(what, "\"write\"", 7) == 0)
        post_writes(device, line);
    else if (strncmp(what, "\"memory\"", 8) == 0)
        show_memory(device, line);
    else
        unsupported("ports are those of the interfaces");
}

static bool serve(struct device *device)
{
    static char waiting[LINE];
    static size_t filled;
    ssize_t got = read(0, waiting + filled, sizeof waiting - 1 - filled);
    if (got <= 0)
        return false;
    filled += (size_t)got;
    waiting[filled] = 0;
    for (char *end; (end = strchr(waiting, '\n')) != NULL;) {
        *end = 0;
        answer(device, waiting);
        filled -= (size_t)(end + 1 - waiting);
        memmove(waiting, end + 1, filled + 1);
    }
    return filled < sizeof waiting - 1;
}

static void read_addresses(const char *text)
{
    char *copy = strdup(text), *rest = copy;
    for (char *word; planes_given < MOST_PLANES && (word = strsep(&rest, ", ")) != NULL;)
        if (*word != 0)
            snprintf(addresses[planes_given++], INET_ADDRSTRLEN, "%s", word);
    free(copy);
}

int main(void)
{
    static struct device device;
    const char *given = getenv("MRC_PLANES");
    if (given == NULL)
        return fputs("mrc_conform: name the address of each plane in MRC_PLANES\n", stderr), 127;
    read_addresses(given);
    for (bool open = true; open;) {
        struct pollfd request = {.fd = 0, .events = POLLIN};
        poll(&request, 1, IDLE_MS);
        report(device.sends, "completion");
        report(device.receives, "receive");
        if (request.revents != 0)
            open = serve(&device);
    }
    close_device(&device);
    return 0;
}
