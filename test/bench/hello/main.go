// SPDX-License-Identifier: Apache-2.0

// Command hello is the plainest Go program there is: the floor of every row that starts one.
package main

import "os"

func main() { os.Stdout.WriteString("hello\n") }
