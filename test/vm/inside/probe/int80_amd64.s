// SPDX-License-Identifier: Apache-2.0

#include "textflag.h"

// func int80() int32
// getpid by the door of 32-bit programs.
TEXT ·int80(SB), NOSPLIT, $0-4
	MOVL $20, AX
	INT  $0x80
	MOVL AX, ret+0(FP)
	RET
