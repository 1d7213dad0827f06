/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */

/*
 * What the programs of this folder share. The kernel's stable interface comes from linux/bpf.h and the declarations of its
 * helpers from libbpf; of the kernel's own structs only the fields that are read are declared here, and the loader finds where
 * they are in the running kernel (BPF CO-RE). Kernel 6.8 or newer.
 */
#ifndef DOORWARD_H
#define DOORWARD_H

#include <linux/types.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef _Bool bool;

/* Numbers that every kernel has the same, from headers that cannot be included beside linux/bpf.h for the target bpf. */
enum {
	AF_UNIX = 1,
	AF_INET = 2,
	AF_INET6 = 10,
	AF_NETLINK = 16,
	SOCK_STREAM = 1,
	SOCK_DGRAM = 2,
	TCP = 6,
	UDP = 17,
	DNS = 53,
	LO = 1, /* lo is the first interface of every network namespace (net/core/dev.c: LOOPBACK_IFINDEX) */
	ETH_IP = 0x0800,
	ETH_IPV6 = 0x86dd,
};

/* What a program answers to its cgroup hook. */
enum { REFUSE = 0, PASS = 1 };

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct kernfs_node {
	u64 id;
	const char *name;
};
struct cgroup {
	struct kernfs_node *kn;
	int level;
	struct cgroup *ancestors[];
};
struct css_set {
	struct cgroup *dfl_cgrp;
};
struct task_struct {
	struct task_struct *group_leader;
	struct css_set *cgroups;
	u64 start_boottime;
	char comm[16];
};
struct sock_common {
	unsigned short skc_family;
};
struct sock_cgroup_data {
	struct cgroup *cgroup;
};
struct sock {
	struct sock_common __sk_common;
	struct sock_cgroup_data sk_cgrp_data;
};
struct socket {
	struct sock *sk;
};
struct sockaddr_un {
	char sun_path[108];
};
struct unix_address {
	struct sockaddr_un name[1]; /* as many bytes as the name has */
};
struct unix_sock {
	struct sock sk;
	struct unix_address *addr;
};
struct inode {
	unsigned short i_mode;
};
struct file {
	struct inode *f_inode;
	void *private_data;
};
#pragma clang attribute pop

/* 127.0.0.0/8, in the order of the network. */
static __always_inline bool loopback4(u32 addr)
{
	return (addr & bpf_htonl(0xff000000)) == bpf_htonl(0x7f000000);
}

/* ::1, or 127.0.0.0/8 as IPv6 writes it, in the order of the network. */
static __always_inline bool loopback6(u32 a, u32 b, u32 c, u32 d)
{
	if (a || b)
		return 0;
	return c == 0 ? d == bpf_htonl(1) : c == bpf_htonl(0xffff) && loopback4(d);
}

#endif
