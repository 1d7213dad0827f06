// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"fmt"
	"strings"
	"testing"

	"github.com/doorward/doorward/cli/operator/machine"
	"github.com/doorward/doorward/internal/wire"
)

func TestDoctorNamesWhoAloneDecides(t *testing.T) {
	ada, eve := wire.Approver{Name: "ada", Made: 1}, wire.Approver{Name: "eve", Made: 1}
	viewer, invited, safe := eve, eve, ada
	viewer.Viewer, invited.Made, invited.Invited, safe.Recovery = true, 0, 2, 1
	for _, c := range []struct {
		name string
		all  []wire.Approver
		told bool
	}{
		{"nobody", nil, false},
		{"a viewer alone", []wire.Approver{viewer}, false},
		{"one", []wire.Approver{ada}, true},
		{"one and a viewer", []wire.Approver{ada, viewer}, true},
		{"one and an invitation", []wire.Approver{ada, invited}, true},
		{"one with a code", []wire.Approver{safe}, false},
		{"one with a code, and a viewer", []wire.Approver{safe, viewer}, false},
		{"two", []wire.Approver{ada, eve}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			have := spares(c.all)
			if !c.told && len(have) > 0 || c.told && (len(have) != 1 || have[0].State != machine.Weak || have[0].Next == "" ||
				!strings.Contains(fmt.Sprint(have[0].What), "ada")) {
				t.Errorf("%+v", have)
			}
		})
	}
}
