#define _GNU_SOURCE
#include "endpoint/sockets.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "endpoint/report.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif
#define OVERHEAD (40 + 8 + 12 + 4 + 4 + 16 + 4 + 3 + 4) /* bytes around a payload, IPv6 to ICRC */

static void set(int fd, int level, int option, int value)
{
    setsockopt(fd, level, option, &value, sizeof value); /* where it is refused, the endpoint is slower, not wrong */
}

static int open_socket(const struct plane_address *address, uint16_t port)
{
    struct sockaddr_storage name;
    socklen_t length = plane_name(address, port, &name);
    int fd = socket(name.ss_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    if (address->version == 4) {
        set(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE); /* never fragment */
    } else {
        set(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
        set(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_PROBE);
    }
    if (bind(fd, (struct sockaddr *)&name, length) != 0) {
        int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

static int open_receiver(const struct plane_address *address, uint16_t port)
{
    int fd = open_socket(address, port), bytes = MRC_RECEIVE_BUFFER;
    if (fd < 0)
        return -1;
    set(fd, SOL_SOCKET, SO_RXQ_OVFL, 1);
    if (address->version == 4)
        set(fd, IPPROTO_IP, IP_RECVTOS, 1);
    else
        set(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
    set(fd, SOL_UDP, UDP_GRO, 1);
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes) != 0) /* beyond the limit, if privileged */
        set(fd, SOL_SOCKET, SO_RCVBUF, bytes);
    return fd;
}

static int open_sender(const struct plane_address *address, uint16_t port)
{
    int fd = open_socket(address, port);
    if (fd >= 0) {
        set(fd, SOL_SOCKET, SO_RCVBUF, 2048); /* never written */
        set(fd, SOL_SOCKET, SO_SNDBUF, MRC_RECEIVE_BUFFER);
    }
    return fd;
}

static bool can_segment(void)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), bytes = 1000;
    bool can = fd >= 0 && setsockopt(fd, SOL_UDP, UDP_SEGMENT, &bytes, sizeof bytes) == 0;
    if (fd >= 0)
        close(fd);
    return can;
}

/* Open all sockets of one instance, or none. */
static bool open_all(struct endpoint *endpoint)
{
    struct planes *planes = &endpoint->addresses;
    for (int plane = 0; plane < planes->count; plane++) {
        endpoint->receivers[plane] = open_receiver(&planes->address[plane], planes->port);
        if (endpoint->receivers[plane] < 0)
            return false;
        for (int k = 0; k < MRC_EVS_PER_PLANE; k++) {
            int port = source_port(planes, plane, k);
            endpoint->senders[plane][k] = open_sender(&planes->address[plane], (uint16_t)port);
            if (endpoint->senders[plane][k] < 0)
                return false;
        }
    }
    return true;
}

void sockets_forget(struct endpoint *endpoint)
{
    for (int plane = 0; plane < MRC_MOST_PLANES; plane++) {
        endpoint->receivers[plane] = -1;
        for (int k = 0; k < MRC_EVS_PER_PLANE; k++)
            endpoint->senders[plane][k] = -1;
    }
}

/* -1 with errno if the host could not be asked: an endpoint with the MTU of a guess would refuse its peers later. */
static int path_mtu(const struct planes *planes)
{
    int least = 1 << 16;
    for (int plane = 0; plane < planes->count; plane++) {
        int mtu = plane_mtu(&planes->address[plane]);
        if (mtu < 0)
            return -1;
        least = mtu < least ? mtu : least;
    }
    for (size_t i = 0; i < sizeof mrc_mtus / sizeof *mrc_mtus; i++)
        if (mrc_mtus[i] + OVERHEAD <= least)
            return (int)mrc_mtus[i];
    return 0;
}

bool sockets_open(struct endpoint *endpoint)
{
    struct planes *planes = &endpoint->addresses;
    char text[INET6_ADDRSTRLEN];
    const char *base = getenv("MRC_PORT");
    char *end = "";
    long first = base != NULL ? strtol(base, &end, 10) : (long)MRC_UDP_PORT;
    endpoint->segmentation = can_segment();
    endpoint->mtu = path_mtu(planes);
    if (endpoint->mtu < 0)
        return report("cannot ask for the MTU of a plane's interface: %s", strerror(errno)), false;
    if (endpoint->mtu == 0)
        return report("the MTU of a plane's interface is too small"), errno = EMSGSIZE, false;
    if (*end != '\0' || first < 1 || first > UINT16_MAX - MOST_INSTANCES)
        return report("MRC_PORT: %s is not a port with %d more above it", base, (int)MOST_INSTANCES), errno = EINVAL,
               false;
    for (planes->instance = 0; planes->instance < MOST_INSTANCES; planes->instance++) {
        planes->port = (uint16_t)(first + planes->instance);
        sockets_forget(endpoint);
        if (open_all(endpoint))
            return true;
        int error = errno;
        sockets_close(endpoint);
        errno = error;
        if (error != EADDRINUSE)
            break;
    }
    if (planes->instance == MOST_INSTANCES)
        report("%d endpoints have the addresses of these planes already, or others hold UDP ports %ld to %ld of %s",
               MOST_INSTANCES, first, first + MOST_INSTANCES - 1, plane_text(&planes->address[0], text));
    else
        report("cannot open the sockets of %s and the other planes: %s", plane_text(&planes->address[0], text),
               strerror(errno));
    return false;
}

void sockets_close(struct endpoint *endpoint)
{
    for (int plane = 0; plane < endpoint->addresses.count; plane++) {
        if (endpoint->receivers[plane] >= 0)
            close(endpoint->receivers[plane]);
        for (int k = 0; k < MRC_EVS_PER_PLANE; k++)
            if (endpoint->senders[plane][k] >= 0)
                close(endpoint->senders[plane][k]);
    }
    sockets_forget(endpoint);
}
