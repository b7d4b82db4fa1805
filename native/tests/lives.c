/* Two queue pairs that are connected, and wait until stdin ends: `lives fresh`, or `lives again`, where both had a life
 * before (writes with immediates, losses as MRC_FAULT_STEPS says, an end in the middle of many writes) and went through
 * RESET. What is in their rows then is for the test to read. */
#include "both_ends.h"

enum { WRITES = 100, LONG_WRITE = 200000 };

static void post_receives(struct end *end)
{
    for (uint64_t id = 0; id < WRITES; id++) {
        struct ibv_recv_wr receive = {.wr_id = id}, *bad;
        CHECK(ibv_post_recv(end->qp, &receive, &bad) == 0);
    }
}

/* Write in both directions, wait for half of it, and leave the rest under way. */
static void live(struct end *a, struct end *b)
{
    post_receives(a);
    post_receives(b);
    for (uint64_t id = 0; id < WRITES; id++) {
        CHECK(post_write(a, b, id, 0, LONG_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_SEND_SIGNALED) == 0);
        CHECK(post_write(b, a, id, 0, 100, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_SEND_SIGNALED) == 0);
    }
    for (int taken = 0; taken < WRITES; taken++) {
        CHECK(next_completion(a, 60).status == IBV_WC_SUCCESS);
        CHECK(next_completion(b, 60).status == IBV_WC_SUCCESS);
    }
}

static void reset(struct end *end)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
    CHECK(ibv_modify_qp(end->qp, &attr, IBV_QP_STATE) == 0);
}

int main(int count, char **words)
{
    CHECK(count == 2);
    struct end a, b;
    connected(&a, &b, 14, 7);
    if (strcmp(words[1], "again") == 0) {
        live(&a, &b);
        reset(&a);
        reset(&b);
        bring_up(&a, &b, 14, 7);
        bring_up(&b, &a, 14, 7);
    }
    puts("connected");
    fflush(stdout);
    while (getchar() != EOF)
        ;
    close_end(&a);
    close_end(&b);
    return 0;
}
