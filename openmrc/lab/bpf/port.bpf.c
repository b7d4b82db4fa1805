/* SPDX-License-Identifier: Apache-2.0
 *
 * The egress of one switch port: a virtual queue that marks, trims and drops, and the faults of the cable behind it.
 *
 * The queue is a point in time: `free_at` says when a wire of the configured rate would have sent everything that
 * passed so far, so its length needs no memory. The class of service below it (HTB) has the same rate, so the real
 * queue is as long. Control packets and what was trimmed are told to the qdisc as its first class, data as its second.
 *
 * One program serves all ports of a lab, because the kernel takes milliseconds to verify it: the filter of a port names
 * its number as `classid`, which is the index of its entry in both maps.
 *
 * The kernel takes a packet's length for its qdiscs before this program runs. The qdisc below must therefore have a size
 * table (`tc ... stab`), which takes the length again when the packet is queued; otherwise a trimmed packet would be
 * charged for the bytes that it lost here. Every packet that does not leave this program is counted by its cause.
 *
 * MRC 3.12 leaves DSCP numbers to the operator; they are fields of the configuration. Trimming follows the rules that
 * UEC 1.0.3 states for switches: to the destination only, lengths rewritten, another DSCP where it was the last hop.
 * Only datagrams without a UDP checksum are trimmed: with SRv6 the destination changes on the way, so MRC's have none.
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define ETHERNET 14
#define IPV6 40
#define UDP 8
#define ETH_P_IPV6 0x86DD
#define PROTO_UDP 17
#define CONGESTED 3
#define FIRST_CLASS 0x10010
#define SECOND_CLASS 0x10020
#define ONE (1ULL << 32) /* a share of one */
#define PORTS 16384      /* of a lab; `port.py` holds the same number */

/* Written by the lab, read here; `port.py` holds the same list. */
struct configuration {
	__u64 ns_per_byte;  /* 16 bits behind the point; 0: no queue */
	__u64 mark_low;     /* ns of queue: from here on some are marked */
	__u64 mark_high;    /* ns: from here on all are; 0: none ever */
	__u64 trim_above;   /* ns; 0: never */
	__u64 drop_above;   /* ns; 0: never */
	__u64 control_drop_above; /* ns: not even the first class gets in; 0: never */
	__u64 loss;         /* of faults: shares of 2^32 */
	__u64 random_trim;
	__u64 corruption;
	__u32 down;
	__u32 last_hop;
	__u32 keep;         /* bytes after the IPv6 header that a trimmed packet keeps */
	__u32 overhead;     /* bytes that a packet takes on the wire besides its frame */
	__u32 control;      /* DSCPs */
	__u32 trimmable;
	__u32 trimmable_again;
	__u32 trimmed;
	__u32 trimmed_last_hop;
	__u32 reserved;
};

/* Written here, read by the lab; `port.py` holds the same list. */
struct state {
	struct bpf_spin_lock lock;
	__u32 reserved;
	__u64 free_at;      /* ns */
	__u64 packets;
	__u64 bytes;
	__u64 marked;
	__u64 trimmed;
	__u64 dropped;      /* the queue was full */
	__u64 control_dropped; /* the first class alone was more than the port carries */
	__u64 lost;         /* faults */
	__u64 corrupted;
	__u64 control;
	__u64 longest;      /* ns of queue that a packet met */
	__u64 data_lost_at; /* ns: when a fault last took a packet that asks to be trimmed rather than dropped */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PORTS);
	__type(key, __u32);
	__type(value, struct configuration);
} settings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PORTS);
	__type(key, __u32);
	__type(value, struct state);
} queue SEC(".maps");

enum verdict { PASS, TRIM, DROP, DROP_CONTROL, LOSE };

struct packet {
	__u32 is_ipv6;
	__u32 traffic_class;
	__u32 payload_length;
	__u32 can_trim;
	__u32 too_short; /* asks to be trimmed, but has nothing to lose */
	__u64 wire_bytes;
};

static __always_inline int happens(__u64 share)
{
	return share && bpf_get_prandom_u32() < share;
}

static __always_inline void parse(struct __sk_buff *skb, struct packet *packet, const struct configuration *set)
{
	__u8 head[8];
	__u16 checksum;
	__u32 dscp;

	packet->wire_bytes = skb->len + set->overhead;
	if (skb->protocol != bpf_htons(ETH_P_IPV6) || bpf_skb_load_bytes(skb, ETHERNET, head, sizeof(head)) < 0)
		return;
	packet->is_ipv6 = 1;
	packet->traffic_class = (__u32)(head[0] & 0xf) << 4 | head[1] >> 4;
	packet->payload_length = (__u32)head[4] << 8 | head[5];
	dscp = packet->traffic_class >> 2;
	if (head[6] == PROTO_UDP && (dscp == set->trimmable || dscp == set->trimmable_again) &&
	    skb->gso_segs <= 1 && bpf_skb_load_bytes(skb, ETHERNET + IPV6 + 6, &checksum, sizeof(checksum)) == 0 &&
	    checksum == 0) {
		packet->can_trim = packet->payload_length > set->keep;
		packet->too_short = !packet->can_trim;
	}
}

static __always_inline void set_traffic_class(struct __sk_buff *skb, __u32 value)
{
	__u8 head[2];

	if (bpf_skb_load_bytes(skb, ETHERNET, head, sizeof(head)) < 0)
		return;
	head[0] = (head[0] & 0xf0) | value >> 4;
	head[1] = (head[1] & 0x0f) | (value & 0xf) << 4;
	bpf_skb_store_bytes(skb, ETHERNET, head, sizeof(head), 0);
}

static __always_inline int trim(struct __sk_buff *skb, const struct packet *packet, const struct configuration *set)
{
	__u16 length = bpf_htons(set->keep);
	__u32 dscp = set->last_hop ? set->trimmed_last_hop : set->trimmed;

	if (bpf_skb_change_tail(skb, ETHERNET + IPV6 + set->keep, 0) < 0)
		return -1;
	bpf_skb_store_bytes(skb, ETHERNET + 4, &length, sizeof(length), 0);
	bpf_skb_store_bytes(skb, ETHERNET + IPV6 + 4, &length, sizeof(length), 0);
	set_traffic_class(skb, dscp << 2 | (packet->traffic_class & 3));
	return 0;
}

static __always_inline void corrupt(struct __sk_buff *skb)
{
	__u8 byte;
	__u32 at = ETHERNET + IPV6 + UDP;

	if (skb->len <= at + 1)
		return;
	at += bpf_get_prandom_u32() % (skb->len - at);
	if (bpf_skb_load_bytes(skb, at, &byte, 1) < 0)
		return;
	byte ^= 1 << (bpf_get_prandom_u32() & 7);
	bpf_skb_store_bytes(skb, at, &byte, 1, 0);
}

/* Take back that a packet passed. */
static __always_inline void not_passed(struct state *state, const struct packet *packet)
{
	bpf_spin_lock(&state->lock);
	state->packets--;
	state->bytes -= packet->wire_bytes;
	state->trimmed--;
	state->dropped++;
	bpf_spin_unlock(&state->lock);
}

SEC("tc")
int port(struct __sk_buff *skb)
{
	__u32 number = skb->tc_classid, dscp, is_first, dice = bpf_get_prandom_u32();
	const struct configuration *set = bpf_map_lookup_elem(&settings, &number);
	struct state *state = bpf_map_lookup_elem(&queue, &number);
	struct packet packet = {};
	enum verdict verdict = PASS;
	int mark = 0, random_trim, lost, spoilt;
	__u64 now = bpf_ktime_get_ns(), waiting;

	if (!set || !state)
		return TC_ACT_OK;
	parse(skb, &packet, set);
	dscp = packet.traffic_class >> 2;
	is_first = !packet.is_ipv6 || dscp == set->control || dscp == set->trimmed || dscp == set->trimmed_last_hop;
	lost = set->down || happens(set->loss);
	random_trim = packet.can_trim && happens(set->random_trim);
	spoilt = packet.is_ipv6 && happens(set->corruption);

	bpf_spin_lock(&state->lock);
	waiting = state->free_at > now ? state->free_at - now : 0;
	if (waiting > state->longest)
		state->longest = waiting;
	if (packet.too_short && set->trim_above && waiting > set->trim_above)
		is_first = 1; /* as a trimmed packet, which it could not be told from by its length */
	if (lost)
		verdict = LOSE;
	else if (packet.can_trim && (random_trim || (set->trim_above && waiting > set->trim_above)))
		verdict = TRIM;
	else if (!is_first && set->drop_above && waiting > set->drop_above)
		verdict = DROP;
	if (verdict <= TRIM && (is_first || verdict == TRIM) && set->control_drop_above && waiting > set->control_drop_above)
		verdict = DROP_CONTROL;
	if (verdict == TRIM)
		packet.wire_bytes -= packet.payload_length - set->keep;
	if (verdict <= TRIM) {
		state->packets++;
		state->bytes += packet.wire_bytes;
		state->free_at = now + waiting + (packet.wire_bytes * set->ns_per_byte >> 16);
		if (is_first)
			state->control++;
	}
	if (verdict == TRIM)
		state->trimmed++;
	else if (verdict == DROP)
		state->dropped++;
	else if (verdict == DROP_CONTROL)
		state->control_dropped++;
	else if (verdict == LOSE) {
		state->lost++;
		if (packet.can_trim)
			state->data_lost_at = now;
	} else if (!is_first && set->mark_high && (packet.traffic_class & 3) && waiting > set->mark_low)
		/* Linear between the thresholds, as RED without its average. */
		mark = waiting >= set->mark_high ||
		       (__u64)dice * (set->mark_high - set->mark_low) < (waiting - set->mark_low) * ONE;
	if (mark)
		state->marked++;
	if (spoilt && verdict == PASS)
		state->corrupted++;
	bpf_spin_unlock(&state->lock);

	if (verdict >= DROP)
		return TC_ACT_SHOT;
	if (verdict == TRIM && trim(skb, &packet, set) < 0) {
		not_passed(state, &packet);
		return TC_ACT_SHOT;
	}
	if (mark)
		set_traffic_class(skb, packet.traffic_class | CONGESTED);
	if (spoilt && verdict == PASS)
		corrupt(skb);
	skb->priority = is_first || verdict == TRIM ? FIRST_CLASS : SECOND_CLASS;
	return TC_ACT_OK;
}

#define TEXT_OF(what) #what
#define TEXT(what) TEXT_OF(what)
/* Another compiler may make other bytes; a test that compares them must know. */
char compiled_by[] __attribute__((used, section("compiler"))) = "clang " TEXT(__clang_major__);
char _license[] SEC("license") = "Dual BSD/GPL";
