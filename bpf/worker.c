//go:build ignore

/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */

/*
 * Workers have no network: their units say so (PrivateNetwork=, RestrictAddressFamilies=AF_UNIX), and here the kernel says it of the
 * slice of all of them, for what a unit forgets. No socket of IPv4 or IPv6 is made, and one that is there all the same, by a program
 * that was put aside, connects, sends and binds nowhere; no packet goes out or comes in, on lo neither. Other families than these two
 * these hooks do not see.
 *
 * What an attacker who took a worker over could do: use a socket that was made outside and handed in, which belongs to the cgroup it
 * was made in; a worker is handed Unix sockets alone.
 */
#include "refusals.h"

/* What was refused. */
enum denied {
	DENIED_SOCKET,
	DENIED_CONNECT,
	DENIED_SEND, /* UDP without connect */
	DENIED_BIND,
	DENIED_OUT, /* a packet */
	DENIED_IN,
	/* What is only counted. */
	DENIED_UNLOGGED, /* a refusal beyond LOGGED, or while nobody reads the log */
	DENIED_REASONS,
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, u32);
	__type(value, u64);
	__uint(max_entries, DENIED_REASONS);
} denied SEC(".maps");

static __always_inline void count(enum denied why)
{
	u32 key = why;
	u64 *n = bpf_map_lookup_elem(&denied, &key);

	if (n)
		(*n)++; /* of this processor */
}

static __always_inline struct refusal *deny(enum denied why)
{
	struct refusal *r = line(WALL_WORKER, why);

	count(why);
	if (!r)
		count(DENIED_UNLOGGED);
	return r;
}

static __always_inline int addr(struct bpf_sock_addr *ctx, enum denied why)
{
	struct refusal *r = deny(why);

	if (!r)
		return REFUSE;
	by(r, bpf_get_current_cgroup_id());
	r->family = ctx->family;
	r->type = ctx->type;
	r->proto = ctx->protocol;
	r->port = bpf_ntohs(ctx->user_port);
	bpf_ringbuf_submit(r, 0);
	return REFUSE;
}

static __always_inline int packet(struct __sk_buff *skb, enum denied why)
{
	struct refusal *r = deny(why);

	if (!r)
		return REFUSE;
	r->unit = bpf_skb_cgroup_id(skb);
	r->family = skb->family;
	bpf_ringbuf_submit(r, 0);
	return REFUSE;
}

SEC("cgroup/sock_create")
int worker_socket(struct bpf_sock *sk)
{
	struct refusal *r = deny(DENIED_SOCKET);

	if (!r)
		return REFUSE;
	by(r, bpf_get_current_cgroup_id());
	r->family = sk->family;
	r->type = sk->type;
	r->proto = sk->protocol;
	bpf_ringbuf_submit(r, 0);
	return REFUSE;
}

SEC("cgroup/connect4")
int worker_connect4(struct bpf_sock_addr *ctx)
{
	return addr(ctx, DENIED_CONNECT);
}

SEC("cgroup/connect6")
int worker_connect6(struct bpf_sock_addr *ctx)
{
	return addr(ctx, DENIED_CONNECT);
}

SEC("cgroup/sendmsg4")
int worker_send4(struct bpf_sock_addr *ctx)
{
	return addr(ctx, DENIED_SEND);
}

SEC("cgroup/sendmsg6")
int worker_send6(struct bpf_sock_addr *ctx)
{
	return addr(ctx, DENIED_SEND);
}

SEC("cgroup/bind4")
int worker_bind4(struct bpf_sock_addr *ctx)
{
	return addr(ctx, DENIED_BIND);
}

SEC("cgroup/bind6")
int worker_bind6(struct bpf_sock_addr *ctx)
{
	return addr(ctx, DENIED_BIND);
}

SEC("cgroup_skb/egress")
int worker_out(struct __sk_buff *skb)
{
	return packet(skb, DENIED_OUT);
}

SEC("cgroup_skb/ingress")
int worker_in(struct __sk_buff *skb)
{
	return packet(skb, DENIED_IN);
}

char _license[] SEC("license") = "GPL";
