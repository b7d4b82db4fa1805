/*
 * Which interfaces of this machine are planes where none are named: the choice of openmrc.live.host.interfaces, whose lists
 * of kinds of links are in description.h.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "endpoint/planes.h"
#include "endpoint/report.h"

#define LOWER_UP 0x10000 /* IFF_LOWER_UP of linux/if.h, which does not go with net/if.h: there is a carrier */
#define PART 32768       /* bytes of a dump that the kernel sends at once */

struct link {
    int index, master; /* master: of the bridge or bond that it is a port of; 0: none */
    bool works, is_loopback, is_peer_elsewhere;
    char kind[IFNAMSIZ]; /* of a virtual link; empty: hardware */
};

struct assigned {
    int index; /* of the interface */
    struct plane_address address;
};

struct host {
    struct link *links;
    struct assigned *addresses;
    size_t link_count, address_count;
};

typedef void take_message(const struct nlmsghdr *head, struct host *host);

/* Room for one more element; NULL: there is no memory, and it is left out. */
static void *one_more(void **elements, size_t *count, size_t bytes)
{
    void *more = realloc(*elements, (*count + 1) * bytes);
    if (more == NULL)
        return NULL;
    *elements = more;
    return memset((char *)more + bytes * (*count)++, 0, bytes);
}

static void take_link(const struct nlmsghdr *head, struct host *host)
{
    const struct ifinfomsg *info = NLMSG_DATA(head);
    struct link *link = one_more((void **)&host->links, &host->link_count, sizeof *link);
    if (link == NULL)
        return;
    link->index = info->ifi_index;
    link->works = info->ifi_flags & IFF_UP && info->ifi_flags & LOWER_UP;
    link->is_loopback = (info->ifi_flags & IFF_LOOPBACK) != 0;
    int left = (int)IFLA_PAYLOAD(head);
    for (const struct rtattr *each = IFLA_RTA(info); RTA_OK(each, left); each = RTA_NEXT(each, left)) {
        if (each->rta_type == IFLA_MASTER)
            memcpy(&link->master, RTA_DATA(each), sizeof link->master);
        else if (each->rta_type == IFLA_LINK_NETNSID)
            link->is_peer_elsewhere = true;
        else if ((each->rta_type & NLA_TYPE_MASK) == IFLA_LINKINFO) {
            int inside = (int)RTA_PAYLOAD(each);
            for (const struct rtattr *word = RTA_DATA(each); RTA_OK(word, inside); word = RTA_NEXT(word, inside))
                if (word->rta_type == IFLA_INFO_KIND)
                    strncpy(link->kind, RTA_DATA(word), sizeof link->kind - 1);
        }
    }
}

static void take_address(const struct nlmsghdr *head, struct host *host)
{
    const struct ifaddrmsg *info = NLMSG_DATA(head);
    const void *found = NULL;
    int left = (int)IFA_PAYLOAD(head);
    for (const struct rtattr *each = IFA_RTA(info); RTA_OK(each, left); each = RTA_NEXT(each, left))
        if (each->rta_type == IFA_LOCAL || (each->rta_type == IFA_ADDRESS && found == NULL))
            found = RTA_DATA(each);
    bool is_v4 = info->ifa_family == AF_INET;
    if (found == NULL || !(is_v4 || info->ifa_family == AF_INET6) || info->ifa_scope == RT_SCOPE_LINK)
        return;
    struct assigned *assigned = one_more((void **)&host->addresses, &host->address_count, sizeof *assigned);
    if (assigned == NULL)
        return;
    assigned->index = (int)info->ifa_index;
    assigned->address.version = is_v4 ? 4 : 6;
    memcpy(is_v4 ? (void *)&assigned->address.v4 : (void *)&assigned->address.v6, found, is_v4 ? 4 : 16);
}

/* Have the kernel list links or addresses; where it does not, as in a sandbox, nothing is taken. */
static void list(uint16_t type, take_message *take, struct host *host)
{
    struct {
        struct nlmsghdr head;
        struct ifinfomsg any; /* of all families; as long as that of addresses, or longer */
    } request = {.head = {sizeof request, type, NLM_F_REQUEST | NLM_F_DUMP, 1, 0}};
    _Alignas(struct nlmsghdr) char part[PART];
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    bool more = fd >= 0 && send(fd, &request, sizeof request, 0) == (ssize_t)sizeof request;
    while (more) {
        ssize_t bytes = recv(fd, part, sizeof part, 0);
        more = bytes > 0;
        int left = (int)bytes;
        for (struct nlmsghdr *head = (void *)part; more && left > 0 && NLMSG_OK(head, (uint32_t)left);
             head = NLMSG_NEXT(head, left)) {
            if (head->nlmsg_type == NLMSG_DONE || head->nlmsg_type == NLMSG_ERROR)
                more = false;
            else
                take(head, host);
        }
    }
    if (fd >= 0)
        close(fd);
}

static bool is_one_of(const char *kind, const char *const *kinds, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(kind, kinds[i]) == 0)
            return true;
    return false;
}

#define IS_ONE_OF(kind, kinds) is_one_of(kind, kinds, sizeof(kinds) / sizeof *(kinds))

static bool has_port_on_hardware(const struct host *host, const struct link *bridge)
{
    for (size_t i = 0; i < host->link_count; i++)
        if (host->links[i].master == bridge->index && IS_ONE_OF(host->links[i].kind, mrc_kinds_on_hardware))
            return true;
    return false;
}

static bool is_on_hardware(const struct host *host, const struct link *link)
{
    return IS_ONE_OF(link->kind, mrc_kinds_on_hardware)
        || (strcmp(link->kind, "bridge") == 0 && has_port_on_hardware(host, link));
}

static bool is_end_of_container(const struct host *host, const struct link *link)
{
    (void)host;
    return IS_ONE_OF(link->kind, mrc_kinds_into_containers) && link->is_peer_elsewhere;
}

static bool is_loopback(const struct host *host, const struct link *link)
{
    (void)host;
    return link->is_loopback;
}

/* The first address of each suitable interface that has one of this version, in the order of their index. */
static bool choose(const struct host *host, bool (*suits)(const struct host *, const struct link *), int version,
                   struct planes *planes)
{
    for (size_t i = 0; i < host->link_count; i++) {
        const struct link *link = &host->links[i];
        if (!link->works || (link->is_loopback && suits != is_loopback) || !suits(host, link))
            continue;
        for (size_t k = 0; k < host->address_count; k++)
            if (host->addresses[k].index == link->index && host->addresses[k].address.version == version
                && planes->count < MRC_MOST_PLANES) {
                planes->address[planes->count++] = host->addresses[k].address;
                break;
            }
    }
    return planes->count > 0;
}

static int by_index(const void *one, const void *other)
{
    return ((const struct link *)one)->index - ((const struct link *)other)->index;
}

bool planes_find(struct planes *planes)
{
    struct host host = {0};
    char text[INET6_ADDRSTRLEN];
    memset(planes, 0, sizeof *planes);
    planes->found = true;
    list(RTM_GETLINK, take_link, &host);
    list(RTM_GETADDR, take_address, &host);
    if (host.link_count > 0)
        qsort(host.links, host.link_count, sizeof *host.links, by_index);
    bool found = choose(&host, is_on_hardware, 4, planes) || choose(&host, is_on_hardware, 6, planes)
        || choose(&host, is_end_of_container, 4, planes) || choose(&host, is_end_of_container, 6, planes)
        || choose(&host, is_loopback, 4, planes) || choose(&host, is_loopback, 6, planes);
    free(host.links);
    free(host.addresses);
    if (!found) {
        planes->count = 1;
        planes->address[0] = (struct plane_address){.version = 4, .v4.s_addr = htonl(INADDR_LOOPBACK)};
    }
    if (planes_fit_gid(planes))
        return true;
    if (planes->count > 1)
        report("the addresses of %d interfaces have no common step, so only the first is a plane; MRC_PLANES names all",
               planes->count);
    planes->count = 1;
    if (planes_fit_gid(planes))
        return true;
    report("%s: a GID can only say IPv6 addresses with seven bytes that are not zero; name such planes in MRC_PLANES",
           plane_text(&planes->address[0], text));
    return false;
}
