#define _GNU_SOURCE
#include "endpoint/published.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "endpoint/report.h"

static atomic_int opened;

static bool is_one_of(const char *value, const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcasecmp(value, words[i]) == 0)
            return true;
    return false;
}

static const char *value_of(const char *name)
{
    static const char *const off[] = {"", "off", "no", "0"};
    const char *value = getenv(name);
    return value == NULL || is_one_of(value, off, sizeof off / sizeof *off) ? NULL : value;
}

static bool is_on(const char *value)
{
    static const char *const on[] = {"on", "yes", "1"};
    return is_one_of(value, on, sizeof on / sizeof *on);
}

/* An ADDRESS:PORT, at which a program in Python serves its metrics; those of this one are read by `mrc metrics`. */
static bool ends_in_port(const char *value)
{
    const char *colon = strrchr(value, ':'), *port = colon == NULL ? value : colon + 1;
    return *port != '\0' && port[strspn(port, "0123456789")] == '\0';
}

bool publishing_is_understood(void)
{
    const char *metrics = value_of("MRC_METRICS"), *control = value_of("MRC_CTL");
    if (metrics != NULL && !is_on(metrics) && !ends_in_port(metrics))
        return report("MRC_METRICS: %s is neither on, off nor ADDRESS:PORT", metrics), false;
    if (control != NULL && !is_on(control) && strchr(control, '/') == NULL)
        return report("MRC_CTL: %s is neither on, off nor a folder with a / in it", control), false;
    return true;
}

bool publishing_is_wanted(void)
{
    return value_of("MRC_METRICS") != NULL || value_of("MRC_CTL") != NULL;
}

void *published_memory(size_t bytes, int *descriptor)
{
    *descriptor = memfd_create("openmrc", MFD_CLOEXEC);
    if (*descriptor < 0 || fchmod(*descriptor, 0600) != 0 || ftruncate(*descriptor, (off_t)bytes) != 0)
        return MAP_FAILED;
    return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, *descriptor, 0);
}

/* The folder of controllers, as openmrc.ctl.folder chooses it. */
static void choose_folder(char *folder, size_t room)
{
    const char *named = getenv("MRC_CTL"), *runtime = getenv("XDG_RUNTIME_DIR"), *temporary = getenv("TMPDIR");
    struct stat found;
    if (named != NULL && strchr(named, '/') != NULL)
        snprintf(folder, room, "%s", named);
    else if (runtime != NULL && stat(runtime, &found) == 0 && S_ISDIR(found.st_mode) && found.st_uid == geteuid())
        snprintf(folder, room, "%s/openmrc", runtime);
    else
        snprintf(folder, room, "%s/openmrc-ctl-%u", temporary != NULL && *temporary ? temporary : "/tmp",
                 (unsigned)geteuid());
}

/* Whether the folder is of this user, and no other can enter it. */
static bool is_private(const char *folder)
{
    struct stat found;
    if (mkdir(folder, 0700) != 0 && errno != EEXIST)
        return false;
    return lstat(folder, &found) == 0 && S_ISDIR(found.st_mode) && found.st_uid == geteuid()
        && (found.st_mode & 077) == 0;
}

static void write_lead(const struct endpoint *endpoint, FILE *file, int64_t token)
{
    char text[INET6_ADDRSTRLEN];
    const char *between = "";
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    fprintf(file, "{\"layout\": \"%s\", \"pid\": %d, \"descriptor\": %d, \"token\": %lld, \"counts_at\": %zu, ",
            MRC_TABLES_DIGEST, (int)getpid(), endpoint->published_fd, (long long)token,
            (size_t)((uint8_t *)endpoint->counts - endpoint->memory));
    fprintf(file, "\"opened_at\": %lld, \"command\": \"", (long long)now.tv_sec);
    for (const char *letter = program_invocation_short_name; *letter != '\0'; letter++)
        fputc(*letter < ' ' || *letter == '"' || *letter == '\\' || *letter > '~' ? '?' : *letter, file);
    fputs("\", \"planes\": [", file);
    for (int plane = 0; plane < endpoint->addresses.count; plane++, between = ", ")
        fprintf(file, "%s\"%s\"", between, plane_text(&endpoint->addresses.address[plane], text));
    fputs("]}\n", file);
}

void published_open(struct endpoint *endpoint)
{
    char folder[512];
    if (endpoint->counts == NULL)
        return;
    endpoint->counts->token = (int64_t)(random_bits() >> 1);
    choose_folder(folder, sizeof folder);
    if (!is_private(folder)) {
        report("metrics: %s is not a folder of this user alone; nothing is published", folder);
        return;
    }
    snprintf(endpoint->lead, sizeof endpoint->lead, "%s/%d-%d.tables", folder, (int)getpid(),
             atomic_fetch_add(&opened, 1));
    unlink(endpoint->lead); /* of an earlier process with our number */
    int descriptor = open(endpoint->lead, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    FILE *file = descriptor < 0 ? NULL : fdopen(descriptor, "w");
    if (file == NULL) {
        report("metrics: %s: %s; nothing is published", endpoint->lead, strerror(errno));
        endpoint->lead[0] = '\0';
        return;
    }
    write_lead(endpoint, file, endpoint->counts->token);
    fclose(file);
}

void published_close(struct endpoint *endpoint)
{
    if (endpoint->lead[0] != '\0' && endpoint_is_usable(endpoint)) /* not in a forked child */
        unlink(endpoint->lead);
    if (endpoint->published_fd >= 0)
        close(endpoint->published_fd);
}

void published_on_event(struct endpoint *endpoint, const struct mrc_datapath_event_records *event)
{
    struct published_counts *counts = endpoint->counts;
    if (counts == NULL)
        return;
    if (event->kind == MRC_EVENT_KIND_QP_ERROR)
        counts->queue_pair_errors++;
    if (event->kind != MRC_EVENT_KIND_LOCAL_PORTS)
        return;
    for (int plane = 0; plane < endpoint->addresses.count; plane++)
        counts->downs[plane] += endpoint->ports_up >> plane & ~(event->state >> plane) & 1;
    endpoint->ports_up = event->state;
}

void published_before_end(struct endpoint *endpoint, int qp)
{
    const uint8_t *row = (const uint8_t *)&endpoint->qps[qp];
    for (int i = 0; endpoint->counts != NULL && i < MRC_TOTALS; i++) {
        const void *at = row + mrc_totals[i].offset;
        endpoint->counts->ended[i] += mrc_totals[i].bytes == 8 ? *(const int64_t *)at : *(const int32_t *)at;
    }
}
