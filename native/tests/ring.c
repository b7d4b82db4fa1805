/*
 * A ring between two processes over mrc.h, as message queues are built: the producer writes records of odd sizes into
 * the consumer's ring and announces each by an immediate, the consumer writes back how far it has read.
 */
#include <arpa/inet.h>

#include "../examples/meeting.h"

#define RING ((size_t)1 << 20)
#define MOST 100000 /* bytes of a record */
#define RECORDS 400
#define RECEIVES 64
#define POSITION RING        /* where the consumer's position is written, and written from */
#define RECORD (RING + 4096) /* where the producer makes a record */
#define PATIENCE 60          /* s */

struct head {
    uint64_t number, length, hash;
};

static uint64_t hash_of(const uint8_t *at, size_t length)
{
    uint64_t hash = 14695981039346656037ull; /* FNV-1a */
    while (length-- > 0)
        hash = (hash ^ *at++) * 1099511628211ull;
    return hash;
}

static void write_to_peer(const struct side *side, struct ibv_send_wr wr, size_t from, size_t to, size_t length)
{
    struct ibv_sge sge = {(uintptr_t)side->memory + from, (uint32_t)length, side->mr->lkey};
    struct ibv_send_wr *bad;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.wr.rdma.remote_addr = side->peer.address + to;
    wr.wr.rdma.rkey = side->peer.rkey;
    if (mrc_post_send(side->qp, &wr, &bad) != 0)
        DIE("post: %m");
}

static void post_receive(const struct side *side)
{
    struct ibv_recv_wr wr = {0}, *bad;
    if (mrc_post_recv(side->qp, &wr, &bad) != 0)
        DIE("post of a receive: %m");
}

/* Take the next completion of a kind; others are checked alone. */
static struct ibv_wc next(const struct side *side, enum ibv_wc_opcode wanted)
{
    struct ibv_wc wc = {0};
    double end = seconds() + PATIENCE;
    do {
        int count = mrc_poll_cq(side->cq, 1, &wc);
        if (count < 0 || (count == 1 && wc.status != IBV_WC_SUCCESS) || seconds() > end)
            DIE("completion %d, %s", count, ibv_wc_status_str(wc.status));
        if (count == 0)
            wc.opcode = IBV_WC_BIND_MW; /* which nobody wants */
    } while (wc.opcode != wanted);
    return wc;
}

static void produce(const struct side *side)
{
    volatile uint64_t *read_to = (void *)(side->memory + POSITION);
    uint64_t place = 0;
    uint32_t random = 1;
    for (uint64_t number = 0; number < RECORDS; number++) {
        struct head head = {.number = number, .length = ((random = random * 1103515245 + 12345) >> 8) % MOST};
        size_t bytes = sizeof head + head.length;
        if (place % RING + bytes > RING)
            place += RING - place % RING;
        for (double end = seconds() + PATIENCE; place + bytes - *read_to > RING;) /* it polls memory alone */
            if (seconds() > end)
                DIE("record %lu: the ring stays full", (unsigned long)number);
        for (size_t i = 0; i < head.length; i++)
            side->memory[RECORD + sizeof head + i] = (uint8_t)((random = random * 1664525 + 1013904223) >> 24);
        head.hash = hash_of(side->memory + RECORD + sizeof head, head.length);
        memcpy(side->memory + RECORD, &head, sizeof head);
        struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .send_flags = IBV_SEND_SIGNALED};
        wr.imm_data = htonl((uint32_t)(place % RING));
        write_to_peer(side, wr, RECORD, place % RING, bytes);
        next(side, IBV_WC_RDMA_WRITE);
        place += bytes;
    }
}

static void consume(const struct side *side)
{
    uint64_t place = 0;
    for (uint64_t number = 0; number < RECORDS; number++) {
        struct ibv_wc wc = next(side, IBV_WC_RECV_RDMA_WITH_IMM);
        size_t at = ntohl(wc.imm_data);
        struct head head;
        memcpy(&head, side->memory + at, sizeof head);
        if (head.number != number || sizeof head + head.length != wc.byte_len
            || hash_of(side->memory + at + sizeof head, head.length) != head.hash)
            DIE("record %lu is not what was written", (unsigned long)number);
        place += (at < place % RING ? RING : 0) + at - place % RING + wc.byte_len;
        post_receive(side);
        memcpy(side->memory + POSITION, &place, sizeof place);
        struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE};
        wr.send_flags = IBV_SEND_INLINE | (number % 16 == 15 ? IBV_SEND_SIGNALED : 0);
        write_to_peer(side, wr, POSITION, POSITION, sizeof place);
    }
}

int main(int count, char **words)
{
    (void)count;
    const char *host = words[2];
    struct side side = meet(host, words[1], RECORD + sizeof(struct head) + MOST);
    struct offer nothing = {0};
    memset(side.memory, 0, RECORD);
    for (int i = 0; i < RECEIVES; i++)
        post_receive(&side);
    exchange(side.fd, &nothing);
    if (host != NULL)
        produce(&side);
    else
        consume(&side);
    part(&side);
    return 0;
}
