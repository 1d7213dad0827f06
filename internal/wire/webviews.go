// SPDX-License-Identifier: Apache-2.0

package wire

// Messages of the page's further views, approvals -> sentinel on sentinel/web/sock.
type (
	// AccountsView is the accounts in pages, and what a person should know of Doorward's own state.
	AccountsView struct {
		Accounts []AccountView `msgpack:"a,omitempty" json:"accounts,omitempty"`
		Next     string        `msgpack:"n,omitempty" json:"next,omitempty"`
		Health   []string      `msgpack:"h,omitempty" json:"health,omitempty"` // in words; none: all is well
	}
	AccountView struct {
		Name   string   `msgpack:"n" json:"name"`
		Vendor string   `msgpack:"v" json:"vendor"`
		Title  string   `msgpack:"t,omitempty" json:"title,omitempty"` // of the connector
		At     string   `msgpack:"b" json:"at"`                        // URL
		Owner  string   `msgpack:"o,omitempty" json:"owner,omitempty"` // whose login it is, as the vendor says
		Scopes []string `msgpack:"s,omitempty" json:"scopes,omitempty"`
		Health Code     `msgpack:"h,omitempty" json:"health,omitempty"` // empty: well
		Card   string   `msgpack:"c,omitempty" json:"card,omitempty"`   // that waits for a decision on it
		Since  int64    `msgpack:"u,omitempty" json:"since,omitempty"`  // of its newest change, seconds
		Used   int64    `msgpack:"d,omitempty" json:"used,omitempty"`   // grants of it that live
	}

	// SettingsReq asks what the policy says or, with Lines, changes that. From is the Policy that the person was shown: where another
	// is in force, nothing is changed. What widens waits as a card; what only narrows takes effect at once.
	SettingsReq struct {
		From  string        `msgpack:"f,omitempty" json:"from,omitempty"`
		Lines []SettingLine `msgpack:"l,omitempty" json:"lines,omitempty"`
	}
	// SettingLine is one setting: of a connector, of a method with Method too, or of a site ("*" is every other one). Value "" takes
	// the line away.
	SettingLine struct {
		Connector string `msgpack:"c,omitempty" json:"connector,omitempty"`
		Method    string `msgpack:"m,omitempty" json:"method,omitempty"`
		Site      string `msgpack:"s,omitempty" json:"site,omitempty"`
		Value     string `msgpack:"v,omitempty" json:"value,omitempty"`
	}
	SettingsView struct {
		Policy     string             `msgpack:"p" json:"policy"` // names what is in force, for From
		Connectors []ConnectorSetting `msgpack:"c,omitempty" json:"connectors,omitempty"`
		Sites      []SiteSetting      `msgpack:"s,omitempty" json:"sites,omitempty"`
		Denied     []DeniedSite       `msgpack:"d,omitempty" json:"denied,omitempty"`
		Notes      []string           `msgpack:"o,omitempty" json:"notes,omitempty"`
		Card       string             `msgpack:"w,omitempty" json:"card,omitempty"` // of a policy that waits
		// Of a change: what it does in words, and what is wrong with it; with Problems nothing was changed.
		Lines    []string `msgpack:"l,omitempty" json:"lines,omitempty"`
		Problems []string `msgpack:"r,omitempty" json:"problems,omitempty"`
	}
	// ConnectorSetting: Said is what policy.toml says, empty where it says nothing; Now what is in force; Held which limit of the
	// admin's makes that narrower.
	ConnectorSetting struct {
		Name    string          `msgpack:"n" json:"name"`
		Title   string          `msgpack:"t" json:"title"`
		Said    string          `msgpack:"s,omitempty" json:"said,omitempty"`
		Now     string          `msgpack:"w" json:"now"`
		Methods []MethodSetting `msgpack:"m" json:"methods"`
	}
	MethodSetting struct {
		Name    string `msgpack:"n" json:"name"`
		Summary string `msgpack:"u" json:"summary"`
		Class   string `msgpack:"c" json:"class"`
		Said    string `msgpack:"s,omitempty" json:"said,omitempty"`
		Now     string `msgpack:"w" json:"now"`
		Held    string `msgpack:"h,omitempty" json:"held,omitempty"`
		Asks    string `msgpack:"a,omitempty" json:"asks,omitempty"` // which calls ask whatever is set: "all", or in words
	}
	SiteSetting struct {
		Site string `msgpack:"n" json:"site"` // as it is written, or the name of a set, or "*"
		Set  bool   `msgpack:"e,omitempty" json:"set,omitempty"`
		Said string `msgpack:"s" json:"said"`
		Held string `msgpack:"h,omitempty" json:"held,omitempty"`
	}
	// DeniedSite is one that a person said no to, and that is not asked about again until then.
	DeniedSite struct {
		Cell  string `msgpack:"e" json:"cell"`
		Site  string `msgpack:"s" json:"site"`
		Card  string `msgpack:"c" json:"card"`
		Until int64  `msgpack:"u" json:"until"` // seconds
	}

	// LabelsView is what each cell has read, in pages.
	LabelsView struct {
		Cells []CellLabels `msgpack:"c,omitempty" json:"cells,omitempty"`
		Next  string       `msgpack:"n,omitempty" json:"next,omitempty"`
	}
	CellLabels struct {
		Cell    string  `msgpack:"c" json:"cell"`
		Labels  []Cause `msgpack:"l,omitempty" json:"labels,omitempty"`
		Runs    bool    `msgpack:"r,omitempty" json:"runs,omitempty"` // it has a session
		Stopped bool    `msgpack:"s,omitempty" json:"stopped,omitempty"`
	}

	// FindReq looks for calls, newest first. All that is set must fit; every one of Words must stand somewhere in a call's names,
	// title and arguments, in whatever case. Before is the Next of the answer before.
	FindReq struct {
		Words     string `msgpack:"w,omitempty" json:"words,omitempty"`
		Cell      string `msgpack:"c,omitempty" json:"cell,omitempty"`
		Connector string `msgpack:"o,omitempty" json:"connector,omitempty"`
		State     State  `msgpack:"s,omitempty" json:"state,omitempty"`
		From      int64  `msgpack:"f,omitempty" json:"from,omitempty"` // seconds; asked then or later
		To        int64  `msgpack:"t,omitempty" json:"to,omitempty"`   // and before then
		Before    string `msgpack:"b,omitempty" json:"before,omitempty"`
	}
	// FindResp: with Next there is more to look at, older than Back, also where Cards is empty.
	FindResp struct {
		Cards  []Card `msgpack:"c,omitempty" json:"cards,omitempty"`
		Next   string `msgpack:"n,omitempty" json:"next,omitempty"`
		Looked int    `msgpack:"l,omitempty" json:"looked,omitempty"` // calls
		Back   int64  `msgpack:"k,omitempty" json:"back,omitempty"`   // with Next: when the oldest of them was asked, seconds
	}
	// Became is what a call came to.
	Became struct {
		Unix   int64  `msgpack:"u,omitempty" json:"unix,omitempty"` // since when it is in its state, seconds
		By     string `msgpack:"b,omitempty" json:"by,omitempty"`   // who approved it
		Object string `msgpack:"o,omitempty" json:"object,omitempty"`
		Link   string `msgpack:"l,omitempty" json:"link,omitempty"` // to Object at the vendor, https
	}
)
