// SPDX-License-Identifier: Apache-2.0

// Package repo holds the tree to its own rules: who imports whom, what each binary links, what the README says of the
// sockets, and that no text speaks of the machine it was written on.
package repo
