#include "planes.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "report.h"

/* Locally assigned IPv6 prefix (RFC 4193), "MRC" as its global ID's first bytes. */
static const uint8_t prefix[4] = {0xFD, 'M', 'R', 'C'};
enum { VERSION_AT = 4, SHIFT_AT, PORT_AT, INSTANCE_AT = 8, EMULATES_AT, STEP_AT, ADDRESS_AT = 12 };
#define GID_V4 0x10 /* in VERSION_AT, above the number of planes - 1 */
#define GID_V6 0x20

/* Interfaces of containers and tunnels are no planes; the same list as openmrc.live.host.interfaces. */
static const char *const virtual_names[]
    = {"docker", "veth", "br-", "virbr", "cni", "flannel", "tun", "tap", "wg", "ifb", "dummy"};

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
    return planes->count > 0;
}

static bool is_virtual(const char *name)
{
    for (size_t i = 0; i < sizeof virtual_names / sizeof *virtual_names; i++)
        if (strncmp(name, virtual_names[i], strlen(virtual_names[i])) == 0)
            return true;
    return false;
}

bool planes_find(struct planes *planes)
{
    struct ifaddrs *all = NULL;
    memset(planes, 0, sizeof *planes);
    planes->found = true;
    if (getifaddrs(&all) != 0)
        all = NULL;
    for (struct ifaddrs *each = all; each != NULL && planes->count < MRC_MOST_PLANES; each = each->ifa_next) {
        unsigned works = IFF_UP | IFF_RUNNING;
        if (each->ifa_addr == NULL || each->ifa_addr->sa_family != AF_INET || (each->ifa_flags & works) != works
            || each->ifa_flags & IFF_LOOPBACK || is_virtual(each->ifa_name))
            continue;
        struct plane_address *address = &planes->address[planes->count];
        address->version = 4;
        address->v4 = ((struct sockaddr_in *)(void *)each->ifa_addr)->sin_addr;
        planes->count++;
    }
    if (all != NULL)
        freeifaddrs(all);
    if (planes->count == 0) {
        planes->count = 1;
        planes->address[0].version = 4;
        planes->address[0].v4.s_addr = htonl(INADDR_LOOPBACK);
    }
    if (!planes_fit_gid(planes)) {
        report("the addresses of %d interfaces have no common step, so only the first is a plane; MRC_PLANES names all",
               planes->count);
        planes->count = 1;
    }
    return true;
}

/* The part of an address in which planes differ, as a number: IPv4, or the low 64 bits of the network of IPv6. */
static uint32_t number_of(const struct plane_address *address)
{
    if (address->version == 4)
        return ntohl(address->v4.s_addr);
    uint32_t word;
    memcpy(&word, address->v6.s6_addr + 12, 4);
    return ntohl(word);
}

/* The step from each plane's address to the next as `step << shift`; false if there is none. */
static bool find_step(const struct planes *planes, uint16_t *step, uint8_t *shift)
{
    *step = *shift = 0;
    if (planes->count == 1)
        return true;
    uint32_t difference = number_of(&planes->address[1]) - number_of(&planes->address[0]);
    for (int plane = 2; plane < planes->count; plane++)
        if (number_of(&planes->address[plane]) - number_of(&planes->address[plane - 1]) != difference)
            return false;
    if (difference == 0)
        return false;
    while ((difference & 1) == 0) {
        difference >>= 1;
        ++*shift;
    }
    *step = (uint16_t)difference;
    return difference <= UINT16_MAX;
}

bool planes_fit_gid(const struct planes *planes)
{
    uint16_t step;
    uint8_t shift;
    return planes->address[0].version == 4 && find_step(planes, &step, &shift);
}

struct mrc_gid planes_gid(const struct planes *planes)
{
    struct mrc_gid gid = {{0}};
    uint16_t step = 0;
    uint8_t shift = 0;
    find_step(planes, &step, &shift);
    memcpy(gid.raw, prefix, sizeof prefix);
    gid.raw[VERSION_AT] = (uint8_t)(GID_V4 | (planes->count - 1));
    gid.raw[SHIFT_AT] = shift;
    gid.raw[PORT_AT] = (uint8_t)(planes->port >> 8);
    gid.raw[PORT_AT + 1] = (uint8_t)planes->port;
    gid.raw[INSTANCE_AT] = (uint8_t)planes->instance;
    gid.raw[EMULATES_AT] = (uint8_t)planes->emulates;
    gid.raw[STEP_AT] = (uint8_t)(step >> 8);
    gid.raw[STEP_AT + 1] = (uint8_t)step;
    memcpy(gid.raw + ADDRESS_AT, &planes->address[0].v4, 4);
    return gid;
}

bool planes_of_gid(const struct mrc_gid *gid, struct planes *planes)
{
    const uint8_t *raw = gid->raw;
    memset(planes, 0, sizeof *planes);
    if (memcmp(raw, prefix, sizeof prefix) != 0 || (raw[VERSION_AT] & 0xF0) != GID_V4 || raw[SHIFT_AT] > 31
        || raw[INSTANCE_AT] >= MOST_INSTANCES)
        return false;
    planes->count = (raw[VERSION_AT] & 0x0F) + 1;
    planes->port = (uint16_t)(raw[PORT_AT] << 8 | raw[PORT_AT + 1]);
    planes->instance = raw[INSTANCE_AT];
    planes->emulates = raw[EMULATES_AT];
    uint32_t first;
    memcpy(&first, raw + ADDRESS_AT, 4);
    uint32_t step = (uint32_t)(raw[STEP_AT] << 8 | raw[STEP_AT + 1]) << raw[SHIFT_AT];
    for (int plane = 0; plane < planes->count; plane++) {
        uint32_t number = ntohl(first) + (uint32_t)plane * step;
        planes->address[plane].version = 4;
        planes->address[plane].v4.s_addr = htonl(number);
        if (number >> 28 >= 14 || number == 0) /* multicast and above, or none */
            return false;
    }
    return planes->port != 0;
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

static bool find_interface(const struct plane_address *address, char name[IF_NAMESIZE])
{
    struct ifaddrs *all;
    bool found = false;
    if (getifaddrs(&all) != 0)
        return false;
    for (struct ifaddrs *each = all; each != NULL && !found; each = each->ifa_next)
        if ((found = has_address(each, address)))
            snprintf(name, IF_NAMESIZE, "%s", each->ifa_name);
    freeifaddrs(all);
    return found;
}

int plane_interface(const struct plane_address *address)
{
    char name[IF_NAMESIZE];
    return find_interface(address, name) ? (int)if_nametoindex(name) : 0;
}

int plane_mtu(const struct plane_address *address)
{
    struct ifreq request = {0};
    int mtu = 1500, fd;
    if (!find_interface(address, request.ifr_name) || (fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) < 0)
        return mtu;
    if (ioctl(fd, SIOCGIFMTU, &request) == 0)
        mtu = request.ifr_mtu;
    close(fd);
    return mtu;
}
