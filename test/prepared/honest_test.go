// SPDX-License-Identifier: Apache-2.0

package prepared

import (
	"maps"
	"testing"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/workers"
)

// FuzzHonest renders calls with any text and any object at the server: what an honest worker renders is never taken for
// a lie. The reader may say that it cannot read what the server holds.
func FuzzHonest(f *testing.F) {
	all := cases()
	for n, k := range all {
		if k.refuse == "" {
			f.Add(n, k.base, "a;b,c\\d\r\ne", "2030-03-10T10:00:00", "2030-03-10", "Europe/Berlin", "2030-04-01T07:00:00Z")
		}
	}
	c := connector(f)
	trial := &workers.Trial{Connector: c}
	f.Fuzz(func(t *testing.T, n int, base []byte, text, start, end, zone, instance string) {
		if n < 0 || n >= len(all) {
			return
		}
		k := all[n]
		k.args = maps.Clone(k.args)
		for name, value := range map[string]string{"title": text, "description": text, "name": text, "location": text,
			"start": start, "end": end, "tz": zone, "instance": instance} {
			if k.args[name] != nil {
				k.args[name] = []string{value}
			}
		}
		if k.base != nil {
			k.base = base
		}
		fr := frame(c, k)
		m, _ := c.Describe.Method(k.method)
		v, err := m.Decode(&fr)
		if err != nil {
			return
		}
		resp, err := trial.Prepare(&wire.PrepareReq{Frame: fr, Mark: mark, Unix: unix, Base: k.base, Owner: owner})
		if err != nil {
			if code(err) == "" || code(err) == wire.CodeInternal {
				t.Fatalf("%s: %v", k.method, err)
			}
			return
		}
		if err := verify(m, v, k.base, resp.Body); code(err) == wire.CodeBadPreparedBody {
			t.Fatalf("%s %v\nbase %q\nbody %q\n%v", k.method, k.args, k.base, resp.Body, err)
		}
	})
}
