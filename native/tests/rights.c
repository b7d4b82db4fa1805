/* Which memory verbs let be read and written, and how both ends learn of what they do not. Each test is a name. */
#include <poll.h>

#include "both_ends.h"
#include "named_tests.h"

#define QUICK 2.0 /* seconds: what suites for NICs wait for a completion */

static enum ibv_qp_state state_of(const struct end *end)
{
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    CHECK(ibv_query_qp(end->qp, &attr, IBV_QP_STATE, &init) == 0);
    return attr.qp_state;
}

static bool completes(struct end *end, uint64_t id, enum ibv_wc_status status)
{
    struct ibv_wc wc = next_completion(end, QUICK);
    if (wc.wr_id != id || wc.status != status)
        fprintf(stderr, "request %ju: %s\n", (uintmax_t)wc.wr_id, ibv_wc_status_str(wc.status));
    return wc.wr_id == id && wc.status == status && wc.qp_num == end->qp->qp_num;
}

static void post_receive(struct end *end, uint64_t id, struct ibv_sge *pieces, int count)
{
    struct ibv_recv_wr receive = {.wr_id = id, .sg_list = pieces, .num_sge = count}, *bad;
    CHECK(ibv_post_recv(end->qp, &receive, &bad) == 0);
}

static void post(struct end *end, uint64_t id, enum ibv_wr_opcode opcode, struct ibv_sge *pieces, int count,
                 unsigned flags)
{
    struct ibv_send_wr wr = {.wr_id = id, .sg_list = pieces, .num_sge = count, .opcode = opcode, .send_flags = flags},
                       *bad;
    CHECK(ibv_post_send(end->qp, &wr, &bad) == 0);
}

static void post_rdma(struct end *end, uint64_t id, enum ibv_wr_opcode opcode, struct ibv_sge piece, void *at, uint32_t key)
{
    struct ibv_send_wr wr = {.wr_id = id, .sg_list = &piece, .num_sge = 1, .opcode = opcode}, *bad;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = (uintptr_t)at;
    wr.wr.rdma.rkey = key;
    CHECK(ibv_post_send(end->qp, &wr, &bad) == 0);
}

static struct ibv_sge piece_of(const struct end *end, size_t offset, uint32_t length)
{
    return (struct ibv_sge){(uintptr_t)end->memory + offset, length, end->mr->lkey};
}

static bool is_untouched(const struct end *end)
{
    for (size_t i = 0; i < 4096; i++)
        if (end->memory[i] != 0)
            return false;
    return true;
}

static void begin(struct end *a, struct end *b, const char *emulates)
{
    CHECK(setenv("MRC_EMULATE", emulates, 1) == 0);
    connected(a, b, 14, 7);
    memset(a->memory, 'a', MEMORY);
}

static void finish(struct end *a, struct end *b)
{
    close_end(a);
    close_end(b);
    CHECK(unsetenv("MRC_EMULATE") == 0);
}

/* Regions of an end that do not allow what a test wants of them, each in its way. */
enum fault { NO_RIGHT, NO_REGION, OTHER_DOMAIN, BEFORE_IT, BEYOND_IT, GONE, FAULTS };

struct faulty {
    struct ibv_pd *pd;
    struct ibv_mr *mr;
    struct ibv_sge piece;
};

static struct faulty make_faulty(const struct end *end, enum fault fault, int access_without_right)
{
    struct faulty made = {.pd = ibv_alloc_pd(end->context), .piece = piece_of(end, 0, 64)};
    int access = fault == NO_RIGHT ? access_without_right : EVERY_ACCESS;
    struct ibv_pd *pd = fault == OTHER_DOMAIN ? made.pd : end->pd;
    made.mr = ibv_reg_mr(pd, end->memory + (fault == BEFORE_IT), fault == BEYOND_IT ? 63 : 4096, access);
    CHECK(made.pd != NULL && made.mr != NULL);
    made.piece.lkey = fault == NO_REGION ? made.mr->lkey ^ 0x70000 : made.mr->lkey;
    return made;
}

static void end_faulty(struct faulty *faulty)
{
    CHECK((faulty->mr == NULL || ibv_dereg_mr(faulty->mr) == 0) && ibv_dealloc_pd(faulty->pd) == 0);
}

static void lose_if_gone(struct faulty *faulty, enum fault fault)
{
    if (fault == GONE) {
        CHECK(ibv_dereg_mr(faulty->mr) == 0);
        faulty->mr = NULL;
    }
}

/* InfiniBand, volume 1, 9.9.3: a protection error at whose memory it is, a remote operation error at the sender. */
static void a_send_needs_a_receive_that_may_be_written(void)
{
    for (int way = 0; way < 2 * FAULTS; way++) {
        enum fault fault = (enum fault)(way / 2);
        struct end a, b;
        begin(&a, &b, "rnr");
        struct faulty faulty = make_faulty(&b, fault, IBV_ACCESS_REMOTE_READ);
        struct ibv_sge list[2] = {piece_of(&b, 4096, 8), faulty.piece}, whole = piece_of(&b, 4096, 64);
        list[1].length = way % 2 == 0 ? 64 : fault == BEYOND_IT ? 64 : 56;
        post_receive(&b, 8, way % 2 == 0 ? &list[1] : list, 1 + way % 2);
        post_receive(&b, 9, &whole, 1);
        lose_if_gone(&faulty, fault);
        struct ibv_sge message = piece_of(&a, 0, way % 2 == 1 && fault == BEYOND_IT ? 72 : 64);
        post(&a, 1, IBV_WR_SEND, &message, 1, 0);
        post(&a, 2, IBV_WR_SEND, &message, 1, IBV_SEND_SIGNALED);
        CHECK(completes(&a, 1, IBV_WC_REM_OP_ERR) && state_of(&a) == IBV_QPS_ERR);
        CHECK(completes(&a, 2, IBV_WC_WR_FLUSH_ERR));
        CHECK(completes(&b, 8, IBV_WC_LOC_PROT_ERR) && state_of(&b) == IBV_QPS_ERR);
        CHECK(completes(&b, 9, IBV_WC_WR_FLUSH_ERR));
        CHECK(is_untouched(&b));
        end_faulty(&faulty);
        finish(&a, &b);
    }
}

static void a_send_may_not_be_longer_than_its_receive(void)
{
    static const struct {
        uint32_t sent, first, second; /* bytes: of a message, and of the pieces of its receive */
        enum ibv_wr_opcode opcode;
        unsigned flags;
    } cases[] = {
        {64, 63, 0, IBV_WR_SEND, 0},
        {64, 63, 0, IBV_WR_SEND_WITH_IMM, IBV_SEND_SIGNALED},
        {64, 63, 0, IBV_WR_SEND, IBV_SEND_INLINE},
        {64, 32, 31, IBV_WR_SEND, IBV_SEND_SOLICITED},
        {1, 0, 0, IBV_WR_SEND, 0},
        {300000, 200000, 99999, IBV_WR_SEND, 0},
        {300000, 64, 0, IBV_WR_SEND_WITH_IMM, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct end a, b;
        begin(&a, &b, "rnr");
        struct ibv_sge message = piece_of(&a, 0, cases[i].sent);
        struct ibv_sge target[2] = {piece_of(&b, 0, cases[i].first), piece_of(&b, 4096 + cases[i].first, cases[i].second)};
        post_receive(&b, 8, target, cases[i].second != 0 ? 2 : cases[i].first != 0);
        post_receive(&b, 9, target, 1);
        double begun = seconds();
        post(&a, 1, cases[i].opcode, &message, 1, cases[i].flags);
        post(&a, 2, IBV_WR_SEND, &message, 1, 0);
        CHECK(completes(&a, 1, IBV_WC_REM_INV_REQ_ERR) && state_of(&a) == IBV_QPS_ERR);
        CHECK(completes(&a, 2, IBV_WC_WR_FLUSH_ERR));
        CHECK(completes(&b, 8, IBV_WC_LOC_LEN_ERR) && state_of(&b) == IBV_QPS_ERR);
        CHECK(completes(&b, 9, IBV_WC_WR_FLUSH_ERR) && seconds() - begun < QUICK);
        finish(&a, &b);
    }
}

/* With `send` a request is done when it has arrived: the error is that of the oldest that is not, and the connection ends. */
static void a_sender_that_waits_for_no_receive_learns_of_its_error(void)
{
    struct end a, b;
    struct ibv_wc wc;
    begin(&a, &b, "send");
    struct ibv_sge message = piece_of(&a, 0, 64), target = piece_of(&b, 0, 63);
    post(&a, 1, IBV_WR_SEND, &message, 1, IBV_SEND_SIGNALED);
    CHECK(completes(&a, 1, IBV_WC_SUCCESS));
    post_receive(&b, 8, &target, 1);
    CHECK(completes(&b, 8, IBV_WC_LOC_LEN_ERR) && state_of(&b) == IBV_QPS_ERR);
    for (double until = seconds() + QUICK; state_of(&a) != IBV_QPS_ERR && seconds() < until;)
        CHECK(ibv_poll_cq(a.cq, 1, &wc) == 0 && ibv_poll_cq(b.cq, 1, &wc) == 0);
    CHECK(state_of(&a) == IBV_QPS_ERR);
    post(&a, 2, IBV_WR_SEND, &message, 1, 0);
    CHECK(completes(&a, 2, IBV_WC_WR_FLUSH_ERR));
    finish(&a, &b);
}

/* Memory that is only read needs no right, and memory that is not touched no region. */
static void what_writes_nothing_needs_no_right(void)
{
    struct end a, b;
    begin(&a, &b, "rnr");
    struct ibv_mr *readable = ibv_reg_mr(a.pd, a.memory, 4096, 0);
    struct ibv_sge message = {(uintptr_t)a.memory, 64, readable->lkey}, target = piece_of(&b, 0, 64);
    struct ibv_sge nowhere = {1, 64, 0x1234}, nothing = {0, 0, 0};
    post_receive(&b, 1, &target, 1);
    post(&a, 1, IBV_WR_SEND, &message, 1, IBV_SEND_SIGNALED);
    CHECK(completes(&a, 1, IBV_WC_SUCCESS) && completes(&b, 1, IBV_WC_SUCCESS) && b.memory[63] == 'a');
    post_receive(&b, 2, &nowhere, 1); /* of a write with immediate, whose bytes go elsewhere */
    post_rdma(&a, 2, IBV_WR_RDMA_WRITE_WITH_IMM, message, b.memory + 100, b.mr->rkey);
    CHECK(completes(&a, 2, IBV_WC_SUCCESS) && completes(&b, 2, IBV_WC_SUCCESS) && b.memory[163] == 'a');
    post_receive(&b, 3, &nowhere, 1);
    post(&a, 3, IBV_WR_SEND, &nothing, 1, IBV_SEND_SIGNALED);
    CHECK(completes(&a, 3, IBV_WC_SUCCESS) && completes(&b, 3, IBV_WC_SUCCESS));
    post_rdma(&a, 4, IBV_WR_RDMA_READ, nothing, NULL, 0x1234);
    CHECK(completes(&a, 4, IBV_WC_SUCCESS));
    post_rdma(&a, 5, IBV_WR_RDMA_WRITE, nothing, NULL, 0x1234);
    CHECK(completes(&a, 5, IBV_WC_SUCCESS) && state_of(&a) == IBV_QPS_RTS && state_of(&b) == IBV_QPS_RTS);
    CHECK(ibv_dereg_mr(readable) == 0);
    finish(&a, &b);
}

/* The reader's error is nothing to its peer, as with a NIC. */
static void a_read_needs_memory_that_may_be_written(void)
{
    for (int way = 0; way < 2 * FAULTS; way++) {
        enum fault fault = (enum fault)(way / 2);
        struct end a, b;
        begin(&b, &a, "read");
        struct faulty faulty = make_faulty(&a, fault, IBV_ACCESS_REMOTE_READ);
        struct ibv_sge list[2] = {piece_of(&a, 4096, 8), faulty.piece};
        struct ibv_send_wr wr = {.wr_id = 1, .sg_list = way % 2 == 0 ? &list[1] : list, .num_sge = 1 + way % 2,
                                 .opcode = IBV_WR_RDMA_READ}, *bad;
        wr.wr.rdma.remote_addr = (uintptr_t)b.memory;
        wr.wr.rdma.rkey = b.mr->rkey;
        lose_if_gone(&faulty, fault);
        CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
        post_rdma(&a, 2, IBV_WR_RDMA_WRITE, piece_of(&a, 4096, 8), b.memory, b.mr->rkey);
        CHECK(completes(&a, 1, IBV_WC_LOC_PROT_ERR) && state_of(&a) == IBV_QPS_ERR);
        CHECK(completes(&a, 2, IBV_WC_WR_FLUSH_ERR)); /* even if it was written before the bytes of the first came */
        CHECK(is_untouched(&a) && state_of(&b) == IBV_QPS_RTS);
        end_faulty(&faulty);
        finish(&a, &b);
    }
}

/* Volume 1, 9.9.3 again: an access error at the reader, whether its own memory is good or not, and an event at the peer. */
static void a_read_of_memory_that_may_not_be_read_ends_both_ends(void)
{
    for (int way = 0; way < 2 * FAULTS; way++) {
        enum fault fault = (enum fault)(way / 2);
        struct end a, b;
        struct ibv_async_event event;
        begin(&b, &a, "read");
        struct faulty faulty = make_faulty(&b, fault, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
        struct ibv_sge own = piece_of(&a, 0, 64);
        own.lkey ^= way % 2 == 0 ? 0 : 0x70000;
        lose_if_gone(&faulty, fault);
        struct ibv_sge target = piece_of(&b, 0, 64);
        post_receive(&b, 8, &target, 1);
        post_rdma(&a, 1, IBV_WR_RDMA_READ, own, b.memory, faulty.piece.lkey);
        CHECK(completes(&a, 1, IBV_WC_REM_ACCESS_ERR) && state_of(&a) == IBV_QPS_ERR && is_untouched(&a));
        struct pollfd slot = {b.context->async_fd, POLLIN, 0};
        CHECK(poll(&slot, 1, (int)(1000 * QUICK)) == 1 && ibv_get_async_event(b.context, &event) == 0);
        CHECK(event.event_type == IBV_EVENT_QP_ACCESS_ERR && event.element.qp == b.qp && state_of(&b) == IBV_QPS_ERR);
        ibv_ack_async_event(&event);
        CHECK(completes(&b, 8, IBV_WC_WR_FLUSH_ERR));
        end_faulty(&faulty);
        finish(&a, &b);
    }
}

/* From ERR a queue pair goes to RESET alone, also while its peer is still told, and connects again. */
static void a_queue_pair_that_refused_a_send_connects_again(void)
{
    struct end a, b;
    struct ibv_wc wc;
    begin(&a, &b, "rnr");
    struct far_end here = seen_from_afar(&a), there = seen_from_afar(&b);
    struct ibv_sge message = piece_of(&a, 0, 64), target[2] = {piece_of(&b, 0, 63), piece_of(&b, 0, 64)};
    for (int round = 0; round < 20; round++) {
        post_receive(&b, 8, &target[0], 1);
        post(&a, 1, IBV_WR_SEND, &message, 1, 0);
        CHECK(completes(&b, 8, IBV_WC_LOC_LEN_ERR));
        for (int state = IBV_QPS_INIT; state <= IBV_QPS_RTS; state++)
            CHECK(move_to(&b, &here, (enum ibv_qp_state)state) == EINVAL);
        CHECK(move_to(&b, &here, IBV_QPS_ERR) == 0 && state_of(&b) == IBV_QPS_ERR);
        post(&b, 9, IBV_WR_SEND, &message, 1, 0);
        CHECK(completes(&b, 9, IBV_WC_WR_FLUSH_ERR) && completes(&a, 1, IBV_WC_REM_INV_REQ_ERR));
        CHECK(move_to(&a, &there, IBV_QPS_RESET) == 0 && move_to(&b, &here, IBV_QPS_RESET) == 0);
        CHECK(state_of(&b) == IBV_QPS_RESET && ibv_poll_cq(a.cq, 1, &wc) == 0 && ibv_poll_cq(b.cq, 1, &wc) == 0);
        bring_up(&a, &b, 14, 7);
        bring_up(&b, &a, 14, 7);
        post_receive(&b, 2, &target[1], 1);
        post(&a, 3, IBV_WR_SEND, &message, 1, IBV_SEND_SIGNALED);
        CHECK(completes(&a, 3, IBV_WC_SUCCESS) && completes(&b, 2, IBV_WC_SUCCESS));
    }
    finish(&a, &b);
}

/* A peer that is in error, or gone, before a receive has taken the message: nobody waits for ever. */
static void a_send_that_waits_for_a_receive_ends_with_its_peer(void)
{
    for (int way = 0; way < 4; way++) {
        struct end a, b;
        struct ibv_wc wc;
        CHECK(setenv("MRC_EMULATE", "rnr", 1) == 0);
        connected(&a, &b, 10, 3);
        struct ibv_sge message = piece_of(&a, 0, way % 2 == 0 ? 64 : MEMORY);
        post(&a, 1, IBV_WR_SEND, &message, 1, 0);
        for (int i = 0; i < 1000; i++)
            CHECK(ibv_poll_cq(a.cq, 1, &wc) == 0);
        struct ibv_qp_attr failed = {.qp_state = IBV_QPS_ERR};
        if (way < 2)
            CHECK(ibv_modify_qp(b.qp, &failed, IBV_QP_STATE) == 0);
        else
            close_end(&b);
        wc = next_completion(&a, 10);
        CHECK(wc.wr_id == 1 && (wc.status == IBV_WC_REM_OP_ERR || wc.status == IBV_WC_RETRY_EXC_ERR));
        close_end(&a);
        if (way < 2)
            close_end(&b);
        CHECK(unsetenv("MRC_EMULATE") == 0);
    }
}

static const struct named_test tests[] = {
    TEST(a_send_needs_a_receive_that_may_be_written),
    TEST(a_send_may_not_be_longer_than_its_receive),
    TEST(a_sender_that_waits_for_no_receive_learns_of_its_error),
    TEST(what_writes_nothing_needs_no_right),
    TEST(a_read_needs_memory_that_may_be_written),
    TEST(a_read_of_memory_that_may_not_be_read_ends_both_ends),
    TEST(a_queue_pair_that_refused_a_send_connects_again),
    TEST(a_send_that_waits_for_a_receive_ends_with_its_peer),
};

int main(int count, char **names)
{
    return run_named(tests, sizeof tests / sizeof *tests, count, names);
}
