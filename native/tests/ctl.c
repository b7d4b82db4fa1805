/* Control of an endpoint through mrc_ctl.h, between two endpoints of one process; each test is a name on the command line. */
#include <errno.h>
#include <mrc_ctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "both_ends.h"

#define PLANES 4
#define SECOND 1000000000ULL
#define PLANE_1_IS_SILENT "0 1 1 0 0 0 0 0 0 0 0"
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
    bool supported = false;
    CHECK(mrc_ctl_query_device(a.context, &attr) == 0);
    CHECK(attr.phy_port_mask == 0x1E && attr.protocol_version == MRC_CTL_PROTOCOL_V1);
    CHECK(attr.opt_attr & MRC_CTL_OPT_EV_EVENT && attr.opt_attr & MRC_CTL_OPT_EV_EVENT_PRECISE_DROP_CNT);
    CHECK(attr.opt_attr & MRC_CTL_OPT_EP_OP_EV_PROBE && !(attr.opt_attr & MRC_CTL_OPT_EV_EXPLICIT_RANGE));
    CHECK(strcmp(attr.cc.algorithms[0], MRC_CTL_CC_NSCC) == 0 && attr.cc.algorithms[1] == NULL);
    CHECK(mrc_ctl_query_device_ex(NULL, context, &same, &supported) == 0 && supported);
    CHECK(same.phy_port_mask == attr.phy_port_mask);
    CHECK(mrc_ctl_query_device(NULL, &attr) == EINVAL && mrc_ctl_query_device(a.context, NULL) == EINVAL);
    mrc_ctl_query_version(&versions[0], &versions[1], &versions[2], &versions[3]);
    mrc_ctl_query_version(NULL, NULL, NULL, NULL);
    CHECK(versions[0] == MRC_CTL_API_VER_USED && versions[1] == MRC_CTL_API_VER_LAST_SUPPORTED);
    CHECK(mrc_destroy_context(context) == 0);
    close_end(&a);
}

static void a_disabled_port_carries_nothing_and_the_last_one_takes_the_device_down(void)
{
    struct controlled both = begin("");
    struct mrc_ctl_port_attr off = {MRC_CTL_PORT_DISABLED}, on = {MRC_CTL_PORT_ENABLED}, found;
    struct ibv_port_attr port;
    const uint32_t admin = MRC_CTL_PORT_ATTR_ADMIN_STATE;
    for (uint32_t number = 1; number < PLANES; number++)
        CHECK(mrc_ctl_modify_port(both.context, number, &off, admin) == 0);
    CHECK(mrc_ctl_query_port(both.context, 1, &found, admin) == 0 && found.admin_state == MRC_CTL_PORT_DISABLED);
    CHECK(mrc_ctl_query_port(both.context, 4, &found, admin) == 0 && found.admin_state == MRC_CTL_PORT_ENABLED);
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
    off.admin_state = (enum mrc_ctl_port_admin_state)2;
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
        req[plane].fmt_mode = MRC_CTL_EV_FMT_MODE_UDP;
        req[plane].ev = (struct mrc_ctl_ev){.value = {(uint8_t)(port >> 8), (uint8_t)port}, .port = plane + 1};
        req[plane].op.port_status = 0x1E;
    }
}

static void every_probe_is_answered_with_its_round_trip(void)
{
    struct controlled both = begin("");
    struct mrc_ctl_ep_req req[PLANES];
    struct mrc_ctl_ep_rsp rsp[PLANES];
    unsigned seen = 0, ports = 0;
    uint32_t count = PLANES;
    fill_requests(&both, req);
    CHECK(mrc_ctl_ep_batch_send_wait(both.context, 0, MRC_CTL_EP_OP_EV_PROBE, req, PLANES, 5 * SECOND, rsp, &count) == 0);
    CHECK(count == PLANES);
    for (uint32_t i = 0; i < count; i++) {
        seen |= 1u << (rsp[i].req_id - 100);
        ports |= 1u << rsp[i].port;
        CHECK(rsp[i].rtt < 5 * SECOND && !rsp[i].adj_svc_time);
    }
    CHECK(seen == 0xF && ports != 0 && (ports & ~0x1Eu) == 0);
    CHECK(mrc_ctl_ep_batch_send_wait(both.context, 46, MRC_CTL_EP_OP_PORT_STATUS_UPDATE, req, PLANES, 5 * SECOND, rsp,
                                     &count) == 0);
    CHECK(count == PLANES);
    end(&both);
}

static void a_batch_ends_in_time_with_the_answers_that_came(void)
{
    struct controlled both = begin(PLANE_1_IS_SILENT);
    struct mrc_ctl_ep_req req[PLANES];
    struct mrc_ctl_ep_rsp rsp[PLANES];
    uint32_t count = PLANES;
    fill_requests(&both, req);
    double begun = seconds();
    int error = mrc_ctl_ep_batch_send_wait(both.context, 0, MRC_CTL_EP_OP_EV_PROBE, req, PLANES, SECOND / 2, rsp, &count);
    CHECK(error == ETIMEDOUT && count == PLANES - 1);
    CHECK(seconds() - begun >= 0.5 && seconds() - begun < 5);
    for (uint32_t i = 0; i < count; i++)
        CHECK(rsp[i].req_id != 101);
    end(&both);
}

static void requests_that_cannot_be_sent_are_refused(void)
{
    struct controlled both = begin("");
    struct mrc_ctl_ep_req good[PLANES], bad[PLANES];
    struct mrc_ctl_ep_rsp rsp[PLANES];
    uint32_t count = PLANES, few = PLANES - 1;
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
    REFUSED(bad[3].ev.port = 0, EINVAL);
    REFUSED(bad[3].ev.port = PLANES + 1, EINVAL);
    REFUSED(bad[3].ev.value[0] = 1, EINVAL);
    REFUSED(bad[3].ev.value[31] = 1, EINVAL);
    REFUSED(bad[3].fmt_mode = MRC_CTL_EV_FMT_MODE_SRV6, ENOTSUP);
    CHECK(SEND(good, 0, SECOND, &count) == EINVAL && SEND(good, 1025, SECOND, &count) == EINVAL);
    CHECK(SEND(good, PLANES, 0, &count) == EINVAL && SEND(good, PLANES, 11 * SECOND, &count) == EINVAL);
    CHECK(SEND(good, PLANES, SECOND, &few) == EINVAL && SEND(NULL, PLANES, SECOND, &count) == EINVAL);
    CHECK(mrc_ctl_ep_batch_send_wait(both.context, 64, MRC_CTL_EP_OP_EV_PROBE, good, PLANES, SECOND, rsp, &count)
          == EINVAL);
    CHECK(mrc_ctl_ep_batch_send_wait(both.context, 0, (enum mrc_ctl_ep_op_type)2, good, PLANES, SECOND, rsp, &count)
          == ENOTSUP);
    good[0].op.port_status = 1;
    CHECK(mrc_ctl_ep_batch_send_wait(both.context, 0, MRC_CTL_EP_OP_PORT_STATUS_UPDATE, good, PLANES, SECOND, rsp,
                                     &count) == EINVAL);
    end(&both);
}

static void an_ev_that_fails_wakes_who_listens(void)
{
    struct controlled both = begin(PLANE_1_IS_SILENT);
    struct mrc_comp_channel *channel = mrc_create_comp_channel(both.context);
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
    CHECK(event.ev.port == 2 && event.state == MRC_CTL_EV_STATE_ASSUMED_BAD);
    CHECK(event.profile_id == 0 && event.drop_count == 0 && event.ev.value[0] >= 0xC0);
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
    struct mrc_ctl_port_attr off = {MRC_CTL_PORT_DISABLED};
    for (uint32_t port = 1; port <= PLANES; port++) /* nothing is sent any more, so nothing fails or recovers */
        CHECK(mrc_ctl_modify_port(both.context, port, &off, MRC_CTL_PORT_ATTR_ADMIN_STATE) == 0);
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
    struct mrc_ctl_port_attr attr = {MRC_CTL_PORT_DISABLED};
    int status;
    if (fork() == 0)
        _exit(mrc_ctl_modify_port(both.context, 1, &attr, MRC_CTL_PORT_ATTR_ADMIN_STATE) == EIO ? 0 : 1);
    CHECK(wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    end(&both);
}

#define TEST(name) {#name, name}
static const struct {
    const char *name;
    void (*run)(void);
} tests[] = {
    TEST(the_device_says_what_it_can_do),
    TEST(a_disabled_port_carries_nothing_and_the_last_one_takes_the_device_down),
    TEST(every_probe_is_answered_with_its_round_trip),
    TEST(a_batch_ends_in_time_with_the_answers_that_came),
    TEST(requests_that_cannot_be_sent_are_refused),
    TEST(an_ev_that_fails_wakes_who_listens),
    TEST(drop_counts_and_delivered_events_add_up),
    TEST(queues_of_events_are_few_and_no_queue_pair_takes_one),
    TEST(a_forked_child_controls_nothing),
};

int main(int count, char **names)
{
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        if (count < 2)
            puts(tests[i].name);
        for (int k = 1; k < count; k++)
            if (strcmp(names[k], tests[i].name) == 0)
                tests[i].run();
    }
    return 0;
}
