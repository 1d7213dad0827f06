// SPDX-License-Identifier: Apache-2.0

package manifest

// Change is the name of what Sites has for a request that is no read.
const Change = "change"

// Sites are the routes by which requests to a site are read where no credential of a person goes along. Nothing is refused by
// them: what is not known to be a read is a write named Change. Among these are uploads by GET, upgrades to WebSocket, and
// what cannot be read. A HEAD, GET or OPTIONS with a body is to come as wire.Unreadable.
//
// That a GET changes nothing is HTTP's rule, which a server may break; and its path and query carry data out like a body
// does. A site that is read by these routes is one that a person trusts with that.
func Sites(host string, port uint16) *Manifest {
	m := &Manifest{About: "requests to " + host, Hosts: []Host{{Name: host, Port: port}}, Setting: settings[1], rest: true}
	read := func(r Route) {
		if r.Class == "" {
			r.Class, r.Reach = Read, "none"
		}
		m.Routes = append(m.Routes, r)
	}
	read(Route{Name: "read", Methods: []string{"GET", "HEAD", "OPTIONS"}, Path: "/**"})
	git := []string{"GET", "POST"}
	read(Route{Name: "git-fetch", Methods: git, Path: "/**", Git: "fetch"})
	read(Route{Name: "git-push", Methods: git, Path: "/**", Git: "push", Class: Write, Reach: "public"})
	read(Route{Name: "git-delete", Methods: git, Path: "/**", Git: "delete", Class: Destructive, Reach: "public"})
	switch {
	case port != 443:
	case host == "registry.npmjs.org": // npm asks what is known against the packages that it is about to install
		for _, p := range []string{"/-/npm/v1/security/advisories/bulk", "/-/npm/v1/security/audits", "/-/npm/v1/security/audits/quick"} {
			read(Route{Name: "npm-audit", Methods: []string{"POST"}, Path: p})
		}
	case host == "api.github.com":
		read(Route{Name: "graphql-query", Methods: git, Path: "/graphql", GraphQL: "query"})
	}
	return m
}

// change is the route of what Sites does not know.
func change(method string) *Route {
	r := &Route{Name: Change, Path: "/**", Class: Write, Reach: "public"}
	if method == "DELETE" {
		r.Class = Destructive
	}
	return r
}
