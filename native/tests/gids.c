/* GIDs: what is said is understood, and what cannot be said is refused. Built with src/endpoint/gids.c and planes.c. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "endpoint/planes.h"
#include "endpoint/report.h"

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, text, #condition);                                   \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

void report(const char *text, ...)
{
    (void)text;
}

static const char *const said[] = {
    "10.0.0.7", "127.0.0.1,127.0.0.2,127.0.0.3,127.0.0.4", "10.1.0.5,10.2.0.5", "10.4.0.5,10.3.0.5",
    "fd00:1::5,fd00:2::5,fd00:3::5", "fd00:1::5", "fd00:0:ff::1,fd00:0:100::1", "fd00::1:5,fd00::2:5",
    "fcbb:bb01:e001::,fcbb:bb02:e001::",
};
static const char *const refused[] = {
    "10.0.0.1,10.0.0.2,10.0.0.4", "10.0.0.1,10.0.0.1", "2001:db8:1:2:3::1", "fd00:1::5,fd00:3::5", "fe80::1%lo",
    "fd00:1::5,fd00:1::5",
};

int main(void)
{
    struct planes planes, understood;
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        const char *text = said[i];
        CHECK(planes_parse(text, &planes) && planes_fit_gid(&planes));
        planes.port = 4793;
        planes.instance = 2;
        planes.emulates = 3;
        struct mrc_gid gid = planes_gid(&planes);
        CHECK(planes_of_gid(&gid, &understood));
        CHECK(understood.count == planes.count && understood.port == 4793 && understood.instance == 2);
        CHECK(understood.emulates == 3);
        for (int plane = 0; plane < planes.count; plane++) {
            CHECK(understood.address[plane].version == planes.address[plane].version);
            CHECK(memcmp(&understood.address[plane].v4, &planes.address[plane].v4, 4) == 0);
            CHECK(memcmp(&understood.address[plane].v6, &planes.address[plane].v6, 16) == 0);
        }
    }
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const char *text = refused[i];
        CHECK(planes_parse(text, &planes) && !planes_fit_gid(&planes));
    }
    const char *text = "random bytes";
    for (unsigned random = 1, i = 0; i < 1000000; i++) { /* whatever a peer says is refused or an address */
        struct mrc_gid gid = {{0xFD, 'M', 'R', 'C'}};
        for (int byte = 4; byte < 16; byte++)
            gid.raw[byte] = (uint8_t)((random = random * 1664525u + 1013904223u) >> 24);
        if (planes_of_gid(&gid, &understood))
            CHECK(understood.count >= 1 && understood.count <= MRC_MOST_PLANES && understood.instance < MOST_INSTANCES);
    }
    return 0;
}
