// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/internal/wire"
)

// Calls of one cell that a vendor does not answer keep neither another cell's nor sentinel's calls waiting, and those
// that get no place are told so while their grants could still be used.
func TestOneCellsSlowCallsDoNotKeepOthersOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := toy(func(ctx context.Context, _ *Call) (*Answer, error) {
			<-ctx.Done()
			return nil, wire.Refuse(wire.CodeVendorDown, "slow", "")
		}, answers(1))
		tr, _ := trial(t, c)
		var mu sync.Mutex
		running := 0
		tr.Borrow = func(*wire.BorrowReq) (*wire.BorrowResp, error) {
			mu.Lock()
			defer mu.Unlock()
			running++
			return &wire.BorrowResp{Mark: "m"}, nil
		}
		tr.Finish = func(*wire.FinishReq) error { return nil }
		w := newWorker(c, slog.New(slog.DiscardHandler), tr, tr, tr.Egress)
		began := time.Now()
		var calls sync.WaitGroup
		var busy int
		for range concurrent + 12 {
			calls.Go(func() {
				req := &wire.CallReq{Frame: frameOf(c, "read")}
				_, err := w.call(t.Context(), peer.Identity{Kind: peer.Cell, Name: "work"}, req, nil)
				if codeOf(err) == wire.CodeUnavailable {
					if took := time.Since(began); took > slotTime {
						t.Errorf("told that it is busy after %s", took)
					}
					mu.Lock()
					busy++
					mu.Unlock()
				}
			})
		}
		synctest.Wait()
		if running != ofOneCell {
			t.Errorf("%d of one cell run, want %d", running, ofOneCell)
		}
		write := &wire.CallReq{Frame: frameOf(c, "write")}
		if _, err := w.call(t.Context(), peer.Identity{Kind: peer.Cell, Name: "home"}, write, nil); err != nil {
			t.Errorf("another cell: %v", err)
		}
		if _, err := w.execute(t.Context(), write, nil); err != nil {
			t.Errorf("sentinel: %v", err)
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("they waited %s", took)
		}
		calls.Wait()
		if busy != concurrent+12-ofOneCell {
			t.Errorf("%d were told that it is busy", busy)
		}
		if _, err := w.call(t.Context(), peer.Identity{Kind: peer.Cell, Name: "work"}, write, nil); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}

// So many calls at once hold much of an answer, and no more; one that waits takes the place of one that ends. A small
// answer needs none.
func TestLargeAnswersAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		large := make(chan struct{}, largeAnswers)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		answer := func(c *Call, size int) *Body {
			return &Body{r: strings.NewReader(strings.Repeat("x", size)), left: 4 * largeAnswer, ctx: ctx, call: c}
		}
		var holders []*Call
		for range largeAnswers {
			c := &Call{large: large}
			for range 2 { // two answers of one call take one place
				if n, err := io.Copy(io.Discard, answer(c, largeAnswer+1)); err != nil || n != largeAnswer+1 {
					t.Fatal(n, err)
				}
			}
			holders = append(holders, c)
		}
		if _, err := io.Copy(io.Discard, answer(&Call{large: large}, largeAnswer)); err != nil {
			t.Error("a small answer:", err)
		}
		next := make(chan error)
		go func() {
			_, err := io.Copy(io.Discard, answer(&Call{large: large}, largeAnswer+1))
			next <- err
		}()
		synctest.Wait()
		select {
		case err := <-next:
			t.Error("one more did not wait:", err)
		default:
		}
		holders[0].close()
		if err := <-next; err != nil {
			t.Error("the one that waited:", err)
		}
		if _, err := io.Copy(io.Discard, answer(&Call{large: large}, largeAnswer+1)); codeOf(err) != wire.CodeUnavailable {
			t.Error("one that waited too long:", err)
		}
	})
}
