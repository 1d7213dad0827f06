// SPDX-License-Identifier: Apache-2.0

package wire

// Where a cell finds the root of its egress's certificates. Package cells puts it there at each start, read-only; the key of that
// root never leaves the state of its egress.
const (
	// CellCA is a folder of the cell: CARoot, CABundle and CAJava.
	CellCA   = RunDir + "ca/"
	CARoot   = "root.pem"   // the root alone
	CABundle = "bundle.pem" // what the cell's tree trusts, and the root
	CAJava   = "cacerts"    // the same for a Java, in its own format JKS
	// SystemBundle is where Debian's programs look; CABundle is bound over it.
	SystemBundle = "/etc/ssl/certs/ca-certificates.crt"
)

// TrustEnv are the variables, by name, of a cell and its runs that lead programs with roots of their own to the same ones.
// SSL_CERT_DIR is not among them: set, it would hide SystemBundle from some. Java has none: what it reads from
// JAVA_TOOL_OPTIONS it tells on stderr, so its file is bound.
func TrustEnv() map[string]string {
	return map[string]string{
		"NODE_EXTRA_CA_CERTS": SystemBundle, // besides Node's own
		"DENO_CERT":           SystemBundle, // besides Deno's own
		"SSL_CERT_FILE":       SystemBundle, // OpenSSL, Go, Python, Rust
		"REQUESTS_CA_BUNDLE":  SystemBundle,
		"CURL_CA_BUNDLE":      SystemBundle,
		"GIT_SSL_CAINFO":      SystemBundle,
		"PIP_CERT":            SystemBundle,
		"npm_config_cafile":   SystemBundle,
		"AWS_CA_BUNDLE":       SystemBundle,
		"CARGO_HTTP_CAINFO":   SystemBundle,
	}
}
