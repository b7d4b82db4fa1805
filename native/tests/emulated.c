/* What programs see of emulated operations besides their results. Each test is a name on the command line. */
#include <fcntl.h>
#include <poll.h>

#include "both_ends.h"
#include "named_tests.h"

static void post_receive(struct end *end)
{
    struct ibv_sge sge = {(uintptr_t)end->memory, 64, end->mr->lkey};
    struct ibv_recv_wr receive = {.sg_list = &sge, .num_sge = 1}, *bad;
    CHECK(ibv_post_recv(end->qp, &receive, &bad) == 0);
}

static void post_message(struct end *end, unsigned flags)
{
    struct ibv_sge sge = {(uintptr_t)end->memory, 64, end->mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = flags}, *bad;
    CHECK(ibv_post_send(end->qp, &wr, &bad) == 0);
}

/* Take an event if one comes in time. */
static bool wakes(struct end *end, int milliseconds)
{
    struct pollfd slot = {end->channel->fd, POLLIN, 0};
    struct ibv_cq *cq;
    void *context;
    if (poll(&slot, 1, milliseconds) == 0)
        return false;
    CHECK(ibv_get_cq_event(end->channel, &cq, &context) == 0 && cq == end->cq);
    ibv_ack_cq_events(cq, 1);
    return true;
}

static int taken(struct end *end)
{
    struct ibv_wc wc[16];
    int count = ibv_poll_cq(end->cq, 16, wc);
    for (int i = 0; i < count; i++)
        CHECK(wc[i].status == IBV_WC_SUCCESS);
    return count;
}

/* Grants and slots complete in the engine, too; nobody may be woken for those. */
static void an_event_is_of_a_completion_that_the_program_sees(void)
{
    struct end ends[2];
    setenv("MRC_EMULATE", "send", 1);
    connected(&ends[0], &ends[1], 14, 7);
    for (int round = 0; round < 300; round++) {
        struct end *from = &ends[round & 1], *to = &ends[!(round & 1)];
        post_receive(to);
        CHECK(ibv_req_notify_cq(from->cq, 0) == 0 && ibv_req_notify_cq(to->cq, 0) == 0);
        post_message(from, IBV_SEND_SIGNALED);
        CHECK(wakes(to, 10000) && taken(to) == 1);
        CHECK(wakes(from, 10000) && taken(from) == 1);
    }
    CHECK(!wakes(&ends[0], 50) && !wakes(&ends[1], 50));
    close_end(&ends[0]);
    close_end(&ends[1]);
    unsetenv("MRC_EMULATE");
}

static void a_queue_armed_for_solicited_completions_wakes_for_those(void)
{
    struct end a, b;
    setenv("MRC_EMULATE", "send", 1);
    connected(&a, &b, 14, 7);
    for (int i = 0; i < 3; i++)
        post_receive(&b);
    CHECK(ibv_req_notify_cq(b.cq, 1) == 0);
    post_message(&a, 0);
    CHECK(!wakes(&b, 100));
    post_message(&a, IBV_SEND_SOLICITED);
    CHECK(wakes(&b, 10000) && taken(&b) == 2);
    CHECK(ibv_req_notify_cq(b.cq, 0) == 0 && ibv_req_notify_cq(b.cq, 1) == 0); /* any completion, still */
    post_message(&a, 0);
    CHECK(wakes(&b, 10000) && taken(&b) == 1);
    CHECK(ibv_req_notify_cq(b.cq, 1) == 0);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    post_receive(&b);
    CHECK(ibv_modify_qp(b.qp, &attr, IBV_QP_STATE) == 0);
    CHECK(wakes(&b, 10000) && next_completion(&b, 1).status == IBV_WC_WR_FLUSH_ERR); /* an error is solicited */
    close_end(&a);
    close_end(&b);
    unsetenv("MRC_EMULATE");
}

/* Seconds of the quickest of many runs of empty polls. */
static double empty_poll(struct end *end)
{
    double least = 1;
    struct ibv_wc wc;
    for (int run = 0; run < 200; run++) {
        double begun = seconds();
        for (int i = 0; i < 50; i++)
            CHECK(ibv_poll_cq(end->cq, 1, &wc) == 0);
        double took = (seconds() - begun) / 50;
        least = took < least ? took : least;
    }
    return least;
}

static void an_empty_poll_takes_as_long_with_many_queue_pairs(void)
{
    enum { MANY = 300 };
    struct ibv_qp *others[MANY];
    struct end a, b;
    setenv("MRC_EMULATE", "send", 1);
    connected(&a, &b, 14, 7);
    double one = empty_poll(&a);
    struct ibv_qp *own = a.qp;
    struct far_end seen = seen_from_afar(&b);
    for (int i = 0; i < MANY; i++) {
        struct ibv_qp_init_attr init = {.send_cq = a.cq, .recv_cq = a.cq, .qp_type = IBV_QPT_RC, .cap = {8, 8, 1, 1, 0}};
        CHECK((others[i] = a.qp = ibv_create_qp(a.pd, &init)) != NULL);
        bring_up_to(&a, &seen, 14, 7);
    }
    a.qp = own;
    double many = empty_poll(&a);
    printf("%.2f us, with %d queue pairs %.2f us\n", one * 1e6, MANY, many * 1e6);
    CHECK(many < 3 * one);
    for (int i = 0; i < MANY; i++)
        CHECK(ibv_destroy_qp(others[i]) == 0);
    close_end(&a);
    close_end(&b);
    unsetenv("MRC_EMULATE");
}

/* MRC has no RNR; where SEND is emulated a write with immediate waits for its receive, as programs for RC expect. */
static void a_write_with_immediate_waits_for_a_receive(void)
{
    struct end a, b;
    setenv("MRC_EMULATE", "send", 1);
    connected(&a, &b, 14, 7);
    a.memory[0] = 7;
    CHECK(post_write(&a, &b, 1, 0, 64, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_SEND_SIGNALED) == 0);
    CHECK(next_completion(&a, 10).status == IBV_WC_SUCCESS && taken(&b) == 0);
    post_receive(&b);
    struct ibv_wc wc = next_completion(&b, 10);
    CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.imm_data == 1);
    CHECK(wc.byte_len == 64 && b.memory[0] == 7);
    close_end(&a);
    close_end(&b);
}

/* What the engine completed when the last connection ended does not fail the next one. */
static void a_queue_pair_connects_again_after_an_error(void)
{
    struct end a, b;
    setenv("MRC_EMULATE", "send", 1);
    connected(&a, &b, 14, 7);
    struct far_end from = seen_from_afar(&a), to = seen_from_afar(&b);
    for (uint64_t round = 0; round < 20; round++) {
        struct ibv_wc wc;
        for (int i = 0; i < 2; i++)
            post_receive(&b);
        CHECK(post_write(&a, &b, round, 0, 64, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_SEND_SIGNALED) == 0);
        CHECK((wc = next_completion(&a, 10)).status == IBV_WC_SUCCESS && wc.wr_id == round);
        CHECK((wc = next_completion(&b, 10)).status == IBV_WC_SUCCESS && wc.imm_data == round);
        bool fails = round % 2 == 1;
        CHECK(!fails || (move_to(&a, &to, IBV_QPS_ERR) == 0 && move_to(&b, &from, IBV_QPS_ERR) == 0));
        CHECK(!fails || next_completion(&b, 10).status == IBV_WC_WR_FLUSH_ERR);
        CHECK(move_to(&a, &to, IBV_QPS_RESET) == 0 && move_to(&b, &from, IBV_QPS_RESET) == 0);
        CHECK(ibv_poll_cq(a.cq, 1, &wc) == 0 && ibv_poll_cq(b.cq, 1, &wc) == 0);
        bring_up(&a, &b, 14, 7);
        bring_up(&b, &a, 14, 7);
    }
    close_end(&a);
    close_end(&b);
}

/* As without emulation: receives from INIT on, sends from RTS on. */
static void nothing_is_posted_before_its_state(void)
{
    struct end a, b;
    setenv("MRC_EMULATE", "send", 1);
    connected(&a, &b, 14, 7);
    struct far_end there = seen_from_afar(&b);
    CHECK(move_to(&a, &there, IBV_QPS_RESET) == 0);
    struct ibv_recv_wr receive = {0}, *bad;
    CHECK(ibv_post_recv(a.qp, &receive, &bad) == EINVAL && bad == &receive);
    CHECK(move_to(&a, &there, IBV_QPS_INIT) == 0);
    CHECK(ibv_post_recv(a.qp, &receive, &bad) == 0);
    CHECK(post_write(&a, &b, 1, 0, 64, IBV_WR_RDMA_WRITE, 0) == EINVAL);
    CHECK(move_to(&a, &there, IBV_QPS_RTR) == 0);
    CHECK(post_write(&a, &b, 1, 0, 64, IBV_WR_RDMA_WRITE, 0) == EINVAL);
    close_end(&a);
    close_end(&b);
}

static const struct named_test tests[] = {
    TEST(an_event_is_of_a_completion_that_the_program_sees),
    TEST(a_queue_armed_for_solicited_completions_wakes_for_those),
    TEST(a_write_with_immediate_waits_for_a_receive),
    TEST(a_queue_pair_connects_again_after_an_error),
    TEST(nothing_is_posted_before_its_state),
    TEST(an_empty_poll_takes_as_long_with_many_queue_pairs),
};

int main(int count, char **names)
{
    return run_named(tests, sizeof tests / sizeof *tests, count, names);
}
