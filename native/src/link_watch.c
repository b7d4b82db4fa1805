#define _GNU_SOURCE
#include "link_watch.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "endpoint.h"

void link_watch_open(struct endpoint *endpoint)
{
    struct sockaddr_nl name = {.nl_family = AF_NETLINK, .nl_groups = RTMGRP_LINK};
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

void link_watch_close(struct endpoint *endpoint)
{
    if (endpoint->link_fd >= 0)
        close(endpoint->link_fd);
    endpoint->link_fd = -1;
}
