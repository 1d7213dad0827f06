// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
)

// Readable says whether a user of this machine opens a file, with no other group than those named and the user's own of the same name: as
// a daemon does. It is tried and not computed, so lists of access and every folder on the way count. Root alone can ask.
func Readable(file, name string, groups ...string) error {
	u, err := user.Lookup(name)
	if err != nil {
		return fmt.Errorf("there is no user %s: systemd-sysusers doorward.conf", name)
	}
	p := &process{pid: os.Getpid()}
	if p.uid, err = strconv.Atoi(u.Uid); err != nil {
		return err
	}
	if p.gid, err = strconv.Atoi(u.Gid); err != nil {
		return err
	}
	for _, name := range groups {
		g, err := user.LookupGroup(name)
		if err != nil {
			return fmt.Errorf("there is no group %s: systemd-sysusers doorward.conf", name)
		}
		n, err := strconv.Atoi(g.Gid)
		if err != nil {
			return err
		}
		p.groups = append(p.groups, n)
	}
	var found error
	if err := p.inside(func() { found = openFile(file) }); err != nil {
		return err
	}
	return found
}
