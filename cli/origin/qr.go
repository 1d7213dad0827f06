// SPDX-License-Identifier: Apache-2.0

package origin

import (
	"fmt"
	"strings"

	"rsc.io/qr"
)

// quiet is the width in modules of what is light around a code (ISO/IEC 18004).
const quiet = 4

// Code is a text as a QR code in lines for a terminal, two modules high each, black on white whatever the terminal's own colours are:
// many cameras do not read the reverse. width is in columns.
func Code(text string) (lines []string, width int, err error) {
	c, err := qr.Encode(text, qr.L) // a screen has no stains, and a small code fits
	if err != nil {
		return nil, 0, fmt.Errorf("make a QR code of %d bytes: %w", len(text), err)
	}
	width = c.Size + 2*quiet
	for y := -quiet; y < c.Size+quiet; y += 2 {
		var b strings.Builder
		b.WriteString("\x1b[38;5;16;48;5;231m")
		for x := -quiet; x < c.Size+quiet; x++ {
			// Outside of it Black says no.
			switch up, down := c.Black(x, y), c.Black(x, y+1); {
			case up && down:
				b.WriteString("█")
			case up:
				b.WriteString("▀")
			case down:
				b.WriteString("▄")
			default:
				b.WriteByte(' ')
			}
		}
		b.WriteString("\x1b[0m")
		lines = append(lines, b.String())
	}
	return lines, width, nil
}
