/* Registered memory: what may be registered, and what ends when it goes. Each test is a name on the command line. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "both_ends.h"
#include "named_tests.h"

#define LENGTH 65536

/* The size of pages that the library is told, as of another kernel; 0: that of this one. */
static long told;

#ifndef __SANITIZE_THREAD__ /* ThreadSanitizer asks before it can run what it has instrumented */
long sysconf(int name)
{
    long (*own)(int) = (long (*)(int))(uintptr_t)dlsym(RTLD_NEXT, "sysconf");
    return name == _SC_PAGESIZE && told != 0 ? told : own(name);
}
#endif

static uint8_t *map(void)
{
    uint8_t *memory = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    memset(memory, 'o', LENGTH);
    return memory;
}

/* A connected end whose peer does not answer. */
static struct end with_a_silent_peer(struct end *gone)
{
    struct end a, b;
    connected(&a, &b, 20, 7);
    close_end(&b);
    *gone = (struct end){.memory = a.memory, .mr = a.mr};
    return a;
}

static int post_pieces(struct end *from, uint64_t id, struct ibv_sge *pieces, int count, enum ibv_wr_opcode opcode)
{
    struct ibv_send_wr wr = {.wr_id = id, .sg_list = pieces, .num_sge = count, .opcode = opcode}, *bad;
    wr.wr.rdma.remote_addr = (uintptr_t)from->memory;
    wr.wr.rdma.rkey = 0x1234;
    return ibv_post_send(from->qp, &wr, &bad);
}

static bool completes(struct end *end, uint64_t id, enum ibv_wc_status status)
{
    struct ibv_wc wc = next_completion(end, 10);
    return wc.wr_id == id && wc.status == status;
}

static bool is_in_error(const struct end *end)
{
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    return ibv_query_qp(end->qp, &attr, IBV_QP_STATE, &init) == 0 && attr.qp_state == IBV_QPS_ERR;
}

/* What a NIC's driver says of memory that it is asked to pin. */
static void memory_is_checked_when_it_is_registered(void)
{
    struct end end = open_end();
    long page = sysconf(_SC_PAGESIZE);
    uint8_t *memory = map();
    const int write = IBV_ACCESS_LOCAL_WRITE, remote = IBV_ACCESS_REMOTE_WRITE;
#define REFUSED(at, length, access, error)                                                                             \
    CHECK((errno = 0, ibv_reg_mr(end.pd, at, length, (unsigned)(access))) == NULL && errno == (error))
    REFUSED(memory, 0, write, EINVAL);
    REFUSED(memory, SIZE_MAX, write, EINVAL);
    REFUSED(memory, (size_t)1 << 62, write, EFAULT);
    REFUSED(memory, LENGTH, remote, EINVAL);
    REFUSED(memory, LENGTH, write | IBV_ACCESS_ON_DEMAND, EOPNOTSUPP);
    REFUSED(memory, LENGTH, write | IBV_ACCESS_MW_BIND, EOPNOTSUPP);
    REFUSED(memory, LENGTH, write | 1 << 18, EINVAL);
    struct ibv_mr *mr = ibv_reg_mr(end.pd, memory, LENGTH, (unsigned)(write | IBV_ACCESS_RELAXED_ORDERING));
    CHECK(mr != NULL && ibv_dereg_mr(mr) == 0);
    CHECK(mprotect(memory + page, (size_t)page, PROT_READ) == 0); /* one page of many */
    REFUSED(memory, LENGTH, write | remote, EFAULT);
    CHECK((mr = ibv_reg_mr(end.pd, memory, LENGTH, IBV_ACCESS_REMOTE_READ)) != NULL && ibv_dereg_mr(mr) == 0);
    CHECK(mprotect(memory + page, (size_t)page, PROT_NONE) == 0);
    REFUSED(memory, LENGTH, 0, EFAULT);
    CHECK(munmap(memory + page, (size_t)page) == 0);
    REFUSED(memory, LENGTH, 0, EFAULT);
    REFUSED(memory + page, (size_t)page, write, EFAULT); /* a hole of a page: what other threads map goes elsewhere */
    CHECK(munmap(memory, LENGTH) == 0);
    int file = memfd_create("short", 0);
    CHECK(file >= 0 && ftruncate(file, page) == 0);
    memory = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    REFUSED(memory, LENGTH, write, EFAULT); /* beyond its end */
    CHECK(munmap(memory, LENGTH) == 0 && close(file) == 0);
    close_end(&end);
}

static void a_region_may_count_from_zero(void)
{
    struct end a, b;
    connected(&a, &b, 14, 7);
    struct ibv_mr *from = ibv_reg_mr(a.pd, a.memory, MEMORY, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED);
    struct ibv_mr *to = ibv_reg_mr(b.pd, b.memory + 4096, 4096, EVERY_ACCESS | IBV_ACCESS_ZERO_BASED);
    CHECK(from != NULL && to != NULL);
    struct ibv_sge piece = {1000, 8, from->lkey};
    struct ibv_send_wr wr = {.sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.rkey = to->rkey;
    wr.wr.rdma.remote_addr = 16;
    memcpy(a.memory + 1000, "offsets", 8);
    CHECK(ibv_post_send(a.qp, &wr, &bad) == 0 && completes(&a, 0, IBV_WC_SUCCESS));
    CHECK(strcmp((char *)b.memory + 4096 + 16, "offsets") == 0);
    wr.wr.rdma.remote_addr = 4090; /* two bytes too many */
    CHECK(ibv_post_send(a.qp, &wr, &bad) == 0 && completes(&a, 0, IBV_WC_REM_ACCESS_ERR));
    CHECK(ibv_dereg_mr(from) == 0 && ibv_dereg_mr(to) == 0);
    close_end(&a);
    close_end(&b);
}

/* The request on it ends so, those before and after it are flushed, and each completes once however many pieces it has. */
static void requests_end_when_their_memory_is_deregistered(void)
{
    struct end gone, a = with_a_silent_peer(&gone);
    uint8_t *memory = map();
    struct ibv_mr *mr = ibv_reg_mr(a.pd, memory, LENGTH, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_sge own = {(uintptr_t)a.memory, 64, a.mr->lkey}, other = {(uintptr_t)memory, LENGTH, mr->lkey};
    struct ibv_sge mixed[] = {own, other, own};
    CHECK(post_pieces(&a, 1, &own, 1, IBV_WR_RDMA_WRITE) == 0);
    CHECK(post_pieces(&a, 2, mixed, 3, IBV_WR_RDMA_WRITE) == 0);
    CHECK(post_pieces(&a, 3, mixed, 3, IBV_WR_RDMA_WRITE) == 0);
    CHECK(post_pieces(&a, 4, &own, 1, IBV_WR_RDMA_WRITE) == 0);
    CHECK(ibv_dereg_mr(mr) == 0 && is_in_error(&a));
    CHECK(munmap(memory, LENGTH) == 0);
    CHECK(completes(&a, 1, IBV_WC_WR_FLUSH_ERR) && completes(&a, 2, IBV_WC_LOC_PROT_ERR));
    CHECK(completes(&a, 3, IBV_WC_WR_FLUSH_ERR) && completes(&a, 4, IBV_WC_WR_FLUSH_ERR));
    struct ibv_wc wc;
    CHECK(ibv_poll_cq(a.cq, 1, &wc) == 0);
    struct pollfd events = {a.context->async_fd, POLLIN, 0};
    CHECK(poll(&events, 1, 50) == 0); /* the completion says it all */
    close_end(&a);
}

static void memory_that_is_registered_twice_is_still_sent_under_the_other_key(void)
{
    struct end a, b;
    connected(&a, &b, 14, 7);
    for (uint64_t i = 0; i < 200; i++) {
        struct ibv_mr *twin = ibv_reg_mr(a.pd, a.memory, MEMORY, EVERY_ACCESS);
        memset(a.memory, (int)i + 1, LENGTH);
        CHECK(post_write(&a, &b, i, 0, LENGTH, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED) == 0);
        CHECK(ibv_dereg_mr(twin) == 0);
        CHECK(completes(&a, i, IBV_WC_SUCCESS) && memcmp(a.memory, b.memory, LENGTH) == 0);
    }
    close_end(&a);
    close_end(&b);
}

/* Deregistered and reused in the middle of a burst: the peer never sees what comes to lie there. */
static void what_comes_to_lie_there_is_not_sent(void)
{
    for (int round = 0; round < 30; round++) {
        struct end a, b;
        connected(&a, &b, 14, 7);
        uint8_t *memory = map();
        struct ibv_mr *mr = ibv_reg_mr(a.pd, memory, LENGTH, IBV_ACCESS_LOCAL_WRITE);
        struct ibv_sge piece = {(uintptr_t)memory, LENGTH, mr->lkey};
        for (uint64_t i = 0; i < 100; i++) {
            struct ibv_send_wr wr = {.wr_id = i, .sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
            wr.wr.rdma.remote_addr = (uintptr_t)b.memory;
            wr.wr.rdma.rkey = b.mr->rkey;
            CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
        }
        usleep((useconds_t)round * 100);
        CHECK(ibv_dereg_mr(mr) == 0);
        memset(memory, 'S', LENGTH);
        usleep(20000);
        CHECK(memchr(b.memory, 'S', LENGTH) == NULL);
        CHECK(munmap(memory, LENGTH) == 0);
        close_end(&a);
        close_end(&b);
    }
}

/* More SENDs than slots, so that some wait inside the library. */
static void a_send_that_waits_ends_when_its_memory_is_deregistered(void)
{
    setenv("MRC_EMULATE", "send", 1);
    struct end a, b;
    connected(&a, &b, 14, 7);
    uint8_t *memory = map();
    struct ibv_mr *mr = ibv_reg_mr(a.pd, memory, LENGTH, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_sge piece = {(uintptr_t)memory, 64, mr->lkey};
    for (uint64_t i = 0; i < 100; i++)
        CHECK(post_pieces(&a, i, &piece, 1, IBV_WR_SEND) == 0);
    CHECK(ibv_dereg_mr(mr) == 0 && munmap(memory, LENGTH) == 0);
    for (int i = 0; i < 100; i++) {
        struct ibv_sge target = {(uintptr_t)b.memory, 64, b.mr->lkey};
        struct ibv_recv_wr receive = {.sg_list = &target, .num_sge = 1}, *bad;
        CHECK(ibv_post_recv(b.qp, &receive, &bad) == 0);
    }
    struct ibv_wc wc = {0};
    int count = 0, arrived = 0;
    for (double until = seconds() + 20; count == 0 && seconds() < until;) {
        struct ibv_wc received[8];
        arrived += ibv_poll_cq(b.cq, 8, received);
        count = ibv_poll_cq(a.cq, 1, &wc);
    }
    CHECK(count == 1 && wc.status == IBV_WC_LOC_PROT_ERR && is_in_error(&a));
    for (uint64_t i = wc.wr_id + 1; i < 100; i++)
        CHECK(completes(&a, i, IBV_WC_WR_FLUSH_ERR));
    CHECK(arrived <= 64); /* those that had slots, acknowledged or not */
    close_end(&a);
    close_end(&b);
    unsetenv("MRC_EMULATE");
}

static void a_receive_into_deregistered_memory_is_an_error(void)
{
    setenv("MRC_EMULATE", "send", 1);
    struct end a, b;
    connected(&a, &b, 14, 7);
    uint8_t *memory = map();
    struct ibv_mr *mr = ibv_reg_mr(b.pd, memory, LENGTH, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_sge target = {(uintptr_t)memory, 64, mr->lkey}, piece = {(uintptr_t)a.memory, 64, a.mr->lkey};
    struct ibv_recv_wr receive = {.wr_id = 8, .sg_list = &target, .num_sge = 1}, *bad;
    CHECK(ibv_post_recv(b.qp, &receive, &bad) == 0);
    CHECK(ibv_dereg_mr(mr) == 0 && munmap(memory, LENGTH) == 0);
    CHECK(post_pieces(&a, 1, &piece, 1, IBV_WR_SEND) == 0);
    CHECK(completes(&b, 8, IBV_WC_LOC_PROT_ERR) && is_in_error(&b));
    close_end(&a);
    close_end(&b);
    unsetenv("MRC_EMULATE");
}

/* The peer reads again and again while the memory goes: no answer has anything else in it. */
static void a_read_of_memory_that_goes_is_an_error(void)
{
    int failed = 0;
    setenv("MRC_EMULATE", "read", 1);
    for (int round = 0; round < 10; round++) {
        struct end a, b;
        connected(&a, &b, 10, 3);
        uint8_t *memory = map();
        struct ibv_mr *mr = ibv_reg_mr(b.pd, memory, LENGTH, EVERY_ACCESS);
        struct ibv_sge target = {(uintptr_t)a.memory, LENGTH, a.mr->lkey};
        struct ibv_send_wr wr = {.sg_list = &target, .num_sge = 1, .opcode = IBV_WR_RDMA_READ}, *bad;
        wr.send_flags = IBV_SEND_SIGNALED;
        wr.wr.rdma.remote_addr = (uintptr_t)memory;
        wr.wr.rdma.rkey = mr->rkey;
        for (int i = 0; i < 40; i++)
            CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
        usleep((useconds_t)round * 300);
        CHECK(ibv_dereg_mr(mr) == 0);
        memset(memory, 'S', LENGTH);
        CHECK(munmap(memory, LENGTH) == 0);
        enum ibv_wc_status last = IBV_WC_SUCCESS;
        for (int i = 0; i < 40; i++)
            last = next_completion(&a, 20).status;
        CHECK(memchr(a.memory, 'S', LENGTH) == NULL);
        failed += last != IBV_WC_SUCCESS; /* else all were answered before */
        close_end(&a);
        close_end(&b);
    }
    CHECK(failed > 0);
    unsetenv("MRC_EMULATE");
}

/* Ways in which memory goes that stays registered. */
enum way { UNMAPPED, NO_ACCESS, TRUNCATED };

struct fragile {
    uint8_t *memory;
    int file;
};

/* Far below where the kernel puts mappings, so that none comes to lie there once this one has gone. */
static struct fragile make_fragile(void)
{
    struct fragile made = {.file = memfd_create("fragile", 0)};
    CHECK(made.file >= 0 && ftruncate(made.file, LENGTH) == 0);
    uint8_t *usual = mmap(NULL, LENGTH, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(usual != MAP_FAILED && munmap(usual, LENGTH) == 0);
    made.memory = mmap(usual - (1LL << 36), LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED, made.file, 0);
    CHECK(made.memory == usual - (1LL << 36));
    memset(made.memory, 'o', LENGTH);
    return made;
}

static void break_it(struct fragile *fragile, enum way way)
{
    if (way == UNMAPPED)
        CHECK(munmap(fragile->memory, LENGTH) == 0);
    else if (way == NO_ACCESS)
        CHECK(mprotect(fragile->memory, LENGTH, PROT_NONE) == 0);
    else
        CHECK(ftruncate(fragile->file, 0) == 0);
}

static void end_fragile(struct fragile *fragile, enum way way)
{
    if (way != UNMAPPED)
        CHECK(munmap(fragile->memory, LENGTH) == 0);
    CHECK(close(fragile->file) == 0);
}

static int post_imm(struct end *from, const struct end *to, struct ibv_sge *piece, uint64_t address, uint32_t rkey)
{
    struct ibv_recv_wr receive = {.wr_id = 77}, *bad_receive;
    struct ibv_send_wr wr = {.wr_id = 5, .sg_list = piece, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM}, *bad;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = address;
    wr.wr.rdma.rkey = rkey;
    CHECK(ibv_post_recv(to->qp, &receive, &bad_receive) == 0);
    return ibv_post_send(from->qp, &wr, &bad);
}

static void renew_qp(struct end *end)
{
    struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {128, 128, 4, 1, 256}};
    init.send_cq = init.recv_cq = end->cq;
    CHECK(ibv_destroy_qp(end->qp) == 0 && (end->qp = ibv_create_qp(end->pd, &init)) != NULL);
}

/* Another pair of queue pairs between the same ends. */
static void still_works(struct end *a, struct end *b)
{
    renew_qp(a);
    renew_qp(b);
    bring_up(a, b, 14, 7);
    bring_up(b, a, 14, 7);
    memset(a->memory, 'w', MEMORY);
    CHECK(post_write(a, b, 9, 0, MEMORY, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED) == 0);
    CHECK(completes(a, 9, IBV_WC_SUCCESS) && memcmp(a->memory, b->memory, MEMORY) == 0);
}

static void a_target_that_is_gone_is_an_error_at_both_ends(void)
{
    static const uint32_t lengths[] = {8, 4096, LENGTH};
    for (enum way way = UNMAPPED; way <= TRUNCATED; way++)
        for (int i = 0; i < 3; i++) {
            struct end a, b;
            connected(&a, &b, 14, 7);
            struct fragile fragile = make_fragile();
            struct ibv_mr *mr = ibv_reg_mr(b.pd, fragile.memory, LENGTH, EVERY_ACCESS);
            struct ibv_sge piece = {(uintptr_t)a.memory, lengths[i], a.mr->lkey};
            break_it(&fragile, way);
            CHECK(post_imm(&a, &b, &piece, (uintptr_t)fragile.memory, mr->rkey) == 0);
            CHECK(completes(&a, 5, IBV_WC_REM_OP_ERR) && completes(&b, 77, IBV_WC_WR_FLUSH_ERR));
            CHECK(is_in_error(&a) && is_in_error(&b) && ibv_dereg_mr(mr) == 0);
            still_works(&a, &b);
            end_fragile(&fragile, way);
            close_end(&a);
            close_end(&b);
        }
}

static void a_source_that_is_gone_is_an_error_and_nothing_is_sent(void)
{
    static const uint32_t lengths[] = {8, 4096, LENGTH};
    for (enum way way = UNMAPPED; way <= TRUNCATED; way++)
        for (int i = 0; i < 3; i++) {
            struct end a, b;
            connected(&a, &b, 14, 7);
            struct fragile fragile = make_fragile();
            struct ibv_mr *mr = ibv_reg_mr(a.pd, fragile.memory, LENGTH, EVERY_ACCESS);
            struct ibv_sge piece = {(uintptr_t)fragile.memory, lengths[i], mr->lkey};
            memset(b.memory, 'b', LENGTH);
            break_it(&fragile, way);
            CHECK(post_imm(&a, &b, &piece, (uintptr_t)b.memory, b.mr->rkey) == 0);
            CHECK(completes(&a, 5, IBV_WC_LOC_PROT_ERR) && is_in_error(&a));
            for (size_t k = 0; k < LENGTH; k++)
                CHECK(b.memory[k] == 'b');
            CHECK(ibv_dereg_mr(mr) == 0);
            still_works(&a, &b);
            end_fragile(&fragile, way);
            close_end(&a);
            close_end(&b);
        }
}

static void a_receive_into_memory_that_is_gone_is_an_error(void)
{
    setenv("MRC_EMULATE", "send", 1);
    for (enum way way = UNMAPPED; way <= TRUNCATED; way++) {
        struct end a, b;
        connected(&a, &b, 14, 7);
        struct fragile fragile = make_fragile();
        struct ibv_mr *mr = ibv_reg_mr(b.pd, fragile.memory, LENGTH, EVERY_ACCESS);
        struct ibv_sge target = {(uintptr_t)fragile.memory, 64, mr->lkey}, piece = {(uintptr_t)a.memory, 64, a.mr->lkey};
        struct ibv_recv_wr receive = {.wr_id = 8, .sg_list = &target, .num_sge = 1}, *bad;
        CHECK(ibv_post_recv(b.qp, &receive, &bad) == 0);
        break_it(&fragile, way);
        CHECK(post_pieces(&a, 1, &piece, 1, IBV_WR_SEND) == 0);
        CHECK(completes(&b, 8, IBV_WC_LOC_PROT_ERR) && is_in_error(&b) && ibv_dereg_mr(mr) == 0);
        end_fragile(&fragile, way);
        close_end(&a);
        close_end(&b);
    }
    unsetenv("MRC_EMULATE");
}

static sigjmp_buf after_fault;

static void on_own_fault(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info, (void)context;
    siglongjmp(after_fault, 1);
}

/* Whoever handled the program's faults before still does, also those of memory that is registered. */
static void the_faults_of_the_program_are_its_own(void)
{
    struct sigaction action = {.sa_flags = SA_SIGINFO}, before;
    action.sa_sigaction = on_own_fault;
    CHECK(sigaction(SIGSEGV, &action, &before) == 0);
    struct end a = open_end();
    volatile uint8_t *memory = map();
    struct ibv_mr *mr = ibv_reg_mr(a.pd, (void *)memory, LENGTH, EVERY_ACCESS);
    CHECK(mr != NULL && mprotect((void *)memory, LENGTH, PROT_NONE) == 0);
    int faults = 0;
    if (sigsetjmp(after_fault, 1) == 0)
        memory[0] = 1;
    else
        faults++;
    CHECK(faults == 1);
    CHECK(ibv_dereg_mr(mr) == 0);
    close_end(&a);
    CHECK(sigaction(SIGSEGV, &before, NULL) == 0);
}

static struct sigaction of_the_library;

static void pass_on(int number, siginfo_t *info, void *context)
{
    of_the_library.sa_sigaction(number, info, context);
}

/* A handler that was set later, blocks every signal and passes on what is not its own: faults after the first count, too. */
static void faults_may_come_by_way_of_another_handler(void)
{
    for (int round = 0; round < 3; round++) {
        struct end a, b;
        connected(&a, &b, 14, 7);
        struct sigaction other = {.sa_flags = SA_SIGINFO | SA_ONSTACK, .sa_sigaction = pass_on};
        sigfillset(&other.sa_mask);
        CHECK(round > 0 || sigaction(SIGSEGV, &other, &of_the_library) == 0);
        uint8_t *memory = map();
        struct ibv_mr *mr = ibv_reg_mr(a.pd, memory, LENGTH, EVERY_ACCESS);
        struct ibv_sge piece = {(uintptr_t)memory, LENGTH, mr->lkey};
        CHECK(mprotect(memory, LENGTH, PROT_NONE) == 0);
        CHECK(post_imm(&a, &b, &piece, (uintptr_t)b.memory, b.mr->rkey) == 0);
        CHECK(completes(&a, 5, IBV_WC_LOC_PROT_ERR) && ibv_dereg_mr(mr) == 0);
        close_end(&a);
        close_end(&b);
    }
    CHECK(sigaction(SIGSEGV, &of_the_library, NULL) == 0);
}

/* Pages of 64 KiB, as of kernels for Grace: memory is brought in, and asked for, by whole ones. */
static void memory_is_registered_by_large_pages(void)
{
    enum { LARGE = 65536 };
    struct end end = open_end();
    long page = sysconf(_SC_PAGESIZE);
    uint8_t *whole = mmap(NULL, 4 * LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint8_t *memory = (uint8_t *)(((uintptr_t)whole + LARGE - 1) & -(uintptr_t)LARGE);
    unsigned char resident[LARGE];
    CHECK(whole != MAP_FAILED && madvise(whole, 4 * LARGE, MADV_NOHUGEPAGE) == 0);
    told = LARGE;
    struct ibv_mr *mr = ibv_reg_mr(end.pd, memory + LARGE + 100, 200, IBV_ACCESS_LOCAL_WRITE);
    CHECK(mr != NULL && ibv_dereg_mr(mr) == 0);
    CHECK(mincore(memory, 3 * LARGE, resident) == 0);
    for (long at = 0; at < 3 * LARGE; at += page)
        CHECK((resident[at / page] & 1) == (at >= LARGE && at < 2 * LARGE));
    CHECK(mprotect(memory + 2 * LARGE - page, (size_t)page, PROT_NONE) == 0);
    CHECK((errno = 0, ibv_reg_mr(end.pd, memory + LARGE + 100, 200, IBV_ACCESS_LOCAL_WRITE)) == NULL && errno == EFAULT);
    told = 0;
    CHECK((mr = ibv_reg_mr(end.pd, memory + LARGE + 100, 200, IBV_ACCESS_LOCAL_WRITE)) != NULL && ibv_dereg_mr(mr) == 0);
    CHECK(munmap(whole, 4 * LARGE) == 0);
    close_end(&end);
}

/* And without a handler they end the process, as they did. */
static void a_fault_that_nobody_handles_ends_the_program(void)
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        struct end a = open_end();
        volatile uint8_t *memory = map();
        CHECK(a.qp != NULL && munmap((void *)memory, LENGTH) == 0);
        memory[0] = 1;
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

static const struct named_test tests[] = {
    TEST(memory_is_checked_when_it_is_registered),
    TEST(a_region_may_count_from_zero),
    TEST(requests_end_when_their_memory_is_deregistered),
    TEST(memory_that_is_registered_twice_is_still_sent_under_the_other_key),
    TEST(what_comes_to_lie_there_is_not_sent),
    TEST(a_send_that_waits_ends_when_its_memory_is_deregistered),
    TEST(a_receive_into_deregistered_memory_is_an_error),
    TEST(a_read_of_memory_that_goes_is_an_error),
    TEST(a_target_that_is_gone_is_an_error_at_both_ends),
    TEST(a_source_that_is_gone_is_an_error_and_nothing_is_sent),
    TEST(a_receive_into_memory_that_is_gone_is_an_error),
    TEST(the_faults_of_the_program_are_its_own),
    TEST(memory_is_registered_by_large_pages),
    TEST(faults_may_come_by_way_of_another_handler),
    TEST(a_fault_that_nobody_handles_ends_the_program),
};

int main(int count, char **names)
{
    return run_named(tests, sizeof tests / sizeof *tests, count, names);
}
