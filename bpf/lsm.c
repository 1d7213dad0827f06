//go:build ignore

/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */

/*
 * What the gate cannot see, since it goes by the cgroup that a socket was made in: here it is the task that counts. A program of a
 * session of a cell makes no socket of another family than Unix, IPv4, IPv6 and netlink's routing, and uses none but Unix ones that
 * was made outside of its cell, however it came by it: inherited, passed along a Unix socket, or taken by pidfd_getfd(2). Of Unix
 * sockets it speaks to its own cell's, and to those at which cells call Doorward.
 *
 * A session is what is two or more below the slice, but for `supervisor`, where systemd-nspawn itself is; the cell is what is one below.
 * These are programs of the BPF security module: they load everywhere, and run only where `bpf` is in the kernel's list of modules.
 *
 * What an attacker in the cell could do: make cgroups below its session, which changes nothing. It cannot leave the session's.
 */
#include "refusals.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

/* The id of the slice's cgroup, set before the programs are loaded. */
volatile const u64 slice = 0;

/* At which level of the tree the slice is, which its id never changes; 0 until a task below it was seen. */
static u32 level;

#define LEVELS 16 /* of the slice, at most */

#define EPERM 1
#define S_IFMT 0170000
#define S_IFSOCK 0140000

/* What was refused. */
enum foreign {
	FOREIGN_FAMILY,	 /* a socket of another family */
	FOREIGN_CONNECT, /* from here on: with a socket that was made outside of the cell */
	FOREIGN_SEND,
	FOREIGN_RECEIVE,
	FOREIGN_LISTEN,
	FOREIGN_ACCEPT,
	FOREIGN_FILE,	 /* such a socket was to come in */
	FOREIGN_UNIX,	 /* a Unix socket of somebody outside was to be spoken to */
	FOREIGN_NO_READ, /* the kernel's own structs could not be read; refused, where it is a session's */
	/* What is only counted. */
	FOREIGN_UNLOGGED, /* a refusal beyond LOGGED, or while nobody reads the log */
	FOREIGN_REASONS,
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, u32);
	__type(value, u64);
	__uint(max_entries, FOREIGN_REASONS);
} foreign SEC(".maps");

static __always_inline void count(enum foreign why)
{
	u32 key = why;
	u64 *n = bpf_map_lookup_elem(&foreign, &key);

	if (n)
		(*n)++; /* of this processor */
}

static __always_inline int deny(enum foreign why, u64 unit, u32 family, u32 type, u32 proto)
{
	struct refusal *r = line(WALL_FOREIGN, why);

	count(why);
	if (!r) {
		count(FOREIGN_UNLOGGED);
		return -EPERM;
	}
	by(r, unit);
	r->family = family;
	r->type = type;
	r->proto = proto;
	bpf_ringbuf_submit(r, 0);
	return -EPERM;
}

/* The cgroup at a level above cg, or none where that is not so deep. */
static __always_inline struct cgroup *above(struct cgroup *cg, u32 at)
{
	struct cgroup *up = 0;
	int depth = -1;

	if (bpf_core_read(&depth, sizeof(depth), &cg->level) || depth < (int)at)
		return 0;
	if (bpf_probe_read_kernel(&up, sizeof(up), (void *)__builtin_preserve_access_index(&cg->ancestors) + at * sizeof(up)))
		return 0;
	return up;
}

static __always_inline u64 id(struct cgroup *cg)
{
	return cg ? BPF_CORE_READ(cg, kn, id) : 0;
}

/* The id of the unit of the cell below which cg is, or 0 where it is in none. */
static __always_inline u64 cell(struct cgroup *cg)
{
	u32 at = level;

	if (!cg)
		return 0;
	if (!at) {
		for (u32 i = 1; i < LEVELS; i++) {
			struct cgroup *up = above(cg, i);

			if (!up)
				break;
			if (id(up) == slice) {
				at = level = i;
				break;
			}
		}
	}
	if (!at || id(above(cg, at)) != slice)
		return 0;
	return id(above(cg, at + 1));
}

/* The same of the running task, where it is of a session. */
static __always_inline u64 session(void)
{
	static const char nspawn[] = "supervisor";
	struct task_struct *task = bpf_get_current_task_btf();
	struct cgroup *cg = BPF_CORE_READ(task, cgroups, dfl_cgrp), *of;
	char name[sizeof(nspawn) + 1] = {}; /* a longer one shows */
	u64 unit = cell(cg);

	if (!unit)
		return 0;
	of = above(cg, level + 2);
	if (!of)
		return 0;
	if (bpf_probe_read_kernel_str(name, sizeof(name), BPF_CORE_READ(of, kn, name)) != sizeof(nspawn))
		return unit; /* of another length, or not to be read */
#pragma unroll
	for (u32 i = 0; i < sizeof(nspawn); i++)
		if (name[i] != nspawn[i])
			return unit;
	return 0;
}

static __always_inline int use(struct sock *sk, enum foreign why)
{
	u64 unit = session();
	u16 family = 0;

	if (!unit || !sk)
		return 0;
	if (bpf_core_read(&family, sizeof(family), &sk->__sk_common.skc_family))
		return deny(FOREIGN_NO_READ, unit, 0, 0, 0);
	if (family == AF_UNIX) /* of which `speak` sees to whom it speaks */
		return 0;
	return cell(BPF_CORE_READ(sk, sk_cgrp_data.cgroup)) == unit ? 0 : deny(why, unit, family, 0, 0);
}

/* How the names begin of the sockets at which cells call Doorward, as systemd has bound them (units, wire.CellDir). */
static const char calls[] = "/run/doorward/private/cell/";

static __always_inline bool called(struct unix_address *addr)
{
	char path[sizeof(calls)];

	if (bpf_probe_read_kernel(path, sizeof(path), __builtin_preserve_access_index(&addr->name[0].sun_path)))
		return 0;
#pragma unroll
	for (u32 i = 0; i < sizeof(calls) - 1; i++)
		if (path[i] != calls[i])
			return 0;
	return 1;
}

/*
 * A session speaks to Unix sockets that were made in its cell, wherever a name of them lies, and to those at which cells call
 * Doorward. A folder of a project may have others: of a tool that a person runs, and that does what it is told there. One without a
 * name is the other end of a pair, and whoever speaks to it was given its own: so systemd and nspawn speak to those that they start.
 */
static __always_inline int speak(struct sock *other, bool stream)
{
	u64 unit = session(), theirs;
	struct unix_address *addr = 0;

	if (!unit || !other)
		return 0;
	if (bpf_core_read(&addr, sizeof(addr), &((struct unix_sock *)other)->addr))
		return deny(FOREIGN_NO_READ, unit, AF_UNIX, 0, 0);
	if (!addr)
		return 0;
	theirs = cell(BPF_CORE_READ(other, sk_cgrp_data.cgroup));
	if (theirs == unit || (stream && !theirs && called(addr)))
		return 0;
	return deny(FOREIGN_UNIX, unit, AF_UNIX, stream ? SOCK_STREAM : SOCK_DGRAM, 0);
}

SEC("lsm/socket_create")
int BPF_PROG(foreign_create, int family, int type, int protocol, int kern, int ret)
{
	u64 unit;

	if (ret)
		return ret;
	unit = kern ? 0 : session();
	if (!unit)
		return 0;
	if (family == AF_UNIX || family == AF_INET || family == AF_INET6 || (family == AF_NETLINK && protocol == 0))
		return 0;
	return deny(FOREIGN_FAMILY, unit, family, type, protocol);
}

SEC("lsm/socket_connect")
int BPF_PROG(foreign_connect, struct socket *sock, void *address, int len, int ret)
{
	return ret ?: use(BPF_CORE_READ(sock, sk), FOREIGN_CONNECT);
}

SEC("lsm/socket_sendmsg")
int BPF_PROG(foreign_send, struct socket *sock, void *msg, int size, int ret)
{
	return ret ?: use(BPF_CORE_READ(sock, sk), FOREIGN_SEND);
}

SEC("lsm/socket_recvmsg")
int BPF_PROG(foreign_receive, struct socket *sock, void *msg, int size, int flags, int ret)
{
	return ret ?: use(BPF_CORE_READ(sock, sk), FOREIGN_RECEIVE);
}

SEC("lsm/socket_listen")
int BPF_PROG(foreign_listen, struct socket *sock, int backlog, int ret)
{
	return ret ?: use(BPF_CORE_READ(sock, sk), FOREIGN_LISTEN);
}

SEC("lsm/socket_accept")
int BPF_PROG(foreign_accept, struct socket *sock, struct socket *newsock, int ret)
{
	return ret ?: use(BPF_CORE_READ(sock, sk), FOREIGN_ACCEPT);
}

SEC("lsm/file_receive")
int BPF_PROG(foreign_file, struct file *file, int ret)
{
	struct socket *sock;

	if (ret)
		return ret;
	if ((BPF_CORE_READ(file, f_inode, i_mode) & S_IFMT) != S_IFSOCK)
		return 0;
	sock = BPF_CORE_READ(file, private_data);
	return sock ? use(BPF_CORE_READ(sock, sk), FOREIGN_FILE) : 0;
}

SEC("lsm/unix_stream_connect")
int BPF_PROG(foreign_unix, struct sock *sk, struct sock *other, struct sock *newsk, int ret)
{
	return ret ?: speak(other, 1);
}

SEC("lsm/unix_may_send")
int BPF_PROG(foreign_datagram, struct socket *sock, struct socket *other, int ret)
{
	return ret ?: speak(BPF_CORE_READ(other, sk), 0);
}

char _license[] SEC("license") = "GPL";
