#include "endpoint/planes.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "endpoint/report.h"

bool planes_parse(const char *text, struct planes *planes)
{
    char copy[2048], *rest = copy, *word;
    memset(planes, 0, sizeof *planes);
    if (snprintf(copy, sizeof copy, "%s", text) >= (int)sizeof copy)
        return report("MRC_PLANES: too long"), false;
    while ((word = strsep(&rest, ", ")) != NULL) {
        if (*word == '\0')
            continue;
        if (planes->count == MRC_MOST_PLANES)
            return report("MRC_PLANES: more than %d addresses", (int)MRC_MOST_PLANES), false;
        struct plane_address *address = &planes->address[planes->count];
        char *zone = strchr(word, '%');
        if (zone != NULL) {
            *zone = '\0';
            address->scope = if_nametoindex(zone + 1);
        }
        if (inet_pton(AF_INET, word, &address->v4) == 1)
            address->version = 4;
        else if (inet_pton(AF_INET6, word, &address->v6) == 1)
            address->version = 6;
        else
            return report("MRC_PLANES: %s is not an IP address", word), false;
        if (address->version != planes->address[0].version)
            return report("MRC_PLANES: IPv4 and IPv6 addresses are mixed"), false;
        planes->count++;
    }
    if (planes->count == 0)
        report("MRC_PLANES: no address: name one for each plane, with commas between");
    return planes->count > 0;
}

socklen_t plane_name(const struct plane_address *address, uint16_t port, struct sockaddr_storage *name)
{
    memset(name, 0, sizeof *name);
    if (address->version == 4) {
        struct sockaddr_in *v4 = (struct sockaddr_in *)name;
        v4->sin_family = AF_INET;
        v4->sin_port = htons(port);
        v4->sin_addr = address->v4;
        return sizeof *v4;
    }
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)name;
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    v6->sin6_addr = address->v6;
    v6->sin6_scope_id = address->scope;
    return sizeof *v6;
}

const char *plane_text(const struct plane_address *address, char text[INET6_ADDRSTRLEN])
{
    const void *bytes = address->version == 4 ? (const void *)&address->v4 : (const void *)&address->v6;
    return inet_ntop(address->version == 4 ? AF_INET : AF_INET6, bytes, text, INET6_ADDRSTRLEN);
}

static bool has_address(const struct ifaddrs *entry, const struct plane_address *address)
{
    if (entry->ifa_addr == NULL)
        return false;
    if (address->version == 4 && entry->ifa_addr->sa_family == AF_INET) {
        struct in_addr own = ((struct sockaddr_in *)(void *)entry->ifa_addr)->sin_addr;
        bool both_loopback = entry->ifa_flags & IFF_LOOPBACK && ntohl(address->v4.s_addr) >> 24 == 127;
        return both_loopback || own.s_addr == address->v4.s_addr;
    }
    return address->version == 6 && entry->ifa_addr->sa_family == AF_INET6
        && memcmp(&((struct sockaddr_in6 *)(void *)entry->ifa_addr)->sin6_addr, &address->v6, 16) == 0;
}

/* 1 and the name, 0 if no interface has the address, -1 with errno if they could not be listed. */
static int find_interface(const struct plane_address *address, char name[IF_NAMESIZE])
{
    struct ifaddrs *all;
    bool found = false;
    if (getifaddrs(&all) != 0)
        return -1;
    for (struct ifaddrs *each = all; each != NULL && !found; each = each->ifa_next)
        if ((found = has_address(each, address)))
            snprintf(name, IF_NAMESIZE, "%s", each->ifa_name);
    freeifaddrs(all);
    return found;
}

int plane_interface(const struct plane_address *address)
{
    char name[IF_NAMESIZE];
    return find_interface(address, name) == 1 ? (int)if_nametoindex(name) : 0;
}

int plane_mtu(const struct plane_address *address)
{
    struct ifreq request = {0};
    int mtu = 1500, found = find_interface(address, request.ifr_name);
    if (found != 1)
        return found == 0 ? mtu : -1;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    if (ioctl(fd, SIOCGIFMTU, &request) == 0)
        mtu = request.ifr_mtu;
    close(fd);
    return mtu;
}
