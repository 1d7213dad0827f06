// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// rawRate is the floor of `audit/64`: one writer, pwrite and fdatasync of one record into a file that is there
// already, in the folder that the ledger is in. Records a second.
func rawRate(tb testing.TB, dir string, record int, n int) float64 {
	tb.Helper()
	f, err := os.Create(filepath.Join(dir, "floor"))
	if err != nil {
		tb.Fatal(err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	const size = 16 << 20
	if _, err := f.Write(make([]byte, size)); err != nil {
		tb.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		tb.Fatal(err)
	}
	buf := make([]byte, record)
	began := time.Now()
	for i := range n {
		if _, err := f.WriteAt(buf, int64(i*record)%(size-int64(record))); err != nil {
			tb.Fatal(err)
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			tb.Fatal(err)
		}
	}
	return float64(n) / time.Since(began).Seconds()
}

// benchEvent is an ordinary record: about 300 bytes as a line.
func benchEvent() Event {
	return Event{Type: EvSent, Actor: "egress", Cell: "alpha", Session: "s1", Call: NewID(),
		Details: Sent{Pass: "p", Host: "api.github.com", Method: "GET", Path: "/repos/o/r/issues", Status: 200, In: 4711}}
}

// BenchmarkAudit64 is the row `audit/64`: 64 writers, each waiting for its record to be durable, against the raw rate
// of one. The ratio is taken in alternating rounds in the same folder, and the record is verified from the disk at
// the end.
func BenchmarkAudit64(b *testing.B) { benchAudit(b, 64) }

// BenchmarkAudit1 is the same with one writer.
func BenchmarkAudit1(b *testing.B) { benchAudit(b, 1) }

func benchAudit(b *testing.B, writers int) {
	dir := newDir(b)
	l, _ := openAt(b, dir)
	var floor, rate []float64
	perRound := 200 * writers
	b.ReportAllocs()
	for b.Loop() {
		floor = append(floor, rawRate(b, b.TempDir(), 300, 500))
		var left atomic.Int64
		left.Store(int64(perRound))
		var wg sync.WaitGroup
		began := time.Now()
		for range writers {
			wg.Go(func() {
				for left.Add(-1) >= 0 {
					if err := l.Record(b.Context(), benchEvent()); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		rate = append(rate, float64(perRound)/time.Since(began).Seconds())
	}
	rep, err := l.Verify(b.Context(), nil)
	if err != nil || len(rep.Findings) > 0 {
		b.Fatal("the record does not verify:", err, rep)
	}
	if want := int64(1 + perRound*len(rate)); rep.Size != want {
		b.Fatalf("%d entries are on the disk, %d were acknowledged", rep.Size, want)
	}
	b.ReportMetric(median(rate)/median(floor), "ratio")
	b.ReportMetric(median(rate), "records/s")
	b.ReportMetric(median(floor), "floor/s")
}

func median(v []float64) float64 {
	s := append([]float64(nil), v...)
	for i := range s {
		for j := i; j > 0 && s[j] < s[j-1]; j-- {
			s[j], s[j-1] = s[j-1], s[j]
		}
	}
	return s[len(s)/2]
}
