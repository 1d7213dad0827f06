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
#include "doorward.h"

/* What was refused. */
enum denied {
	DENIED_SOCKET,
	DENIED_CONNECT,
	DENIED_SEND, /* UDP without connect */
	DENIED_BIND,
	DENIED_OUT, /* a packet */
	DENIED_IN,
	DENIED_REASONS,
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, u32);
	__type(value, u64);
	__uint(max_entries, DENIED_REASONS);
} denied SEC(".maps");

static __always_inline int deny(enum denied why)
{
	u32 key = why;
	u64 *n = bpf_map_lookup_elem(&denied, &key);

	if (n)
		(*n)++; /* of this processor */
	return REFUSE;
}

SEC("cgroup/sock_create")
int worker_socket(struct bpf_sock *sk)
{
	return deny(DENIED_SOCKET);
}

SEC("cgroup/connect4")
int worker_connect4(struct bpf_sock_addr *ctx)
{
	return deny(DENIED_CONNECT);
}

SEC("cgroup/connect6")
int worker_connect6(struct bpf_sock_addr *ctx)
{
	return deny(DENIED_CONNECT);
}

SEC("cgroup/sendmsg4")
int worker_send4(struct bpf_sock_addr *ctx)
{
	return deny(DENIED_SEND);
}

SEC("cgroup/sendmsg6")
int worker_send6(struct bpf_sock_addr *ctx)
{
	return deny(DENIED_SEND);
}

SEC("cgroup/bind4")
int worker_bind4(struct bpf_sock_addr *ctx)
{
	return deny(DENIED_BIND);
}

SEC("cgroup/bind6")
int worker_bind6(struct bpf_sock_addr *ctx)
{
	return deny(DENIED_BIND);
}

SEC("cgroup_skb/egress")
int worker_out(struct __sk_buff *skb)
{
	return deny(DENIED_OUT);
}

SEC("cgroup_skb/ingress")
int worker_in(struct __sk_buff *skb)
{
	return deny(DENIED_IN);
}

char _license[] SEC("license") = "GPL";
