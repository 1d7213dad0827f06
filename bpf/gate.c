//go:build ignore

/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */

/*
 * The gate: what sockets born in a cell's cgroup may be and do, and who opened which connection. It is attached to the slice of
 * all cells and so holds for whatever is below. Everything that is not named here is refused:
 *
 *  sockets   TCP and UDP of IPv4 and IPv6, and none in the machine's own network namespace
 *  connect   TCP to anything, written down (steering brings it to egress, bpf/steer.c); UDP to port 53, and to loopback
 *  send      UDP without connect: the same
 *  options   those of a list that has none that chooses a packet's way
 *  packets   on lo alone; those that go out have neither IPv4 options nor IPv6 extension headers, and are TCP or UDP
 *
 * The kernel decides by the cgroup in which a socket was made, whoever uses it (include/linux/cgroup-defs.h,
 * sock_cgroup_data). So a socket that was made outside and handed in passes by all of this; other walls are for that. It does
 * not see sockets of other families than IPv4 and IPv6 either. The walls overlap: the hook of connect does not see UDP-Lite,
 * SCTP and raw sockets, that of options not those which come with a message, and that of packets sees all of them.
 *
 * What an attacker in the cell could do: have a helper of a program fail, for want of memory; that is counted and refused.
 * Choose its program's name. Fill the log of refusals, which holds at most LOGGED a second of all cells together; the counters
 * count on.
 */
#include "refusals.h"

/* Cookie of the machine's own network namespace, and the id of the slice's cgroup, set before the programs are loaded. */
volatile const u64 host = 0;
volatile const u64 slice = 0;

enum gate {
	/* Passed. */
	GATE_TCP, /* a connection, written down */
	GATE_DNS, /* UDP to port 53 */
	GATE_OWN, /* UDP to loopback */
	/* Refused. */
	GATE_SOCKET,   /* made of another family, type or protocol */
	GATE_HOST,     /* made in the machine's own network namespace */
	GATE_CONNECT,  /* connect with another protocol */
	GATE_UDP,      /* UDP to another port */
	GATE_OPTION,   /* an option that is not on the list */
	GATE_OUT,      /* a packet that leaves by another interface than lo */
	GATE_IN,       /* a packet that comes in by another one */
	GATE_HEADER,   /* a packet with options or extension headers */
	GATE_PROTOCOL, /* a packet of another protocol than TCP and UDP */
	/* Refused, since a helper failed. */
	GATE_NO_STORAGE, /* to write down who connects */
	GATE_NO_PACKET,  /* to read the packet */
	/* What is only counted. */
	GATE_NO_ENTRY, /* a connection was opened, and the map did not take by whom */
	GATE_UNLOGGED, /* a refusal beyond LOGGED, or while nobody reads the log */
	GATE_REASONS,
};

/* A connection as its client has it, in its cell's network. An address of IPv4 is written as IPv6 has it. */
struct opener_key {
	u8 addr[16];
	u16 port;
	u16 zero[3];
};

/* Who opened it. */
struct opener {
	u64 cgroup; /* of the session: the second below the slice, however deep below that the process is */
	u64 start; /* of the process, nanoseconds since boot */
	u32 tgid;
	char comm[16];
	u32 zero;
};

/* One for each cell, so that none pushes out another's entries. The oldest of its own gives way; who is not written down is unknown. */
struct of_cell {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__type(key, struct opener_key);
	__type(value, struct opener);
	__uint(max_entries, 16384);
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
	__type(key, u64); /* cookie of the cell's network namespace */
	__uint(max_entries, 1024);
	__array(values, struct of_cell);
} openers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct opener);
} opening SEC(".maps"); /* from the socket's making; who connects is in it until the first packet, when the local port is known */

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, u32);
	__type(value, u64);
	__uint(max_entries, GATE_REASONS);
} gated SEC(".maps");

/* So that the structs' layouts are in the object, for Go and for the loader. */
const struct opener_key *layout_key __attribute__((unused));
const struct opener *layout_opener __attribute__((unused));

static __always_inline void count(enum gate why)
{
	u32 key = why;
	u64 *n = bpf_map_lookup_elem(&gated, &key);

	if (n)
		(*n)++; /* of this processor */
}

static __always_inline int pass(enum gate why)
{
	count(why);
	return PASS;
}

/* Counts a refusal and gives the line of the log that is to be filled and submitted, or none. */
static __always_inline struct refusal *refusal(enum gate why)
{
	struct refusal *r = line(WALL_GATE, why);

	count(why);
	if (!r)
		count(GATE_UNLOGGED);
	return r;
}

/* At which level of the tree of cgroups the slice is, which its id never changes; 0 until it was looked for. */
static u32 level;

/* The id of the task's cgroup that is so many below the slice, or 0 where it is not so deep. */
static __always_inline u64 below(u32 n)
{
	u32 at = level;

	if (!at) {
		for (u32 i = 1; i < 16; i++) {
			if (bpf_get_current_ancestor_cgroup_id(i) == slice) {
				at = i;
				break;
			}
		}
		level = at;
	}
	return at ? bpf_get_current_ancestor_cgroup_id(at + n) : 0;
}

/* The task that runs the program, where one does. */
static __always_inline void by_task(struct refusal *r)
{
	by(r, below(1));
}

static __always_inline void mapped(u8 *to, u32 addr4)
{
	to[10] = to[11] = 0xff;
	__builtin_memcpy(to + 12, &addr4, 4);
}

/* The four words of an address. The compiler may not read two at once: the kernel gives them one by one. */
static __always_inline void words(u8 *to, u32 a, u32 b, u32 c, u32 d)
{
	asm volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d));
	__builtin_memcpy(to, &a, 4);
	__builtin_memcpy(to + 4, &b, 4);
	__builtin_memcpy(to + 8, &c, 4);
	__builtin_memcpy(to + 12, &d, 4);
}

/* ---- sockets ---- */

SEC("cgroup/sock_create")
int gate_socket(struct bpf_sock *sk)
{
	u32 family = sk->family, type = sk->type, proto = sk->protocol;
	enum gate why = GATE_SOCKET;
	struct refusal *r;

	if ((family == AF_INET || family == AF_INET6) &&
	    ((type == SOCK_STREAM && proto == TCP) || (type == SOCK_DGRAM && proto == UDP))) {
		if (bpf_get_netns_cookie(sk) != host) {
			/* The memory that connect will write to, so that it need not wait for it; without it, it tries again. */
			if (proto == TCP)
				bpf_sk_storage_get(&opening, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
			return PASS;
		}
		why = GATE_HOST;
	}
	r = refusal(why);
	if (r) {
		by_task(r);
		r->family = family;
		r->type = type;
		r->proto = proto;
		bpf_ringbuf_submit(r, 0);
	}
	return REFUSE;
}

/* ---- connect and send ---- */

static __always_inline int refuse_addr(struct bpf_sock_addr *ctx, enum gate why, bool v6)
{
	struct refusal *r = refusal(why);

	if (!r)
		return REFUSE;
	by_task(r);
	r->family = ctx->family;
	r->type = ctx->type;
	r->proto = ctx->protocol;
	r->port = bpf_ntohs(ctx->user_port);
	if (v6)
		words(r->addr, ctx->user_ip6[0], ctx->user_ip6[1], ctx->user_ip6[2], ctx->user_ip6[3]);
	else
		mapped(r->addr, ctx->user_ip4);
	bpf_ringbuf_submit(r, 0);
	return REFUSE;
}

/* The family that a program hands in with an address counts for nothing: which hook it is says which kind it is. */
static __always_inline int udp(struct bpf_sock_addr *ctx, bool v6)
{
	bool own;

	if (ctx->user_port == bpf_htons(DNS))
		return pass(GATE_DNS);
	if (v6)
		own = loopback6(ctx->user_ip6[0], ctx->user_ip6[1], ctx->user_ip6[2], ctx->user_ip6[3]);
	else
		own = loopback4(ctx->user_ip4);
	return own ? pass(GATE_OWN) : refuse_addr(ctx, GATE_UDP, v6);
}

static __always_inline int tcp(struct bpf_sock_addr *ctx, bool v6)
{
	struct opener *o = 0;
	struct task_struct *task;

	if (ctx->sk)
		o = bpf_sk_storage_get(&opening, ctx->sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!o)
		return refuse_addr(ctx, GATE_NO_STORAGE, v6);
	task = bpf_get_current_task_btf();
	o->cgroup = below(2);
	if (!o->cgroup) /* of the unit itself, and so of no session */
		o->cgroup = bpf_get_current_cgroup_id();
	o->start = task->group_leader->start_boottime;
	o->tgid = bpf_get_current_pid_tgid() >> 32;
	/* Of the process, which says more than its threads' names; where that cannot be read, there is none. */
	if (bpf_probe_read_kernel_str(o->comm, sizeof(o->comm), task->group_leader->comm) < 0)
		__builtin_memset(o->comm, 0, sizeof(o->comm));
	return pass(GATE_TCP);
}

static __always_inline int to(struct bpf_sock_addr *ctx, bool v6)
{
	if (ctx->type == SOCK_STREAM && ctx->protocol == TCP)
		return tcp(ctx, v6);
	if (ctx->type == SOCK_DGRAM && ctx->protocol == UDP)
		return udp(ctx, v6);
	return refuse_addr(ctx, GATE_CONNECT, v6);
}

SEC("cgroup/connect4")
int gate_connect4(struct bpf_sock_addr *ctx)
{
	return to(ctx, 0);
}

SEC("cgroup/connect6")
int gate_connect6(struct bpf_sock_addr *ctx)
{
	return to(ctx, 1);
}

SEC("cgroup/sendmsg4")
int gate_send4(struct bpf_sock_addr *ctx)
{
	return ctx->protocol == UDP ? udp(ctx, 0) : refuse_addr(ctx, GATE_CONNECT, 0);
}

SEC("cgroup/sendmsg6")
int gate_send6(struct bpf_sock_addr *ctx)
{
	return ctx->protocol == UDP ? udp(ctx, 1) : refuse_addr(ctx, GATE_CONNECT, 1);
}

/* Before the first packet of a connection, when it has its address: who asked for it is written down where egress looks. */
SEC("sockops")
int gate_opened(struct bpf_sock_ops *ctx)
{
	struct opener_key key = {};
	struct opener *o;
	void *to;
	u64 net;

	if (ctx->op != BPF_SOCK_OPS_TCP_CONNECT_CB)
		return 1;
	/* What stays within the cell is nobody's to ask about, and would push out what egress looks up. */
	if (ctx->family == AF_INET ? loopback4(ctx->remote_ip4) :
				     loopback6(ctx->remote_ip6[0], ctx->remote_ip6[1], ctx->remote_ip6[2], ctx->remote_ip6[3]))
		return 1;
	o = ctx->sk ? bpf_sk_storage_get(&opening, ctx->sk, 0, 0) : 0;
	if (!o || !o->tgid) { /* connect has not written to it */
		count(GATE_NO_ENTRY);
		return 1;
	}
	net = bpf_get_netns_cookie(ctx);
	to = bpf_map_lookup_elem(&openers, &net);
	if (!to) { /* no cell's network */
		count(GATE_NO_ENTRY);
		return 1;
	}
	key.port = ctx->local_port;
	if (ctx->family == AF_INET)
		mapped(key.addr, ctx->local_ip4);
	else
		words(key.addr, ctx->local_ip6[0], ctx->local_ip6[1], ctx->local_ip6[2], ctx->local_ip6[3]);
	if (bpf_map_update_elem(to, &key, o, BPF_ANY))
		count(GATE_NO_ENTRY);
	return 1;
}

/* ---- options ---- */

#define BIT(n) (1ULL << (n))

/*
 * What programs set on IPv4 and IPv6 (linux/in.h, linux/in6.h). Not on the list, among others: IP_OPTIONS (4), IP_HDRINCL (3),
 * IP_TRANSPARENT (19), IPV6_2292PKTOPTIONS (6), IPV6_HOPOPTS (54), IPV6_RTHDRDSTOPTS (55), IPV6_RTHDR (57), IPV6_DSTOPTS (59),
 * which choose a packet's way, or make a packet's head; netfilter's and multicast routing's, from 64 and 200 on.
 */
#define IP_LISTED                                                                                                          \
	(BIT(1) | BIT(2) | BIT(6) | BIT(7) | BIT(8) | BIT(10) | BIT(11) | BIT(12) | BIT(13) | BIT(15) | BIT(20) | \
	 BIT(21) | BIT(23) | BIT(24) | BIT(25) | BIT(32) | BIT(33) | BIT(34) | BIT(35) | BIT(36) | BIT(42) | BIT(45) |     \
	 BIT(49) | BIT(50) | BIT(51))
#define IPV6_LISTED                                                                                                        \
	(BIT(2) | BIT(3) | BIT(4) | BIT(5) | BIT(8) | BIT(16) | BIT(17) | BIT(18) | BIT(19) | BIT(20) | BIT(21) | BIT(23) | \
	 BIT(24) | BIT(25) | BIT(26) | BIT(29) | BIT(33) | BIT(42) | BIT(45) | BIT(49) | BIT(50) | BIT(51) | BIT(52) | BIT(53) |     \
	 BIT(56) | BIT(58) | BIT(60) | BIT(61) | BIT(62))
/* From 64 on: IPV6_RECVTCLASS, TCLASS, AUTOFLOWLABEL, ADDR_PREFERENCES, MINHOPCOUNT, ORIGDSTADDR, RECVFRAGSIZE, FREEBIND. */
#define IPV6_LISTED_64 (BIT(66 - 64) | BIT(67 - 64) | BIT(70 - 64) | BIT(72 - 64) | BIT(73 - 64) | BIT(74 - 64) | BIT(77 - 64) | BIT(78 - 64))

static __always_inline bool listed(u64 list, u32 n)
{
	return n < 64 && (list >> n & 1);
}

static __always_inline bool option(u32 level, u32 name)
{
	switch (level) {
	case 0: /* SOL_IP */
		return listed(IP_LISTED, name);
	case 41: /* SOL_IPV6 */
		return name < 64 ? listed(IPV6_LISTED, name) : listed(IPV6_LISTED_64, name - 64);
	case 1: /* SOL_SOCKET */
	case TCP:
	case UDP:
	case 270: /* SOL_NETLINK */
	case 282: /* SOL_TLS */
		return 1;
	default:
		return 0;
	}
}

SEC("cgroup/setsockopt")
int gate_option(struct bpf_sockopt *ctx)
{
	u32 level = ctx->level, name = ctx->optname;
	struct refusal *r;

	if (option(level, name)) {
		ctx->optlen = 0; /* the kernel goes on with what the caller gave, of any length; nothing of it was looked at here */
		return PASS;
	}
	r = refusal(GATE_OPTION);
	if (r) {
		by_task(r);
		r->type = level;
		r->proto = name;
		bpf_ringbuf_submit(r, 0);
	}
	return REFUSE;
}

/* ---- packets ---- */

/* Another task may run when a packet is sent or comes in: none is named, but the cell of its socket. */
static __always_inline int refuse_packet(struct __sk_buff *skb, enum gate why, u32 proto)
{
	struct refusal *r = refusal(why);

	if (!r)
		return REFUSE;
	r->unit = level ? bpf_skb_ancestor_cgroup_id(skb, level + 1) : 0;
	r->family = skb->family;
	r->proto = proto;
	bpf_ringbuf_submit(r, 0);
	return REFUSE;
}

/*
 * The one header hop by hop that the kernel makes by itself: a segment of TCP above 64 KiB, which it has not cut yet, says its length
 * there (RFC 2675 2). Refused, it would be sent again in small pieces, one each 200 ms.
 */
static __always_inline int jumbo(struct __sk_buff *skb, const u8 *head)
{
	u8 next[4];

	return !head[4] && !head[5] && !bpf_skb_load_bytes(skb, 40, next, sizeof(next)) && next[0] == TCP && next[1] == 0 &&
	       next[2] == 0xc2 && next[3] == 4;
}

SEC("cgroup_skb/egress")
int gate_out(struct __sk_buff *skb)
{
	u8 head[20];
	u8 proto;

	if (skb->ifindex != LO)
		return refuse_packet(skb, GATE_OUT, 0);
	if (bpf_skb_load_bytes(skb, 0, head, sizeof(head)))
		return refuse_packet(skb, GATE_NO_PACKET, 0);
	switch (skb->protocol) {
	case bpf_htons(ETH_IP):
		proto = head[9];
		if (head[0] != 0x45) /* version 4, and a head of five words: no options */
			return refuse_packet(skb, GATE_HEADER, proto);
		break;
	case bpf_htons(ETH_IPV6):
		proto = head[6];
		if (proto == 0 && jumbo(skb, head))
			proto = TCP;
		/* The next header is an extension: hop by hop, routing, fragment, ESP, AH, none, destination, mobility. */
		if (proto == 0 || proto == 43 || proto == 44 || proto == 50 || proto == 51 || proto == 59 || proto == 60 || proto == 135)
			return refuse_packet(skb, GATE_HEADER, proto);
		break;
	default:
		return refuse_packet(skb, GATE_PROTOCOL, 0);
	}
	return proto == TCP || proto == UDP ? PASS : refuse_packet(skb, GATE_PROTOCOL, proto);
}

SEC("cgroup_skb/ingress")
int gate_in(struct __sk_buff *skb)
{
	return skb->ifindex == LO ? PASS : refuse_packet(skb, GATE_IN, 0);
}

char _license[] SEC("license") = "GPL";
