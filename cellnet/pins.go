// SPDX-License-Identifier: Apache-2.0

package cellnet

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// mountPins mounts the file system in which programs and maps have names. Nobody but root makes names in it, and only root and
// the readers' group get into it: with the right to read a pin comes the right to the map.
func (p Paths) mountPins() error {
	if err := os.MkdirAll(p.BPF, 0o700); err != nil {
		return err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(p.BPF, &st); err != nil {
		return fmt.Errorf("look at %s: %w", p.BPF, err)
	}
	if st.Type != unix.BPF_FS_MAGIC {
		const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
		if err := unix.Mount("doorward", p.BPF, "bpf", flags, "mode=0700"); err != nil {
			return fmt.Errorf("mount a file system of BPF on %s: %w", p.BPF, err)
		}
	}
	return p.share(p.BPF, 0o750)
}

// needPins refuses where that file system is not mounted: a pin would be made in another one.
func (p Paths) needPins() error {
	var st unix.Statfs_t
	if err := unix.Statfs(p.BPF, &st); err != nil || st.Type != unix.BPF_FS_MAGIC {
		return fmt.Errorf("%s is no file system of BPF: start doorward-bpf.service", p.BPF)
	}
	return nil
}

// kept opens the maps of spec that are pinned already, by where. What is not there, or is of another shape, pinNew makes anew.
func kept(spec *ebpf.CollectionSpec, where map[string]string) (map[string]*ebpf.Map, error) {
	out := map[string]*ebpf.Map{}
	for name, path := range where {
		m, err := shaped(spec.Maps[name], path)
		if err != nil {
			closeAll(out)
			return nil, err
		}
		if m != nil {
			out[name] = m
		}
	}
	return out, nil
}

// shaped opens a map that is pinned and has the shape and name of spec. One of another, which another version of Doorward made,
// is none: what is in it would be misread. So whoever changes what a map's entries mean gives it another name.
func shaped(spec *ebpf.MapSpec, path string) (*ebpf.Map, error) {
	m, err := ebpf.LoadPinnedMap(path, nil)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open the map %s that is pinned: %w", path, err)
	}
	info, err := m.Info()
	if err != nil {
		_ = m.Close()
		return nil, fmt.Errorf("look at the map %s: %w", path, err)
	}
	if spec.Compatible(m) != nil || info.Name != spec.Name[:min(len(spec.Name), unix.BPF_OBJ_NAME_LEN-1)] {
		return nil, m.Close()
	}
	return m, nil
}

// load loads the programs of spec with the maps that are pinned already, has them attached, and pins the maps that are new.
func load(spec *ebpf.CollectionSpec, pins map[string]string, attach func(*ebpf.Collection) error) error {
	old, err := kept(spec, pins)
	if err != nil {
		return err
	}
	defer closeAll(old)
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: old})
	if err != nil {
		return fmt.Errorf("load the programs; does this kernel permit it (6.8 or newer with BTF, root, no lockdown): %w", err)
	}
	defer coll.Close()
	if err := attach(coll); err != nil {
		return err
	}
	return pinNew(coll, old, pins)
}

func closeAll(maps map[string]*ebpf.Map) {
	for _, m := range maps {
		_ = m.Close()
	}
}

// pinNew pins the maps of a collection that were not kept, in place of what has their names.
func pinNew(coll *ebpf.Collection, old map[string]*ebpf.Map, where map[string]string) error {
	for name, path := range where {
		if old[name] != nil {
			continue
		}
		if err := pinOver(coll.Maps[name], path); err != nil {
			return err
		}
	}
	return nil
}

// pinOver pins a map or link at path, in place of what is there, in one step.
func pinOver(what interface{ Pin(string) error }, path string) error {
	fresh := path + "-new"
	_ = os.Remove(fresh)
	if err := what.Pin(fresh); err != nil {
		return fmt.Errorf("pin %s: %w", fresh, err)
	}
	if err := os.Rename(fresh, path); err != nil {
		return fmt.Errorf("pin %s: %w", path, err)
	}
	return nil
}

// hold has a program run at a hook for as long as its link is pinned at path. A link that is there and still on this hook, by
// on, gets the program in one step. One that is on a hook that is gone is replaced by a new one.
func hold(path string, prog *ebpf.Program, on func(*link.Info) bool, attach func() (link.Link, error)) error {
	old, err := link.LoadPinnedLink(path, nil)
	switch {
	case err == nil:
		defer old.Close()
		if info, err := old.Info(); err == nil && on(info) {
			if err := old.Update(prog); err != nil {
				return fmt.Errorf("replace the program of %s: %w", path, err)
			}
			return nil
		}
	case !errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("open the link %s: %w", path, err)
	}
	l, err := attach()
	if err != nil {
		return fmt.Errorf("attach the program of %s; does this kernel permit it (6.8 or newer, root, no lockdown): %w", path, err)
	}
	defer l.Close() // the pin holds it
	return pinOver(l, path)
}
