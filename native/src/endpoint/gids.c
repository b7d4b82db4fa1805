/*
 * The GID that leads to all planes of an endpoint; docs/decisions/0021-native-library.md has its layout.
 *
 * IPv4: the address of plane 0, and any step to the next. IPv6: the first and the last bytes of the address of plane 0,
 * seven together, with zeros between, and which byte counts the planes, as fd00:1::5, fd00:2::5, ... do.
 */
#include <arpa/inet.h>
#include <string.h>

#include "endpoint/planes.h"

/* Locally assigned IPv6 prefix (RFC 4193), "MRC" as its global ID's first bytes. */
static const uint8_t prefix[4] = {0xFD, 'M', 'R', 'C'};
enum { VERSION_AT = 4, SHIFT_AT, PORT_AT, INSTANCE_AT = 8, EMULATES_AT, STEP_AT, ADDRESS_AT = 12 };
enum { PARTS_AT = SHIFT_AT, BYTES_AT = EMULATES_AT }; /* of IPv6: counting byte and bytes kept before the zeros; both ends */
#define GID_V4 0x10 /* in VERSION_AT, above the number of planes - 1 */
#define GID_V6 0x20
#define KEPT 7        /* bytes of an IPv6 address */
#define EMULATES_BIT 6 /* of IPv6, in INSTANCE_AT: what is emulated */

static uint32_t number_of(const struct plane_address *address)
{
    return ntohl(address->v4.s_addr);
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

/* Add `plane` to a byte of an address, with carry; false if it wraps around. */
static bool count_up(uint8_t address[16], int byte, int plane)
{
    for (unsigned carry = (unsigned)plane; carry > 0; byte--) {
        if (byte < 0)
            return false;
        carry += address[byte];
        address[byte] = (uint8_t)carry;
        carry >>= 8;
    }
    return true;
}

/* Which byte counts the planes; -1 if none does. Of a single plane any will do. */
static int counting_byte(const struct planes *planes)
{
    for (int byte = 15; byte >= 0; byte--) {
        bool counts = true;
        for (int plane = 1; plane < planes->count && counts; plane++) {
            uint8_t expected[16];
            memcpy(expected, planes->address[0].v6.s6_addr, sizeof expected);
            counts = count_up(expected, byte, plane)
                && memcmp(expected, planes->address[plane].v6.s6_addr, sizeof expected) == 0;
        }
        if (counts)
            return byte;
    }
    return -1;
}

/* How many bytes before the zeros are kept; -1 if more than seven are not zero. */
static int bytes_before(const uint8_t address[16])
{
    for (int before = 0; before <= KEPT; before++) {
        bool all = true;
        for (int byte = before; byte < 16 - KEPT + before; byte++)
            all = all && address[byte] == 0;
        if (all)
            return before;
    }
    return -1;
}

bool planes_fit_gid(const struct planes *planes)
{
    uint16_t step;
    uint8_t shift;
    if (planes->address[0].version == 4)
        return find_step(planes, &step, &shift);
    return planes->address[0].scope == 0 && counting_byte(planes) >= 0
        && bytes_before(planes->address[0].v6.s6_addr) >= 0;
}

static void say_v4(const struct planes *planes, uint8_t *raw)
{
    uint16_t step = 0;
    uint8_t shift = 0;
    find_step(planes, &step, &shift);
    raw[VERSION_AT] = (uint8_t)(GID_V4 | (planes->count - 1));
    raw[SHIFT_AT] = shift;
    raw[INSTANCE_AT] = (uint8_t)planes->instance;
    raw[EMULATES_AT] = (uint8_t)planes->emulates;
    raw[STEP_AT] = (uint8_t)(step >> 8);
    raw[STEP_AT + 1] = (uint8_t)step;
    memcpy(raw + ADDRESS_AT, &planes->address[0].v4, 4);
}

static void say_v6(const struct planes *planes, uint8_t *raw)
{
    const uint8_t *address = planes->address[0].v6.s6_addr;
    int before = bytes_before(address);
    raw[VERSION_AT] = (uint8_t)(GID_V6 | (planes->count - 1));
    raw[PARTS_AT] = (uint8_t)(counting_byte(planes) << 4 | before);
    raw[INSTANCE_AT] = (uint8_t)(planes->emulates << EMULATES_BIT | planes->instance);
    memcpy(raw + BYTES_AT, address, (size_t)before);
    memcpy(raw + BYTES_AT + before, address + 16 - KEPT + before, (size_t)(KEPT - before));
}

struct mrc_gid planes_gid(const struct planes *planes)
{
    struct mrc_gid gid = {{0}};
    memcpy(gid.raw, prefix, sizeof prefix);
    gid.raw[PORT_AT] = (uint8_t)(planes->port >> 8);
    gid.raw[PORT_AT + 1] = (uint8_t)planes->port;
    (planes->address[0].version == 4 ? say_v4 : say_v6)(planes, gid.raw);
    return gid;
}

static bool read_v4(const uint8_t *raw, struct planes *planes)
{
    uint32_t first, step = (uint32_t)(raw[STEP_AT] << 8 | raw[STEP_AT + 1]);
    if (raw[SHIFT_AT] > 31 || raw[INSTANCE_AT] >= MOST_INSTANCES)
        return false;
    planes->instance = raw[INSTANCE_AT];
    planes->emulates = raw[EMULATES_AT];
    memcpy(&first, raw + ADDRESS_AT, 4);
    for (int plane = 0; plane < planes->count; plane++) {
        uint32_t number = ntohl(first) + (uint32_t)plane * (step << raw[SHIFT_AT]);
        planes->address[plane].version = 4;
        planes->address[plane].v4.s_addr = htonl(number);
        if (number >> 28 >= 14 || number == 0) /* multicast and above, or none */
            return false;
    }
    return true;
}

static bool read_v6(const uint8_t *raw, struct planes *planes)
{
    int before = raw[PARTS_AT] & 0x0F, byte = raw[PARTS_AT] >> 4;
    uint8_t first[16] = {0};
    if (before > KEPT)
        return false;
    planes->instance = raw[INSTANCE_AT] & (MOST_INSTANCES - 1);
    planes->emulates = raw[INSTANCE_AT] >> EMULATES_BIT;
    memcpy(first, raw + BYTES_AT, (size_t)before);
    memcpy(first + 16 - KEPT + before, raw + BYTES_AT + before, (size_t)(KEPT - before));
    for (int plane = 0; plane < planes->count; plane++) {
        uint8_t *address = planes->address[plane].v6.s6_addr;
        planes->address[plane].version = 6;
        memcpy(address, first, sizeof first);
        if (!count_up(address, byte, plane) || address[0] == 0xFF || IN6_IS_ADDR_UNSPECIFIED(&planes->address[plane].v6))
            return false;
    }
    return true;
}

bool planes_of_gid(const struct mrc_gid *gid, struct planes *planes)
{
    const uint8_t *raw = gid->raw;
    memset(planes, 0, sizeof *planes);
    planes->count = (raw[VERSION_AT] & 0x0F) + 1;
    planes->port = (uint16_t)(raw[PORT_AT] << 8 | raw[PORT_AT + 1]);
    int version = raw[VERSION_AT] & 0xF0;
    if (memcmp(raw, prefix, sizeof prefix) != 0 || planes->port == 0 || (version != GID_V4 && version != GID_V6))
        return false;
    return version == GID_V4 ? read_v4(raw, planes) : read_v6(raw, planes);
}
