//go:build ignore

/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */

/*
 * What the gate cannot see, since it goes by the cgroup that a socket was made in: here it is the task that counts. A program of a
 * session of a cell makes no socket of another family than Unix, IPv4, IPv6 and netlink's routing, and uses none but Unix ones that
 * was made outside of its cell, however it came by it: inherited, passed along a Unix socket, or taken by pidfd_getfd(2).
 *
 * A session is what is two or more below the slice, but for `supervisor`, where systemd-nspawn itself is; the cell is what is one below.
 * These are programs of the BPF security module: they load everywhere, and run only where `bpf` is in the kernel's list of modules.
 *
 * What an attacker in the cell could do: make cgroups below its session, which changes nothing. It cannot leave the session's.
 */
#include "doorward.h"
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
	FOREIGN_NO_READ, /* the kernel's own structs could not be read; refused, where it is a session's */
	FOREIGN_REASONS,
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, u32);
	__type(value, u64);
	__uint(max_entries, FOREIGN_REASONS);
} foreign SEC(".maps");

static __always_inline int deny(enum foreign why)
{
	u32 key = why;
	u64 *n = bpf_map_lookup_elem(&foreign, &key);

	if (n)
		(*n)++; /* of this processor */
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
		return deny(FOREIGN_NO_READ);
	if (family == AF_UNIX) /* of which others see to whom it speaks */
		return 0;
	return cell(BPF_CORE_READ(sk, sk_cgrp_data.cgroup)) == unit ? 0 : deny(why);
}

SEC("lsm/socket_create")
int BPF_PROG(foreign_create, int family, int type, int protocol, int kern, int ret)
{
	if (ret)
		return ret;
	if (kern || !session())
		return 0;
	if (family == AF_UNIX || family == AF_INET || family == AF_INET6 || (family == AF_NETLINK && protocol == 0))
		return 0;
	return deny(FOREIGN_FAMILY);
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

char _license[] SEC("license") = "GPL";
