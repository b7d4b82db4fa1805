/*
 * Bytes of others, mutated: what a peer says on the way to RTR (`greetings`), packets with a right ICRC (`packets`), and
 * settings (`configuration`). Each target is a function of bytes; whatever they are, nothing may crash, and the device works
 * afterwards.
 *
 *     fuzz TARGET SECONDS [SEED]    mutations of the seeds below, the same for the same seed
 *
 * Built by clang with -fsanitize=fuzzer and -DMRC_LIBFUZZER the target is in FUZZ_TARGET, and libFuzzer chooses the bytes.
 */
#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "both_ends.h"

#define MOST 4200

/* greetings: a struct ibv_qp_attr for the way to RTR with the peer's address, QPN and PSN; the queue pair survives it */

static struct end victim, other;
static union ibv_gid right_gid;

static void open_both(void)
{
    if (victim.context != NULL)
        return;
    victim = open_end();
    other = open_end();
    CHECK(ibv_query_gid(other.context, 1, 0, &right_gid) == 0);
}

static void take_greeting(const uint8_t *bytes, size_t length)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    uint8_t said[32] = {0};
    open_both();
    memcpy(said, bytes, length < sizeof said ? length : sizeof said);
    CHECK(ibv_modify_qp(victim.qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = (enum ibv_mtu)said[16],
                                .ah_attr = {.is_global = said[17] & 1, .port_num = 1 + (said[17] >> 7)}};
    memcpy(attr.ah_attr.grh.dgid.raw, said, 16);
    memcpy(&attr.dest_qp_num, said + 18, 4);
    memcpy(&attr.rq_psn, said + 22, 4);
    int error = ibv_modify_qp(victim.qp, &attr, TO_RTR);
    CHECK(error == 0 || error == EINVAL || error == ENOMEM);
    if (error == 0) {
        attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = said[26], .retry_cnt = said[27]};
        memcpy(&attr.sq_psn, said + 28, 4);
        error = ibv_modify_qp(victim.qp, &attr, TO_RTS);
        CHECK(error == 0 || error == EINVAL);
        if (error == 0)
            CHECK(post_write(&victim, &other, 1, 0, 64, IBV_WR_RDMA_WRITE, 0) == 0);
    }
    attr.qp_state = IBV_QPS_RESET;
    CHECK(ibv_modify_qp(victim.qp, &attr, IBV_QP_STATE) == 0);
    for (struct ibv_wc wc; ibv_poll_cq(victim.cq, 1, &wc) > 0;)
        ;
}

/*
 * packets: a queue pair is connected to an endpoint that is gone, and sends; its packets come to us, who have the addresses of
 * that endpoint, and go back to it, to its own number, changed as the bytes say, with a right ICRC.
 */

#define PATHS 8
#define KEPT 32

static struct end fuzzed;
static struct far_end gone;
static int receiver, senders[PATHS];
static struct sockaddr_in peer_names[PATHS], victim_name;
static uint8_t kept[KEPT][MOST + 16];
static size_t kept_lengths[KEPT], kept_count;

static uint32_t crc_of(uint32_t crc, const uint8_t *at, size_t length)
{
    for (crc = ~crc; length > 0; at++, length--)
        for (int bit = (crc ^= *at, 0); bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
    return ~crc;
}

/* Annex A17 of the InfiniBand specification, volume 1: over ones, IPv4, UDP and what follows, with ones for what changes. */
static void seal(uint8_t *packet, size_t length, const struct sockaddr_in *from)
{
    uint8_t heads[8 + 20 + 8];
    uint16_t total = htons((uint16_t)(28 + length)), udp = htons((uint16_t)(8 + length));
    memset(heads, 0xFF, sizeof heads);
    uint8_t *ip = heads + 8;
    ip[0] = 0x45;
    memcpy(ip + 2, &total, 2);
    memcpy(ip + 4, (uint8_t[]){0, 0, 0x40, 0}, 4);
    ip[9] = IPPROTO_UDP;
    memcpy(ip + 12, &from->sin_addr, 4);
    memcpy(ip + 16, &victim_name.sin_addr, 4);
    memcpy(ip + 20, &from->sin_port, 2);
    memcpy(ip + 22, &victim_name.sin_port, 2);
    memcpy(ip + 24, &udp, 2);
    uint8_t before = packet[4];
    packet[4] = 0xFF;
    uint32_t crc = crc_of(crc_of(0, heads, sizeof heads), packet, length - 4);
    packet[4] = before;
    memcpy(packet + length - 4, &crc, 4); /* least byte first */
}

static int socket_at(int port, struct sockaddr_in *name)
{
    *name = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    name->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int made = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    CHECK(made >= 0 && bind(made, (struct sockaddr *)name, sizeof *name) == 0);
    return made;
}

/* Ports as decision 21 has them in the GID. */
static void open_to_peer(void)
{
    struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {128, 128, 4, 1, 256}};
    struct sockaddr_in name;
    union ibv_gid ours;
    open_both();
    bring_up(&victim, &other, 20, 7);
    bring_up(&other, &victim, 20, 7);
    struct end third = open_end();
    gone = seen_from_afar(&third);
    close_end(&third);
    receiver = socket_at(gone.gid.raw[6] << 8 | gone.gid.raw[7], &name);
    for (int k = 0; k < PATHS; k++)
        senders[k] = socket_at(0xC000 + PATHS * gone.gid.raw[8] + k, &peer_names[k]);
    CHECK(ibv_query_gid(victim.context, 1, 0, &ours) == 0);
    victim_name = name;
    victim_name.sin_port = htons((uint16_t)(ours.raw[6] << 8 | ours.raw[7]));
    fuzzed = victim;
    init.send_cq = init.recv_cq = fuzzed.cq;
    CHECK((fuzzed.qp = ibv_create_qp(fuzzed.pd, &init)) != NULL);
}

/* Connect anew, and let packets of all kinds come. */
static void begin_anew(void)
{
    struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
    struct ibv_recv_wr receive = {.wr_id = 1}, *bad;
    CHECK(ibv_modify_qp(fuzzed.qp, &reset, IBV_QP_STATE) == 0);
    for (struct ibv_wc wc; ibv_poll_cq(victim.cq, 1, &wc) > 0;)
        ;
    bring_up_to(&fuzzed, &gone, 20, 7);
    for (int i = 0; i < 4; i++)
        CHECK(ibv_post_recv(fuzzed.qp, &receive, &bad) == 0);
    for (uint64_t i = 0; i < 4; i++)
        CHECK(post_write(&fuzzed, &victim, i, 0, i < 2 ? 64 : 9000,
                         i % 2 ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED) == 0);
}

static void keep_what_comes(void)
{
    uint8_t packet[MOST + 16];
    ssize_t length;
    while ((length = recv(receiver, packet, sizeof packet, 0)) > 0) {
        size_t place = kept_count++ % KEPT;
        memcpy(kept[place], packet, (size_t)length);
        kept_lengths[place] = (size_t)length;
    }
}

/* Which packet, which path; then places and what stands there, and the length. */
static void take_packet(const uint8_t *bytes, size_t length)
{
    static int packets, refusals;
    uint8_t packet[MOST + 16] = {0};
    struct ibv_async_event event;
    if (receiver == 0)
        open_to_peer();
    if (packets++ % 256 == 0)
        begin_anew();
    keep_what_comes();
    if (kept_count == 0 || length < 4)
        return;
    size_t chosen_packet = bytes[0] % (kept_count < KEPT ? kept_count : KEPT), size = kept_lengths[chosen_packet];
    const int path = bytes[1] % PATHS;
    memcpy(packet, kept[chosen_packet], size);
    for (size_t i = 4; i + 2 < length; i += 3)
        packet[(bytes[i] < 128 ? bytes[i] % 64 : bytes[i] * 16u + bytes[i + 1]) % size] = bytes[i + 2];
    if (bytes[2] < 64)
        size = size / 4 * bytes[2] / 64 * 4;
    size = size < 16 ? 16 : size;
    packet[5] = (uint8_t)(fuzzed.qp->qp_num >> 16);
    packet[6] = (uint8_t)(fuzzed.qp->qp_num >> 8);
    packet[7] = (uint8_t)fuzzed.qp->qp_num;
    seal(packet, size, &peer_names[path]);
    CHECK(sendto(senders[path], packet, size, 0, (struct sockaddr *)&victim_name, sizeof victim_name) == (ssize_t)size);
    for (struct ibv_wc wc; ibv_poll_cq(victim.cq, 1, &wc) > 0;)
        ;
    struct pollfd news = {victim.context->async_fd, POLLIN, 0};
    while (poll(&news, 1, 0) == 1) { /* the responder refused what it understood */
        CHECK(ibv_get_async_event(victim.context, &event) == 0);
        ibv_ack_async_event(&event);
        refusals++;
    }
    if (packets % 8192 == 0) { /* others are not disturbed */
        CHECK(post_write(&other, &victim, 1, 0, 9000, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED) == 0);
        CHECK(next_completion(&other, 30).status == IBV_WC_SUCCESS);
    }
    CHECK(packets % (1 << 18) != 0 || refusals > 0); /* some were more than rubbish */
}

/* configuration: lines NAME=VALUE of the settings that open the device */

static void take_settings(const uint8_t *bytes, size_t length)
{
    static const char *const names[]
        = {"MRC_PLANES", "MRC_PORT", "MRC_EMULATE", "MRC_FAIL_AFTER", "MRC_FAULT_STEPS", "MRC_METRICS"};
    char text[MOST + 1], *rest = text, *line;
    memcpy(text, bytes, length < MOST ? length : MOST);
    text[length < MOST ? length : MOST] = '\0';
    setenv("MRC_PLANES", "127.0.0.1", 1);
    while ((line = strsep(&rest, "\n")) != NULL) {
        const char *value = strchr(line, '=');
        for (size_t k = 0; value != NULL && k < sizeof names / sizeof *names; k++)
            if ((size_t)(value - line) == strlen(names[k]) && strncmp(line, names[k], strlen(names[k])) == 0)
                setenv(names[k], value + 1, 1);
    }
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *context = ibv_open_device(list[0]);
    CHECK(context == NULL || ibv_close_device(context) == 0);
    ibv_free_device_list(list);
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        unsetenv(names[k]);
}

static const struct {
    const char *name;
    void (*take)(const uint8_t *bytes, size_t length);
    const char *seeds[7];
} targets[] = {
    {"greetings", take_greeting, {"\xFDMRC\x13\x10\x12\xB7", "\xFDMRC\x20", "\xFDMRC\x10\x10\x12\xB8\x01", "fe80"}},
    {"packets", take_packet, {NULL}},
    {"configuration", take_settings,
     {"MRC_PLANES=127.0.0.1,127.0.0.2\nMRC_PORT=5000", "MRC_PLANES=fd00:1::5%lo ::1", "MRC_FAIL_AFTER=3:qp2:recv:rnr",
      "MRC_FAULT_STEPS=0 0 1 0 0 0 0 0 0 0 0;5 0 0 1 1 1 1 1 1 1 1", "MRC_EMULATE=send, read\nMRC_METRICS=:9400",
      "MRC_METRICS=off\nMRC_PORT=65535", "MRC_PLANES=10.0.0.1,\nMRC_FAIL_AFTER=99999999999999999999:flush"}},
};

static void (*chosen)(const uint8_t *bytes, size_t length);
static const char *const *seeds;

static void choose(const char *name)
{
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
        if (strcmp(targets[i].name, name) == 0) {
            chosen = targets[i].take;
            seeds = targets[i].seeds;
        }
    CHECK(chosen != NULL);
}

#ifdef MRC_LIBFUZZER
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    if (chosen == NULL)
        choose(getenv("FUZZ_TARGET"));
    chosen(bytes, length);
    return 0;
}
#else
static uint64_t state = 1;

static uint32_t draw(uint32_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 32) % below;
}

static size_t make_packet(uint8_t *bytes)
{
    size_t length = 4 + 3 * draw(4);
    for (size_t i = 0; i < length; i++)
        bytes[i] = (uint8_t)draw(256);
    if (draw(2) == 0) /* a PSN near those that are expected */
        memcpy(bytes + 4, (uint8_t[]){11, 0, (uint8_t)(15 + draw(16))}, 3);
    return length;
}

static size_t make(uint8_t *bytes)
{
    size_t count = 0, length;
    while (count < 7 && seeds[count] != NULL)
        count++;
    if (count == 0)
        return make_packet(bytes);
    const char *seed = seeds[draw((uint32_t)count)];
    length = strlen(seed);
    memcpy(bytes, seed, length);
    while (length < 32)
        bytes[length++] = chosen == take_greeting ? (uint8_t)draw(256) : '\n';
    if (chosen == take_greeting && draw(2) == 0)
        memcpy(bytes, right_gid.raw, 16);
    for (uint32_t changes = draw(6); changes > 0; changes--) {
        uint32_t at = draw((uint32_t)length);
        if (draw(4) > 0)
            bytes[at] = draw(2) ? (uint8_t)draw(256) : (uint8_t)"0123456789,;:=. \n%/"[draw(19)];
        else if (length < MOST - 64) { /* a piece twice */
            uint32_t piece = draw(64) % (uint32_t)(length - at);
            memmove(bytes + at + piece, bytes + at, length - at);
            length += piece;
        }
    }
    return length;
}

int main(int count, char **words)
{
    static uint8_t bytes[MOST + 64];
    CHECK(count >= 3);
    choose(words[1]);
    state = count > 3 ? strtoull(words[3], NULL, 10) : 1;
    uint64_t runs = 0;
    for (double end = seconds() + atof(words[2]); seconds() < end; runs++)
        chosen(bytes, make(bytes));
    printf("%s: %llu inputs\n", words[1], (unsigned long long)runs);
    return 0;
}
#endif
