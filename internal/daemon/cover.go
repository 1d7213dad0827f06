// SPDX-License-Identifier: Apache-2.0

//go:build cover

package daemon

// A daemon that test/vm builds to say at its end what of it ran is told where. No package that `make deb` makes has this.
func init() { kept = append(kept, "GOCOVERDIR") }
