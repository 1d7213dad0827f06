/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */

/*
 * The log of refusals, one for all programs; cellnet gives each of them the same map, and tells sentinel's ledger what is in it.
 * Each object of programs logs LOGGED a second.
 */
#ifndef REFUSALS_H
#define REFUSALS_H

#include "doorward.h"

#define LOGGED 100 /* refusals a second */

/* Whose refusal it is, and so which enum its reason is of. */
enum wall { WALL_GATE, WALL_WORKER, WALL_FOREIGN };

/* One line of the log of refusals. Of a packet there is no task to name, and of a socket no address. */
struct refusal {
	u64 when; /* nanoseconds since boot */
	u64 unit; /* cgroup of the unit of the cell or worker; 0 where it could not be told */
	u32 tgid;
	u8 why;	    /* of the wall */
	u8 wall;    /* enum wall */
	u16 family; /* AF_ */
	u8 addr[16];
	u16 port;
	u16 type;  /* SOCK_, or the level of an option */
	u32 proto; /* IPPROTO_, or the option's number */
	char comm[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 64 * 1024);
} refusals SEC(".maps");

/* So that the struct's layout is in the object, for Go and for the loader. */
const struct refusal *layout __attribute__((unused));

/* The second in which refusals are being logged, and how many. */
static u64 second, logged;

/* A line that is to be filled and submitted; none beyond LOGGED, or while nobody reads the log. */
static __always_inline struct refusal *line(enum wall wall, u32 why)
{
	u64 now = bpf_ktime_get_boot_ns();
	struct refusal *r;

	/* Two processors may begin a second twice; then it has some more lines. */
	if (now / 1000000000 != second) {
		second = now / 1000000000;
		logged = 0;
	}
	if (__sync_fetch_and_add(&logged, 1) >= LOGGED)
		return 0;
	r = bpf_ringbuf_reserve(&refusals, sizeof(*r), 0);
	if (!r)
		return 0;
	__builtin_memset(r, 0, sizeof(*r));
	r->when = now;
	r->why = why;
	r->wall = wall;
	return r;
}

/* Names the running task. */
static __always_inline void by(struct refusal *r, u64 unit)
{
	r->unit = unit;
	r->tgid = bpf_get_current_pid_tgid() >> 32;
	bpf_get_current_comm(r->comm, sizeof(r->comm));
}

#endif
