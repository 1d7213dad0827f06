// SPDX-License-Identifier: Apache-2.0

package wire

// Messages of doorward -> sentinel on approve/sock. Who the person is comes from the kernel.
type (
	// Card is what a person decides on. Text in it is made visible (control, bidirectional, invisible characters) by
	// whoever shows it; the bytes that run are unaltered.
	Card struct {
		ID        string   `msgpack:"i" json:"id"`
		Kind      string   `msgpack:"k" json:"kind"` // call or widening
		State     State    `msgpack:"s" json:"state"`
		Title     string   `msgpack:"t" json:"title"` // summary of the method or the widening
		Connector string   `msgpack:"c,omitempty" json:"connector,omitempty"`
		Method    string   `msgpack:"m,omitempty" json:"method,omitempty"`
		Account   string   `msgpack:"a,omitempty" json:"account,omitempty"`
		Class     string   `msgpack:"l,omitempty" json:"class,omitempty"`
		Reach     string   `msgpack:"r,omitempty" json:"reach,omitempty"`
		Sensitive bool     `msgpack:"v,omitempty" json:"sensitive,omitempty"`
		Cell      string   `msgpack:"e,omitempty" json:"cell,omitempty"`
		Session   string   `msgpack:"n,omitempty" json:"session,omitempty"`
		Attended  bool     `msgpack:"d,omitempty" json:"attended,omitempty"`
		Labels    []Cause  `msgpack:"b,omitempty" json:"labels,omitempty"`
		Fields    []Field  `msgpack:"f,omitempty" json:"fields,omitempty"` // recipients, amounts, destinations first
		Bodies    []Shown  `msgpack:"o,omitempty" json:"bodies,omitempty"`
		Facts     []string `msgpack:"fa,omitempty" json:"facts,omitempty"` // "first time you write to x"
		Reason    string   `msgpack:"re,omitempty" json:"reason,omitempty"`
		Policies  []string `msgpack:"po,omitempty" json:"policies,omitempty"`
		Grantable *Grant   `msgpack:"gr,omitempty" json:"grantable,omitempty"` // limits prefilled from the call
		Mark      string   `msgpack:"mk,omitempty" json:"mark,omitempty"`
		Hash      []byte   `msgpack:"h" json:"hash"` // what an approval is over
		Made      int64    `msgpack:"u" json:"made"` // seconds
		Expires   int64    `msgpack:"x" json:"expires"`
		Alike     int      `msgpack:"al,omitempty" json:"alike,omitempty"` // others pending of the same shape
		Err       *Error   `msgpack:"er,omitempty" json:"error,omitempty"`
		Became    *Became  `msgpack:"bc,omitempty" json:"became,omitempty"` // of one that waits no more, for the page
	}
	// Cause is a label with where it came from.
	Cause struct {
		Label string `msgpack:"l" json:"label"`
		Why   string `msgpack:"w" json:"why"`
		Unix  int64  `msgpack:"u,omitempty" json:"unix,omitempty"`
	}
	// Field is one argument in plain words.
	Field struct {
		Label  string   `msgpack:"l" json:"label"`
		Values []string `msgpack:"v" json:"values"`
		Main   bool     `msgpack:"m,omitempty" json:"main,omitempty"` // recipient, amount or destination
	}
	// Shown is a body or file of the call: its text, or its first bytes where it is not text.
	Shown struct {
		Name   string `msgpack:"n" json:"name"`
		Media  string `msgpack:"m,omitempty" json:"media,omitempty"`
		Size   int64  `msgpack:"s" json:"size"`
		SHA256 Digest `msgpack:"h" json:"sha256"`
		Text   string `msgpack:"t,omitempty" json:"text,omitempty"`
		Cut    bool   `msgpack:"c,omitempty" json:"cut,omitempty"`
		Binary bool   `msgpack:"b,omitempty" json:"binary,omitempty"` // Text says so in words
	}

	// ListFrom asks for a list in pages: After is the Next of the page before, empty for the first.
	ListFrom struct {
		After string `msgpack:"a,omitempty" json:"after,omitempty"`
		Limit int    `msgpack:"l,omitempty" json:"limit,omitempty"` // of pending: so many at most; 0 is as many as fit
	}
	// PendingResp lists cards without bodies, oldest first. Next is set where more follow, as in every list. Total is how many wait in
	// all, and Newest the id of the last: ids grow, so it is greater where something new waits that is not in this list.
	PendingResp struct {
		Cards  []Card `msgpack:"c,omitempty" json:"cards,omitempty"`
		Next   string `msgpack:"n,omitempty" json:"next,omitempty"`
		Total  int    `msgpack:"t,omitempty" json:"total,omitempty"`
		Newest string `msgpack:"w,omitempty" json:"newest,omitempty"`
	}
	// ShowResp is one card in full.
	ShowResp struct {
		Card Card `msgpack:"c"`
	}
	// DecideCardReq approves or denies what Hash names. An approval of another hash than the card's is refused.
	DecideCardReq struct {
		ID      string `msgpack:"i"`
		Hash    []byte `msgpack:"h"`
		Approve bool   `msgpack:"a,omitempty"`
		Grant   *Grant `msgpack:"g,omitempty"` // approve, and the like of it too
		Why     string `msgpack:"w,omitempty"`
		Stop    bool   `msgpack:"s,omitempty"` // deny, and stop the session
	}
	DecideCardResp struct {
		State State  `msgpack:"s"`
		Grant string `msgpack:"g,omitempty"`
		Err   *Error `msgpack:"e,omitempty"` // why nothing came of a widening that was approved
	}

	// Grant turns ask into allow for calls that fit it.
	Grant struct {
		ID        string  `msgpack:"i,omitempty" json:"id,omitempty"`
		Connector string  `msgpack:"c" json:"connector"`
		Method    string  `msgpack:"m" json:"method"`
		Account   string  `msgpack:"a" json:"account"`
		Cell      string  `msgpack:"e" json:"cell"`
		Session   string  `msgpack:"s,omitempty" json:"session,omitempty"` // kind session
		Kind      string  `msgpack:"k" json:"kind"`                        // once, session, until or standing
		Until     int64   `msgpack:"u,omitempty" json:"until,omitempty"`   // seconds; until and standing
		Limits    []Limit `msgpack:"l,omitempty" json:"limits,omitempty"`
		Count     int64   `msgpack:"n,omitempty" json:"count,omitempty"` // calls in all; 0 is no limit
		Used      int64   `msgpack:"us,omitempty" json:"used,omitempty"`
		LastUse   int64   `msgpack:"lu,omitempty" json:"last_use,omitempty"`
		Tainted   bool    `msgpack:"t,omitempty" json:"tainted,omitempty"` // also after it has read what others wrote
		Sentence  string  `msgpack:"w,omitempty" json:"sentence,omitempty"`
		Made      int64   `msgpack:"d,omitempty" json:"made,omitempty"`
		By        string  `msgpack:"b,omitempty" json:"by,omitempty"`
		Revoked   int64   `msgpack:"r,omitempty" json:"revoked,omitempty"`
	}
	// Limit holds one grant field: every value of the argument must be one of Values (an argument that is absent fits
	// only where Values is empty), and with All each of those must be there as well. Max, where set, bounds a number.
	// Any, which stands alone, holds nothing: it says that a person left the field open.
	Limit struct {
		Field  string   `msgpack:"f" json:"field"`
		Values []string `msgpack:"v,omitempty" json:"values,omitempty"`
		Max    int64    `msgpack:"m,omitempty" json:"max,omitempty"`
		All    bool     `msgpack:"a,omitempty" json:"all,omitempty"`
		Any    bool     `msgpack:"y,omitempty" json:"any,omitempty"`
		Held   bool     `msgpack:"h,omitempty" json:"held,omitempty"` // on a card: Any is refused here
	}
	GrantsResp struct {
		Grants []Grant `msgpack:"g,omitempty" json:"grants,omitempty"`
		Next   string  `msgpack:"n,omitempty" json:"next,omitempty"`
	}

	// PersonRevokeReq ends one grant, or all of an account, a session or a cell. Exactly one is set.
	PersonRevokeReq struct {
		Grant   string `msgpack:"g,omitempty" json:"grant,omitempty"`
		Account string `msgpack:"a,omitempty" json:"account,omitempty"`
		Session string `msgpack:"s,omitempty" json:"session,omitempty"`
		Cell    string `msgpack:"c,omitempty" json:"cell,omitempty"`
	}
	// StopReq turns the switch off for a cell, or for all with Cell empty; Resume turns it on again (a widening).
	StopReq struct {
		Cell   string `msgpack:"c,omitempty" json:"cell,omitempty"`
		Resume bool   `msgpack:"r,omitempty" json:"resume,omitempty"`
	}
	// Report says in words, line by line, what was done and what could not be.
	Report struct {
		Lines []string `msgpack:"l,omitempty" json:"lines,omitempty"`
		// MayHaveRun are calls that were in flight.
		MayHaveRun []string `msgpack:"m,omitempty" json:"may_have_run,omitempty"`
		Widening   string   `msgpack:"w,omitempty" json:"widening,omitempty"` // id of the card to decide, where one is needed
	}

	// PolicyReq: Op is show, check, load, explain, cedar, intercepted (of Cell: lines
	// "HOST:PORT why" of what its egress ends itself), methods (lines "vendor
	// method" of those that are not off) or state. Lines of state are "policy DIGEST", "connector VENDOR DIGEST" of each
	// description that calls are judged by, "dont-ask VENDOR WHERE", and "unasked VENDOR METHOD CLASS WHERE" of what changes
	// something and goes unasked. check and load are of Files where there are any, else of the policy folder of the
	// configuration.
	PolicyReq struct {
		Op    string `msgpack:"o"`
		Frame *Frame `msgpack:"f,omitempty"` // explain
		Site  string `msgpack:"h,omitempty"` // explain, in place of Frame: a connection to it
		// Request, in place of Frame, of explain: one of a cell's program. Only what names it is looked at.
		Request *RequestReq  `msgpack:"q,omitempty"`
		Cell    string       `msgpack:"c,omitempty"` // explain and intercepted, like all that follows Files: who is supposed to ask
		Files   []PolicyFile `msgpack:"l,omitempty"`

		Session   string `msgpack:"s,omitempty"` // what is not set is as it is now
		Attended  *bool  `msgpack:"a,omitempty"`
		By        string `msgpack:"b,omitempty"` // the unit that started it
		Reads     *int64 `msgpack:"r,omitempty"`
		ReadBytes *int64 `msgpack:"y,omitempty"`
		Unix      int64  `msgpack:"u,omitempty"` // when, seconds

		From int `msgpack:"i,omitempty"` // show and cedar: the first line, the Next of the page before
	}
	// PolicyFile is policy.toml or a .cedar file.
	PolicyFile struct {
		Name string `msgpack:"n" json:"name"`
		Body []byte `msgpack:"b" json:"body"`
	}
	// PolicyResp: Problems are faults with file, line and column, and with any nothing was changed; Notes are what a
	// person should know; Lines of load say which of them widen, and Widening is the card to decide then.
	PolicyResp struct {
		Lines    []string `msgpack:"l,omitempty"`
		Problems []string `msgpack:"p,omitempty"`
		Notes    []string `msgpack:"n,omitempty"`
		Widening string   `msgpack:"w,omitempty"`
		Next     int      `msgpack:"x,omitempty"` // line of show and cedar that follows; 0 is none
	}
	// CheckReq runs an account's declared read under an ordinary grant. Without an account it only asks which accounts
	// need attention, and nothing is sent.
	CheckReq struct {
		Account string `msgpack:"a"`
	}
	// AuditReq: Op is list, follow, show, verify, export or checkpoint. Answers are JSON lines.
	AuditReq struct {
		Op         string `msgpack:"o" json:"op"`
		ID         string `msgpack:"i,omitempty" json:"id,omitempty"`
		After      int64  `msgpack:"a,omitempty" json:"after,omitempty"` // entry number
		Limit      int    `msgpack:"l,omitempty" json:"limit,omitempty"`
		Checkpoint []byte `msgpack:"k,omitempty" json:"checkpoint,omitempty"`
	}
	// AuditResp: with More the answer is full; what follows comes with After as Last, of list by export.
	AuditResp struct {
		Lines [][]byte `msgpack:"l,omitempty" json:"lines,omitempty"`
		Last  int64    `msgpack:"a,omitempty" json:"last,omitempty"`
		More  bool     `msgpack:"m,omitempty" json:"more,omitempty"`
		Err   *Error   `msgpack:"e,omitempty" json:"error,omitempty"`
	}
	// WhyReq explains the last refusals: of a call id, a host, or (empty) at all.
	WhyReq struct {
		About string `msgpack:"a,omitempty"`
	}
	// TaintReq shows a cell's labels; Clear takes them away (a widening).
	TaintReq struct {
		Cell  string `msgpack:"c" json:"cell"`
		Clear bool   `msgpack:"r,omitempty" json:"clear,omitempty"`
	}
	TaintResp struct {
		Labels   []Cause `msgpack:"l,omitempty" json:"labels,omitempty"`
		Widening string  `msgpack:"w,omitempty" json:"widening,omitempty"`
	}
	// ApproversReq: Op is list, link, add, remove or recovery. The last three are root's alone; add makes an invitation for a name that
	// is free, recovery a recovery code for one that is there, link a link with the card key, for a browser that has lost it.
	ApproversReq struct {
		Op     string `msgpack:"o"`
		Name   string `msgpack:"n,omitempty"` // ApproverName
		Viewer bool   `msgpack:"v,omitempty"` // with add: who may see and not decide
		Revoke bool   `msgpack:"r,omitempty"` // with recovery: the code is taken back, and none made
	}
	// ApproversResp: Link, of add, makes whoever opens it first an approver, until Until. It is a secret until then; that of link and
	// of recovery is none. Code is a secret until it is used or taken back.
	ApproversResp struct {
		Approvers []Approver `msgpack:"a,omitempty"`
		Key       []byte     `msgpack:"k,omitempty"` // the card key's public half, of list
		Link      string     `msgpack:"l,omitempty"`
		Until     int64      `msgpack:"u,omitempty"` // seconds
		Code      string     `msgpack:"c,omitempty"` // of recovery: the code as it is printed
	}
	// Approver is a passkey that may decide or, of a viewer, only see; or an invitation that nobody has taken up.
	Approver struct {
		Name    string `msgpack:"n" json:"name"`
		Viewer  bool   `msgpack:"v,omitempty" json:"viewer,omitempty"`
		Made    int64  `msgpack:"d,omitempty" json:"made,omitempty"`    // seconds
		By      string `msgpack:"b,omitempty" json:"by,omitempty"`      // who invited it
		Invited int64  `msgpack:"i,omitempty" json:"invited,omitempty"` // of an invitation: when it ends, seconds
		// Recovery is since when there is a recovery code, seconds; 0: there is none.
		Recovery int64 `msgpack:"r,omitempty" json:"recovery,omitempty"`
	}
	// SessionReq lists live sessions, or ends one.
	SessionReq struct {
		End   string `msgpack:"e,omitempty" json:"end,omitempty"`
		After string `msgpack:"a,omitempty" json:"after,omitempty"` // as in ListFrom
	}
	SessionResp struct {
		Sessions []Session `msgpack:"s,omitempty" json:"sessions,omitempty"`
		Next     string    `msgpack:"n,omitempty" json:"next,omitempty"`
	}
	// Session is one start of a cell or one run in it.
	Session struct {
		Cell     string `msgpack:"c" json:"cell"`
		Name     string `msgpack:"n" json:"name"`
		Attended bool   `msgpack:"a,omitempty" json:"attended,omitempty"`
		By       string `msgpack:"b,omitempty" json:"by,omitempty"`
		Began    int64  `msgpack:"u,omitempty" json:"began,omitempty"`
		Ended    int64  `msgpack:"e,omitempty" json:"ended,omitempty"`
	}
	// Event is one change that watch reports.
	Event struct {
		N       int64  `msgpack:"n" json:"n"` // of the record's entry
		ID      string `msgpack:"i" json:"id"`
		State   State  `msgpack:"s" json:"state"`
		Summary string `msgpack:"m" json:"summary"`
		Unix    int64  `msgpack:"u" json:"unix"`
		Cell    string `msgpack:"c,omitempty" json:"cell,omitempty"`
		Object  string `msgpack:"o,omitempty" json:"object,omitempty"` // the vendor's name of what was made
	}
	// WatchReq waits for events behind an entry, at most 60 s; -1 asks for the last one's number. WatchResp's Last is the last entry that
	// was looked at, to go on from.
	WatchReq struct {
		After int64 `msgpack:"a,omitempty" json:"after,omitempty"`
	}
	WatchResp struct {
		Events []Event `msgpack:"e,omitempty" json:"events,omitempty"`
		Last   int64   `msgpack:"l,omitempty" json:"last,omitempty"`
	}
)
