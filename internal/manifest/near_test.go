// SPDX-License-Identifier: Apache-2.0

package manifest

import "testing"

const besideGraphQL = `
about = "an interface with both"
hosts = ["vendor-a.test"]
[placement]
kind = "header"
name = "Authorization"
prefix = "Bearer "
[[route]]
name = "rest"
methods = ["POST"]
path = "/api/**"
class = "write"
reach = "none"
[[route]]
name = "mutation"
methods = ["POST"]
path = "/api/graphql"
graphql = "mutation"
class = "destructive"
[[route]]
name = "drop"
methods = ["POST"]
path = "/api/drop"
class = "destructive"
`

// TestNearARouteOfAnOperation: a server that knows no case in paths, or takes a last slash for nothing, runs the
// mutation, of which nothing was read: it counts as its route's class. Control: a plain route.
func TestNearARouteOfAnOperation(t *testing.T) {
	m := parse(t, besideGraphQL)
	for line, want := range map[string]string{
		"POST /api/drop": "drop destructive", "POST /api/DROP": "drop destructive", "POST /api/drop/": "drop destructive",
		"POST /api/GraphQL": "mutation destructive", "POST /api/graphql/": "mutation destructive",
	} {
		if got := named(m.Match(req(line))); got != want {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
	}
}

// TestOverridesBehindASemicolon: where a server parts parameters at a semicolon too, these are overrides as they are behind &.
func TestOverridesBehindASemicolon(t *testing.T) {
	m := parse(t, besideGraphQL)
	for _, line := range []string{"POST /api/x?a=1&_method=DELETE", "POST /api/x?a=1;_method=DELETE", "POST /api/x?a;X-HTTP-Method-Override=DELETE"} {
		if got := named(m.Match(req(line))); got != "ambiguous" {
			t.Errorf("%s: %s", line, got)
		}
	}
	if got := named(m.Match(req("POST /api/x?a=1;method=DELETE"))); got != "rest write" {
		t.Errorf("control, a semicolon alone: %s", got)
	}
}

// TestOverride: what gives a request another method, path or host in some server, in any spelling. Control: what only sounds like it.
func TestOverride(t *testing.T) {
	for _, name := range []string{"X-HTTP-Method-Override", "X_HTTP_Method", "X-Forwarded-Host", "Forwarded", "X-Host", "X-Forwarded-Server",
		"X-HTTP-Host-Override", "X-Forwarded-Method", "X-Original-Method", "X-Original-URI", "X-Forwarded-Uri", "X-Forwarded-Path",
		"X-Forwarded-Prefix", "X-Rewrite-URI", "X-Envoy-Original-Path", "X-Method", "X-HTTP-Verb-Override", "X-Tunneled-Method", "_method"} {
		if !Override(name) {
			t.Errorf("%s goes along", name)
		}
	}
	for _, name := range []string{"X-Forwarded-For", "X-Forwarded-Proto", "X-Hosts", "Host", "X-Methods", "Method", "X-Envoy-Attempt"} {
		if Override(name) {
			t.Errorf("control: %s does not", name)
		}
	}
}
