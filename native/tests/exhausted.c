/* What becomes of a program when the kernel or the C library refuses something to libmrc.so; failing.c is preloaded. */
#include <dirent.h>
#include <unistd.h>

#include "both_ends.h"
#include "failing.h"
#include "named_tests.h"

#define BYTES (256 << 10)
#define PATIENCE 30 /* s: a host that is busy takes long, a hang for ever */

static int open_descriptors(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    CHECK(folder != NULL);
    while (readdir(folder) != NULL)
        count++;
    closedir(folder);
    return count;
}

struct outcome {
    int error;                 /* errno of the call that failed, 0: none did */
    enum ibv_wc_status status; /* of the write, if none did */
};

/* Write from one end to the other; what is between is not trusted. */
static struct outcome write_once(struct end *a, struct end *b, int timeout, int retries)
{
    struct outcome out = {0};
    struct far_end seen[2] = {seen_from_afar(a), seen_from_afar(b)};
    out.error = try_bring_up_to(a, &seen[1], timeout, retries);
    if (out.error == 0)
        out.error = try_bring_up_to(b, &seen[0], timeout, retries);
    if (out.error == 0)
        out.error = post_write(a, b, 5, 0, BYTES, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED);
    if (out.error == 0)
        out.status = next_completion(a, PATIENCE).status;
    return out;
}

/* Open two ends, connect, write, close. Whatever fails: a reason, all of it closed, and no other descriptor. */
static struct outcome live(int timeout, int retries)
{
    struct end a = {0}, b = {0};
    struct outcome out = {0};
    int before = open_descriptors();
    errno = 0;
    if (!try_open_end(&a) || !try_open_end(&b)) {
        CHECK(errno != 0);
        out.error = errno;
    } else {
        memset(a.memory, 0xA5, BYTES);
        out = write_once(&a, &b, timeout, retries);
        if (out.error == 0 && out.status == IBV_WC_SUCCESS)
            CHECK(memcmp(a.memory, b.memory, BYTES) == 0);
    }
    close_end(&a);
    close_end(&b);
    CHECK(open_descriptors() == before);
    return out;
}

static long calls_of(const char *name)
{
    failing_set(name, 0, 0, 0);
    struct outcome out = live(14, 7);
    CHECK(out.error == 0 && out.status == IBV_WC_SUCCESS);
    return failing_seen();
}

/* One call at a time, of many calls of a kind some at the beginning, in the middle and at the end. */
static void a_call_that_fails_is_named_or_done_without(void)
{
    static const struct {
        const char *name;
        int error;
    } kinds[] = {{"socket", EMFILE},  {"bind", EACCES},       {"setsockopt", ENOMEM},     {"eventfd", EMFILE},
                 {"mmap", ENOMEM},    {"madvise", ENOMEM},    {"pthread_create", EAGAIN}, {"malloc", ENOMEM},
                 {"calloc", ENOMEM},  {"realloc", ENOMEM},    {"getifaddrs", ENOMEM},     {"memfd_create", EMFILE},
                 {"ftruncate", EIO}};
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        long calls = calls_of(kinds[kind].name);
        for (long number = 1; number <= calls; number++) {
            if (number > 8 && number < calls - 8 && number % 16 != 0)
                continue;
            failing_set(kinds[kind].name, kinds[kind].error, number, 1);
            struct outcome out = live(14, 7);
            CHECK(failing_seen() >= number);
            printf("%s %ld of %ld: %s\n", kinds[kind].name, number, calls, out.error ? strerror(out.error) : "done without");
            CHECK(out.error == 0 ? out.status == IBV_WC_SUCCESS : out.error == kinds[kind].error);
        }
        failing_set("", 0, 0, 0);
    }
}

/* What the kernel does not take or give is as good as lost on the way: it comes again, and the write completes. */
static void packets_that_the_kernel_refuses_are_sent_again(void)
{
    static const char *const names[] = {"sendmmsg", "recvmmsg", "ppoll"};
    static const int errors[][5] = {
        {EAGAIN, ENOBUFS, ENOMEM, EPERM, ENETUNREACH}, {EAGAIN, ENOBUFS, ENOMEM, EINTR}, {EINTR, ENOMEM, EAGAIN}};
    static const long spans[][2] = {{1, 1}, {2, 20}};
    for (size_t name = 0; name < sizeof names / sizeof *names; name++)
        for (size_t i = 0; i < 5 && errors[name][i] != 0; i++)
            for (size_t span = 0; span < 2; span++) {
                failing_set(names[name], errors[name][i], spans[span][0], spans[span][1]);
                struct outcome out = live(14, 7);
                CHECK(failing_seen() > 0);
                CHECK(out.error == 0 && out.status == IBV_WC_SUCCESS);
            }
}

/* The time-out of 0.26 ms and three more attempts: an error, soon, and no completion is lost. */
static void a_kernel_that_takes_no_packet_any_more_ends_in_an_error_completion(void)
{
    static const int errors[] = {ENOBUFS, ENOMEM, EAGAIN, ENETDOWN};
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        failing_set("sendmmsg", errors[i], 1, 1L << 40);
        struct outcome out = live(8, 3);
        CHECK(out.error == 0 && out.status == IBV_WC_RETRY_EXC_ERR);
    }
    failing_set("recvmmsg", ENOMEM, 1, 1L << 40);
    struct outcome out = live(8, 3);
    CHECK(out.error == 0 && out.status == IBV_WC_RETRY_EXC_ERR);
}

int main(int count, char **names)
{
    static const struct named_test tests[] = {
        TEST(a_call_that_fails_is_named_or_done_without),
        TEST(packets_that_the_kernel_refuses_are_sent_again),
        TEST(a_kernel_that_takes_no_packet_any_more_ends_in_an_error_completion),
    };
    CHECK(failing_set != NULL);
    return run_named(tests, sizeof tests / sizeof *tests, count, names);
}
