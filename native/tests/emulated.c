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

/* Receives from INIT on, sends from RTS on (IBTA volume 1, 10.8.2), whatever is emulated; what was refused leaves no trace. */
static void nothing_is_posted_before_its_state(void)
{
    static const char *const modes[] = {"", "send", "read", "rnr"};
    static const enum ibv_qp_state before[] = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR};
    for (size_t mode = 0; mode < sizeof modes / sizeof *modes; mode++) {
        struct end a, b;
        struct ibv_wc wc;
        setenv("MRC_EMULATE", modes[mode], 1);
        connected(&a, &b, 14, 7);
        struct far_end there = seen_from_afar(&b);
        struct ibv_recv_wr receive = {0}, *bad;
        for (int state = 0; state < 3; state++) {
            CHECK(move_to(&a, &there, before[state]) == 0);
            CHECK(post_write(&a, &b, 1, 0, 64, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED) == EINVAL);
            CHECK(ibv_post_recv(a.qp, &receive, &bad) == (before[state] == IBV_QPS_RESET ? EINVAL : 0));
        }
        CHECK(move_to(&a, &there, IBV_QPS_RTS) == 0 && ibv_poll_cq(a.cq, 1, &wc) == 0);
        CHECK(post_write(&a, &b, 2, 0, 64, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED) == 0);
        close_end(&a);
        close_end(&b);
    }
}

static void what_is_granted_can_be_posted_and_no_more(void)
{
    struct end a, b;
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    setenv("MRC_EMULATE", "send", 1);
    connected(&a, &b, 20, 7);
    struct far_end there = seen_from_afar(&b), here = seen_from_afar(&a);
    CHECK(move_to(&b, &here, IBV_QPS_RESET) == 0 && ibv_query_qp(a.qp, &attr, 0, &init) == 0);
    for (int round = 0; round < 2; round++) {
        uint32_t posted = 0;
        int error;
        while ((error = post_write(&a, &b, posted, 0, 64, IBV_WR_RDMA_WRITE, 0)) == 0)
            posted++;
        CHECK(error == ENOMEM && posted == init.cap.max_send_wr && posted == 128); /* as asked: queues are made for it */
        CHECK(move_to(&a, &there, IBV_QPS_RESET) == 0 && move_to(&a, &there, IBV_QPS_INIT) == 0);
        CHECK(move_to(&a, &there, IBV_QPS_RTR) == 0 && move_to(&a, &there, IBV_QPS_RTS) == 0);
    }
    close_end(&a);
    close_end(&b);
}

/* A place in the queue is free when its request is done, whether anybody is told or not. */
static void unsignalled_requests_free_their_places(void)
{
    struct end a, b;
    setenv("MRC_EMULATE", "send", 1);
    connected(&a, &b, 14, 7);
    double begun = seconds();
    for (uint64_t done = 0; done < 20000;) {
        int error = post_write(&a, &b, done, 0, 64, IBV_WR_RDMA_WRITE, 0);
        CHECK(error == 0 || error == ENOMEM);
        done += error == 0;
        CHECK((error == 0 || taken(&a) == 0) && seconds() - begun < 40);
    }
    close_end(&a);
    close_end(&b);
}

/* As without emulation: an event, its queue pairs in ERR, and polls that fail once what fitted has been read. */
static void a_completion_queue_overruns(void)
{
    struct end a, b;
    struct ibv_wc wc;
    struct ibv_async_event event;
    setenv("MRC_EMULATE", "send", 1);
    connected(&a, &b, 14, 7);
    for (int i = 0; i < a.cq->cqe + 1; i++)
        post_receive(&a);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    CHECK(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE) == 0);
    for (int i = 0; i < a.cq->cqe; i++)
        CHECK((wc = next_completion(&a, 10)).status == IBV_WC_WR_FLUSH_ERR);
    CHECK(ibv_get_async_event(a.context, &event) == 0);
    CHECK(event.event_type == IBV_EVENT_CQ_ERR && event.element.cq == a.cq);
    ibv_ack_async_event(&event);
    CHECK(ibv_poll_cq(a.cq, 1, &wc) < 0);
    close_end(&a);
    close_end(&b);
}

/* Connect both, where `b` may be written to as these flags say. */
static void connect_with_access(struct end *a, struct end *b, unsigned access)
{
    struct far_end here = seen_from_afar(a), there = seen_from_afar(b);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = access};
    CHECK(move_to(a, &there, IBV_QPS_RESET) == 0 && move_to(b, &here, IBV_QPS_RESET) == 0);
    CHECK(move_to(a, &there, IBV_QPS_INIT) == 0 && ibv_modify_qp(b->qp, &attr, TO_INIT) == 0);
    for (enum ibv_qp_state state = IBV_QPS_RTR; state <= IBV_QPS_RTS; state++)
        CHECK(move_to(a, &there, state) == 0 && move_to(b, &here, state) == 0);
}

static void a_queue_pair_without_remote_write_takes_sends_alone(void)
{
    struct end a, b;
    struct ibv_qp_attr more = {.qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    setenv("MRC_EMULATE", "send", 1);
    a = open_end();
    b = open_end();
    for (int round = 0; round < 2; round++) {
        connect_with_access(&a, &b, 0);
        CHECK(ibv_modify_qp(b.qp, &more, IBV_QP_ACCESS_FLAGS) == EOPNOTSUPP);
        post_receive(&b);
        post_message(&a, IBV_SEND_SIGNALED);
        CHECK(next_completion(&a, 10).status == IBV_WC_SUCCESS && next_completion(&b, 10).status == IBV_WC_SUCCESS);
        a.memory[100] = 7;
        CHECK(post_write(&a, &b, 1, 100, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED) == 0);
        CHECK(next_completion(&a, 10).status == IBV_WC_REM_ACCESS_ERR && b.memory[100] == 0);
        connect_with_access(&a, &b, IBV_ACCESS_REMOTE_WRITE);
        CHECK(ibv_modify_qp(b.qp, &more, IBV_QP_ACCESS_FLAGS) == 0);
        CHECK(post_write(&a, &b, 1, 100, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED) == 0);
        CHECK(next_completion(&a, 10).status == IBV_WC_SUCCESS && b.memory[100] == 7);
        b.memory[100] = 0;
    }
    close_end(&a);
    close_end(&b);
}

static void set_rnr_retry(struct end *end, int retries)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS, .rnr_retry = (uint8_t)retries};
    CHECK(ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_RNR_RETRY) == 0);
}

/* With 7 retries a request, and what comes after it, completes once its receive is posted, which needs no poll. */
static void a_request_waits_for_its_receive(void)
{
    struct end a, b;
    struct ibv_wc wc;
    setenv("MRC_EMULATE", "rnr", 1);
    connected(&a, &b, 14, 7);
    for (uint64_t round = 0; round < 100; round++) {
        bool sends = round % 2 == 0;
        if (sends)
            post_message(&a, IBV_SEND_SIGNALED);
        else
            CHECK(post_write(&a, &b, 0, 0, 64, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_SEND_SIGNALED) == 0);
        CHECK(post_write(&a, &b, 1, 0, 64, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED) == 0);
        for (int i = 0; i < 1000; i++)
            CHECK(taken(&a) == 0);
        post_receive(&b);
        for (uint64_t i = 0; i < 2; i++)
            CHECK((wc = next_completion(&a, 10)).status == IBV_WC_SUCCESS && wc.wr_id == i);
        CHECK(next_completion(&b, 10).status == IBV_WC_SUCCESS && taken(&b) == 0);
    }
    close_end(&a);
    close_end(&b);
}

/* Without a receive the first request ends so after its retries, those before it well, those after it flushed. */
static void a_request_without_a_receive_ends_after_its_retries(void)
{
    static const struct {
        int retries, flags;
        double least; /* seconds: min_rnr_timer 0 is 655.36 ms */
    } cases[] = {{0, IBV_SEND_SIGNALED, 0}, {0, 0, 0}, {1, IBV_SEND_SIGNALED, 0.655}};
    struct end a, b;
    struct ibv_wc wc;
    setenv("MRC_EMULATE", "rnr", 1);
    a = open_end();
    b = open_end();
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        connect_with_access(&a, &b, IBV_ACCESS_REMOTE_WRITE);
        set_rnr_retry(&a, cases[i].retries);
        post_receive(&b);
        double begun = seconds();
        for (uint64_t id = 0; id < 4; id++) {
            enum ibv_wr_opcode opcode = id < 3 ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
            CHECK(post_write(&a, &b, id, 0, 64, opcode, id == 1 ? cases[i].flags : IBV_SEND_SIGNALED) == 0);
        }
        CHECK((wc = next_completion(&a, 10)).status == IBV_WC_SUCCESS && wc.wr_id == 0);
        CHECK((wc = next_completion(&a, 10)).status == IBV_WC_RNR_RETRY_EXC_ERR && wc.wr_id == 1);
        CHECK(seconds() - begun >= cases[i].least);
        for (uint64_t id = 2; id < 4; id++)
            CHECK((wc = next_completion(&a, 10)).status == IBV_WC_WR_FLUSH_ERR && wc.wr_id == id);
        CHECK(next_completion(&b, 10).status == IBV_WC_SUCCESS);
    }
    close_end(&a);
    close_end(&b);
}

/* A message of more slots than there are cannot be issued whole: it is the one that ends. */
static void a_long_message_without_a_receive_ends_too(void)
{
    struct end a, b;
    struct ibv_wc wc;
    static uint8_t long_message[8 << 20];
    setenv("MRC_EMULATE", "rnr", 1);
    connected(&a, &b, 14, 7);
    set_rnr_retry(&a, 0);
    struct ibv_mr *mr = ibv_reg_mr(a.pd, long_message, sizeof long_message, 0);
    struct ibv_sge sge = {(uintptr_t)long_message, sizeof long_message, mr->lkey};
    struct ibv_send_wr wr = {.wr_id = 5, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
    CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
    post_message(&a, 0);
    CHECK((wc = next_completion(&a, 10)).status == IBV_WC_RNR_RETRY_EXC_ERR && wc.wr_id == 5);
    CHECK(next_completion(&a, 10).status == IBV_WC_WR_FLUSH_ERR);
    CHECK(ibv_dereg_mr(mr) == 0);
    close_end(&a);
    close_end(&b);
}

static const struct named_test tests[] = {
    TEST(what_is_granted_can_be_posted_and_no_more),
    TEST(unsignalled_requests_free_their_places),
    TEST(a_completion_queue_overruns),
    TEST(a_queue_pair_without_remote_write_takes_sends_alone),
    TEST(a_request_waits_for_its_receive),
    TEST(a_request_without_a_receive_ends_after_its_retries),
    TEST(a_long_message_without_a_receive_ends_too),
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
