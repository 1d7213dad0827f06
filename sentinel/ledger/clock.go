// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Moment is one instant on both clocks. The wall clock can be set by anybody who may set it; the boot clock
// (CLOCK_BOOTTIME, which counts sleep) cannot, but means nothing after a reboot. A deadline is a Moment too: the zero
// Moment never comes.
type Moment struct {
	Wall   int64  `json:"wall"`             // microseconds since 1970, UTC
	Boot   int64  `json:"boot"`             // nanoseconds since boot
	BootID string `json:"boot_id,omitzero"` // the boot that Boot counts from (proc_sys_kernel(5), random/boot_id)
}

// IsZero says whether m is no moment at all.
func (m Moment) IsZero() bool { return m == Moment{} }

// Add returns m moved by d on both clocks.
func (m Moment) Add(d time.Duration) Moment {
	return Moment{Wall: m.Wall + d.Microseconds(), Boot: m.Boot + d.Nanoseconds(), BootID: m.BootID}
}

// At returns the deadline that comes at wall-clock time t, told at m.
func (m Moment) At(t time.Time) Moment { return m.Add(t.Sub(m.Time())) }

// Time returns the wall clock's reading.
func (m Moment) Time() time.Time { return time.UnixMicro(m.Wall).UTC() }

// Reached says whether the deadline has come by m: on either clock, so setting the wall clock back prolongs nothing.
// After a reboot only the wall clock is left.
func (m Moment) Reached(deadline Moment) bool {
	if deadline.IsZero() {
		return false
	}
	if m.Wall >= deadline.Wall {
		return true
	}
	return m.BootID != "" && m.BootID == deadline.BootID && m.Boot >= deadline.Boot
}

// bootClock returns a clock that reads both. It fails when the kernel does not tell its boot id.
func bootClock() (func() Moment, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil, fmt.Errorf("read the boot id: %w", err)
	}
	id := strings.TrimSpace(string(b))
	return func() Moment {
		var ts unix.Timespec
		m := Moment{Wall: time.Now().UnixMicro()}
		if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) == nil {
			m.Boot, m.BootID = ts.Nano(), id
		}
		return m
	}, nil
}
