// SPDX-License-Identifier: Apache-2.0

package wire

// approvals -> sentinel, verb edit: what would become of a call that waits, with other arguments. Nothing is changed by it: the answer
// is an offer, and its approval puts the new call in the old one's place.
type (
	// EditReq without Hash asks what of the call can be changed.
	EditReq struct {
		Call  string      `json:"call"`
		Hash  []byte      `json:"hash,omitempty"`  // of the card as it was shown
		Args  []EditValue `json:"args,omitempty"`  // all arguments but files, as they shall be
		Files []EditFile  `json:"files,omitempty"` // those with another content; the rest stays
	}
	EditValue struct {
		Name   string   `json:"name"`
		Values []string `json:"values"`
	}
	EditFile struct {
		File int    `json:"file"` // which file of the call, from 0
		Text string `json:"text"`
	}
	// EditResp is what can be changed, or what became of the call.
	EditResp struct {
		Form  []EditField `json:"form,omitempty"`
		Offer *Offer      `json:"offer,omitempty"`
	}
	// EditField is an argument as the description has it, with its values; of a file, with which one it is and its digest.
	EditField struct {
		Name     string   `json:"name"`
		Label    string   `json:"label"`
		Help     string   `json:"help,omitempty"`
		Type     string   `json:"type"`
		Enum     []string `json:"enum,omitempty"`
		Required bool     `json:"required,omitempty"`
		Repeat   int      `json:"repeat,omitempty"` // values at most; 0 is one
		Fixed    bool     `json:"fixed,omitempty"`  // it says what the call builds on, so it stays
		Values   []string `json:"values,omitempty"`
		File     int      `json:"file,omitempty"`
		SHA256   []byte   `json:"sha256,omitempty"`
	}
	// Edits is of an offer whose card takes another's place: which one.
	Edits struct {
		Call string `json:"call"`
		Hash []byte `json:"hash"`
	}
)
