// SPDX-License-Identifier: Apache-2.0

// Package bpf is Doorward's programs in the kernel, compiled: a C file for each subject, and what bpf2go makes of it. It decides
// nothing and loads nothing by itself; package cellnet does. The objects are committed, so that building Doorward needs no
// compiler of C; `make generate` makes them again, and `make generate-check` holds them to it, byte by byte. Both take clang 14
// and libbpf 1.1 as Debian 12 has them, on amd64:
//
//	apt-get install -y --no-install-recommends clang llvm libbpf-dev
//
// The objects are for processors whose numbers begin with the low byte, which amd64 and arm64 are.
package bpf

//go:generate -command cc go tool bpf2go -target bpfel -cflags "-O2 -g -Wall -Werror -mcpu=v3 -Iheaders -I/usr/include/x86_64-linux-gnu"
//go:generate cc Steer steer.c
//go:generate cc Worker worker.c
//go:generate cc Lsm lsm.c
//go:generate cc -type opener_key -type opener -type refusal Gate gate.c
