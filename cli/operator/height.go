// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"os"

	"golang.org/x/term"
)

// height is how many lines fit on the terminal with a prompt below, or 0 where there is none.
func (a *app) height() int {
	out, ok := a.out.(*os.File)
	if !ok || !a.terminal() {
		return 0
	}
	_, h, err := term.GetSize(int(out.Fd()))
	if err != nil || h < 8 {
		return 0
	}
	return h - 2
}
