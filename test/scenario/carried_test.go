// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/test/ground"
	"github.com/doorward/doorward/test/world"
)

// asked connects to approvals as page does, with an address in front, and asks what has an answer for everybody.
const asked = `use Socket; socket(S, PF_UNIX, SOCK_STREAM, 0) && connect(S, sockaddr_un(shift)) or die "dial: $!";
syswrite S, pack("C a10 n C4 n", 1, "", 0xffff, 192, 0, 2, 7, 4711) . "GET / HTTP/1.1\r\nHost: x\r\n\r\n"; sysread S, $b, 12; print $b`

// Whoever could speak to approvals in page's place could say that it is any address. Root, who opens every socket, is told from page by
// the kernel; approvals' own place has no right to it.
func TestNobodyButPageCarriesToApprovals(t *testing.T) {
	if ground.Systemd() {
		t.Skip("there is no page on this ground")
	}
	r := newRig(t, world.Options{Page: true})
	try := func(a *world.Actor) string {
		t.Helper()
		res, err := a.Run(r.ctx(), "/usr/bin/perl", "-e", asked, wire.PathApprovalsPage)
		if err != nil {
			t.Fatal(err)
		}
		return res.Stdout
	}
	if said := try(r.Inside("page")); said != "HTTP/1.1 421" {
		t.Errorf("control: page is answered %q", said)
	}
	for _, a := range []*world.Actor{r.Person(0), r.Person(1000), r.Local(1001), r.Inside("approvals"), r.Inside("egress"), r.work.Actor()} {
		if said := try(a); said != "" {
			t.Errorf("%s is answered %q", a.Name, said)
		}
	}
	if log := r.Daemon("approvals").Log(); !strings.Contains(log, "is not page") {
		t.Errorf("root was refused, and nothing says so:\n%s", log)
	}
}
