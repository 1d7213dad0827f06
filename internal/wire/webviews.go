// SPDX-License-Identifier: Apache-2.0

package wire

// Bodies of WebReq and WebResp of the page's further views, in JSON by their tags.
type (
	// AccountsView is the accounts in pages, and what a person should know of Doorward's own state.
	AccountsView struct {
		Accounts []AccountView `json:"accounts,omitempty"`
		Next     string        `json:"next,omitempty"`
		Health   []string      `json:"health,omitempty"` // in words; none: all is well
	}
	AccountView struct {
		Name   string   `json:"name"`
		Vendor string   `json:"vendor"`
		Title  string   `json:"title,omitempty"` // of the connector
		At     string   `json:"at"`              // URL
		Owner  string   `json:"owner,omitempty"` // whose login it is, as the vendor says
		Scopes []string `json:"scopes,omitempty"`
		Health Code     `json:"health,omitempty"` // empty: well
		Card   string   `json:"card,omitempty"`   // that waits for a decision on it
		Since  int64    `json:"since,omitempty"`  // of its newest change, seconds
		Used   int64    `json:"used,omitempty"`   // grants of it that live
	}

	// SettingsReq asks what the policy says or, with Lines, changes that. From is the Policy that the person was shown: where another
	// is in force, nothing is changed. What widens waits as a card; what only narrows takes effect at once.
	SettingsReq struct {
		From  string        `json:"from,omitempty"`
		Lines []SettingLine `json:"lines,omitempty"`
	}
	// SettingLine is one setting: of a connector, of a method with Method too, or of a site ("*" is every other one). Value "" takes
	// the line away.
	SettingLine struct {
		Connector string `json:"connector,omitempty"`
		Method    string `json:"method,omitempty"`
		Site      string `json:"site,omitempty"`
		Value     string `json:"value,omitempty"`
	}
	SettingsView struct {
		Policy     string             `json:"policy"` // names what is in force, for From
		Connectors []ConnectorSetting `json:"connectors,omitempty"`
		Sites      []SiteSetting      `json:"sites,omitempty"`
		Denied     []DeniedSite       `json:"denied,omitempty"`
		Notes      []string           `json:"notes,omitempty"`
		Card       string             `json:"card,omitempty"` // of a policy that waits
		// Of a change: what it does in words, and what is wrong with it; with Problems nothing was changed.
		Lines    []string `json:"lines,omitempty"`
		Problems []string `json:"problems,omitempty"`
	}
	// ConnectorSetting: Said is what policy.toml says, empty where it says nothing; Now what is in force; Held which limit of the
	// admin's makes that narrower.
	ConnectorSetting struct {
		Name    string          `json:"name"`
		Title   string          `json:"title"`
		Said    string          `json:"said,omitempty"`
		Now     string          `json:"now"`
		Methods []MethodSetting `json:"methods"`
	}
	MethodSetting struct {
		Name    string `json:"name"`
		Summary string `json:"summary"`
		Class   string `json:"class"`
		Said    string `json:"said,omitempty"`
		Now     string `json:"now"`
		Held    string `json:"held,omitempty"`
		Asks    string `json:"asks,omitempty"` // which calls ask whatever is set: "all", or in words
	}
	SiteSetting struct {
		Site string `json:"site"` // as it is written, or the name of a set, or "*"
		Set  bool   `json:"set,omitempty"`
		Said string `json:"said"`
		Held string `json:"held,omitempty"`
	}
	// DeniedSite is one that a person said no to, and that is not asked about again until then.
	DeniedSite struct {
		Cell  string `json:"cell"`
		Site  string `json:"site"`
		Card  string `json:"card"`
		Until int64  `json:"until"` // seconds
	}

	// LabelsView is what each cell has read, in pages.
	LabelsView struct {
		Cells []CellLabels `json:"cells,omitempty"`
		Next  string       `json:"next,omitempty"`
	}
	CellLabels struct {
		Cell    string  `json:"cell"`
		Labels  []Cause `json:"labels,omitempty"`
		Runs    bool    `json:"runs,omitempty"` // it has a session
		Stopped bool    `json:"stopped,omitempty"`
	}

	// FindReq looks for calls, newest first. All that is set must fit; every one of Words must stand somewhere in a call's names,
	// title and arguments, in whatever case. Before is the Next of the answer before.
	FindReq struct {
		Words     string `json:"words,omitempty"`
		Cell      string `json:"cell,omitempty"`
		Connector string `json:"connector,omitempty"`
		State     State  `json:"state,omitempty"`
		From      int64  `json:"from,omitempty"` // seconds; asked then or later
		To        int64  `json:"to,omitempty"`   // and before then
		Before    string `json:"before,omitempty"`
	}
	// FindResp: with Next there is more to look at, older than Back, also where Cards is empty.
	FindResp struct {
		Cards  []Card `json:"cards,omitempty"`
		Next   string `json:"next,omitempty"`
		Looked int    `json:"looked,omitempty"` // calls
		Back   int64  `json:"back,omitempty"`   // with Next: when the oldest of them was asked, seconds
	}
	// Became is what a call came to.
	Became struct {
		Unix   int64  `msgpack:"u,omitempty" json:"unix,omitempty"` // since when it is in its state, seconds
		By     string `msgpack:"b,omitempty" json:"by,omitempty"`   // who approved it
		Object string `msgpack:"o,omitempty" json:"object,omitempty"`
		Link   string `msgpack:"l,omitempty" json:"link,omitempty"` // to Object at the vendor, https
	}
)
