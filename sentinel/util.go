// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
)

// newMark makes a name of 26 letters that nobody guesses: 128 random bits.
func newMark() string {
	var b [16]byte
	rand.Read(b[:]) // never fails, see its documentation
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b[:]))
}

// approvalHash is what an approval is over: the canonical call, the requests with their bodies' digests, the decision.
func approvalHash(call, bound wire.Digest, decision, mark string) wire.Digest {
	return wire.Sum(bytes.Join([][]byte{[]byte("doorward approval 1"), call[:], bound[:], []byte(decision), []byte(mark)}, []byte{0}))
}

// passkeyUnit marks an identity as that of a passkey. The kernel proves none such: a person whom it proved has no unit.
const passkeyUnit = "passkey"

// byPasskey is the caller of what an approver's browser asks, or its passkey signed.
func byPasskey(name string) peer.Identity {
	return peer.Identity{Kind: peer.Person, Unit: passkeyUnit, Name: name}
}

// actor names a caller in the record.
func actor(id peer.Identity) string {
	switch {
	case id.Kind == peer.Person && id.Unit == passkeyUnit:
		return "passkey:" + id.Name
	case id.Kind == peer.Person:
		return fmt.Sprintf("person:%d", id.UID)
	}
	return "cell:" + id.Name
}

// sessionName is a session of a cell for the policy and the record: the kernel's name of it, and which start of that name
// it is, by its cgroup's id and the boot. A session that ended and began again under one name is another session, also
// after a reboot, which gives out the same ids again.
func sessionName(id peer.Identity) string {
	if id.Start == 0 {
		return id.Session
	}
	return id.Session + "." + strconv.FormatUint(id.Start, 36) + boot()
}

// boot is a short name of this boot.
var boot = sync.OnceValue(func() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil || len(b) < 8 { // the ledger has read it at start
		panic("read the boot id: " + fmt.Sprint(err))
	}
	return "-" + string(b[:8])
})

// sessionID is sessionName with the cell: the same name may stand in two cells.
func sessionID(id peer.Identity) string { return id.Name + "/" + sessionName(id) }

func stopKey(cell string) string { return "stopped/" + cell }

func quote(s string) string { return fmt.Sprintf("%q", short(s)) }

// short bounds what a caller named before it goes into a message or a record.
func short(s string) string {
	if len(s) > 64 {
		return strings.ToValidUTF8(s[:64], "") + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

func first(s []string) string {
	if len(s) == 0 {
		return ""
	}
	return s[0]
}

// asError is what a peer is told of an error: a refusal as it is, anything else as a fault of ours, logged here.
func asError(log *slog.Logger, err error) *wire.Error {
	var e *wire.Error
	if errors.As(err, &e) {
		return e
	}
	log.Error("a call failed", "err", err.Error())
	return wire.Refuse(wire.CodeInternal, "a fault inside Doorward", "the person finds it in sentinel's log")
}

func codeOf(err error) wire.Code {
	var e *wire.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return wire.CodeInternal
}

// reasonOf is what an error says beside its code.
func reasonOf(err error) string {
	var e *wire.Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return err.Error()
}

// nextOf is what an error says to do next, or "".
func nextOf(err error) string {
	var e *wire.Error
	if errors.As(err, &e) {
		return e.Next
	}
	return ""
}

func errorCode(e *wire.Error) string {
	if e == nil {
		return ""
	}
	return string(e.Code)
}

// ledgerError turns what the ledger says into a refusal: without a record nothing is let through.
func (s *Sentinel) ledgerError(err error) error {
	var se *ledger.StateError
	var e *wire.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &e):
		return e
	case errors.Is(err, ledger.ErrNotFound):
		return wire.Refuse(wire.CodeNotFound, "no call or grant of that id", "")
	case errors.As(err, &se):
		return wire.Refuse(stateCode(se.Have), se.Error(), "")
	case errors.Is(err, ledger.ErrExpired):
		return wire.Refuse(wire.CodeExpired, err.Error(), "")
	case errors.Is(err, ledger.ErrChanged):
		return wire.Refuse(wire.CodeConflict, err.Error(), "show it again, then decide")
	case errors.Is(err, ledger.ErrTooMany):
		return wire.Refuse(wire.CodeTooMany, err.Error(), "")
	case errors.Is(err, ledger.ErrFull):
		s.cannotRecord(err)
		return wire.Refuse(wire.CodeFull, "the disk is full, so nothing can be recorded and nothing is let through",
			"the person makes room on the machine; nothing was lost")
	default:
		s.cannotRecord(err)
		return wire.Refuse(wire.CodeUnavailable, "the record cannot be written, so nothing is let through",
			"the person finds the reason in sentinel's log")
	}
}

// cannotRecord says so in the log, at most once in ten seconds: every call that comes meanwhile meets the same.
func (s *Sentinel) cannotRecord(err error) {
	now := time.Now().Unix()
	if last := s.complained.Load(); now-last >= 10 && s.complained.CompareAndSwap(last, now) {
		s.log.Error("the record cannot be written", "err", err.Error())
	}
}

// stateCode says for one who came late what the call is instead.
func stateCode(s ledger.State) wire.Code {
	switch s {
	case ledger.Denied:
		return wire.CodeDenied
	case ledger.Expired:
		return wire.CodeExpired
	case ledger.Revoked:
		return wire.CodeRevoked
	default:
		return wire.CodeConflict
	}
}

// refused puts a refusal into the record that belongs to no call's own row.
func (s *Sentinel) refused(by, who, about string, code wire.Code, detail string) {
	r := ledger.Refusal{By: by, Host: who, Reason: string(code), Detail: detail, More: map[string]string{"about": about}}
	if l := s.liveOf(about); l != nil {
		r.Cell, r.Call = l.call.Cell, l.call.ID
		if l.ticket != nil {
			l.ticket.Go() // the call comes before what is refused of it
		}
	} else if c, err := s.ledger.CallOf(s.lifetime, about); err == nil {
		r.Cell, r.Call = c.Cell, c.ID
	}
	if err := s.ledger.Refused(s.lifetime, r); err != nil && s.lifetime.Err() == nil {
		s.log.Error("a refusal is not recorded", "by", by, "who", who, "reason", string(code), "err", err.Error())
	}
}

// checkFiles holds a call's descriptors to what its frame says of them.
func checkFiles(f *wire.Frame, files []*os.File) error {
	if len(files) != len(f.Files) {
		return fmt.Errorf("the frame names %d files, %d came", len(f.Files), len(files))
	}
	for i := range files {
		if err := wire.CheckFile(int(files[i].Fd()), &f.Files[i], wire.MaxFile); err != nil {
			return fmt.Errorf("--%s: %w", f.Files[i].Arg, err)
		}
	}
	return nil
}

// sealed makes a sealed memfd of b.
func sealed(b []byte) (*os.File, error) {
	fd, _, _, err := wire.SealFile(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "memfd"), nil
}

// dup keeps descriptors beyond the request they came with.
func dup(files []*os.File) []*os.File {
	out := make([]*os.File, 0, len(files))
	for _, f := range files {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			continue // the worker then misses a file and refuses
		}
		out = append(out, os.NewFile(uintptr(fd), "memfd"))
	}
	return out
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// voidGrant has authd end a grant. authd answers in the order of what it released, so after this returns no release
// under it is unknown here.
func (s *Sentinel) voidGrant(ctx context.Context, grant string) error {
	return s.authd.Call(ctx, "revoke", &wire.GrantRef{Grant: grant}, new(wire.RevokeResp))
}

// cut has egress end what is on the wire.
func (s *Sentinel) cut(ctx context.Context, what wire.GrantRef) error {
	return s.egress.Call(ctx, "cut", &what, &wire.Empty{})
}

// awaited says whether sentinel runs the call itself and its answer is still to come.
func (s *Sentinel) awaited(call string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.executing[call]
}

func (s *Sentinel) await(call string, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if on {
		s.executing[call] = true
	} else {
		delete(s.executing, call)
	}
}
