/* What verbs promise beyond arrival: states, order, flushes, limits, and objects that go. Each test is a name. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "both_ends.h"
#include "named_tests.h"

static enum ibv_qp_state state_of(const struct end *end)
{
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    CHECK(ibv_query_qp(end->qp, &attr, IBV_QP_STATE, &init) == 0);
    return attr.qp_state;
}

static int post_receive(struct end *end, uint64_t id)
{
    struct ibv_recv_wr receive = {.wr_id = id}, *bad;
    return ibv_post_recv(end->qp, &receive, &bad);
}

static bool is_flushed(struct end *end, uint64_t id)
{
    struct ibv_wc wc = next_completion(end, 10);
    return wc.status == IBV_WC_WR_FLUSH_ERR && wc.wr_id == id && wc.qp_num == end->qp->qp_num;
}

/* Figure 10-10 of the InfiniBand specification, volume 1: who may go where, and what may be posted there. */
static void a_queue_pair_goes_through_the_states_of_verbs(void)
{
    static const enum ibv_qp_state path[] = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_ERR};
    static const enum ibv_qp_state wanted[] = {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS};
    static const bool allowed[5][3] = {
        {true, false, false}, {true, true, false}, {false, false, true}, {false, false, true}, {false, false, false}};
    struct end a = open_end(), b = open_end();
    struct far_end there = seen_from_afar(&b);
    for (int at = 0; at < 5; at++) {
        CHECK(move_to(&a, &there, path[at]) == 0); /* to RESET, too, where it is already */
        CHECK(state_of(&a) == path[at]);
        for (int k = 0; k < 3; k++)
            if (!allowed[at][k])
                CHECK(move_to(&a, &there, wanted[k]) == EINVAL && state_of(&a) == path[at]);
        CHECK(post_receive(&a, (uint64_t)at) == (at == 0 ? EINVAL : 0));
        int sent = post_write(&a, &b, (uint64_t)at, 0, 0, IBV_WR_RDMA_WRITE, 0);
        CHECK(sent == (at < 3 ? EINVAL : 0));
    }
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS, .cur_qp_state = IBV_QPS_INIT};
    CHECK(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE) == EINVAL);
    CHECK(move_to(&a, &there, IBV_QPS_RESET) == 0 && state_of(&a) == IBV_QPS_RESET);
    close_end(&a);
    close_end(&b);
}

/* Each attribute that verbs want for a step is wanted, and what does not fit its field is refused; nothing changes then. */
static void a_step_wants_all_its_attributes(void)
{
    static const struct {
        enum ibv_qp_state state;
        int needed;
    } steps[] = {{IBV_QPS_INIT, TO_INIT}, {IBV_QPS_RTR, TO_RTR}, {IBV_QPS_RTS, TO_RTS}};
    struct end a = open_end();
    struct far_end there = seen_from_afar(&a);
    enum ibv_qp_state before = IBV_QPS_RESET;
    for (int step = 0; step < 3; step++) {
        struct ibv_qp_attr right = {.qp_state = steps[step].state, .port_num = 1, .path_mtu = IBV_MTU_1024,
                                    .dest_qp_num = there.qpn, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
                                    .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = there.gid}}};
        for (int bit = 1; bit <= steps[step].needed; bit <<= 1)
            if (bit != IBV_QP_STATE && steps[step].needed & bit)
                CHECK(ibv_modify_qp(a.qp, &right, steps[step].needed & ~bit) == EINVAL && state_of(&a) == before);
        struct ibv_qp_attr wrong[] = {right, right, right, right, right};
        wrong[0].port_num = 2;
        wrong[1].min_rnr_timer = 32;
        wrong[2].timeout = 32;
        wrong[3].retry_cnt = 8;
        wrong[4].rnr_retry = 8;
        static const int first[] = {0, 1, 2}, end[] = {1, 2, 5}; /* of those that belong to the step */
        for (int i = first[step]; i < end[step]; i++)
            CHECK(ibv_modify_qp(a.qp, &wrong[i], steps[step].needed) == EINVAL && state_of(&a) == before);
        CHECK(ibv_modify_qp(a.qp, &right, steps[step].needed | IBV_QP_QKEY) == EINVAL);
        CHECK(ibv_modify_qp(a.qp, &right, steps[step].needed) == 0 && state_of(&a) == steps[step].state);
        before = steps[step].state;
    }
    close_end(&a);
}

/* An object in use stays, with EBUSY as errno too; one whose handle a program has changed is unknown, as to a kernel. */
static void objects_in_use_or_changed_stay_as_they_are(void)
{
    struct end a = open_end();
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    struct ibv_qp_init_attr init = {.send_cq = a.cq, .recv_cq = a.cq, .qp_type = IBV_QPT_RC, .cap = {8, 8, 1, 1, 0}};
#define FAILS(call, error) CHECK((errno = 0, (call)) == (error) && errno == (error))
    FAILS(ibv_dealloc_pd(a.pd), EBUSY);
    FAILS(ibv_destroy_cq(a.cq), EBUSY);
    FAILS(ibv_destroy_comp_channel(a.channel), EBUSY);
    uint32_t *handles[] = {&a.pd->handle, &a.mr->handle, &a.cq->handle, &a.qp->handle};
    for (int i = 0; i < 4; i++) {
        *handles[i] ^= 0xDEAD;
        if (i == 0) {
            FAILS(ibv_dealloc_pd(a.pd), ENOENT);
            CHECK(ibv_reg_mr(a.pd, a.memory, 64, 0) == NULL && errno == EINVAL);
        } else if (i == 1)
            FAILS(ibv_dereg_mr(a.mr), ENOENT);
        else if (i == 2) {
            FAILS(ibv_destroy_cq(a.cq), ENOENT);
            CHECK(ibv_req_notify_cq(a.cq, 0) == ENOENT);
        } else {
            FAILS(ibv_destroy_qp(a.qp), ENOENT);
            FAILS(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE), ENOENT);
            FAILS(ibv_query_qp(a.qp, &attr, IBV_QP_STATE, &init), ENOENT);
        }
        struct ibv_qp_init_attr wanted = init;
        CHECK(i == 1 || i == 3 || ibv_create_qp(a.pd, &wanted) == NULL);
        *handles[i] ^= 0xDEAD;
    }
    struct end b = open_end();
    a.pd->context = b.context; /* where a domain of the same handle is */
    FAILS(ibv_dealloc_pd(a.pd), ENOENT);
    CHECK(ibv_reg_mr(a.pd, a.memory, 64, 0) == NULL && ibv_create_qp(a.pd, &init) == NULL);
    a.pd->context = a.context;
#undef FAILS
    close_end(&a);
    close_end(&b);
}

/* As contexts of one NIC do, which share its GID. */
static void contexts_of_a_process_are_found_by_the_gid_of_each(void)
{
    for (int way = 0; way < 2; way++) {
        struct end a = open_end(), b = open_end();
        struct far_end here = seen_from_afar(&a), there = seen_from_afar(&b), wrong = there;
        wrong.gid = here.gid;
        CHECK(memcmp(&here.gid, &there.gid, sizeof here.gid) != 0);
        bring_up_to(&a, &wrong, 14, 7);
        wrong = here;
        wrong.gid = way == 0 ? here.gid : there.gid;
        bring_up_to(&b, &wrong, 14, 7);
        CHECK(post_write(&a, &b, 1, 0, 64, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED) == 0);
        CHECK(next_completion(&a, 10).status == IBV_WC_SUCCESS);
        CHECK(post_write(&b, &a, 1, 0, 64, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED) == 0);
        CHECK(next_completion(&b, 10).status == IBV_WC_SUCCESS);
        struct ibv_qp_attr attr;
        struct ibv_qp_init_attr init;
        CHECK(ibv_query_qp(a.qp, &attr, IBV_QP_AV, &init) == 0);
        CHECK(memcmp(&attr.ah_attr.grh.dgid, &here.gid, sizeof here.gid) == 0); /* as it was given */
        close_end(&b);
        close_end(&a);
    }
}

/* Of so many random numbers some would be equal. */
static void queue_pairs_of_a_process_differ_in_their_numbers(void)
{
    enum { CONTEXTS = 24, EACH = 256 };
    static struct end ends[CONTEXTS];
    static struct ibv_qp *qps[CONTEXTS][EACH];
    static uint8_t seen[1 << 24];
    for (int i = 0; i < CONTEXTS; i++) {
        ends[i] = open_end();
        CHECK(seen[ends[i].qp->qp_num]++ == 0);
        for (int k = 0; k < EACH; k++) {
            struct ibv_qp_init_attr init = {.send_cq = ends[i].cq, .recv_cq = ends[i].cq, .qp_type = IBV_QPT_RC};
            CHECK((qps[i][k] = ibv_create_qp(ends[i].pd, &init)) != NULL && seen[qps[i][k]->qp_num]++ == 0);
        }
    }
    for (int i = 0; i < CONTEXTS; i++) {
        for (int k = 0; k < EACH; k++)
            CHECK(ibv_destroy_qp(qps[i][k]) == 0);
        close_end(&ends[i]);
    }
}

static void as_many_domains_open_as_the_device_says(void)
{
    struct end a = open_end();
    struct ibv_device_attr device;
    CHECK(ibv_query_device(a.context, &device) == 0);
    struct ibv_pd **pds = calloc((size_t)device.max_pd, sizeof(struct ibv_pd *));
    CHECK(pds != NULL);
    for (int round = 0; round < 2; round++) {
        for (int i = 1; i < device.max_pd; i++)
            CHECK((pds[i] = ibv_alloc_pd(a.context)) != NULL);
        CHECK(ibv_alloc_pd(a.context) == NULL && errno == ENOMEM);
        for (int i = 1; i < device.max_pd; i++)
            CHECK(ibv_dealloc_pd(pds[i]) == 0);
    }
    free(pds);
    close_end(&a);
}

static void what_was_posted_is_flushed_in_order(void)
{
    struct end a = open_end();
    struct far_end nobody = seen_from_afar(&a);
    struct ibv_wc wc;
    uint64_t sent = 0, received = 0;
    nobody.qpn += 1 << 16;
    CHECK(move_to(&a, &nobody, IBV_QPS_INIT) == 0 && post_receive(&a, received++) == 0);
    CHECK(move_to(&a, &nobody, IBV_QPS_RTR) == 0 && move_to(&a, &nobody, IBV_QPS_RTS) == 0);
    for (; sent < 400 && post_write(&a, &a, sent, 0, 8, IBV_WR_RDMA_WRITE, 0) == 0; sent++)
        ;
    for (; received < 400 && post_receive(&a, received) == 0; received++)
        ;
    CHECK(sent >= 128 && received >= 128);
    CHECK(move_to(&a, &nobody, IBV_QPS_ERR) == 0);
    CHECK(post_write(&a, &a, sent++, 0, 8, IBV_WR_RDMA_WRITE, 0) == 0); /* in ERR, too */
    uint64_t next[2] = {0, 0}; /* the order of a queue; both report to one */
    for (uint64_t i = 0; i < sent + received; i++) {
        wc = next_completion(&a, 10);
        bool is_receive = next[0] == sent || (wc.wr_id == next[1] && wc.wr_id != next[0]);
        CHECK(wc.status == IBV_WC_WR_FLUSH_ERR && wc.wr_id == next[is_receive]++);
    }
    CHECK(post_receive(&a, 7000) == 0 && is_flushed(&a, 7000) && ibv_poll_cq(a.cq, 1, &wc) == 0);
    close_end(&a);
}

/* A list on a full queue: what was not taken begins at the request that is named, and nothing of it is done. */
static void a_full_queue_names_the_first_request_that_it_refused(void)
{
    struct end a = open_end();
    struct far_end nobody = seen_from_afar(&a);
    nobody.qpn += 1 << 16;
    bring_up_to(&a, &nobody, 20, 7);
    struct ibv_sge sge = {(uintptr_t)a.memory, 8, a.mr->lkey};
    struct ibv_send_wr list[1000], *bad = NULL;
    for (int i = 0; i < 1000; i++)
        list[i] = (struct ibv_send_wr){.next = i < 999 ? &list[i + 1] : NULL, .sg_list = &sge, .num_sge = 1,
                                       .opcode = IBV_WR_RDMA_WRITE, .wr.rdma = {(uintptr_t)a.memory, a.mr->rkey}};
    CHECK(ibv_post_send(a.qp, list, &bad) == ENOMEM && bad >= &list[128] && bad <= &list[999]);
    CHECK(ibv_post_send(a.qp, bad, &bad) == ENOMEM);
    struct ibv_send_wr *again = bad;
    CHECK(ibv_post_send(a.qp, again, &bad) == ENOMEM && bad == again);
    close_end(&a);
}

/* Memory that the peer may not write: an error at the requester, and no byte is changed. */
static void the_peer_writes_only_where_it_may(void)
{
    for (int way = 0; way < 5; way++) {
        struct end a, b;
        connected(&a, &b, 14, 7);
        struct ibv_pd *pd = ibv_alloc_pd(b.context);
        int access = IBV_ACCESS_LOCAL_WRITE | (way == 1 ? 0 : IBV_ACCESS_REMOTE_WRITE);
        struct ibv_mr *region = ibv_reg_mr(way == 0 ? pd : b.pd, b.memory, 4096, access), *own = b.mr;
        CHECK(pd != NULL && region != NULL);
        memset(a.memory, 1, 8192);
        if (way == 4) { /* the queue pair refuses what its region would allow */
            struct ibv_qp_attr closed = {.qp_state = IBV_QPS_RTS, .qp_access_flags = 0};
            CHECK(ibv_modify_qp(b.qp, &closed, IBV_QP_ACCESS_FLAGS) == 0);
        }
        b.mr = region;
        size_t offset = way == 2 ? 4000 : way == 3 ? 5000 : 0;
        CHECK(post_write(&a, &b, 9, offset, 200, IBV_WR_RDMA_WRITE, 0) == 0);
        struct ibv_wc wc = next_completion(&a, 10);
        CHECK(wc.wr_id == 9 && (wc.status == IBV_WC_REM_ACCESS_ERR || wc.status == IBV_WC_REM_INV_REQ_ERR));
        CHECK(state_of(&a) == IBV_QPS_ERR);
        for (size_t i = 0; i < 8192; i++)
            CHECK(b.memory[i] == 0);
        b.mr = own;
        CHECK(ibv_dereg_mr(region) == 0 && ibv_dealloc_pd(pd) == 0);
        close_end(&a);
        close_end(&b);
    }
}

/* Nothing is written, so no key and no address is looked at. */
static void an_empty_write_needs_no_memory(void)
{
    struct end a, b;
    connected(&a, &b, 14, 7);
    for (int pieces = 0; pieces < 2; pieces++) {
        struct ibv_sge none = {0, 0, 0};
        struct ibv_send_wr wr = {.wr_id = 4, .sg_list = &none, .num_sge = pieces, .send_flags = IBV_SEND_SIGNALED,
                                 .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .imm_data = 77}, *bad;
        CHECK(post_receive(&b, 5) == 0 && ibv_post_send(a.qp, &wr, &bad) == 0);
        struct ibv_wc wc = next_completion(&b, 10);
        CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == 5 && wc.byte_len == 0 && wc.imm_data == 77);
        CHECK(wc.qp_num == b.qp->qp_num && next_completion(&a, 10).status == IBV_WC_SUCCESS);
    }
    close_end(&a);
    close_end(&b);
}

static uint64_t hash_of(const uint8_t *at, size_t length)
{
    uint64_t hash = 14695981039346656037ull; /* FNV-1a */
    while (length-- > 0)
        hash = (hash ^ *at++) * 1099511628211ull;
    return hash;
}

/* A ring of records of odd sizes, each with a hash, announced by immediates: whole, and in the order of posting. */
static void records_of_odd_sizes_arrive_whole_and_in_order(void)
{
    enum { RECORDS = 400, SLOTS = 8, SLOT = MEMORY / SLOTS };
    struct end a, b;
    uint64_t hashes[SLOTS];
    uint32_t random = 7;
    connected(&a, &b, 14, 7);
    for (int i = 0; i < SLOTS; i++)
        CHECK(post_receive(&b, (uint64_t)i) == 0);
    for (int sent = 0, taken = 0; taken < RECORDS;) {
        for (; sent < RECORDS && sent - taken < SLOTS; sent++) {
            size_t at = (size_t)(sent % SLOTS) * SLOT, length = 1 + (random >> 8) % (SLOT - 1);
            for (size_t i = 0; i < length; i++)
                a.memory[at + i] = (uint8_t)((random = random * 1664525 + 1013904223) >> 24);
            hashes[sent % SLOTS] = hash_of(a.memory + at, length);
            CHECK(post_write(&a, &b, (uint64_t)sent, at, length, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_SEND_SIGNALED) == 0);
        }
        struct ibv_wc wc = next_completion(&b, 30);
        CHECK(wc.status == IBV_WC_SUCCESS && wc.imm_data == (uint32_t)taken && wc.wr_id == (uint64_t)taken);
        CHECK(hash_of(b.memory + (size_t)(taken % SLOTS) * SLOT, wc.byte_len) == hashes[taken % SLOTS]);
        CHECK(next_completion(&a, 30).wr_id == (uint64_t)taken++);
        CHECK(post_receive(&b, (uint64_t)(taken + SLOTS - 1)) == 0);
    }
    close_end(&a);
    close_end(&b);
}

/* Every 16th request is signalled, and the one that fails. */
static void unsignalled_requests_complete_only_when_they_fail(void)
{
    struct end a, b;
    struct ibv_wc wc;
    connected(&a, &b, 14, 7);
    for (uint64_t i = 1; i <= 2000; i++) {
        bool is_signalled = i % 16 == 0;
        CHECK(post_write(&a, &b, i, 0, 8, IBV_WR_RDMA_WRITE, is_signalled ? IBV_SEND_SIGNALED : 0) == 0);
        if (is_signalled) {
            wc = next_completion(&a, 10);
            CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == i);
        }
    }
    CHECK(ibv_poll_cq(a.cq, 1, &wc) == 0);
    b.mr->rkey ^= 0x7000;
    CHECK(post_write(&a, &b, 77, 0, 8, IBV_WR_RDMA_WRITE, 0) == 0);
    wc = next_completion(&a, 10);
    CHECK(wc.status == IBV_WC_REM_ACCESS_ERR && wc.wr_id == 77);
    b.mr->rkey ^= 0x7000;
    close_end(&a);
    close_end(&b);
}

/* A queue that is armed for any completion stays so when it is armed for solicited ones (InfiniBand, 11.4.2.2). */
static void a_queue_armed_for_any_completion_stays_so(void)
{
    struct end a, b;
    struct ibv_cq *cq;
    void *context;
    connected(&a, &b, 14, 7);
    struct pollfd event = {b.channel->fd, POLLIN, 0};
    static const int ways[3][2] = {{0, 1}, {1, 0}, {1, 1}};
    for (int way = 0; way < 3; way++) {
        CHECK(ibv_req_notify_cq(b.cq, ways[way][0]) == 0 && ibv_req_notify_cq(b.cq, ways[way][1]) == 0);
        CHECK(post_receive(&b, 1) == 0);
        CHECK(post_write(&a, &b, 1, 0, 8, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_SEND_SIGNALED) == 0);
        CHECK(next_completion(&a, 10).status == IBV_WC_SUCCESS && next_completion(&b, 10).wr_id == 1);
        if (way < 2) {
            CHECK(poll(&event, 1, 10000) == 1 && ibv_get_cq_event(b.channel, &cq, &context) == 0);
            ibv_ack_cq_events(cq, 1);
        } else
            CHECK(poll(&event, 1, 50) == 0);
    }
    close_end(&a);
    close_end(&b);
}

#define WAITERS 8
#define MESSAGES 4000
static atomic_int waited_for;

static void *wait_and_take(void *argument)
{
    struct end *end = argument;
    while (atomic_load(&waited_for) < MESSAGES) {
        struct pollfd event = {end->channel->fd, POLLIN, 0};
        struct ibv_cq *cq;
        void *context;
        struct ibv_wc wc[8];
        int count;
        if (poll(&event, 1, 20) <= 0 || ibv_get_cq_event(end->channel, &cq, &context) != 0)
            continue;
        ibv_ack_cq_events(cq, 1);
        CHECK(ibv_req_notify_cq(cq, 0) == 0);
        while ((count = ibv_poll_cq(cq, 8, wc)) > 0) {
            for (int i = 0; i < count; i++)
                CHECK(wc[i].status == IBV_WC_SUCCESS && post_receive(end, 1) == 0);
            atomic_fetch_add(&waited_for, count);
        }
        CHECK(count == 0);
    }
    return NULL;
}

static void threads_that_wait_for_one_queue_miss_nothing(void)
{
    struct end a, b;
    pthread_t threads[WAITERS];
    connected(&a, &b, 14, 7);
    CHECK(fcntl(b.channel->fd, F_SETFL, O_NONBLOCK) == 0);
    for (int i = 0; i < 128; i++)
        CHECK(post_receive(&b, 1) == 0);
    CHECK(ibv_req_notify_cq(b.cq, 0) == 0);
    for (int i = 0; i < WAITERS; i++)
        CHECK(pthread_create(&threads[i], NULL, wait_and_take, &b) == 0);
    for (int sent = 0; sent < MESSAGES; sent++) {
        for (double end = seconds() + 30; sent - atomic_load(&waited_for) > 100; sched_yield())
            CHECK(seconds() < end);
        CHECK(post_write(&a, &b, 1, 0, 8, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_SEND_SIGNALED) == 0);
        CHECK(next_completion(&a, 30).status == IBV_WC_SUCCESS);
    }
    for (int i = 0; i < WAITERS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(atomic_load(&waited_for) == MESSAGES);
    close_end(&a);
    close_end(&b);
}

static atomic_bool is_over;

static void *post_and_poll(void *argument)
{
    struct end *end = argument;
    struct ibv_wc wc;
    while (!atomic_load(&is_over)) {
        post_write(end, end, 1, 0, 8, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED);
        ibv_poll_cq(end->cq, 1, &wc);
    }
    return NULL;
}

static void states_may_change_while_others_post(void)
{
    struct end a, b;
    pthread_t threads[2];
    connected(&a, &b, 14, 7);
    struct far_end there = seen_from_afar(&b);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, post_and_poll, &a) == 0);
    for (int round = 0; round < 100; round++) {
        CHECK(move_to(&a, &there, IBV_QPS_ERR) == 0 && move_to(&a, &there, IBV_QPS_RESET) == 0);
        CHECK(move_to(&a, &there, IBV_QPS_INIT) == 0 && move_to(&a, &there, IBV_QPS_RTR) == 0);
        CHECK(move_to(&a, &there, IBV_QPS_RTS) == 0);
    }
    atomic_store(&is_over, true);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(move_to(&a, &there, IBV_QPS_RESET) == 0 && move_to(&b, &there, IBV_QPS_RESET) == 0);
    for (struct ibv_wc wc; ibv_poll_cq(a.cq, 1, &wc) > 0;)
        ;
    bring_up(&a, &b, 14, 7);
    bring_up(&b, &a, 14, 7);
    CHECK(post_write(&a, &b, 5, 0, 64, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED) == 0);
    struct ibv_wc wc = next_completion(&a, 10);
    CHECK(wc.wr_id == 5 && wc.status == IBV_WC_SUCCESS);
    close_end(&a);
    close_end(&b);
}

/*
 * Packets of an earlier connection lie in the socket when the same queue pairs connect again, with the same numbers and PSNs.
 * A packet that the kernel itself holds back can still come later: of sixty rounds two may fail (nine did).
 */
static void a_connection_takes_nothing_of_the_one_before(void)
{
    struct end a, b;
    struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
    int failed = 0;
    connected(&a, &b, 14, 7);
    for (int round = 0; round < 60; round++) {
        b.mr->rkey ^= 0x5000;
        for (uint64_t i = 0; i < 4; i++)
            CHECK(post_write(&a, &b, i, 0, 1 << 16, IBV_WR_RDMA_WRITE, 0) == 0);
        b.mr->rkey ^= 0x5000;
        CHECK(ibv_modify_qp(a.qp, &reset, IBV_QP_STATE) == 0 && ibv_modify_qp(b.qp, &reset, IBV_QP_STATE) == 0);
        for (struct ibv_wc wc; ibv_poll_cq(a.cq, 1, &wc) > 0 || ibv_poll_cq(b.cq, 1, &wc) > 0;)
            ;
        bring_up(&b, &a, 14, 7);
        bring_up(&a, &b, 14, 7);
        CHECK(post_write(&a, &b, 9, 0, 64, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED) == 0);
        failed += next_completion(&a, 10).status != IBV_WC_SUCCESS;
    }
    CHECK(failed <= 2);
    close_end(&a);
    close_end(&b);
}

/* Queue pairs, regions and their memory go while writes are under way, from either end first. */
static void objects_may_go_while_writes_are_under_way(void)
{
    for (int round = 0; round < 30; round++) {
        struct end a, b;
        struct ibv_qp_attr failed = {.qp_state = IBV_QPS_ERR};
        connected(&a, &b, 14, 7);
        for (uint64_t i = 0; i < 8; i++)
            CHECK(post_write(&a, &b, i, 0, MEMORY, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED) == 0);
        if (round % 2 == 1)
            CHECK(next_completion(&a, 30).status == IBV_WC_SUCCESS);
        if (round % 5 == 0)
            CHECK(ibv_modify_qp(a.qp, &failed, IBV_QP_STATE) == 0);
        close_end(round % 3 == 0 ? &a : &b);
        close_end(round % 3 == 0 ? &b : &a);
    }
}

static int open_descriptors(void)
{
    int count = 0;
    for (int fd = 0; fd < 4096; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

/* With a schedule, whose first step makes the second thread report before the open has returned. */
static void opening_again_and_again_leaves_nothing(void)
{
    int before = open_descriptors();
    setenv("MRC_FAULT_STEPS", "0 0 1 0 0 0 0 0 0 0 0;1 0 0 0 0 0 0 0 0 0 0", 1);
    for (int i = 0; i < 100; i++) {
        struct end end = open_end();
        close_end(&end);
    }
    unsetenv("MRC_FAULT_STEPS");
    CHECK(open_descriptors() == before);
}

/* On the same addresses, of one process or of many: each has a UDP port. The one more is named, not half opened. */
static void endpoints_on_one_address_run_out(void)
{
    enum { MOST = 64 };
    static struct ibv_context *contexts[MOST + 1];
    struct rlimit limit;
    char own[32]; /* no other process has it */
    struct ibv_device **list = ibv_get_device_list(NULL);
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = limit.rlim_max < 4096 ? limit.rlim_max : 4096;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    snprintf(own, sizeof own, "127.%d.%d.77", 64 + (getpid() >> 8 & 63), getpid() & 255);
    char *planes = put_setting("MRC_PLANES", own);
    int count = 0, descriptors = 0;
    while (count <= MOST && (contexts[count] = ibv_open_device(list[0])) != NULL)
        descriptors = count++ == MOST - 1 ? open_descriptors() : 0;
    int error = errno;
    CHECK(count == MOST && error == EADDRINUSE && open_descriptors() == descriptors);
    while (count-- > 0)
        CHECK(ibv_close_device(contexts[count]) == 0);
    ibv_free_device_list(list);
    put_back("MRC_PLANES", planes);
}

/* The last byte of a write of one packet is not there before the others are. */
static void the_last_byte_of_one_packet_is_placed_last(void)
{
    struct end a, b;
    connected(&a, &b, 14, 7);
    volatile uint8_t *last = b.memory + 4095;
    for (int round = 1; round <= 1000; round++) {
        memset(a.memory, round, 4096);
        CHECK(post_write(&a, &b, 1, 0, 4096, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED) == 0);
        for (double end = seconds() + 30; *last != (uint8_t)round;)
            CHECK(seconds() < end);
        atomic_thread_fence(memory_order_acquire);
        CHECK(memcmp(a.memory, b.memory, 4096) == 0);
        CHECK(next_completion(&a, 10).status == IBV_WC_SUCCESS);
    }
    close_end(&a);
    close_end(&b);
}

/* With MRC_IN_ORDER the same holds of a write of 256 packets, and of a byte that is written after it. */
static void with_an_order_the_last_byte_comes_last(void)
{
    char *before = put_setting("MRC_IN_ORDER", "1");
    struct end a, b;
    connected(&a, &b, 14, 7);
    const size_t length = MEMORY - 4096;
    for (int round = 1; round <= 200; round++) {
        bool has_flag = round % 2 == 0;
        volatile uint8_t *last = b.memory + (has_flag ? length : length - 1);
        memset(a.memory, round, MEMORY);
        CHECK(post_write(&a, &b, 1, 0, length, IBV_WR_RDMA_WRITE, has_flag ? 0 : IBV_SEND_SIGNALED) == 0);
        if (has_flag)
            CHECK(post_write(&a, &b, 1, length, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED) == 0);
        for (double end = seconds() + 30; *last != (uint8_t)round;)
            CHECK(seconds() < end);
        atomic_thread_fence(memory_order_acquire);
        CHECK(memcmp(a.memory, b.memory, length) == 0);
        CHECK(next_completion(&a, 10).status == IBV_WC_SUCCESS);
    }
    close_end(&a);
    close_end(&b);
    CHECK(setenv("MRC_IN_ORDER", "maybe", 1) == 0);
    struct end refused = {0};
    CHECK(!try_open_end(&refused) && errno == EINVAL);
    put_back("MRC_IN_ORDER", before);
}

#define MIB ((size_t)1 << 20)

/* `count` MiB of addresses, all with the same MiB of memory behind them. */
static uint8_t *one_memory_again_and_again(size_t count)
{
    int fd = memfd_create("repeated", 0);
    uint8_t *all = mmap(NULL, count * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(fd >= 0 && ftruncate(fd, (off_t)MIB) == 0 && all != MAP_FAILED);
    for (size_t i = 0; i < count; i++)
        CHECK(mmap(all + i * MIB, MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED);
    close(fd);
    return all;
}

/* The port says 2^31 - 1 bytes: so many arrive and are counted, and one more is refused when it is posted. */
static void a_write_may_be_as_long_as_the_port_says(void)
{
    struct end a, b;
    connected(&a, &b, 20, 7);
    uint8_t *from = one_memory_again_and_again(2048), *to = one_memory_again_and_again(2048);
    struct ibv_mr *source = ibv_reg_mr(a.pd, from, 2048 * MIB, EVERY_ACCESS);
    struct ibv_mr *target = ibv_reg_mr(b.pd, to, 2048 * MIB, EVERY_ACCESS);
    struct ibv_port_attr port;
    CHECK(source != NULL && target != NULL && ibv_query_port(a.context, 1, &port) == 0);
    CHECK(port.max_msg_sz == 0x7FFFFFFF);
    for (size_t i = 0; i < MIB; i++)
        from[i] = (uint8_t)(i * 7 + i / 256);
    struct ibv_sge piece = {(uintptr_t)from, port.max_msg_sz, source->lkey};
    struct ibv_send_wr wr = {.sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM}, *bad;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = (uintptr_t)to;
    wr.wr.rdma.rkey = target->rkey;
    CHECK(post_receive(&b, 1) == 0 && ibv_post_send(a.qp, &wr, &bad) == 0);
    CHECK(next_completion(&a, 200).status == IBV_WC_SUCCESS);
    struct ibv_wc wc = next_completion(&b, 10);
    CHECK(wc.status == IBV_WC_SUCCESS && wc.byte_len == port.max_msg_sz && memcmp(from, to, MIB) == 0);
    piece.length++;
    CHECK(ibv_post_send(a.qp, &wr, &bad) == EINVAL && bad == &wr);
    CHECK(ibv_dereg_mr(source) == 0 && ibv_dereg_mr(target) == 0);
    CHECK(munmap(from, 2048 * MIB) == 0 && munmap(to, 2048 * MIB) == 0);
    close_end(&a);
    close_end(&b);
}

/*
 * Each attempt takes as long as a NIC waits at least, T = 4.096 us times 2 to the power of the timeout, and at most 4 T and
 * T + 250 ms (docs/native.md), and what a busy machine takes more.
 */
static void no_request_is_given_up_too_early_or_late(void)
{
    static const int ways[][2] = {{12, 3}, {14, 0}, {18, 0}};
    for (int way = 0; way < 3; way++) {
        struct end a, b;
        connected(&a, &b, ways[way][0], ways[way][1]);
        struct end gone = {.memory = a.memory, .mr = a.mr};
        close_end(&b);
        double begun = seconds();
        CHECK(post_write(&a, &gone, 3, 0, 64, IBV_WR_RDMA_WRITE, 0) == 0);
        CHECK(next_completion(&a, 30).status == IBV_WC_RETRY_EXC_ERR);
        double took = seconds() - begun, once = 4.096e-6 * (1 << ways[way][0]), attempts = ways[way][1] + 1;
        CHECK(took > once * attempts && took < (4 * once < once + 0.25 ? 4 * once : once + 0.25) * attempts + 1);
        close_end(&a);
    }
}

static const struct named_test tests[] = {
    TEST(a_queue_pair_goes_through_the_states_of_verbs),
    TEST(a_step_wants_all_its_attributes),
    TEST(objects_in_use_or_changed_stay_as_they_are),
    TEST(contexts_of_a_process_are_found_by_the_gid_of_each),
    TEST(queue_pairs_of_a_process_differ_in_their_numbers),
    TEST(as_many_domains_open_as_the_device_says),
    TEST(what_was_posted_is_flushed_in_order),
    TEST(a_full_queue_names_the_first_request_that_it_refused),
    TEST(the_peer_writes_only_where_it_may),
    TEST(an_empty_write_needs_no_memory),
    TEST(records_of_odd_sizes_arrive_whole_and_in_order),
    TEST(unsignalled_requests_complete_only_when_they_fail),
    TEST(a_queue_armed_for_any_completion_stays_so),
    TEST(threads_that_wait_for_one_queue_miss_nothing),
    TEST(states_may_change_while_others_post),
    TEST(a_connection_takes_nothing_of_the_one_before),
    TEST(objects_may_go_while_writes_are_under_way),
    TEST(opening_again_and_again_leaves_nothing),
    TEST(endpoints_on_one_address_run_out),
    TEST(the_last_byte_of_one_packet_is_placed_last),
    TEST(with_an_order_the_last_byte_comes_last),
    TEST(no_request_is_given_up_too_early_or_late),
    TEST(a_write_may_be_as_long_as_the_port_says),
};

int main(int count, char **names)
{
    return run_named(tests, sizeof tests / sizeof *tests, count, names);
}
