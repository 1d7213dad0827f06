// SPDX-License-Identifier: Apache-2.0

// Command peek looks into the arguments and the environment of every process that it can see, every 5 ms, for the lines
// of its input, until the file that its argument names is there: `peek DONE`. It prints how often it looked, and what it
// found where.
package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Println("usage: peek DONE")
		os.Exit(2)
	}
	in, err := io.ReadAll(os.Stdin)
	if err != nil {
		fmt.Println("peek:", err)
		os.Exit(1)
	}
	needles := bytes.Split(bytes.TrimSpace(in), []byte{'\n'})
	found, looks, read := map[string]bool{}, 0, 0
	tick := time.NewTicker(5 * time.Millisecond)
	for {
		if _, err := os.Stat(os.Args[1]); err == nil {
			break
		}
		processes, _ := filepath.Glob("/proc/[0-9]*")
		for _, p := range processes {
			for _, name := range []string{"cmdline", "environ"} {
				b, err := os.ReadFile(filepath.Join(p, name))
				if err != nil {
					continue // gone, or not for us
				}
				read += len(b)
				for _, n := range needles {
					if bytes.Contains(b, n) {
						found[fmt.Sprintf("%s: %.200q", name, b)] = true
					}
				}
			}
		}
		looks++
		<-tick.C
	}
	fmt.Printf("looks %d read %d\n", looks, read)
	for f := range found {
		fmt.Println("FOUND", f)
	}
}
