// SPDX-License-Identifier: Apache-2.0

package cellnet

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/wire"
	"golang.org/x/sys/unix"
)

// tellTime bounds each wait for sentinel.
const tellTime = 10 * time.Second

// Report is what follows each canary, outside of the slice that it froze. Where one failed without a word, since it was ended or
// hung, and the one before it too, the cells are frozen. Then it tells, by tell, what was said and what the walls have refused since
// the last time. What could not be told of refusals is lost, but counted on; what a canary said is told the next time.
func (p Paths) Report(tell func(*wire.CanaryReq) error) error {
	cells, err := p.marked(markTrying)
	if errors.Is(err, os.ErrNotExist) { // no slice, and so no cell
		return nil
	}
	workers, bad := p.marked(markTryingWorkers)
	if err = errors.Join(err, bad); err != nil || cells != "" && cells != "1" || workers != "" && workers != "1" {
		said := "the walls could not be tried twice in a row, so all cells are frozen: systemctl status 'doorward-canary*'"
		err = errors.Join(err, p.freezeCells(), p.sayOnce(said))
	}
	req, bad := p.news()
	if err = errors.Join(err, bad); req == nil {
		return err
	}
	if bad := tell(req); bad != nil {
		return errors.Join(err, fmt.Errorf("tell sentinel of the walls: %w", bad))
	}
	if req.Failed != "" {
		err = errors.Join(err, p.mark(markSaid, ""))
	}
	return err
}

// sayOnce has it told why the cells are frozen, where that is not waiting to be told already.
func (p Paths) sayOnce(said string) error {
	if old, err := p.marked(markSaid); err != nil || old != "" {
		return err
	}
	return p.mark(markSaid, said)
}

// news is what there is to tell, or nil. Preconditions: nobody else reads the log of refusals.
func (p Paths) news() (*wire.CanaryReq, error) {
	req := &wire.CanaryReq{}
	said, err := p.marked(markSaid)
	if err != nil {
		return nil, err
	}
	req.Failed = strings.ToValidUTF8(said, "")
	own, err := p.marked(markOwn)
	if err == nil {
		err = p.mark(markOwn, "")
	}
	if err != nil {
		return nil, err
	}
	if err := p.refused(req, strings.Fields(own)); err != nil && req.Failed == "" {
		return nil, err
	}
	if req.Failed == "" && len(req.Refused) == 0 && req.Unlisted == 0 {
		return nil, nil
	}
	return req, nil
}

// refused reads what is in the log now, adds alike ones up, and leaves out those of canaries, whose cgroups own names.
func (p Paths) refused(req *wire.CanaryReq, own []string) error {
	units, err := p.units()
	if err != nil {
		return err
	}
	log, err := p.OpenRefusals()
	if err != nil {
		return err
	}
	defer log.Close()
	log.r.SetDeadline(time.Now()) // what is there, and no more
	kinds := map[wire.WallRefusal]uint64{}
	for n := 0; n < maxLines; n++ {
		r, err := log.Next()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			return err
		}
		if slices.Contains(own, strconv.FormatUint(r.Unit, 10)) {
			continue
		}
		k := units[r.Unit]
		k.Why, k.Family, k.Type, k.Proto, k.Port = r.Why, r.Family, r.Type, r.Proto, r.To.Port()
		if _, ok := kinds[k]; !ok && len(kinds) >= wire.MaxWallRefusals {
			req.Unlisted++
			continue
		}
		kinds[k]++
	}
	for k, n := range kinds {
		k.Count = n
		req.Refused = append(req.Refused, k)
	}
	slices.SortFunc(req.Refused, func(a, b wire.WallRefusal) int {
		return cmp.Or(cmp.Compare(a.Cell, b.Cell), cmp.Compare(a.Worker, b.Worker), cmp.Compare(a.Why, b.Why), cmp.Compare(a.Port, b.Port))
	})
	return nil
}

// maxLines bounds one reading: programs go on to write while it is read. The log itself holds fewer.
const maxLines = 2048

// units are whose the units are that run below the two slices, by the id of their cgroup: of which cell or worker.
func (p Paths) units() (map[uint64]wire.WallRefusal, error) {
	out := map[uint64]wire.WallRefusal{}
	for _, in := range []struct {
		slice, unit string
		of          func(name string) wire.WallRefusal
	}{
		{p.Slice, "doorward-cell@", func(name string) wire.WallRefusal { return wire.WallRefusal{Cell: name} }},
		{p.Workers, "doorward-worker@", func(name string) wire.WallRefusal { return wire.WallRefusal{Worker: name} }},
	} {
		slice, _, err := openSlice(in.slice)
		if err != nil {
			return nil, err
		}
		names, err := slice.Readdirnames(-1)
		for _, name := range names {
			rest, ok := strings.CutPrefix(name, in.unit)
			name, service := strings.CutSuffix(rest, ".service")
			var st unix.Stat_t
			if !ok || !service || unix.Fstatat(int(slice.Fd()), in.unit+rest, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
				continue // or it has ended
			}
			out[st.Ino] = in.of(name)
		}
		if err := errors.Join(err, slice.Close()); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// tellSentinel says it to sentinel.
func tellSentinel(req *wire.CanaryReq) error {
	c, err := wire.Dial(wire.PathSentinelCells, tellTime)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Call("canary", req, &wire.Empty{})
	return err
}
