/* Control of an endpoint through mrc_ctl.h, between two endpoints of one process; each test is a name on the command line. */
#include <errno.h>
#include <mrc_ctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "both_ends.h"
#include "named_tests.h"

#define PLANES 4
#define SECOND 1000000000ULL
#define PLANE_1_IS_SILENT "0 1 1 0 0 0 0 0 0 0 0"
#define PLANES_1_TO_3_ARE_SILENT "0 1 1 0 0 0 0 0 0 0 0;0 2 1 0 0 0 0 0 0 0 0;0 3 1 0 0 0 0 0 0 0 0"
#define EVERY_PLANE_LOSES "0 0 0 0 0 0 214748364 0 0 0 0;0 1 0 0 0 0 214748364 0 0 0 0"

struct controlled {
    struct end a, b;
    struct mrc_context *context; /* of a */
};

/* Two connected ends; `faults` act on what arrives at b. */
static struct controlled begin(const char *faults)
{
    struct controlled both = {.a = open_end()};
    setenv("MRC_FAULT_STEPS", faults, 1);
    both.b = open_end();
    unsetenv("MRC_FAULT_STEPS");
    bring_up(&both.a, &both.b, 14, 7);
    bring_up(&both.b, &both.a, 14, 7);
    CHECK((both.context = mrc_create_context(both.a.context, NULL)) != NULL);
    return both;
}

static void end(struct controlled *both)
{
    CHECK(mrc_destroy_context(both->context) == 0);
    close_end(&both->a);
    close_end(&both->b);
}

static void write_once(struct controlled *both)
{
    CHECK(post_write(&both->a, &both->b, 1, 0, MEMORY / 4, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED) == 0);
    CHECK(next_completion(&both->a, 10).status == IBV_WC_SUCCESS);
}

static void the_device_says_what_it_can_do(void)
{
    struct end a = open_end();
    struct mrc_context *context = mrc_create_context(a.context, NULL);
    struct mrc_ctl_device_attr attr, same;
    uint32_t versions[4];
    int supported = 0;
    CHECK(mrc_ctl_query_device(a.context, &attr) == 0);
    CHECK(attr.phy_port_mask == 0x1E && attr.mrc_ctl_protocol_version == MRC_CTL_PROTOCOL_VERSION_1);
    CHECK(attr.opt_attr & MRC_CTL_OPT_CAP_EV_EVENT && attr.opt_attr & MRC_CTL_OPT_CAP_EV_EVENT_PRECISE_DROP_CNT);
    CHECK(attr.opt_attr & MRC_CTL_OPT_CAP_EP_OP_EV_PROBE && !(attr.opt_attr & MRC_CTL_OPT_CAP_EV_EXPLICIT_RANGE));
    CHECK(strcmp(attr.cc.algorithms[0], MRC_CTL_CC_NSCC) == 0 && attr.cc.algorithms[1] == NULL);
    CHECK(mrc_ctl_query_device_ex(NULL, context, &same, &supported) == 0 && supported);
    CHECK(same.phy_port_mask == attr.phy_port_mask);
    CHECK(mrc_ctl_query_device(NULL, &attr) == EINVAL && mrc_ctl_query_device(a.context, NULL) == EINVAL);
    mrc_ctl_query_version(&versions[0], &versions[1], &versions[2], &versions[3]);
    mrc_ctl_query_version(NULL, NULL, NULL, NULL);
    CHECK(versions[0] == MRC_CTL_API_VER_USED && versions[1] == MRC_CTL_API_LAST_SUPPORTED_VERSION);
    CHECK(mrc_destroy_context(context) == 0);
    close_end(&a);
}

static void a_disabled_port_carries_nothing_and_the_last_one_takes_the_device_down(void)
{
    struct controlled both = begin("");
    struct mrc_ctl_port_attr off = {MRC_CTL_PORT_ADMIN_DISABLED}, on = {MRC_CTL_PORT_ADMIN_ENABLED}, found;
    struct ibv_port_attr port;
    const uint32_t admin = MRC_CTL_PORT_ADMIN_STATE;
    for (uint32_t number = 1; number < PLANES; number++)
        CHECK(mrc_ctl_modify_port(both.context, number, &off, admin) == 0);
    CHECK(mrc_ctl_query_port(both.context, 1, &found, admin) == 0 && found.port_admin_state == MRC_CTL_PORT_ADMIN_DISABLED);
    CHECK(mrc_ctl_query_port(both.context, 4, &found, admin) == 0 && found.port_admin_state == MRC_CTL_PORT_ADMIN_ENABLED);
    CHECK(ibv_query_port(both.a.context, 1, &port) == 0 && port.state == IBV_PORT_ACTIVE);
    write_once(&both);
    CHECK(mrc_ctl_modify_port(both.context, PLANES, &off, admin) == 0);
    CHECK(ibv_query_port(both.a.context, 1, &port) == 0 && port.state == IBV_PORT_DOWN);
    for (uint32_t number = 1; number <= PLANES; number++)
        CHECK(mrc_ctl_modify_port(both.context, number, &on, admin) == 0);
    CHECK(ibv_query_port(both.a.context, 1, &port) == 0 && port.state == IBV_PORT_ACTIVE);
    write_once(&both);
    CHECK(mrc_ctl_modify_port(both.context, 0, &off, admin) == EINVAL);
    CHECK(mrc_ctl_modify_port(both.context, PLANES + 1, &off, admin) == EINVAL);
    CHECK(mrc_ctl_modify_port(both.context, 1, NULL, admin) == EINVAL);
    CHECK(mrc_ctl_modify_port(both.context, 1, &off, 2) == EINVAL);
    off.port_admin_state = (enum mrc_ctl_port_admin_state)2;
    CHECK(mrc_ctl_modify_port(both.context, 1, &off, admin) == EINVAL);
    CHECK(mrc_ctl_query_port(NULL, 1, &found, admin) == EINVAL);
    end(&both);
}

/* A request for each port, by the first path of each: the ports that this process sends from begin at 0xC000. */
static void fill_requests(struct controlled *both, struct mrc_ctl_ep_req req[PLANES])
{
    union ibv_gid ours;
    CHECK(ibv_query_gid(both->a.context, 1, 3, &ours) == 0);
    memset(req, 0, PLANES * sizeof *req);
    for (unsigned plane = 0; plane < PLANES; plane++) {
        unsigned port = 0xC000 + (plane << 10) + 8u * ours.raw[8]; /* docs/decisions/0021-native-library.md */
        req[plane].req_id = (uint16_t)(100 + plane);
        CHECK(ibv_query_gid(both->b.context, 1, 3, &req[plane].dgid) == 0);
        req[plane].ev_fmt_mode = MRC_CTL_EV_FMT_MODE_UDP;
        req[plane].req_ev
            = (struct mrc_ctl_ev){.val = {(uint8_t)(port >> 8), (uint8_t)port}, .port = (uint8_t)(plane + 1)};
        req[plane].op.port_status_update.port_status = 0x1E;
    }
}

static void every_probe_is_answered_with_its_round_trip(void)
{
    struct controlled both = begin("");
    struct mrc_ctl_ep_req req[PLANES];
    struct mrc_ctl_ep_rsp rsp[PLANES];
    unsigned seen = 0, ports = 0;
    int count = PLANES;
    fill_requests(&both, req);
    CHECK(mrc_ctl_ep_batch_send_wait(both.context, 0, MRC_CTL_EP_OP_EV_PROBE, req, PLANES, 4 * SECOND, rsp, &count) == 0);
    CHECK(count == PLANES);
    for (int i = 0; i < count; i++) {
        seen |= 1u << (rsp[i].req_id - 100);
        ports |= 1u << rsp[i].port;
        CHECK(rsp[i].rtt < 4 * SECOND && !rsp[i].adj_svc_time);
    }
    CHECK(seen == 0xF && ports != 0 && (ports & ~0x1Eu) == 0);
    CHECK(mrc_ctl_ep_batch_send_wait(both.context, 46, MRC_CTL_EP_OP_PORT_STATUS_UPDATE, req, PLANES, 4 * SECOND, rsp,
                                     &count) == 0);
    CHECK(count == PLANES);
    end(&both);
}

static void a_batch_ends_in_time_with_the_answers_that_came(void)
{
    struct controlled both = begin(PLANE_1_IS_SILENT);
    struct mrc_ctl_ep_req req[PLANES];
    struct mrc_ctl_ep_rsp rsp[PLANES];
    int count = PLANES;
    fill_requests(&both, req);
    double begun = seconds();
    int error = mrc_ctl_ep_batch_send_wait(both.context, 0, MRC_CTL_EP_OP_EV_PROBE, req, PLANES, SECOND / 2, rsp, &count);
    CHECK(error == ETIMEDOUT && count == PLANES - 1);
    CHECK(seconds() - begun >= 0.5 && seconds() - begun < 5);
    for (int i = 0; i < count; i++)
        CHECK(rsp[i].req_id != 101);
    end(&both);
}

static void requests_that_cannot_be_sent_are_refused(void)
{
    struct controlled both = begin("");
    struct mrc_ctl_ep_req good[PLANES], bad[PLANES];
    struct mrc_ctl_ep_rsp rsp[PLANES];
    int count = PLANES, few = PLANES - 1;
    fill_requests(&both, good);
#define SEND(requests, number, timeout, room)                                                                          \
    mrc_ctl_ep_batch_send_wait(both.context, 0, MRC_CTL_EP_OP_EV_PROBE, requests, number, timeout, rsp, room)
#define REFUSED(change, error)                                                                                         \
    do {                                                                                                               \
        memcpy(bad, good, sizeof bad);                                                                                 \
        change;                                                                                                        \
        CHECK(SEND(bad, PLANES, SECOND, &count) == (error));                                                           \
    } while (0)
    REFUSED(bad[3].req_id = bad[0].req_id, EINVAL);
    REFUSED(bad[3].dgid.raw[15] ^= 1, EINVAL);
    REFUSED(bad[3].sgid = bad[3].dgid, EINVAL);
    REFUSED(bad[3].req_ev.port = 0, EINVAL);
    REFUSED(bad[3].req_ev.port = PLANES + 1, EINVAL);
    REFUSED(bad[3].req_ev.val[0] = 1, EINVAL);
    REFUSED(bad[3].req_ev.val[31] = 1, EINVAL);
    REFUSED(bad[3].ev_fmt_mode = MRC_CTL_EV_FMT_MODE_SRV6, ENOTSUP);
    CHECK(SEND(good, 0, SECOND, &count) == EINVAL && SEND(good, 1025, SECOND, &count) == EINVAL);
    CHECK(SEND(good, PLANES, 0, &count) == EINVAL);
    CHECK(SEND(good, PLANES, SECOND, &few) == EINVAL && SEND(NULL, PLANES, SECOND, &count) == EINVAL);
    CHECK(mrc_ctl_ep_batch_send_wait(both.context, 64, MRC_CTL_EP_OP_EV_PROBE, good, PLANES, SECOND, rsp, &count)
          == EINVAL);
    CHECK(mrc_ctl_ep_batch_send_wait(both.context, 0, (enum mrc_ctl_ep_op_type)2, good, PLANES, SECOND, rsp, &count)
          == ENOTSUP);
    good[0].op.port_status_update.port_status = 1;
    CHECK(mrc_ctl_ep_batch_send_wait(both.context, 0, MRC_CTL_EP_OP_PORT_STATUS_UPDATE, good, PLANES, SECOND, rsp,
                                     &count) == EINVAL);
    end(&both);
}

static void an_ev_that_fails_wakes_who_listens(void)
{
    struct controlled both = begin(PLANE_1_IS_SILENT);
    struct mrc_comp_channel *channel = NULL;
    CHECK(mrc_create_comp_channel(both.context, &channel) == 0);
    struct mrc_cq *cq = mrc_ctl_create_ev_event_cq(both.context, 256, &both, channel, 0), *woken;
    struct mrc_ctl_ev_event event;
    struct ibv_wc wc;
    void *cq_context;
    CHECK(cq != NULL && mrc_ctl_poll_ev_event(cq, 1, &event) == 0 && mrc_poll_cq(cq, 1, &wc) == 0);
    CHECK(mrc_req_notify_cq(cq, 0) == 0);
    write_once(&both);
    CHECK(mrc_get_cq_event(channel, &woken, &cq_context) == 0 && woken == cq && cq_context == &both);
    mrc_ack_cq_events(cq, 1);
    CHECK(mrc_ctl_poll_ev_event(cq, 1, &event) == 1);
    CHECK(event.ev.port == 2 && event.state == MRC_CTL_EV_ASSUMED_BAD);
    CHECK(event.profile_id == 0 && event.drop_count == 0 && event.ev.val[0] >= 0xC0);
    CHECK(mrc_ctl_poll_ev_event(NULL, 1, &event) == -EINVAL && mrc_ctl_poll_ev_event(cq, -1, &event) == -EINVAL);
    CHECK(mrc_destroy_cq(cq) == 0 && mrc_destroy_comp_channel(channel) == 0);
    end(&both);
}

static void drop_counts_and_delivered_events_add_up(void)
{
    struct controlled both = begin(EVERY_PLANE_LOSES);
    struct mrc_cq *large = mrc_ctl_create_ev_event_cq(both.context, 65536, NULL, NULL, 0);
    struct mrc_cq *small = mrc_ctl_create_ev_event_cq(both.context, 1, NULL, NULL, 0);
    struct mrc_ctl_ev_event event;
    uint64_t happened = 0, accounted = 0;
    CHECK(large != NULL && small != NULL);
    for (int i = 0; i < 40; i++)
        write_once(&both);
    struct mrc_ctl_port_attr off = {MRC_CTL_PORT_ADMIN_DISABLED};
    for (uint8_t port = 1; port <= PLANES; port++) /* nothing is sent any more, so nothing fails or recovers */
        CHECK(mrc_ctl_modify_port(both.context, port, &off, MRC_CTL_PORT_ADMIN_STATE) == 0);
    usleep(200000);
    while (mrc_ctl_poll_ev_event(large, 1, &event) == 1)
        happened += 1 + event.drop_count;
    while (mrc_ctl_poll_ev_event(small, 1, &event) == 1)
        accounted += 1 + event.drop_count;
    CHECK(happened > 1 && happened == accounted);
    CHECK(mrc_destroy_cq(small) == 0 && mrc_destroy_cq(large) == 0);
    end(&both);
}

static void queues_of_events_are_few_and_no_queue_pair_takes_one(void)
{
    struct controlled both = begin("");
    struct mrc_cq *all[16];
    for (int i = 0; i < 16; i++)
        CHECK((all[i] = mrc_ctl_create_ev_event_cq(both.context, 1, NULL, NULL, 0)) != NULL);
    CHECK(mrc_ctl_create_ev_event_cq(both.context, 1, NULL, NULL, 0) == NULL && errno == ENOMEM);
    CHECK(mrc_ctl_create_ev_event_cq(both.context, 0, NULL, NULL, 0) == NULL && errno == EINVAL);
    CHECK(mrc_ctl_create_ev_event_cq(both.context, 65537, NULL, NULL, 0) == NULL && errno == EINVAL);
    CHECK(mrc_ctl_create_ev_event_cq(NULL, 1, NULL, NULL, 0) == NULL && errno == EINVAL);
    struct mrc_cq *plain = mrc_create_cq(both.context, 1, NULL, NULL, 0);
    struct mrc_ctl_ev_event event;
    struct mrc_qp_init_attr init = {.send_cq = plain, .recv_cq = all[0], .pd = both.a.pd};
    CHECK(mrc_create_qp(both.context, &init) == NULL && errno == EINVAL);
    CHECK(mrc_ctl_poll_ev_event(plain, 1, &event) == -EINVAL);
    for (int i = 0; i < 16; i++)
        CHECK(mrc_destroy_cq(all[i]) == 0);
    CHECK(mrc_destroy_cq(plain) == 0);
    end(&both);
}

static void a_forked_child_controls_nothing(void)
{
    struct controlled both = begin("");
    struct mrc_ctl_port_attr attr = {MRC_CTL_PORT_ADMIN_DISABLED};
    int status;
    if (fork() == 0)
        _exit(mrc_ctl_modify_port(both.context, 1, &attr, MRC_CTL_PORT_ADMIN_STATE) == EIO ? 0 : 1);
    CHECK(wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    end(&both);
}

/* Profiles */

#define EV_FIELDS 1
#define OF_A_PORT 8 /* EVs that an endpoint carries on each port */

static struct mrc_ctl_ev_field low_bits = {16, 0xC000, 0, 0, 0x3FFF}; /* 14 bits of a source port */

static int modify_format(struct mrc_context *context, uint64_t id, enum mrc_ctl_profile_state state)
{
    struct mrc_ctl_ev_fmt_field width = {16};
    struct mrc_ctl_ev_fmt_profile_attr attr = {
        .profile_state = state, .ev_fmt_mode = MRC_CTL_EV_FMT_MODE_UDP,
        .ev_fmt_op = {MRC_CTL_EV_FMT_OP_MODIFY_FIELDS, &width, 1}};
    return mrc_ctl_modify_ev_fmt_profile(context, id, &attr,
                                         MRC_CTL_EV_FMT_PROFILE_STATE | MRC_CTL_EV_FMT_PROFILE_MODE
                                             | MRC_CTL_EV_FMT_PROFILE_OP);
}

#define SHAPE                                                                                                          \
    (MRC_CTL_EV_PROFILE_STATE | MRC_CTL_EV_PROFILE_MODE | MRC_CTL_EV_PROFILE_FMT_ID | MRC_CTL_EV_PROFILE_COUNT         \
     | MRC_CTL_EV_PROFILE_EV_FIELDS_OP)
#define TO_ONLINE (MRC_CTL_EV_PROFILE_STATE | MRC_CTL_EV_PROFILE_MIN_ACTIVE | MRC_CTL_EV_PROFILE_EVENT_MASK)

static struct mrc_ctl_ev_profile_attr shape(enum mrc_ctl_ev_mode mode, uint32_t count)
{
    return (struct mrc_ctl_ev_profile_attr){
        .profile_state = MRC_CTL_PROFILE_OFFLINE, .ev_mode = mode, .ev_fmt_profile_id = 1, .ev_count = count,
        .ev_min_active = 1, .ev_event_mask = MRC_CTL_EV_GOOD | MRC_CTL_EV_ASSUMED_BAD,
        .ev_fields_op = {MRC_CTL_EV_FIELDS_OP_MODIFY_FIELDS, &low_bits, EV_FIELDS}};
}

static int go(struct mrc_context *context, uint64_t id, enum mrc_ctl_profile_state state)
{
    struct mrc_ctl_ev_profile_attr attr = shape(MRC_CTL_EV_MODE_GEN, 0);
    attr.profile_state = state;
    return mrc_ctl_modify_ev_profile(context, id, &attr,
                                     state == MRC_CTL_PROFILE_ONLINE ? TO_ONLINE : MRC_CTL_EV_PROFILE_STATE);
}

/* Format 1 and a generated EV profile 1 with every EV of the endpoint, both ONLINE. */
static void generate_all(struct mrc_context *context)
{
    struct mrc_ctl_ev_profile_attr attr = shape(MRC_CTL_EV_MODE_GEN, PLANES * OF_A_PORT);
    CHECK(modify_format(context, 1, MRC_CTL_PROFILE_ONLINE) == 0);
    CHECK(mrc_ctl_modify_ev_profile(context, 1, &attr, SHAPE) == 0);
    CHECK(go(context, 1, MRC_CTL_PROFILE_ONLINE) == 0);
}

static void read_array(struct mrc_context *context, uint64_t id, struct mrc_ctl_ev_op_entry *entries, int count)
{
    struct mrc_ctl_ev_profile_attr attr = {.ev_op = {MRC_CTL_EV_OP_QUERY_EV_ARRAY, entries, count}};
    CHECK(mrc_ctl_query_ev_profile(context, id, &attr, MRC_CTL_EV_PROFILE_EV_OP) == 0 && attr.ev_op.entry_count == count);
}

#define SET_EV_OP(attr, what, list, number)                                                                            \
    ((attr).ev_op.op = (what), (attr).ev_op.entries = (list), (attr).ev_op.entry_count = (number))

static int operate(struct mrc_context *context, uint64_t id, enum mrc_ctl_ev_op type,
                   struct mrc_ctl_ev_op_entry *entries, int count)
{
    struct mrc_ctl_ev_profile_attr attr = {.ev_op = {type, entries, count}};
    return mrc_ctl_modify_ev_profile(context, id, &attr, MRC_CTL_EV_PROFILE_EV_OP);
}

/* A queue pair of a towards b's, through mrc.h, with these profiles; `error` is what its first step returned. */
static struct mrc_qp *open_with(struct controlled *both, struct mrc_cq *cq, uint64_t ev, uint64_t cc, int *error)
{
    struct mrc_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .pd = both->a.pd, .cap = {128, 128, 1, 1, 0}};
    struct mrc_qp *qp = mrc_create_qp(both->context, &init);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    struct mrc_qp_attr mrc = {.profile = {ev, cc}};
    CHECK(qp != NULL);
    *error = mrc_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS, &mrc,
                           MRC_QP_EV_PROFILE_ID | MRC_QP_CC_PROFILE_ID);
    return qp;
}

static int connect_it(struct controlled *both, struct mrc_qp *qp, const struct end *to)
{
    struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_4096, .rq_psn = 17, .dest_qp_num = to->qp->qp_num};
    struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS, .sq_psn = 17};
    union ibv_gid gid;
    (void)both;
    CHECK(ibv_query_gid(to->context, 1, 3, &gid) == 0);
    rtr.ah_attr = (struct ibv_ah_attr){.is_global = 1, .port_num = 1, .grh = {.dgid = gid}};
    int error = mrc_modify_qp(qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN,
                              NULL, 0);
    return error != 0 ? error : mrc_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_SQ_PSN, NULL, 0);
}

/* Connect b to it, and write through it once. */
static void write_through(struct controlled *both, struct mrc_qp *qp, struct mrc_cq *cq)
{
    struct ibv_sge sge = {(uintptr_t)both->a.memory, MEMORY / 4, both->a.mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
    struct ibv_wc wc;
    int count = 0;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = (uintptr_t)both->b.memory;
    wr.wr.rdma.rkey = both->b.mr->rkey;
    CHECK(mrc_post_send(qp, &wr, &bad) == 0);
    for (double until = seconds() + 20; count == 0 && seconds() < until;)
        count = mrc_poll_cq(cq, 1, &wc);
    CHECK(count == 1 && wc.status == IBV_WC_SUCCESS);
}

static void answer_to(struct end *end, struct mrc_qp *qp, const struct end *of)
{
    struct far_end seen = seen_from_afar(of);
    struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
    CHECK(mrc_get_qpn(qp, &seen.qpn) == 0);
    CHECK(ibv_modify_qp(end->qp, &reset, IBV_QP_STATE) == 0);
    bring_up_to(end, &seen, 14, 7);
}

static void formats_go_up_and_down_step_by_step(void)
{
    struct controlled both = begin("");
    struct mrc_ctl_ev_fmt_field widths[20] = {{8}, {8}}, found[2];
    struct mrc_ctl_ev_fmt_profile_attr attr = {
        .ev_fmt_mode = MRC_CTL_EV_FMT_MODE_UDP, .ev_fmt_op = {MRC_CTL_EV_FMT_OP_MODIFY_FIELDS, widths, 2}};
    struct mrc_ctl_ev_fmt_profile_attr query = {.ev_fmt_op = {MRC_CTL_EV_FMT_OP_QUERY_FIELDS, found, 1}};
#define CHANGE(bits) mrc_ctl_modify_ev_fmt_profile(both.context, 2, &attr, bits)
    attr.profile_state = MRC_CTL_PROFILE_ONLINE;
    CHECK(CHANGE(MRC_CTL_EV_FMT_PROFILE_STATE | MRC_CTL_EV_FMT_PROFILE_MODE) == EINVAL); /* without fields */
    attr.profile_state = MRC_CTL_PROFILE_OFFLINE;
    CHECK(CHANGE(MRC_CTL_EV_FMT_PROFILE_STATE) == EINVAL); /* without mode */
    CHECK(CHANGE(MRC_CTL_EV_FMT_PROFILE_STATE | MRC_CTL_EV_FMT_PROFILE_MODE | MRC_CTL_EV_FMT_PROFILE_OP) == 0);
    CHECK(mrc_ctl_query_ev_fmt_profile(both.context, 2, &query, MRC_CTL_EV_FMT_PROFILE_OP) == E2BIG);
    CHECK(query.ev_fmt_op.fmt_field_count == 2);
    CHECK(mrc_ctl_query_ev_fmt_profile(both.context, 2, &query, MRC_CTL_EV_FMT_PROFILE_OP) == 0);
    CHECK(found[0].width == 8 && found[1].width == 8 && query.profile_state == MRC_CTL_PROFILE_OFFLINE);
    widths[1].width = 9;
    CHECK(CHANGE(MRC_CTL_EV_FMT_PROFILE_OP) == E2BIG);
    widths[1].width = 0;
    CHECK(CHANGE(MRC_CTL_EV_FMT_PROFILE_OP) == EINVAL);
    attr.ev_fmt_mode = MRC_CTL_EV_FMT_MODE_SRV6;
    CHECK(CHANGE(MRC_CTL_EV_FMT_PROFILE_MODE) == EINVAL);
    attr.cur_profile_state = MRC_CTL_PROFILE_INIT;
    attr.profile_state = MRC_CTL_PROFILE_ONLINE;
    CHECK(CHANGE(MRC_CTL_EV_FMT_PROFILE_STATE | MRC_CTL_EV_FMT_PROFILE_CUR_STATE) == EINVAL);
    attr.cur_profile_state = MRC_CTL_PROFILE_OFFLINE;
    CHECK(CHANGE(MRC_CTL_EV_FMT_PROFILE_STATE | MRC_CTL_EV_FMT_PROFILE_CUR_STATE) == 0);
    CHECK(CHANGE(MRC_CTL_EV_FMT_PROFILE_OP) == EINVAL); /* not while it is ONLINE */
    attr.profile_state = MRC_CTL_PROFILE_INIT;
    CHECK(CHANGE(MRC_CTL_EV_FMT_PROFILE_STATE) == EINVAL); /* not in one step */
    CHECK(CHANGE(1 << 4) == EINVAL && mrc_ctl_modify_ev_fmt_profile(both.context, 17, &attr, 0) == EINVAL);
    generate_all(both.context);
    CHECK(modify_format(both.context, 1, MRC_CTL_PROFILE_OFFLINE) == EBUSY);
    CHECK(go(both.context, 1, MRC_CTL_PROFILE_OFFLINE) == 0);
    attr.profile_state = MRC_CTL_PROFILE_OFFLINE;
    CHECK(mrc_ctl_modify_ev_fmt_profile(both.context, 1, &attr, MRC_CTL_EV_FMT_PROFILE_STATE) == 0);
    end(&both);
}

static void a_generated_profile_lists_what_the_endpoint_carries(void)
{
    struct controlled both = begin("");
    struct mrc_ctl_ev_op_entry all[PLANES * OF_A_PORT], own[PLANES * OF_A_PORT], one;
    struct mrc_ctl_ev_field fields[1];
    struct mrc_ctl_ev_profile_attr attr = shape(MRC_CTL_EV_MODE_GEN, PLANES * OF_A_PORT + 1);
    struct mrc_ctl_device_attr device;
    CHECK(modify_format(both.context, 1, MRC_CTL_PROFILE_ONLINE) == 0);
    CHECK(mrc_ctl_modify_ev_profile(both.context, 1, &attr, SHAPE) == E2BIG);
    attr.ev_count = 0;
    CHECK(mrc_ctl_modify_ev_profile(both.context, 1, &attr, SHAPE) == EINVAL);
    attr.ev_count = 2;
    CHECK(mrc_ctl_modify_ev_profile(both.context, 1, &attr, SHAPE & ~MRC_CTL_EV_PROFILE_COUNT) == EINVAL);
    CHECK(mrc_ctl_modify_ev_profile(both.context, 1, &attr, SHAPE) == 0);
    CHECK(go(both.context, 1, MRC_CTL_PROFILE_ONLINE) == EINVAL); /* two EVs are not enough for four ports */
    CHECK(go(both.context, 1, MRC_CTL_PROFILE_INIT) == 0);
    struct mrc_ctl_ev_fmt_profile_attr back = {.profile_state = MRC_CTL_PROFILE_OFFLINE};
    CHECK(mrc_ctl_modify_ev_fmt_profile(both.context, 1, &back, MRC_CTL_EV_FMT_PROFILE_STATE) == 0);
    generate_all(both.context);
    CHECK(mrc_ctl_query_device(both.a.context, &device) == 0 && device.ev.ev_max_count_profile == PLANES * OF_A_PORT);
    CHECK(device.ev.ev_max_count - device.ev.ev_free_count == PLANES * OF_A_PORT && device.ev.ev_max_width == 16);
    read_array(both.context, 1, all, PLANES * OF_A_PORT);
    read_array(both.context, 0, own, PLANES * OF_A_PORT);
    for (int i = 0; i < PLANES * OF_A_PORT; i++) {
        int copies = 0;
        for (int k = 0; k < PLANES * OF_A_PORT; k++) /* an EV is the low 14 bits of a source port, left-aligned */
            copies += own[k].ev.port == all[i].ev.port
                && (((own[k].ev.val[0] << 8 | own[k].ev.val[1]) << 2) & 0xFFFF)
                    == (all[i].ev.val[0] << 8 | all[i].ev.val[1]);
        CHECK(copies == 1 && all[i].state == MRC_CTL_EV_GOOD && all[i].ev.port == i % PLANES + 1);
    }
    attr = (struct mrc_ctl_ev_profile_attr){.ev_fields_op = {MRC_CTL_EV_FIELDS_OP_QUERY_FIELDS, fields, 0}};
    CHECK(mrc_ctl_query_ev_profile(both.context, 1, &attr, MRC_CTL_EV_PROFILE_EV_FIELDS_OP) == E2BIG);
    CHECK(mrc_ctl_query_ev_profile(both.context, 1, &attr, MRC_CTL_EV_PROFILE_EV_FIELDS_OP) == 0);
    CHECK(fields[0].width == 16 && fields[0].init_val == 0xC000 && fields[0].mask == 0x3FFF);
    CHECK(attr.profile_state == MRC_CTL_PROFILE_ONLINE && attr.ev_mode == MRC_CTL_EV_MODE_GEN && attr.ev_fmt_profile_id == 1);
    SET_EV_OP(attr, MRC_CTL_EV_OP_QUERY_EV_ARRAY, all, 3);
    CHECK(mrc_ctl_query_ev_profile(both.context, 1, &attr, MRC_CTL_EV_PROFILE_EV_OP) == E2BIG);
    CHECK(attr.ev_op.entry_count == PLANES * OF_A_PORT);
    one = all[5];
    one.ev.val[1] ^= 0x80;
    one.ev_new = all[5].ev;
    SET_EV_OP(attr, MRC_CTL_EV_OP_QUERY_EV_STATE, &one, 1);
    CHECK(mrc_ctl_query_ev_profile(both.context, 1, &attr, MRC_CTL_EV_PROFILE_EV_OP) == ENOENT);
    CHECK(operate(both.context, 1, MRC_CTL_EV_OP_REPLACE_EV, all, 1) == EINVAL); /* generated ones are the endpoint's */
    end(&both);
}

static void an_explicit_array_starts_empty_and_a_batch_stops_at_its_first_failure(void)
{
    struct controlled both = begin("");
    struct mrc_ctl_ev_op_entry all[PLANES * OF_A_PORT], batch[PLANES] = {0}, found[PLANES];
    struct mrc_ctl_ev_profile_attr attr = shape(MRC_CTL_EV_MODE_EXP, PLANES);
    generate_all(both.context);
    read_array(both.context, 1, all, PLANES * OF_A_PORT); /* of ports 1 to 4 in turn */
    CHECK(mrc_ctl_modify_ev_profile(both.context, 2, &attr, SHAPE) == 0);
    CHECK(go(both.context, 2, MRC_CTL_PROFILE_ONLINE) == EINVAL);
    read_array(both.context, 2, found, PLANES);
    CHECK(found[0].state == MRC_CTL_EV_UNKNOWN && found[0].ev.port == 0);
    for (int i = 0; i < PLANES; i++) {
        batch[i].ev_new = all[i].ev;
        batch[i].state = MRC_CTL_EV_GOOD;
    }
    batch[2].ev_new.val[1] ^= 0x80; /* that no socket sends */
    CHECK(operate(both.context, 2, MRC_CTL_EV_OP_REPLACE_EV, batch, PLANES) == EINVAL);
    read_array(both.context, 2, found, PLANES);
    CHECK(memcmp(&found[1].ev, &all[1].ev, sizeof all[1].ev) == 0 && found[2].ev.port == 0); /* two are there */
    batch[2].ev_new = all[2].ev;
    CHECK(operate(both.context, 2, MRC_CTL_EV_OP_REPLACE_EV, batch + 2, 2) == 0);
    CHECK(operate(both.context, 2, MRC_CTL_EV_OP_REPLACE_EV, batch, 1) == ENOENT); /* no empty entry is left */
    CHECK(go(both.context, 2, MRC_CTL_PROFILE_ONLINE) == 0);
    batch[0] = (struct mrc_ctl_ev_op_entry){.ev = all[0].ev, .state = MRC_CTL_EV_DENIED};
    batch[1] = (struct mrc_ctl_ev_op_entry){.ev = all[9].ev, .state = MRC_CTL_EV_DENIED};
    CHECK(operate(both.context, 2, MRC_CTL_EV_OP_MODIFY_EV_STATE, batch, 2) == ENOENT);
    read_array(both.context, 2, found, PLANES);
    CHECK(found[0].state == MRC_CTL_EV_DENIED && found[1].state == MRC_CTL_EV_GOOD);
    batch[0].state = MRC_CTL_EV_UNKNOWN;
    CHECK(operate(both.context, 2, MRC_CTL_EV_OP_MODIFY_EV_STATE, batch, 1) == EINVAL);
    batch[0].state = MRC_CTL_EV_GOOD;
    batch[0].flags = 2;
    CHECK(operate(both.context, 2, MRC_CTL_EV_OP_MODIFY_EV_STATE, batch, 1) == EINVAL);
    SET_EV_OP(attr, MRC_CTL_EV_OP_MODIFY_EV_STATE, batch, 1);
    CHECK(mrc_ctl_modify_ev_profile(both.context, 2, &attr, MRC_CTL_EV_PROFILE_EV_OP | MRC_CTL_EV_PROFILE_EV_FIELDS_OP)
          == EINVAL);
    CHECK(mrc_ctl_modify_ev_profile(both.context, 2, &attr, MRC_CTL_EV_PROFILE_COUNT) == EINVAL); /* ONLINE */
    CHECK(mrc_ctl_modify_ev_profile(both.context, 0, &attr, 0) == EINVAL);
    end(&both);
}

/* Three of four planes swallow everything: only a queue pair whose profile denies them never loses a packet. */
static void a_denied_ev_carries_nothing_until_it_is_allowed(void)
{
    struct controlled both = begin(PLANES_1_TO_3_ARE_SILENT);
    struct mrc_ctl_ev_op_entry all[PLANES * OF_A_PORT], denied[PLANES * OF_A_PORT];
    struct mrc_ctl_ev_event event;
    struct mrc_cq *cq = mrc_create_cq(both.context, 100, NULL, NULL, 0);
    struct mrc_cq *events = mrc_ctl_create_ev_event_cq(both.context, 100, NULL, NULL, 0);
    int error, count = 0;
    generate_all(both.context);
    read_array(both.context, 1, all, PLANES * OF_A_PORT);
    for (int i = 0; i < PLANES * OF_A_PORT; i++)
        if (all[i].ev.port != 1) {
            denied[count] = all[i];
            denied[count++].state = MRC_CTL_EV_DENIED;
        }
    CHECK(operate(both.context, 1, MRC_CTL_EV_OP_MODIFY_EV_STATE, denied, count) == 0);
    struct mrc_qp *qp = open_with(&both, cq, 1, 0, &error);
    CHECK(error == 0 && connect_it(&both, qp, &both.b) == 0);
    answer_to(&both.b, qp, &both.a);
    for (int i = 0; i < 10; i++)
        write_through(&both, qp, cq);
    CHECK(mrc_ctl_poll_ev_event(events, 1, &event) == 0);
    CHECK(go(both.context, 1, MRC_CTL_PROFILE_OFFLINE) == EBUSY);
    for (int i = 0; i < count; i++)
        denied[i].state = MRC_CTL_EV_GOOD;
    CHECK(operate(both.context, 1, MRC_CTL_EV_OP_MODIFY_EV_STATE, denied, count) == 0);
    for (double until = seconds() + 60; mrc_ctl_poll_ev_event(events, 1, &event) == 0;) {
        CHECK(seconds() < until);
        write_through(&both, qp, cq); /* as many as it takes: a lost packet may find its plane silent, or its EV bad */
    }
    CHECK(event.profile_id == 1 && event.ev.port != 1 && event.state == MRC_CTL_EV_ASSUMED_BAD);
    all[0] = (struct mrc_ctl_ev_op_entry){.ev = event.ev};
    struct mrc_ctl_ev_profile_attr attr = {.ev_op = {MRC_CTL_EV_OP_QUERY_EV_STATE, all, 1}};
    CHECK(mrc_ctl_query_ev_profile(both.context, 1, &attr, MRC_CTL_EV_PROFILE_EV_OP) == 0); /* as the profile names it */
    CHECK(all[0].state & (MRC_CTL_EV_ASSUMED_BAD | MRC_CTL_EV_GOOD)); /* a probe may have found it since */
    CHECK(mrc_destroy_qp(qp) == 0 && go(both.context, 1, MRC_CTL_PROFILE_OFFLINE) == 0);
    CHECK(mrc_destroy_cq(cq) == 0 && mrc_destroy_cq(events) == 0);
    end(&both);
}

static void evs_in_use_are_replaced_on_their_own_port(void)
{
    struct controlled both = begin("");
    struct mrc_ctl_ev_op_entry all[PLANES * OF_A_PORT], batch[PLANES] = {0}, change = {0};
    struct mrc_ctl_ev_profile_attr attr = shape(MRC_CTL_EV_MODE_EXP, PLANES);
    struct mrc_cq *cq = mrc_create_cq(both.context, 100, NULL, NULL, 0);
    int error;
    generate_all(both.context);
    read_array(both.context, 1, all, PLANES * OF_A_PORT);
    CHECK(mrc_ctl_modify_ev_profile(both.context, 2, &attr, SHAPE) == 0);
    for (int i = 0; i < PLANES; i++)
        batch[i] = (struct mrc_ctl_ev_op_entry){.ev_new = all[i].ev, .state = MRC_CTL_EV_GOOD};
    CHECK(operate(both.context, 2, MRC_CTL_EV_OP_REPLACE_EV, batch, PLANES) == 0);
    CHECK(go(both.context, 2, MRC_CTL_PROFILE_ONLINE) == 0);
    struct mrc_qp *qp = open_with(&both, cq, 2, 0, &error);
    CHECK(error == 0 && connect_it(&both, qp, &both.b) == 0);
    answer_to(&both.b, qp, &both.a);
    write_through(&both, qp, cq);
    change = (struct mrc_ctl_ev_op_entry){.ev = all[0].ev, .ev_new = all[5].ev, .state = MRC_CTL_EV_GOOD};
    CHECK(operate(both.context, 2, MRC_CTL_EV_OP_REPLACE_EV, &change, 1) == EINVAL); /* from port 1 to 2 */
    change.ev_new = all[4].ev;
    CHECK(operate(both.context, 2, MRC_CTL_EV_OP_REPLACE_EV, &change, 1) == 0);
    for (int i = 0; i < 5; i++)
        write_through(&both, qp, cq);
    CHECK(mrc_destroy_qp(qp) == 0 && mrc_destroy_cq(cq) == 0);
    end(&both);
}

static void profiles_are_named_on_the_way_to_init_and_must_be_online(void)
{
    struct controlled both = begin("");
    struct mrc_cq *cq = mrc_create_cq(both.context, 100, NULL, NULL, 0);
    struct mrc_qp_attr mrc = {.profile = {2, 0}};
    int error;
    struct mrc_qp *qp = open_with(&both, cq, 1, 0, &error);
    CHECK(error == EINVAL && mrc_destroy_qp(qp) == 0); /* INIT */
    qp = open_with(&both, cq, 17, 0, &error);
    CHECK(error == EINVAL && mrc_destroy_qp(qp) == 0);
    qp = open_with(&both, cq, 0, 3, &error);
    CHECK(error == EINVAL && mrc_destroy_qp(qp) == 0);
    generate_all(both.context);
    qp = open_with(&both, cq, 1, 0, &error);
    CHECK(error == 0 && mrc_modify_qp(qp, NULL, 0, &mrc, MRC_QP_EV_PROFILE_ID) == EINVAL);
    mrc.profile.ev_profile_id = 1;
    CHECK(mrc_modify_qp(qp, NULL, 0, &mrc, MRC_QP_EV_PROFILE_ID) == 0);
    CHECK(mrc_destroy_qp(qp) == 0 && mrc_destroy_cq(cq) == 0);
    end(&both);
}

static void an_automatic_profile_needs_no_more_than_its_mode(void)
{
    struct controlled both = begin("");
    struct mrc_cq *cq = mrc_create_cq(both.context, 100, NULL, NULL, 0);
    struct mrc_ctl_ev_profile_attr attr = {.profile_state = MRC_CTL_PROFILE_ONLINE, .ev_mode = MRC_CTL_EV_MODE_AUTO};
    struct mrc_ctl_ev_op_entry entry = {.state = MRC_CTL_EV_GOOD};
    int error;
    attr.ev_min_active = 2;
    attr.ev_event_mask = MRC_CTL_EV_DENIED;
    CHECK(mrc_ctl_modify_ev_profile(both.context, 3, &attr, TO_ONLINE | MRC_CTL_EV_PROFILE_MODE) == EINVAL);
    attr.ev_event_mask = MRC_CTL_EV_ASSUMED_BAD;
    CHECK(mrc_ctl_modify_ev_profile(both.context, 3, &attr, TO_ONLINE | MRC_CTL_EV_PROFILE_MODE) == 0);
    CHECK(operate(both.context, 3, MRC_CTL_EV_OP_MODIFY_EV_STATE, &entry, 1) == EINVAL);
    struct mrc_qp *qp = open_with(&both, cq, 3, 0, &error);
    CHECK(error == 0 && connect_it(&both, qp, &both.b) == 0);
    answer_to(&both.b, qp, &both.a);
    write_through(&both, qp, cq);
    CHECK(mrc_destroy_qp(qp) == 0 && mrc_destroy_cq(cq) == 0);
    end(&both);
}

static void a_congestion_control_profile_acts_on_its_connections(void)
{
    struct controlled both = begin("");
    struct mrc_ctl_cc_nscc_cfg own, config;
    struct mrc_ctl_cc_profile_attr attr = {.profile_state = MRC_CTL_PROFILE_ONLINE, .algorithm = "reno", .cc_config = &own};
    const int all = MRC_CTL_CC_PROFILE_STATE | MRC_CTL_CC_PROFILE_ALGORITHM | MRC_CTL_CC_PROFILE_CONFIG;
    struct mrc_cq *cq = mrc_create_cq(both.context, 100, NULL, NULL, 0);
    int error;
    CHECK(mrc_ctl_query_cc_profile(both.context, 1, &attr, MRC_CTL_CC_PROFILE_CONFIG) == 0);
    CHECK(own.base_rtt > 0 && own.gamma > 0 && attr.algorithm == NULL && attr.profile_state == MRC_CTL_PROFILE_INIT);
    config = own;
    attr = (struct mrc_ctl_cc_profile_attr){.profile_state = MRC_CTL_PROFILE_ONLINE, .algorithm = "reno", .cc_config = &config};
    CHECK(mrc_ctl_modify_cc_profile(both.context, 1, &attr, all) == EINVAL);
    attr.algorithm = MRC_CTL_CC_NSCC;
    CHECK(mrc_ctl_modify_cc_profile(both.context, 1, &attr, all & ~MRC_CTL_CC_PROFILE_CONFIG) == EINVAL);
    config.gamma = 2;
    CHECK(mrc_ctl_modify_cc_profile(both.context, 1, &attr, all) == EINVAL);
    config.gamma = own.gamma;
    config.max_cwnd = 0; /* nothing could be sent */
    CHECK(mrc_ctl_modify_cc_profile(both.context, 1, &attr, all) == EINVAL);
    config.max_cwnd = 65536;
    CHECK(mrc_ctl_modify_cc_profile(both.context, 1, &attr, all) == 0);
    CHECK(mrc_ctl_query_cc_profile(both.context, 1, &attr, MRC_CTL_CC_PROFILE_CONFIG) == 0);
    CHECK(config.max_cwnd == 65536 && config.base_rtt == own.base_rtt && strcmp(attr.algorithm, MRC_CTL_CC_NSCC) == 0);
    attr.cc_config = NULL;
    attr.algorithm = NULL; /* none */
    CHECK(mrc_ctl_modify_cc_profile(both.context, 2, &attr, all) == 0);
    struct mrc_qp *qp = open_with(&both, cq, 0, 1, &error);
    CHECK(error == 0 && connect_it(&both, qp, &both.b) == EBUSY); /* a's first connection to b has the endpoint's own */
    CHECK(mrc_destroy_qp(qp) == 0);
    struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
    CHECK(ibv_modify_qp(both.a.qp, &reset, IBV_QP_STATE) == 0);
    for (uint64_t cc = 1; cc <= 2; cc++) {
        qp = open_with(&both, cq, 0, cc, &error);
        CHECK(error == 0 && connect_it(&both, qp, &both.b) == 0);
        answer_to(&both.b, qp, &both.a);
        write_through(&both, qp, cq);
        attr.profile_state = MRC_CTL_PROFILE_OFFLINE;
        CHECK(mrc_ctl_modify_cc_profile(both.context, cc, &attr, MRC_CTL_CC_PROFILE_STATE) == EBUSY);
        attr.cc_config = &config;
        config.max_cwnd = 1 << 20;
        CHECK(mrc_ctl_modify_cc_profile(both.context, cc, &attr, MRC_CTL_CC_PROFILE_CONFIG) == 0);
        write_through(&both, qp, cq);
        CHECK(mrc_destroy_qp(qp) == 0);
    }
    CHECK(mrc_ctl_modify_cc_profile(both.context, 1, &attr, MRC_CTL_CC_PROFILE_STATE) == 0);
    CHECK(mrc_destroy_cq(cq) == 0);
    end(&both);
}

static const struct named_test tests[] = {
    TEST(the_device_says_what_it_can_do),
    TEST(a_disabled_port_carries_nothing_and_the_last_one_takes_the_device_down),
    TEST(every_probe_is_answered_with_its_round_trip),
    TEST(a_batch_ends_in_time_with_the_answers_that_came),
    TEST(requests_that_cannot_be_sent_are_refused),
    TEST(an_ev_that_fails_wakes_who_listens),
    TEST(drop_counts_and_delivered_events_add_up),
    TEST(queues_of_events_are_few_and_no_queue_pair_takes_one),
    TEST(a_forked_child_controls_nothing),
    TEST(formats_go_up_and_down_step_by_step),
    TEST(a_generated_profile_lists_what_the_endpoint_carries),
    TEST(an_explicit_array_starts_empty_and_a_batch_stops_at_its_first_failure),
    TEST(a_denied_ev_carries_nothing_until_it_is_allowed),
    TEST(evs_in_use_are_replaced_on_their_own_port),
    TEST(profiles_are_named_on_the_way_to_init_and_must_be_online),
    TEST(an_automatic_profile_needs_no_more_than_its_mode),
    TEST(a_congestion_control_profile_acts_on_its_connections),
};

int main(int count, char **names)
{
    return run_named(tests, sizeof tests / sizeof *tests, count, names);
}
