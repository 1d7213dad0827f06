// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"errors"
	"os"

	"github.com/doorward/doorward/cli/operator/machine"
	"github.com/doorward/doorward/cli/origin"
	"github.com/doorward/doorward/internal/approver"
)

// pageInForce says where the person's page is, and whether its certificate can be used, by page too. Nothing where none is set up.
func pageInForce(dir string) []machine.Finding {
	const check = "page"
	p, err := approver.Load(dir)
	switch {
	case errors.Is(err, approver.ErrNone):
		return nil
	case err != nil:
		return []machine.Finding{machine.Bad(check, "correct it, or: doorward approver setup", "%s", machine.Detail(err.Error()))}
	case p.Certificate == "":
		return []machine.Finding{machine.Ok(check, "the page is %s, by a tunnel", machine.Detail(p.PageOrigin()))}
	case os.Geteuid() != 0:
		return []machine.Finding{machine.Not(check, "the certificate of %s: only root and page may read its key", machine.Detail(p.Host))}
	}
	notes, err := (&origin.Setup{Place: *p}).Check(placeCalls())
	if err != nil {
		return []machine.Finding{machine.Bad(check, "see that its files are renewed, and that group doorward-tls can read them",
			"the certificate of %s: %s", machine.Detail(p.Host), machine.Detail(err.Error()))}
	}
	out := []machine.Finding{machine.Ok(check, "the page is %s, and page can use its certificate", machine.Detail(p.PageOrigin()))}
	for _, n := range notes {
		out = append(out, machine.Less(check, "see that its files are renewed, and are open to root and group doorward-tls alone", "%s",
			machine.Detail(n)))
	}
	return out
}
