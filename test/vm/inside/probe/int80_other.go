// SPDX-License-Identifier: Apache-2.0

//go:build !amd64

package main

func int80() int32 { return -38 } // ENOSYS: there are no 32-bit programs
