// SPDX-License-Identifier: Apache-2.0

package leaks

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Report is what a look at processes or files gave. Without findings it is worth what it says it read.
type Report struct {
	Findings []Finding
	// Skipped says what could not be read, and why. Memory of devices and of the kernel's own is not listed.
	Skipped []string
	// Bytes is how much was looked through.
	Bytes int64
}

// Clean says that nothing was found and nothing was skipped.
func (r *Report) Clean() bool { return len(r.Findings) == 0 && len(r.Skipped) == 0 }

func (r *Report) skip(what string, err error) {
	r.Skipped = append(r.Skipped, fmt.Sprintf("%s: %v", what, err))
}

// Files looks through files, and through all regular files below those that are directories. Links are not followed.
func (s *Scanner) Files(paths ...string) Report {
	var r Report
	for _, path := range paths {
		err := filepath.WalkDir(path, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				r.skip(path, err)
			case d.Type().IsRegular():
				s.file(&r, path, path)
			}
			return nil
		})
		if err != nil {
			r.skip(path, err)
		}
	}
	return r
}

func (s *Scanner) file(r *Report, where, path string) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		r.skip(where, err)
		return
	}
	defer f.Close()
	s.reader(r, where, f)
}

func (s *Scanner) reader(r *Report, where string, from io.Reader) {
	counted := &counter{r: from}
	found, err := s.Reader(where, counted)
	r.Bytes += counted.n
	r.Findings = append(r.Findings, found...)
	if err != nil {
		r.skip(where, err)
	}
}

type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// Processes looks through the memory, environment, arguments and open regular files of processes. One that ends
// meanwhile is skipped without a word: what has ended keeps nothing. The caller's own process is refused, since it
// holds the secrets.
func (s *Scanner) Processes(pids ...int) Report {
	var r Report
	for _, pid := range pids {
		if pid == os.Getpid() {
			r.skip(fmt.Sprintf("process %d", pid), errors.New("it is the one that looks"))
			continue
		}
		s.process(&r, pid)
	}
	return r
}

func (s *Scanner) process(r *Report, pid int) {
	dir := fmt.Sprintf("/proc/%d/", pid)
	name := fmt.Sprintf("process %d", pid)
	if comm, err := os.ReadFile(dir + "comm"); err == nil {
		name = fmt.Sprintf("process %d (%s)", pid, strconv.Quote(strings.TrimSpace(string(comm))))
	}
	for _, part := range []string{"environ", "cmdline"} {
		f, err := os.Open(dir + part)
		if err == nil {
			s.reader(r, name+" "+part, f)
			f.Close()
		} else if !gone(err) {
			r.skip(name+" "+part, err)
		}
	}
	s.memory(r, pid, name)
	s.open(r, pid, name)
}

// gone says that the process has ended.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH)
}

// memory looks through what is mapped. The pages of a file are looked at too: they may have been changed.
func (s *Scanner) memory(r *Report, pid int, name string) {
	dir := fmt.Sprintf("/proc/%d/", pid)
	maps, err := os.ReadFile(dir + "maps")
	var files [2]*os.File // its memory, and what of it differs from the files it is mapped from
	for i, part := range []string{"mem", "pagemap"} {
		if err == nil {
			files[i], err = os.Open(dir + part)
			defer files[i].Close()
		}
	}
	if err != nil {
		if !gone(err) {
			r.skip(name+" memory", err)
		}
		return
	}
	for line := range strings.Lines(string(maps)) {
		m, ok := parseMapping(line)
		if !ok || !m.looked() {
			continue
		}
		s.mapping(r, files[0], files[1], name+" memory "+m.name, m)
	}
}

// mapping is one line of /proc/<pid>/maps, proc_pid_maps(5).
type mapping struct {
	from, to uint64
	perms    string
	name     string
}

// looked says whether the mapping can hold what the process wrote. Devices must not be read: reading can act.
func (m mapping) looked() bool {
	switch {
	case strings.HasPrefix(m.name, "/dev/shm/"), strings.HasPrefix(m.name, "/dev/zero"):
		return true
	case strings.HasPrefix(m.name, "/dev/"), strings.HasPrefix(m.name, "[v"), m.name == "[uprobes]":
		return false
	case strings.HasPrefix(m.name, "anon_inode:"):
		return false
	}
	return true
}

func parseMapping(line string) (mapping, bool) {
	fields := strings.Fields(line)
	if len(fields) < 5 {
		return mapping{}, false
	}
	low, high, ok := strings.Cut(fields[0], "-")
	from, err1 := strconv.ParseUint(low, 16, 64)
	to, err2 := strconv.ParseUint(high, 16, 64)
	if !ok || err1 != nil || err2 != nil || to <= from || to > 1<<63-1 {
		return mapping{}, false
	}
	return mapping{from, to, fields[1], strings.Join(fields[5:], " ")}, true
}

// mapping reads the pages of one mapping that the process has touched; pagemap says which (proc_pid_pagemap(5)). A
// page that the kernel does not give is left out: it went meanwhile, or is a memfd_secret, which nobody reads.
func (s *Scanner) mapping(r *Report, mem, pagemap *os.File, where string, m mapping) {
	page := uint64(os.Getpagesize())
	entries := make([]byte, 8*(window/page))
	buf := make([]byte, window+s.longest)
	defer clear(buf)
	var found []Finding
	kept := 0 // bytes at the front of buf, from just before at
	for at := m.from; at < m.to; {
		pages := min(uint64(window), m.to-at) / page
		n, err := pagemap.ReadAt(entries[:8*pages], int64(at/page*8))
		if errors.Is(err, io.EOF) || gone(err) {
			break // it has ended
		}
		if err != nil {
			r.skip(where, fmt.Errorf("which pages are there cannot be read: %w", err))
			break
		}
		there, run := touched(entries[:n-n%8])
		if !there {
			at += run * page
			kept = 0
			continue
		}
		got, err := mem.ReadAt(buf[kept:kept+int(run*page)], int64(at))
		r.Bytes += int64(got)
		found = merge(found, s.at(where, int64(at)-int64(kept), buf[:kept+got]))
		at += uint64(got)
		if err != nil || got == 0 {
			if gone(err) {
				break
			}
			at = (at/page + 1) * page
			kept = 0
			continue
		}
		all := kept + got
		kept = min(s.longest-1, all)
		copy(buf, buf[all-kept:all])
	}
	r.Findings = append(r.Findings, found...)
}

// touched says whether the first page is in memory or swapped out, and how many pages in a row are like it.
func touched(entries []byte) (there bool, run uint64) {
	const present, swapped = 1 << 63, 1 << 62
	for ; len(entries) >= 8; entries = entries[8:] {
		is := binary.NativeEndian.Uint64(entries)&(present|swapped) != 0
		if run > 0 && is != there {
			break
		}
		there = is
		run++
	}
	return there, run
}

// open looks through the regular files that a process has open, memfds among them, from their beginning.
func (s *Scanner) open(r *Report, pid int, name string) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		if !gone(err) {
			r.skip(name+" open files", err)
		}
		return
	}
	for _, e := range entries {
		path := dir + "/" + e.Name()
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() {
			continue // closed meanwhile, or nothing that keeps bytes
		}
		target, err := os.Readlink(path)
		if err != nil || strings.HasPrefix(target, "anon_inode:") {
			continue // some kernels call those regular
		}
		s.file(r, fmt.Sprintf("%s open file %s (%s)", name, e.Name(), strconv.Quote(target)), path)
	}
}

// Pids are the processes in a cgroup and all below it, sorted; dir is its directory in the cgroup2 mount.
func Pids(dir string) ([]int, error) {
	var pids []int
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			if path != dir && errors.Is(err, fs.ErrNotExist) {
				return nil // removed meanwhile
			}
			return err
		}
		if d.Name() != "cgroup.procs" || d.IsDir() {
			return nil
		}
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
			return nil
		}
		if err != nil {
			return err
		}
		for word := range bytes.FieldsSeq(b) {
			pid, err := strconv.Atoi(string(word))
			if err != nil {
				return fmt.Errorf("read %s: %w", path, err)
			}
			if pid > 0 { // 0 is a process of another pid namespace
				pids = append(pids, pid)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list processes below %s: %w", dir, err)
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil
}
