/* The verbs device between two endpoints of one process; each test is a name on the command line. */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include "both_ends.h"
#include "named_tests.h"

static void writes_arrive(void)
{
    struct end a, b;
    connected(&a, &b, 14, 7);
    for (size_t i = 0; i < MEMORY; i++)
        a.memory[i] = (uint8_t)(i * 31 >> 4);
    CHECK(post_write(&a, &b, 5, 0, MEMORY, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED) == 0);
    struct ibv_wc wc = next_completion(&a, 10);
    CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == 5 && wc.opcode == IBV_WC_RDMA_WRITE && wc.qp_num == a.qp->qp_num);
    CHECK(memcmp(a.memory, b.memory, MEMORY) == 0);
    close_end(&a);
    close_end(&b);
}

/* What NCCL's network does: writes without completions, then an empty write with immediate that comes after them. */
static void an_empty_immediate_follows_its_writes(void)
{
    struct end a, b;
    struct ibv_recv_wr receive = {.wr_id = 99}, *bad;
    connected(&a, &b, 14, 7);
    for (int round = 0; round < 50; round++) {
        CHECK(ibv_post_recv(b.qp, &receive, &bad) == 0);
        memset(a.memory, round + 1, MEMORY / 2);
        for (size_t part = 0; part < 8; part++)
            CHECK(post_write(&a, &b, part, part * 65536, 65536, IBV_WR_RDMA_WRITE, 0) == 0);
        CHECK(post_write(&a, &b, 0x1000 + (uint64_t)round, 0, 0, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_SEND_SIGNALED) == 0);
        struct ibv_wc wc = next_completion(&b, 10);
        CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == 99 && wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM);
        CHECK(wc.wc_flags == IBV_WC_WITH_IMM && wc.imm_data == 0x1000u + (unsigned)round && wc.byte_len == 0);
        for (size_t i = 0; i < MEMORY / 2; i += 4099)
            CHECK(b.memory[i] == round + 1);
        CHECK(next_completion(&a, 10).wr_id == 0x1000u + (unsigned)round);
    }
    close_end(&a);
    close_end(&b);
}

static void pieces_and_inline_data_are_gathered(void)
{
    struct end a, b;
    char text[] = "inline";
    connected(&a, &b, 14, 7);
    strcpy((char *)a.memory + 100, "one ");
    strcpy((char *)a.memory + 5000, "two ");
    strcpy((char *)a.memory + 90000, "three");
    struct ibv_sge pieces[] = {{(uintptr_t)a.memory + 100, 4, a.mr->lkey}, {(uintptr_t)a.memory + 5000, 4, a.mr->lkey},
                               {(uintptr_t)a.memory + 90000, 6, a.mr->lkey}};
    struct ibv_send_wr second = {.wr_id = 2, .opcode = IBV_WR_RDMA_WRITE, .num_sge = 1}, *bad;
    struct ibv_send_wr first = {.wr_id = 1, .next = &second, .sg_list = pieces, .num_sge = 3};
    struct ibv_sge quick = {(uintptr_t)text, sizeof text, 0};
    first.opcode = IBV_WR_RDMA_WRITE;
    first.send_flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE;
    second.sg_list = &quick;
    second.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
    first.wr.rdma.rkey = second.wr.rdma.rkey = b.mr->rkey;
    first.wr.rdma.remote_addr = (uintptr_t)b.memory;
    second.wr.rdma.remote_addr = (uintptr_t)b.memory + 64;
    CHECK(ibv_post_send(a.qp, &first, &bad) == 0);
    memset(text, 'x', sizeof text); /* inline data is taken when it is posted */
    CHECK(next_completion(&a, 10).wr_id == 1 && next_completion(&a, 10).wr_id == 2);
    CHECK(strcmp((char *)b.memory, "one two three") == 0 && strcmp((char *)b.memory + 64, "inline") == 0);
    close_end(&a);
    close_end(&b);
}

static void an_armed_queue_wakes_its_channel(void)
{
    struct end a, b;
    struct ibv_cq *cq;
    void *context;
    connected(&a, &b, 14, 7);
    CHECK(fcntl(a.channel->fd, F_SETFL, O_NONBLOCK) == 0);
    CHECK(ibv_get_cq_event(a.channel, &cq, &context) == -1 && errno == EAGAIN);
    CHECK(ibv_req_notify_cq(a.cq, 0) == 0);
    CHECK(post_write(&a, &b, 1, 0, 100, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED) == 0);
    struct pollfd ready = {a.channel->fd, POLLIN, 0};
    CHECK(poll(&ready, 1, 10000) == 1);
    CHECK(ibv_get_cq_event(a.channel, &cq, &context) == 0 && cq == a.cq);
    ibv_ack_cq_events(cq, 1);
    CHECK(next_completion(&a, 1).wr_id == 1);
    close_end(&a);
    close_end(&b);
}

static void a_wrong_key_is_an_error_at_both_ends(void)
{
    struct end a, b;
    struct ibv_async_event event;
    connected(&a, &b, 14, 7);
    uint32_t right = b.mr->rkey;
    b.mr->rkey = right ^ 0x5000;
    CHECK(post_write(&a, &b, 7, 0, 64, IBV_WR_RDMA_WRITE, 0) == 0);
    struct ibv_wc wc = next_completion(&a, 10);
    CHECK(wc.wr_id == 7 && wc.status == IBV_WC_REM_ACCESS_ERR);
    b.mr->rkey = right;
    CHECK(post_write(&a, &b, 8, 0, 64, IBV_WR_RDMA_WRITE, 0) == 0); /* in ERROR posts are flushed */
    CHECK(next_completion(&a, 10).status == IBV_WC_WR_FLUSH_ERR);
    CHECK(ibv_get_async_event(b.context, &event) == 0);
    CHECK(event.event_type == IBV_EVENT_QP_ACCESS_ERR && event.element.qp == b.qp);
    ibv_ack_async_event(&event);
    struct pollfd none = {a.context->async_fd, POLLIN, 0};
    CHECK(poll(&none, 1, 50) == 0); /* who posted it has a completion */
    close_end(&a);
    close_end(&b);
}

static void a_silent_peer_is_an_error_in_time(void)
{
    struct end a, b;
    connected(&a, &b, 12, 1); /* 16.8 ms, two attempts */
    close_end(&b);
    double begun = seconds();
    struct end gone = {.memory = a.memory, .mr = a.mr};
    CHECK(post_write(&a, &gone, 3, 0, 64, IBV_WR_RDMA_WRITE, 0) == 0);
    struct ibv_wc wc = next_completion(&a, 10);
    CHECK(wc.status == IBV_WC_RETRY_EXC_ERR && wc.wr_id == 3);
    printf("%.3f s\n", seconds() - begun);
    CHECK(seconds() - begun < 2);
    close_end(&a);
}

static void what_cannot_be_is_refused(void)
{
    struct end a = open_end();
    struct ibv_sge sge = {(uintptr_t)a.memory, 64, a.mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
    CHECK(ibv_post_send(a.qp, &wr, &bad) == EINVAL && bad == &wr); /* in RESET */
    struct ibv_qp_init_attr init = {.send_cq = a.cq, .recv_cq = a.cq, .qp_type = IBV_QPT_UD, .cap = {1, 1, 1, 1, 0}};
    CHECK(ibv_create_qp(a.pd, &init) == NULL && errno == EOPNOTSUPP);
    CHECK(ibv_dealloc_pd(a.pd) == EBUSY && ibv_destroy_cq(a.cq) == EBUSY);
    CHECK(ibv_destroy_comp_channel(a.channel) == EBUSY);
    CHECK(ibv_reg_mr(a.pd, a.memory, 64, IBV_ACCESS_REMOTE_WRITE) == NULL && errno == EINVAL);
    CHECK(ibv_reg_dmabuf_mr(a.pd, 0, 64, 0, 0, IBV_ACCESS_LOCAL_WRITE) == NULL && errno == EOPNOTSUPP);
    struct ibv_port_attr port = {.lid = 7};
    CHECK(verbs_get_ctx_op(a.context, query_port)->query_port(a.context, 2, &port, sizeof port) == EINVAL);
    CHECK(port.lid == 7 && port.max_msg_sz == 0); /* there is no port 2, and nothing is said of it */
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS};
    CHECK(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE) == EINVAL);
    bring_up(&a, &a, 14, 7);
    wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    CHECK(ibv_post_send(a.qp, &wr, &bad) == EOPNOTSUPP);
    close_end(&a);
}

/* Memory that is in no region, or not all of it: a completion, as a NIC has it, and only once. */
static void wrong_local_memory_is_an_error_completion(void)
{
    for (int way = 0; way < 4; way++) {
        struct end a, b;
        connected(&a, &b, 14, 7);
        uint32_t right = a.mr->lkey;
        a.mr->lkey ^= way == 0 ? 0x5000 : 0;
        struct ibv_sge pieces[] = {{(uintptr_t)a.memory, 64, right}, {(uintptr_t)a.memory + 64, 64, right}};
        struct ibv_send_wr wr = {.wr_id = 4, .sg_list = pieces, .num_sge = 2, .opcode = IBV_WR_RDMA_WRITE}, *bad;
        pieces[1].lkey = a.mr->lkey;
        pieces[1].addr += way == 1 ? MEMORY - 100 : way == 2 ? MEMORY : 0;
        pieces[1].length = way == 3 ? UINT32_MAX / 4 : 64;
        wr.wr.rdma.remote_addr = (uintptr_t)b.memory;
        wr.wr.rdma.rkey = b.mr->rkey;
        CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
        a.mr->lkey = right;
        CHECK(post_write(&a, &b, 5, 0, 64, IBV_WR_RDMA_WRITE, 0) == 0);
        struct ibv_wc wc = next_completion(&a, 10);
        CHECK(wc.wr_id == 4 && wc.status == IBV_WC_LOC_PROT_ERR);
        wc = next_completion(&a, 10);
        CHECK(wc.wr_id == 5 && wc.status == IBV_WC_WR_FLUSH_ERR && ibv_poll_cq(a.cq, 1, &wc) == 0);
        struct pollfd none = {a.context->async_fd, POLLIN, 0};
        CHECK(poll(&none, 1, 20) == 0);
        close_end(&a);
        close_end(&b);
    }
}

/* Fill both queues of a queue pair, let it fail, and take a completion of each request out of queues for what was asked. */
static void fill_as_granted(struct end *end, const struct ibv_qp_init_attr *init, struct ibv_send_wr *send)
{
    struct ibv_recv_wr receive = {.wr_id = 1}, *bad_receive;
    struct ibv_send_wr *bad;
    struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
    for (uint32_t k = 0; k < init->cap.max_recv_wr; k++)
        CHECK(ibv_post_recv(end->qp, &receive, &bad_receive) == 0);
    for (uint32_t k = 0; k < init->cap.max_send_wr; k++)
        CHECK(ibv_post_send(end->qp, send, &bad) == 0);
    CHECK(ibv_modify_qp(end->qp, &error, IBV_QP_STATE) == 0);
    for (int is_receive = 0; is_receive < 2; is_receive++) {
        struct end queue = {.cq = is_receive ? init->recv_cq : init->send_cq};
        uint32_t granted = is_receive ? init->cap.max_recv_wr : init->cap.max_send_wr;
        struct ibv_wc wc;
        for (uint32_t k = 0; k < granted; k++)
            CHECK(next_completion(&queue, 10).status == IBV_WC_WR_FLUSH_ERR);
        CHECK(ibv_poll_cq(queue.cq, 1, &wc) == 0);
    }
}

/* So many requests of so many pieces, and so many receives, while the peer answers none. */
static void what_is_granted_can_be_posted(void)
{
    static const uint32_t asked[][3] = {{1, 1, 1},  {16, 4, 2},  {100, 3, 300}, {512, 8, 4096}, {2048, 2, 1},
                                        {2048, 1, 1}, {0, 1, 0}};
    struct end a = open_end();
    struct ibv_qp *own = a.qp;
    struct far_end nobody = seen_from_afar(&a);
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        int sends = asked[i][0] > 0 ? (int)asked[i][0] : 1, receives = asked[i][2] > 0 ? (int)asked[i][2] : 1;
        struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC};
        struct ibv_sge pieces[8];
        struct ibv_send_wr wr = {.sg_list = pieces, .opcode = IBV_WR_RDMA_WRITE};
        init.cap = (struct ibv_qp_cap){asked[i][0], asked[i][2], asked[i][1], 1, 0};
        CHECK((init.send_cq = ibv_create_cq(a.context, sends, NULL, NULL, 0)) != NULL);
        CHECK((init.recv_cq = ibv_create_cq(a.context, receives, NULL, NULL, 0)) != NULL);
        CHECK((a.qp = ibv_create_qp(a.pd, &init)) != NULL);
        CHECK((int)init.cap.max_send_wr == sends && (int)init.cap.max_recv_wr == receives);
        CHECK(init.cap.max_send_sge >= asked[i][1]);
        nobody.qpn = a.qp->qp_num + (1 << 16);
        bring_up_to(&a, &nobody, 20, 7);
        for (int piece = 0; piece < 8; piece++)
            pieces[piece] = (struct ibv_sge){(uintptr_t)a.memory + 64u * (unsigned)piece, 16, a.mr->lkey};
        wr.num_sge = (int)init.cap.max_send_sge;
        wr.wr.rdma.remote_addr = (uintptr_t)a.memory;
        fill_as_granted(&a, &init, &wr);
        CHECK(ibv_destroy_qp(a.qp) == 0 && ibv_destroy_cq(init.send_cq) == 0 && ibv_destroy_cq(init.recv_cq) == 0);
    }
    struct ibv_qp_init_attr init = {.send_cq = a.cq, .recv_cq = a.cq, .qp_type = IBV_QPT_RC};
    init.cap = (struct ibv_qp_cap){2048, 1, 8, 1, 0};
    CHECK(ibv_create_qp(a.pd, &init) == NULL && errno == EINVAL);
    a.qp = own;
    close_end(&a);
}

/* What MRC or this library does not have, and numbers that are none: each with its error. */
static void what_is_not_offered_has_an_error(void)
{
    struct end a = open_end();
    struct far_end seen = seen_from_afar(&a);
    struct ibv_srq_init_attr shared = {.attr = {.max_wr = 1, .max_sge = 1}};
    struct ibv_ah_attr address = {.is_global = 1, .port_num = 1};
    struct ibv_port_attr port;
    CHECK(ibv_create_srq(a.pd, &shared) == NULL && errno == EOPNOTSUPP);
    CHECK(ibv_create_ah(a.pd, &address) == NULL && errno == EOPNOTSUPP);
    CHECK(ibv_alloc_mw(a.pd, IBV_MW_TYPE_2) == NULL && errno == EOPNOTSUPP);
    CHECK(ibv_attach_mcast(a.qp, &seen.gid, 0) == EOPNOTSUPP);
    errno = 0;
    CHECK(ibv_rereg_mr(a.mr, 0, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_CMD && errno == EOPNOTSUPP);
    CHECK(ibv_resize_cq(a.cq, -5) == EINVAL && ibv_resize_cq(a.cq, 1 << 20) == EOPNOTSUPP);
    CHECK(ibv_create_cq(a.context, 8, NULL, NULL, 9) == NULL && errno == EINVAL);
    CHECK(ibv_query_port(a.context, 1, &port) == 0 && port.flags & IBV_QPF_GRH_REQUIRED);
    struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 9};
    const int to_init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    CHECK(ibv_modify_qp(a.qp, &init, to_init) == EINVAL);
    init.port_num = 1;
    init.pkey_index = 3;
    CHECK(ibv_modify_qp(a.qp, &init, to_init) == EINVAL);
    init.pkey_index = 0;
    CHECK(ibv_modify_qp(a.qp, &init, to_init) == 0);
    const struct ibv_qp_attr right = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = seen.qpn,
                                      .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = seen.gid}}};
    const int to_rtr = TO_RTR;
    struct ibv_qp_attr wrong[6] = {right, right, right, right, right, right};
    wrong[0].path_mtu = (enum ibv_mtu)70;
    wrong[1].path_mtu = (enum ibv_mtu)0;
    wrong[2].path_mtu = (enum ibv_mtu)6;
    wrong[3].ah_attr.port_num = 9;
    wrong[4].ah_attr.grh.sgid_index = 77;
    wrong[5].ah_attr.is_global = 0;
    for (int i = 0; i < 6; i++)
        CHECK(ibv_modify_qp(a.qp, &wrong[i], to_rtr) == EINVAL);
    struct ibv_qp_attr last = right;
    CHECK(ibv_modify_qp(a.qp, &last, to_rtr) == 0);
    close_end(&a);
}

static void regions_may_have_an_address_of_their_own(void)
{
    struct end a, b;
    connected(&a, &b, 14, 7);
    CHECK(ibv_dereg_mr(b.mr) == 0);
    b.mr = ibv_reg_mr_iova2(b.pd, b.memory, MEMORY, 0x1000, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    CHECK(b.mr != NULL);
    strcpy((char *)a.memory, "iova");
    struct ibv_sge sge = {(uintptr_t)a.memory, 5, a.mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.rkey = b.mr->rkey;
    wr.wr.rdma.remote_addr = 0x1000 + 77;
    CHECK(ibv_post_send(a.qp, &wr, &bad) == 0 && next_completion(&a, 10).status == IBV_WC_SUCCESS);
    CHECK(strcmp((char *)b.memory + 77, "iova") == 0);
    close_end(&a);
    close_end(&b);
}

static void a_queue_pair_connects_again_after_reset(void)
{
    struct end a, b;
    struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET}, attr;
    struct ibv_qp_init_attr init;
    connected(&a, &b, 14, 7);
    uint32_t number = a.qp->qp_num;
    for (int round = 0; round < 3; round++) {
        CHECK(post_write(&a, &b, 1, 0, 5000, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED) == 0);
        CHECK(next_completion(&a, 10).status == IBV_WC_SUCCESS);
        CHECK(ibv_query_qp(a.qp, &attr, IBV_QP_STATE, &init) == 0 && attr.qp_state == IBV_QPS_RTS);
        CHECK(attr.dest_qp_num == b.qp->qp_num && attr.timeout == 14);
        CHECK(ibv_modify_qp(a.qp, &reset, IBV_QP_STATE) == 0 && ibv_modify_qp(b.qp, &reset, IBV_QP_STATE) == 0);
        CHECK(a.qp->qp_num == number && a.qp->state == IBV_QPS_RESET);
        bring_up(&a, &b, 14, 7);
        bring_up(&b, &a, 14, 7);
    }
    close_end(&a);
    close_end(&b);
}

/* Whether every thread but the first one has the name that it gives itself when it runs. */
static bool all_threads_run(void)
{
    char path[64], name[16], process[16];
    bool all = true;
    snprintf(process, sizeof process, "%d", getpid());
    DIR *threads = opendir("/proc/self/task");
    CHECK(threads != NULL);
    for (struct dirent *each; (each = readdir(threads)) != NULL;) {
        if (each->d_name[0] == '.' || strcmp(each->d_name, process) == 0)
            continue;
        snprintf(path, sizeof path, "/proc/self/task/%.16s/comm", each->d_name);
        FILE *file = fopen(path, "r");
        all = file != NULL && fgets(name, sizeof name, file) != NULL && strncmp(name, "mrc ", 4) == 0 && all;
        if (file != NULL)
            fclose(file);
    }
    closedir(threads);
    return all;
}

/* AddressSanitizer of GCC 12 locks its allocator while a thread starts; in a child that is forked then it stays locked. */
static void await_threads(void)
{
    const struct timespec rest = {0, 1000000};
    for (double end = seconds() + 10; !all_threads_run(); nanosleep(&rest, NULL))
        CHECK(seconds() < end);
}

static void a_forked_child_has_no_endpoint_and_the_parent_keeps_its_own(void)
{
    struct end a, b;
    connected(&a, &b, 14, 7);
    CHECK(ibv_fork_init() == 0);
    await_threads();
    pid_t child = fork();
    if (child == 0) {
        struct ibv_wc wc;
        CHECK(post_write(&a, &b, 1, 0, 64, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED) == EIO);
        CHECK(ibv_poll_cq(a.cq, 1, &wc) < 0);
        struct end mine = open_end(); /* one of its own works */
        close_end(&mine);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(post_write(&a, &b, 1, 0, 64, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED) == 0);
    CHECK(next_completion(&a, 10).status == IBV_WC_SUCCESS);
    close_end(&a);
    close_end(&b);
}

#define THREADS 4
static struct end ends[2 * THREADS];

static void *write_much(void *argument)
{
    struct end *from = argument, *to = from + THREADS;
    for (uint64_t i = 0; i < 500; i++) {
        CHECK(post_write(from, to, i, 64 * (i % 1000), 64, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED) == 0);
        struct ibv_wc wc = next_completion(from, 20);
        CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == i);
    }
    return NULL;
}

/* Many threads on queue pairs and completion queues of one endpoint. */
static void threads_share_an_endpoint(void)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < 2 * THREADS; i += THREADS) {
        ends[i] = open_end();
        for (int k = 1; k < THREADS; k++) {
            struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {128, 128, 1, 1, 0}};
            ends[i + k] = ends[i];
            CHECK((ends[i + k].cq = ibv_create_cq(ends[i].context, 100, NULL, NULL, 0)) != NULL);
            init.send_cq = init.recv_cq = ends[i + k].cq;
            CHECK((ends[i + k].qp = ibv_create_qp(ends[i].pd, &init)) != NULL);
        }
    }
    for (int k = 0; k < THREADS; k++) {
        bring_up(&ends[k], &ends[THREADS + k], 14, 7);
        bring_up(&ends[THREADS + k], &ends[k], 14, 7);
    }
    for (int k = 0; k < THREADS; k++)
        CHECK(pthread_create(&threads[k], NULL, write_much, &ends[k]) == 0);
    for (int k = 0; k < THREADS; k++)
        CHECK(pthread_join(threads[k], NULL) == 0);
    for (int i = 0; i < 2 * THREADS; i += THREADS) {
        for (int k = 1; k < THREADS; k++)
            CHECK(ibv_destroy_qp(ends[i + k].qp) == 0 && ibv_destroy_cq(ends[i + k].cq) == 0);
        close_end(&ends[i]);
    }
}

#define SHARED 20000
static atomic_int taken_by_all, seen[SHARED];

/* Take completions of one queue that other threads poll too, until all have been taken. */
static void *take_shared(void *argument)
{
    struct ibv_cq *cq = argument;
    struct ibv_wc wc[3];
    while (atomic_load(&taken_by_all) < SHARED) {
        int count = ibv_poll_cq(cq, 3, wc);
        CHECK(count >= 0);
        for (int i = 0; i < count; i++) {
            CHECK(wc[i].status == IBV_WC_SUCCESS && wc[i].wr_id < SHARED);
            atomic_fetch_add(&seen[wc[i].wr_id], 1);
        }
        atomic_fetch_add(&taken_by_all, count);
    }
    return NULL;
}

static void threads_that_poll_one_queue_share_its_completions(void)
{
    struct end a, b;
    pthread_t threads[THREADS];
    connected(&a, &b, 14, 7);
    for (int k = 0; k < THREADS; k++)
        CHECK(pthread_create(&threads[k], NULL, take_shared, a.cq) == 0);
    for (int posted = 0; posted < SHARED; posted++) {
        while (posted - atomic_load(&taken_by_all) > 100)
            sched_yield();
        CHECK(post_write(&a, &b, (uint64_t)posted, 0, 8, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED) == 0);
    }
    for (int k = 0; k < THREADS; k++)
        CHECK(pthread_join(threads[k], NULL) == 0);
    for (int i = 0; i < SHARED; i++)
        CHECK(seen[i] == 1);
    close_end(&a);
    close_end(&b);
}

/* The device first, then what was opened from it. */
static void objects_may_outlive_their_device(void)
{
    struct end a, b;
    connected(&a, &b, 14, 7);
    CHECK(ibv_close_device(a.context) == 0);
    CHECK(post_write(&a, &b, 1, 0, MEMORY, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED) == 0);
    CHECK(ibv_dealloc_pd(a.pd) == EBUSY && ibv_destroy_cq(a.cq) == EBUSY);
    CHECK(ibv_dereg_mr(a.mr) == 0 && ibv_destroy_qp(a.qp) == 0 && ibv_dealloc_pd(a.pd) == 0);
    CHECK(ibv_destroy_comp_channel(a.channel) == EBUSY);
    CHECK(ibv_destroy_cq(a.cq) == 0 && ibv_destroy_comp_channel(a.channel) == 0);
    free(a.memory);
    close_end(&b);
}

static void a_program_may_exit_without_closing(void)
{
    static struct end a, b;
    pid_t child = fork();
    if (child == 0) {
        connected(&a, &b, 14, 7);
        for (uint64_t i = 0; i < 100; i++)
            CHECK(post_write(&a, &b, i, 0, MEMORY, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED) == 0);
        exit(0);
    }
    int status = -1;
    for (double end = seconds() + 20; seconds() < end && waitpid(child, &status, WNOHANG) == 0; usleep(1000))
        ;
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void an_overrun_is_an_event(void)
{
    struct end a, b;
    struct ibv_async_event event;
    connected(&a, &b, 14, 7);
    for (int i = 0; i < 1500; i++) { /* its queue holds 1,000 */
        int error;
        while ((error = post_write(&a, &b, 1, 0, 8, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED)) == ENOMEM)
            ;
        CHECK(error == 0);
    }
    CHECK(ibv_get_async_event(a.context, &event) == 0);
    CHECK(event.event_type == IBV_EVENT_CQ_ERR && event.element.cq == a.cq);
    ibv_ack_async_event(&event);
    struct ibv_wc wc[1000];
    while (ibv_poll_cq(a.cq, 1000, wc) > 0)
        ;
    CHECK(ibv_poll_cq(a.cq, 1, wc) < 0);
    close_end(&a);
    close_end(&b);
}

/* MRC_EMULATE=send: SENDs of all lengths and writes with immediate arrive in order, and wait for a receive. */
static void sends_arrive_in_order(void)
{
    setenv("MRC_EMULATE", "send", 1);
    struct end a, b;
    connected(&a, &b, 14, 7);
    for (size_t i = 0; i < MEMORY; i++)
        a.memory[i] = (uint8_t)(i * 13 >> 3);
    const uint32_t lengths[] = {0, 1, 4096, 65536, 65537, 300000};
    struct ibv_send_wr *bad;
    for (uint64_t i = 0; i < 6; i++) {
        struct ibv_sge sge = {(uintptr_t)a.memory, lengths[i], a.mr->lkey};
        struct ibv_send_wr wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND_WITH_IMM};
        wr.imm_data = htonl(0xC0FFEE00u + (uint32_t)i);
        wr.send_flags = IBV_SEND_SIGNALED;
        CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
    }
    CHECK(post_write(&a, &b, 6, 500000, 1000, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_SEND_SIGNALED) == 0);
    for (uint64_t i = 0; i < 7; i++) {
        struct ibv_sge sge = {(uintptr_t)b.memory, 400000, b.mr->lkey};
        struct ibv_recv_wr receive = {.wr_id = 100 + i, .sg_list = &sge, .num_sge = 1}, *bad_receive;
        memset(b.memory, 0, 400000);
        CHECK(ibv_post_recv(b.qp, &receive, &bad_receive) == 0);
        struct ibv_wc wc = next_completion(&b, 20);
        CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == 100 + i && wc.wc_flags == IBV_WC_WITH_IMM);
        if (i < 6) {
            CHECK(wc.opcode == IBV_WC_RECV && wc.byte_len == lengths[i] && wc.imm_data == htonl(0xC0FFEE00u + (uint32_t)i));
            CHECK(memcmp(a.memory, b.memory, lengths[i]) == 0);
        } else {
            CHECK(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.byte_len == 1000);
            CHECK(memcmp(a.memory + 500000, b.memory + 500000, 1000) == 0);
        }
        wc = next_completion(&a, 20);
        CHECK(wc.wr_id == i && wc.status == IBV_WC_SUCCESS && wc.opcode == (i < 6 ? IBV_WC_SEND : IBV_WC_RDMA_WRITE));
    }
    close_end(&a);
    close_end(&b);
    unsetenv("MRC_EMULATE");
}

/* More messages than slots, and a receiver that is slow. */
static void a_sender_waits_for_grants(void)
{
    setenv("MRC_EMULATE", "send", 1);
    struct end a = open_end(), b = open_end();
    struct ibv_qp_init_attr longer = {.send_cq = a.cq, .recv_cq = a.cq, .qp_type = IBV_QPT_RC, .cap = {300, 1, 1, 1, 8}};
    CHECK(ibv_destroy_qp(a.qp) == 0 && (a.qp = ibv_create_qp(a.pd, &longer)) != NULL);
    bring_up(&a, &b, 14, 7);
    bring_up(&b, &a, 14, 7);
    struct ibv_recv_wr *bad_receive;
    struct ibv_send_wr *bad;
    for (uint64_t i = 0; i < 300; i++) {
        uint64_t number = i;
        struct ibv_sge sge = {(uintptr_t)&number, sizeof number, 0};
        struct ibv_send_wr wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
        wr.send_flags = IBV_SEND_INLINE;
        CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
    }
    for (uint64_t i = 0; i < 300; i++) {
        struct ibv_sge sge = {(uintptr_t)b.memory, 64, b.mr->lkey};
        struct ibv_recv_wr receive = {.wr_id = i, .sg_list = &sge, .num_sge = 1};
        struct ibv_wc wc;
        CHECK(ibv_post_recv(b.qp, &receive, &bad_receive) == 0);
        int count = 0;
        for (double until = seconds() + 20; count == 0 && seconds() < until;) {
            CHECK(ibv_poll_cq(a.cq, 1, &wc) == 0); /* takes grants */
            count = ibv_poll_cq(b.cq, 1, &wc);
        }
        CHECK(count == 1 && wc.wr_id == i && wc.byte_len == 8 && memcmp(b.memory, &i, 8) == 0);
    }
    close_end(&a);
    close_end(&b);
    unsetenv("MRC_EMULATE");
}

static struct ibv_send_wr read_of(const struct end *to, struct ibv_sge *pieces, int count, size_t offset, uint64_t id)
{
    struct ibv_send_wr wr = {.wr_id = id, .sg_list = pieces, .num_sge = count, .opcode = IBV_WR_RDMA_READ};
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = (uintptr_t)to->memory + offset;
    wr.wr.rdma.rkey = to->mr->rkey;
    return wr;
}

/* MRC_EMULATE=read: bytes come while the other program does nothing, and completions keep their order. */
static void reads_bring_what_the_peer_has(void)
{
    setenv("MRC_EMULATE", "read", 1);
    struct end a, b;
    struct ibv_send_wr *bad;
    connected(&a, &b, 14, 7);
    for (size_t i = 0; i < MEMORY; i++)
        b.memory[i] = (uint8_t)(i * 29 >> 5);
    const uint32_t lengths[] = {0, 1, 4096, 65536, 65537, 300000};
    for (uint64_t i = 0; i < 6; i++) {
        struct ibv_sge pieces[] = {{(uintptr_t)a.memory, lengths[i] / 3, a.mr->lkey},
                                   {(uintptr_t)a.memory + lengths[i] / 3, lengths[i] - lengths[i] / 3, a.mr->lkey}};
        struct ibv_send_wr wr = read_of(&b, pieces, 2, 7 * i, i);
        memset(a.memory, 0, 300001);
        CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
        CHECK(post_write(&a, &b, 100 + i, MEMORY - 64, 8, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED) == 0);
        struct ibv_wc wc = next_completion(&a, 20);
        CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == i && wc.opcode == IBV_WC_RDMA_READ && wc.byte_len == lengths[i]);
        CHECK(memcmp(a.memory, b.memory + 7 * i, lengths[i]) == 0 && a.memory[lengths[i]] == 0);
        CHECK(next_completion(&a, 20).wr_id == 100 + i);
    }
    close_end(&a);
    close_end(&b);
    unsetenv("MRC_EMULATE");
}

static void more_reads_than_may_be_open_wait_for_their_turn(void)
{
    setenv("MRC_EMULATE", "read", 1);
    struct end a, b;
    struct ibv_send_wr *bad;
    connected(&a, &b, 14, 7);
    for (uint64_t i = 0; i < 100; i++) {
        struct ibv_sge piece = {(uintptr_t)a.memory + 8 * i, 8, a.mr->lkey};
        struct ibv_send_wr wr = read_of(&b, &piece, 1, 8 * i, i);
        memcpy(b.memory + 8 * i, &i, sizeof i);
        CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
    }
    for (uint64_t i = 0; i < 100; i++) {
        struct ibv_wc wc = next_completion(&a, 20);
        CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == i && memcmp(a.memory + 8 * i, &i, sizeof i) == 0);
    }
    close_end(&a);
    close_end(&b);
    unsetenv("MRC_EMULATE");
}

static void a_read_of_closed_memory_is_refused(void)
{
    setenv("MRC_EMULATE", "read", 1);
    struct end a, b;
    struct ibv_send_wr *bad;
    connected(&a, &b, 14, 7);
    CHECK(ibv_dereg_mr(b.mr) == 0);
    b.mr = ibv_reg_mr(b.pd, b.memory, MEMORY, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    memset(b.memory, 1, 64);
    struct ibv_sge piece = {(uintptr_t)a.memory, 64, a.mr->lkey};
    struct ibv_send_wr wr = read_of(&b, &piece, 1, 0, 1);
    CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
    struct ibv_wc wc = next_completion(&a, 20);
    CHECK(wc.status == IBV_WC_REM_ACCESS_ERR && wc.wr_id == 1 && a.memory[0] == 0);
    CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
    CHECK(next_completion(&a, 20).status == IBV_WC_WR_FLUSH_ERR);
    close_end(&a);
    close_end(&b);
    unsetenv("MRC_EMULATE");
}

/* A peer in another process; what it knows of us and we of it goes through pipes. */
struct child {
    pid_t pid;
    struct far_end end;
};

static struct child open_child(struct end *a, int timeout, int retries)
{
    int to[2], from[2];
    struct child child;
    CHECK(pipe(to) == 0 && pipe(from) == 0);
    child.pid = fork();
    if (child.pid == 0) {
        struct end b = open_end();
        struct far_end ours = seen_from_afar(&b), theirs;
        CHECK(write(from[1], &ours, sizeof ours) == sizeof ours && read(to[0], &theirs, sizeof theirs) == sizeof theirs);
        bring_up_to(&b, &theirs, 14, 7);
        CHECK(write(from[1], "", 1) == 1);
        pause();
        _exit(0);
    }
    *a = open_end();
    struct far_end ours = seen_from_afar(a);
    char ready;
    CHECK(write(to[1], &ours, sizeof ours) == sizeof ours && read(from[0], &child.end, sizeof child.end) > 0);
    bring_up_to(a, &child.end, timeout, retries);
    CHECK(read(from[0], &ready, 1) == 1);
    for (int i = 0; i < 2; i++)
        close(to[i]), close(from[i]);
    return child;
}

static int post_to_child(struct end *a, const struct child *child, uint64_t id, enum ibv_wr_opcode opcode)
{
    struct ibv_sge sge = {(uintptr_t)a->memory, 4096, a->mr->lkey};
    struct ibv_send_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = opcode}, *bad;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = child->end.address;
    wr.wr.rdma.rkey = child->end.rkey;
    return ibv_post_send(a->qp, &wr, &bad);
}

static void end_child(const struct child *child)
{
    int status;
    kill(child->pid, SIGKILL);
    CHECK(waitpid(child->pid, &status, 0) == child->pid);
}

/* 67 ms, three attempts: at most four times that each (docs/native.md), and what a busy machine takes more. */
#define IN_TIME (4 * 3 * 0.0671 + 1.0)

static void a_killed_peer_is_an_error_in_time(void)
{
    struct end a;
    struct child child = open_child(&a, 14, 2);
    CHECK(post_to_child(&a, &child, 1, IBV_WR_RDMA_WRITE) == 0 && next_completion(&a, 10).status == IBV_WC_SUCCESS);
    end_child(&child);
    double begun = seconds();
    CHECK(post_to_child(&a, &child, 2, IBV_WR_RDMA_WRITE) == 0);
    struct ibv_wc wc = next_completion(&a, 20);
    CHECK(wc.status == IBV_WC_RETRY_EXC_ERR && wc.wr_id == 2);
    printf("%.3f s\n", seconds() - begun);
    CHECK(seconds() - begun < IN_TIME);
    close_end(&a);
}

static void a_read_whose_peer_is_killed_is_an_error_in_time(void)
{
    setenv("MRC_EMULATE", "read", 1);
    struct end a;
    struct child child = open_child(&a, 14, 2);
    CHECK(post_to_child(&a, &child, 1, IBV_WR_RDMA_READ) == 0 && next_completion(&a, 10).status == IBV_WC_SUCCESS);
    int status;
    CHECK(kill(child.pid, SIGSTOP) == 0 && waitpid(child.pid, &status, WUNTRACED) == child.pid && WIFSTOPPED(status));
    CHECK(post_to_child(&a, &child, 2, IBV_WR_RDMA_READ) == 0);
    end_child(&child);
    double begun = seconds();
    struct ibv_wc wc = next_completion(&a, 20);
    CHECK(wc.status != IBV_WC_SUCCESS && wc.wr_id == 2);
    CHECK(seconds() - begun < IN_TIME + 0.1);
    close_end(&a);
    unsetenv("MRC_EMULATE");
}

#define PLANES 4
#define PATHS 8

/* Sockets with the addresses of an endpoint that is closed, as its GID says them: see decision 21. */
static int socket_at(int plane, int port)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    name.sin_addr.s_addr = htonl(0x7F000001u + (unsigned)plane);
    int made = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    CHECK(made >= 0 && bind(made, (struct sockaddr *)&name, sizeof name) == 0);
    return made;
}

/* Answer every packet with one as long, from each of the paths, of bytes that mean nothing or are a packet damaged. */
static void answer_with_rubbish(const uint8_t *theirs, const uint8_t *ours, struct end *a, struct ibv_wc *wc)
{
    int receivers[PLANES], senders[PLANES], number = theirs[8];
    uint8_t packet[1 << 16];
    uint32_t random = 1;
    for (int plane = 0; plane < PLANES; plane++) {
        receivers[plane] = socket_at(plane, theirs[6] << 8 | theirs[7]);
        senders[plane] = socket_at(plane, 0xC000 + plane * 1024 + PATHS * number);
    }
    for (double until = seconds() + 20; ibv_poll_cq(a->cq, 1, wc) == 0 && seconds() < until;) {
        for (int plane = 0; plane < PLANES; plane++) {
            struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)(ours[6] << 8 | ours[7]))};
            to.sin_addr.s_addr = htonl(0x7F000001u + (unsigned)plane);
            ssize_t length = recv(receivers[plane], packet, sizeof packet, 0);
            for (ssize_t i = 0; i < length; i++)
                if ((random = random * 1664525u + 1013904223u) >> 29 == 0)
                    packet[i] = (uint8_t)(random >> 8);
            if (length > 0)
                CHECK(sendto(senders[plane], packet, (size_t)length, 0, (struct sockaddr *)&to, sizeof to) == length);
        }
    }
    for (int plane = 0; plane < PLANES; plane++)
        close(receivers[plane]), close(senders[plane]);
}

static void a_peer_that_answers_with_rubbish_is_an_error_in_time(void)
{
    struct end a, b;
    struct ibv_wc wc = {0};
    connected(&a, &b, 14, 2);
    struct far_end ours = seen_from_afar(&a), theirs = seen_from_afar(&b);
    close_end(&b);
    double begun = seconds();
    struct end gone = {.memory = a.memory, .mr = a.mr};
    CHECK(post_write(&a, &gone, 3, 0, 5000, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED) == 0);
    answer_with_rubbish(theirs.gid.raw, ours.gid.raw, &a, &wc);
    CHECK(wc.status == IBV_WC_RETRY_EXC_ERR && wc.wr_id == 3);
    CHECK(seconds() - begun < IN_TIME);
    close_end(&a);
}

/* MRC_FAIL_AFTER: the third completion of each queue pair fails, and everything after it. */
static void errors_come_on_demand(void)
{
    const char *const emulated[] = {"", "send"};
    setenv("MRC_FAIL_AFTER", "3:access", 1);
    for (int round = 0; round < 2; round++) {
        setenv("MRC_EMULATE", emulated[round], 1);
        struct end a, b;
        struct ibv_qp_attr attr;
        struct ibv_qp_init_attr init;
        connected(&a, &b, 14, 7);
        for (uint64_t i = 1; i <= 5; i++) {
            CHECK(post_write(&a, &b, i, 0, 64, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED) == 0);
            struct ibv_wc wc = next_completion(&a, 10);
            enum ibv_wc_status wanted = i < 3 ? IBV_WC_SUCCESS : i == 3 ? IBV_WC_REM_ACCESS_ERR : IBV_WC_WR_FLUSH_ERR;
            CHECK(wc.wr_id == i && wc.status == wanted);
        }
        CHECK(ibv_query_qp(a.qp, &attr, IBV_QP_STATE, &init) == 0 && attr.qp_state == IBV_QPS_ERR);
        close_end(&a);
        close_end(&b);
    }
    unsetenv("MRC_EMULATE");
    unsetenv("MRC_FAIL_AFTER");
}

/* An event with the second completion; that of a port leaves the queue pair as it is. */
static void events_come_on_demand(void)
{
    static const struct {
        const char *wanted;
        enum ibv_event_type type;
        enum ibv_wc_status status;
    } all[] = {
        {"2:access-event", IBV_EVENT_QP_ACCESS_ERR, IBV_WC_WR_FLUSH_ERR},
        {"2:fatal-event", IBV_EVENT_QP_FATAL, IBV_WC_WR_FLUSH_ERR},
        {"2:port-down", IBV_EVENT_PORT_ERR, IBV_WC_SUCCESS},
        {"2:gid-change", IBV_EVENT_GID_CHANGE, IBV_WC_SUCCESS},
    };
    const char *const emulated[] = {"", "send"};
    for (int round = 0; round < 8; round++) {
        struct end a, b;
        struct ibv_async_event event;
        setenv("MRC_FAIL_AFTER", all[round % 4].wanted, 1);
        setenv("MRC_EMULATE", emulated[round / 4], 1);
        connected(&a, &b, 14, 7);
        for (uint64_t i = 1; i <= 2; i++) {
            CHECK(post_write(&a, &b, i, 0, 64, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED) == 0);
            CHECK(next_completion(&a, 10).status == (i == 1 ? IBV_WC_SUCCESS : all[round % 4].status));
        }
        CHECK(ibv_get_async_event(a.context, &event) == 0 && event.event_type == all[round % 4].type);
        CHECK(event.event_type > IBV_EVENT_QP_ACCESS_ERR ? event.element.port_num == 1 : event.element.qp == a.qp);
        ibv_ack_async_event(&event);
        close_end(&a);
        close_end(&b);
    }
    unsetenv("MRC_EMULATE");
    unsetenv("MRC_FAIL_AFTER");
}

/* Only receives count, or only writes of the second queue pair; what the other ones complete is left alone. */
static void errors_come_to_one_operation_or_queue_pair(void)
{
    const char *const emulated[] = {"", "send"};
    for (int round = 0; round < 4; round++) {
        struct end a, b, second;
        setenv("MRC_FAIL_AFTER", round < 2 ? "2:local:recv" : "1:qp2:retry:write", 1);
        setenv("MRC_EMULATE", emulated[round % 2], 1);
        connected(&a, &b, 14, 7);
        for (uint64_t i = 1; i <= 3 && round < 2; i++) {
            struct ibv_recv_wr receive = {.wr_id = i}, *bad;
            CHECK(ibv_post_recv(b.qp, &receive, &bad) == 0);
            CHECK(post_write(&a, &b, i, 0, 64, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_SEND_SIGNALED) == 0);
            struct ibv_wc wc = next_completion(&b, 10);
            enum ibv_wc_status wanted = i == 1 ? IBV_WC_SUCCESS : i == 2 ? IBV_WC_LOC_PROT_ERR : IBV_WC_WR_FLUSH_ERR;
            CHECK(wc.wr_id == i && wc.status == wanted);
            if (i == 1)
                CHECK(next_completion(&a, 10).status == IBV_WC_SUCCESS);
        }
        if (round >= 2) {
            struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {128, 128, 4, 1, 256}};
            struct end *others[] = {&a, &b};
            struct ibv_qp *pairs[2];
            for (int k = 0; k < 2; k++) {
                init.send_cq = init.recv_cq = others[k]->cq;
                CHECK((pairs[k] = ibv_create_qp(others[k]->pd, &init)) != NULL);
            }
            struct end far = b;
            second = a;
            second.qp = pairs[0];
            far.qp = pairs[1];
            bring_up(&second, &far, 14, 7);
            bring_up(&far, &second, 14, 7);
            CHECK(post_write(&a, &b, 1, 0, 64, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED) == 0);
            CHECK(next_completion(&a, 10).status == IBV_WC_SUCCESS);
            CHECK(post_write(&second, &far, 2, 0, 64, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED) == 0);
            struct ibv_wc wc = next_completion(&second, 10);
            CHECK(wc.wr_id == 2 && wc.status == IBV_WC_RETRY_EXC_ERR && wc.qp_num == second.qp->qp_num);
            CHECK(ibv_destroy_qp(pairs[0]) == 0 && ibv_destroy_qp(pairs[1]) == 0);
        }
        close_end(&a);
        close_end(&b);
    }
    unsetenv("MRC_EMULATE");
    unsetenv("MRC_FAIL_AFTER");
}

/* The only plane goes silent half a second after the first packet, which comes later than that after the open. */
static void a_schedule_begins_with_the_first_packet(void)
{
    struct end a, b;
    enum ibv_wc_status status;
    char *planes = put_setting("MRC_PLANES", "127.0.0.1");
    setenv("MRC_FAULT_STEPS", "500000000000 0 1 0 0 0 0 0 0 0 0", 1);
    a = open_end();
    b = open_end();
    nanosleep(&(struct timespec){0, 600000000}, NULL);
    double begun = seconds();
    bring_up(&a, &b, 12, 1);
    bring_up(&b, &a, 12, 1);
    CHECK(post_write(&a, &b, 0, 0, 64, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED) == 0);
    status = next_completion(&a, 30).status;
    CHECK(status == IBV_WC_SUCCESS || seconds() - begun > 0.5); /* on a busy machine it may be too late */
    for (uint64_t i = 1; status == IBV_WC_SUCCESS; i++) {
        CHECK(post_write(&a, &b, i, 0, 64, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED) == 0);
        status = next_completion(&a, 30).status;
    }
    CHECK(status == IBV_WC_RETRY_EXC_ERR);
    close_end(&a);
    close_end(&b);
    unsetenv("MRC_FAULT_STEPS");
    put_back("MRC_PLANES", planes);
}

/* A setting that cannot be read stops the program instead of being left out. */
static void a_setting_that_cannot_be_read_stops_the_open(void)
{
    static const char *const wrong[][2] = {{"MRC_FAIL_AFTER", "x"}, {"MRC_FAIL_AFTER", "3:nothing"},
                                           {"MRC_FAIL_AFTER", "3:qp0"}, {"MRC_FAIL_AFTER", "3:"},
                                           {"MRC_FAULT_STEPS", "1 2 rubbish"}, {"MRC_FAULT_STEPS", "1 0;2 0"},
                                           {"MRC_PORT", "4800x"}, {"MRC_METRICS", "rubbish"}, {"MRC_CTL", "rubbish"}};
    struct ibv_device **list = ibv_get_device_list(NULL);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        setenv(wrong[i][0], wrong[i][1], 1);
        errno = 0;
        CHECK(ibv_open_device(list[0]) == NULL && errno == EINVAL);
        unsetenv(wrong[i][0]);
    }
    struct ibv_context *context = ibv_open_device(list[0]);
    CHECK(context != NULL && ibv_close_device(context) == 0);
    ibv_free_device_list(list);
}

static size_t resident(void)
{
    unsigned long total, pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file != NULL && fscanf(file, "%lu %lu", &total, &pages) == 2);
    fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

#define MANY 1000

/* Connected queue pairs to one peer, a write on each; both ends are here, so half of it belongs to each. */
static void queue_pairs_take_little_memory(void)
{
    static struct end a[MANY], b[MANY];
    const int counts[] = {16, MANY};
    const size_t limits[] = {512 << 10, 100 << 20};
    a[0] = open_end();
    b[0] = open_end();
    size_t before = resident();
    for (int i = 0, step = 0; i < MANY; i++) {
        struct end *each[] = {&a[i], &b[i]}, *first[] = {&a[0], &b[0]};
        for (int k = 0; k < 2 && i > 0; k++) {
            struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {128, 128, 1, 1, 0}};
            *each[k] = *first[k];
            init.send_cq = init.recv_cq = each[k]->cq;
            CHECK((each[k]->qp = ibv_create_qp(each[k]->pd, &init)) != NULL);
        }
        bring_up(&a[i], &b[i], 14, 7);
        bring_up(&b[i], &a[i], 14, 7);
        CHECK(post_write(&a[i], &b[i], 1, 0, 64, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED) == 0);
        CHECK(next_completion(&a[i], 10).status == IBV_WC_SUCCESS);
        if (i + 1 == counts[step]) {
            printf("%d: %zu KiB an end\n", counts[step], (resident() - before) / 2048);
            CHECK((resident() - before) / 2 < limits[step++]);
        }
    }
    for (int i = 1; i < MANY; i++)
        CHECK(ibv_destroy_qp(a[i].qp) == 0 && ibv_destroy_qp(b[i].qp) == 0);
    close_end(&a[0]);
    close_end(&b[0]);
}

static void opening_is_quick(void)
{
    double least = 1;
    for (int i = 0; i < 20; i++) {
        struct ibv_device **list = ibv_get_device_list(NULL);
        double begun = seconds();
        struct ibv_context *context = ibv_open_device(list[0]);
        double took = seconds() - begun;
        CHECK(context != NULL && ibv_close_device(context) == 0);
        ibv_free_device_list(list);
        least = took < least ? took : least;
    }
    printf("%.2f ms\n", least * 1e3);
    CHECK(least < 0.005);
}

static const struct named_test tests[] = {
    TEST(writes_arrive),
    TEST(an_empty_immediate_follows_its_writes),
    TEST(pieces_and_inline_data_are_gathered),
    TEST(an_armed_queue_wakes_its_channel),
    TEST(a_wrong_key_is_an_error_at_both_ends),
    TEST(a_silent_peer_is_an_error_in_time),
    TEST(what_cannot_be_is_refused),
    TEST(wrong_local_memory_is_an_error_completion),
    TEST(what_is_granted_can_be_posted),
    TEST(what_is_not_offered_has_an_error),
    TEST(regions_may_have_an_address_of_their_own),
    TEST(a_queue_pair_connects_again_after_reset),
    TEST(a_forked_child_has_no_endpoint_and_the_parent_keeps_its_own),
    TEST(threads_share_an_endpoint),
    TEST(threads_that_poll_one_queue_share_its_completions),
    TEST(objects_may_outlive_their_device),
    TEST(a_program_may_exit_without_closing),
    TEST(an_overrun_is_an_event),
    TEST(sends_arrive_in_order),
    TEST(a_sender_waits_for_grants),
    TEST(reads_bring_what_the_peer_has),
    TEST(more_reads_than_may_be_open_wait_for_their_turn),
    TEST(a_read_of_closed_memory_is_refused),
    TEST(a_killed_peer_is_an_error_in_time),
    TEST(a_read_whose_peer_is_killed_is_an_error_in_time),
    TEST(a_peer_that_answers_with_rubbish_is_an_error_in_time),
    TEST(errors_come_on_demand),
    TEST(events_come_on_demand),
    TEST(errors_come_to_one_operation_or_queue_pair),
    TEST(a_schedule_begins_with_the_first_packet),
    TEST(a_setting_that_cannot_be_read_stops_the_open),
    TEST(queue_pairs_take_little_memory),
    TEST(opening_is_quick),
};

int main(int count, char **names)
{
    return run_named(tests, sizeof tests / sizeof *tests, count, names);
}
