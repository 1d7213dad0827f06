// SPDX-License-Identifier: Apache-2.0

package cli

import _ "embed"

// Guide is what an agent should know, 60 lines at most. The same text is shipped as AGENTS.md and as a skill.
//
//go:embed guide/AGENTS.md
var Guide string
