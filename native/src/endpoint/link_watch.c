#define _GNU_SOURCE
#include "endpoint/link_watch.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <ifaddrs.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "endpoint/endpoint.h"

void link_watch_open(struct endpoint *endpoint)
{
    struct sockaddr_nl name = {.nl_family = AF_NETLINK, .nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR};
    struct pollfd *poll = endpoint->tables[MRC_TABLE_DATAPATH_POLL];
    endpoint->link_fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
    if (endpoint->link_fd < 0)
        return;
    if (bind(endpoint->link_fd, (struct sockaddr *)&name, sizeof name) != 0) {
        link_watch_close(endpoint);
        return;
    }
    endpoint->nic->link_fd = endpoint->link_fd;
    poll[endpoint->addresses.count + 1] = (struct pollfd){endpoint->link_fd, POLLIN, 0};
}

static bool is_it(const struct plane_address *address, const struct sockaddr *held)
{
    if (address->version == 4)
        return held->sa_family == AF_INET
            && ((const struct sockaddr_in *)(const void *)held)->sin_addr.s_addr == address->v4.s_addr;
    return held->sa_family == AF_INET6
        && memcmp(&((const struct sockaddr_in6 *)(const void *)held)->sin6_addr, &address->v6, sizeof address->v6) == 0;
}

/* 127.0.0.1/8 is all of 127: such an address is never one of an interface by itself. */
static bool is_loopback(const struct plane_address *address)
{
    return address->version == 4 ? *(const uint8_t *)&address->v4 == 127 : IN6_IS_ADDR_LOOPBACK(&address->v6);
}

void link_watch_look(struct endpoint *endpoint)
{
    struct ifaddrs *all;
    bool changed = false;
    if (getifaddrs(&all) != 0)
        return;
    for (int plane = 0; plane < endpoint->addresses.count; plane++) {
        const struct plane_address *address = &endpoint->addresses.address[plane];
        bool is_held = is_loopback(address);
        for (const struct ifaddrs *each = all; each != NULL && !is_held; each = each->ifa_next)
            is_held = each->ifa_addr != NULL && is_it(address, each->ifa_addr);
        bool was_held = !(__atomic_load_n(&endpoint->planes[plane].faults, __ATOMIC_RELAXED) & MRC_FAULT_NO_ADDRESS);
        if (is_held != was_held) {
            mrc_note_fault(endpoint->at, plane, MRC_FAULT_NO_ADDRESS, !is_held);
            changed = true;
        }
    }
    freeifaddrs(all);
    if (changed)
        endpoint_iterate(endpoint); /* the loop may sleep for long: peers and the program hear of it now */
}

void link_watch_close(struct endpoint *endpoint)
{
    if (endpoint->link_fd >= 0)
        close(endpoint->link_fd);
    endpoint->link_fd = -1;
}
