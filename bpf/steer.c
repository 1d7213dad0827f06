//go:build ignore

/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */

/*
 * Steering: in a cell's network namespace every address is local, and this program says which socket takes what arrives. Every
 * TCP connection goes to the listener of the cell's egress, whatever address and port the cell wanted; the listener reads them
 * as the local address of what it accepts. Loopback stays the cell's own. What does not pass finds nobody, and the kernel
 * answers at once: a reset for TCP, ICMP's port unreachable for UDP.
 *
 * What an attacker in the cell could do: listen on any address itself, and get nothing, since this program is asked before
 * listeners are looked for. It cannot change the program or its map without the capability CAP_NET_ADMIN of the namespace's
 * owner, or the files in which they are pinned.
 *
 * sk_lookup: Documentation/bpf/prog_sk_lookup.rst.
 */
#include "doorward.h"

/* Why something passed or did not; the counters of one cell. */
enum steered {
	STEERED_LISTENER, /* TCP, to the cell's egress */
	STEERED_OWN,      /* to loopback, which is the cell's own */
	STEERED_DNS,      /* UDP to or from port 53, where egress's resolver is bound to every address */
	STEERED_EMPTY,    /* dropped: egress has put no listener into its slot */
	STEERED_FAILED,   /* dropped: the kernel did not assign the listener */
	STEERED_UDP,      /* dropped: other UDP */
	STEERED_OTHER,    /* dropped: another protocol or family */
	STEERED_REASONS,
};

struct {
	__uint(type, BPF_MAP_TYPE_SOCKMAP);
	__type(key, u32);
	__type(value, u64);
	__uint(max_entries, 1);
} listener SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, u32);
	__type(value, u64);
	__uint(max_entries, STEERED_REASONS);
} steered SEC(".maps");

static __always_inline int because(enum steered why, int verdict)
{
	u32 key = why;
	u64 *n = bpf_map_lookup_elem(&steered, &key);

	if (n)
		(*n)++; /* of this processor */
	return verdict;
}

static __always_inline int to_listener(struct bpf_sk_lookup *ctx)
{
	u32 slot = 0;
	struct bpf_sock *sk = bpf_map_lookup_elem(&listener, &slot);
	long err;

	if (!sk)
		return because(STEERED_EMPTY, SK_DROP);
	err = bpf_sk_assign(ctx, sk, 0);
	bpf_sk_release(sk);
	return err ? because(STEERED_FAILED, SK_DROP) : because(STEERED_LISTENER, SK_PASS);
}

SEC("sk_lookup")
int steer(struct bpf_sk_lookup *ctx)
{
	bool own;

	switch (ctx->family) {
	case AF_INET:
		own = loopback4(ctx->local_ip4);
		break;
	case AF_INET6:
		own = loopback6(ctx->local_ip6[0], ctx->local_ip6[1], ctx->local_ip6[2], ctx->local_ip6[3]);
		break;
	default:
		return because(STEERED_OTHER, SK_DROP);
	}
	if (own)
		return because(STEERED_OWN, SK_PASS);
	switch (ctx->protocol) {
	case TCP:
		return to_listener(ctx);
	case UDP:
		/* An answer too is looked up, where the asking socket is not connected. */
		if (ctx->local_port == DNS || ctx->remote_port == bpf_htons(DNS))
			return because(STEERED_DNS, SK_PASS);
		return because(STEERED_UDP, SK_DROP);
	default:
		return because(STEERED_OTHER, SK_DROP);
	}
}

char _license[] SEC("license") = "GPL";
