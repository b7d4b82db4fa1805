/*
 * The planes of an endpoint, and the GID that leads to all of them.
 *
 * Verbs programs exchange 16 bytes of address. These hold the address of plane 0, the step to that of the next plane,
 * and which endpoint of the host it is; docs/decisions/0021-native-library.md has the reasons.
 */
#pragma once

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#include "description.h"

struct plane_address {
    int version; /* 4 or 6 */
    struct in_addr v4;
    struct in6_addr v6;
    uint32_t scope; /* interface index of a link-local address */
};

/* Of `emulates`, each with SEND; `rnr` is READ alone, as two bits must do for a GID. */
#define EMULATES_EARLY 1 /* SEND and writes with immediate complete when they have arrived, with a receive or without */
#define EMULATES_READ 2

struct planes {
    int count;
    int instance; /* which endpoint of these addresses: 0 .. MOST_INSTANCES - 1 */
    uint16_t port; /* UDP port on which all planes receive: port_base + instance */
    struct plane_address address[MRC_MOST_PLANES];
    int emulates; /* a mask, which both ends must agree on; 0: nothing */
    bool found; /* not given: loopback, or the interfaces of the machine */
};

/* As many as docs/decisions/0022-shared-nic.md gives ports to; each has EVS_PER_PLANE source ports of its own. */
#define MOST_INSTANCES 64
_Static_assert(MOST_INSTANCES * MRC_EVS_PER_PLANE <= MRC_PATHS_OF_A_PLANE, "source ports of a plane");

struct mrc_gid {
    uint8_t raw[16];
};

/* Read "127.0.0.1,127.0.0.2" (spaces separate too); false with a line on stderr. */
bool planes_parse(const char *text, struct planes *planes);

/*
 * One address of each interface that can be a plane; of the loopback if there is no other. IPv6 where no suitable interface
 * has IPv4. False with a line on stderr where no GID could say it.
 */
bool planes_find(struct planes *planes);

/* Whether a GID can say these addresses. */
bool planes_fit_gid(const struct planes *planes);
struct mrc_gid planes_gid(const struct planes *planes);

/* The planes behind a GID; false if it is none of ours. */
bool planes_of_gid(const struct mrc_gid *gid, struct planes *planes);

/* UDP source port of path `k` of a plane. */
static inline int source_port(const struct planes *planes, int plane, int k)
{
    return (int)(MRC_SOURCE_PORT_BASE + (plane << MRC_PATH_BITS)) + planes->instance * (int)MRC_EVS_PER_PLANE + k;
}

/* The MTU (bytes) of the interface that has this address; 1500 if none has; -1 with errno if they could not be asked. */
int plane_mtu(const struct plane_address *address);
int plane_interface(const struct plane_address *address);

socklen_t plane_name(const struct plane_address *address, uint16_t port, struct sockaddr_storage *name);
const char *plane_text(const struct plane_address *address, char text[INET6_ADDRSTRLEN]);
