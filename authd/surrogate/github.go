// SPDX-License-Identifier: Apache-2.0

package surrogate

import "hash/crc32"

const (
	// GitHub's classic tokens are a prefix, 30 characters and a checksum of 6
	// (https://github.blog/2021-04-05-behind-githubs-new-authentication-token-formats/); npm took the form over.
	classicBody    = 30
	checksumLength = 6
)

// appendChecksum appends the CRC-32 (IEEE) of part in base 62, digits before capitals before small letters, padded
// with zeros to six characters. Six characters hold every 32-bit value. For fine-grained tokens, whose checksum
// GitHub has not described, part is the section after the last "_": that is what the published checkers verify.
func appendChecksum(value, part []byte) []byte {
	var out [checksumLength]byte
	sum := crc32.ChecksumIEEE(part)
	for i := len(out) - 1; i >= 0; i-- {
		out[i] = base62.chars[sum%62]
		sum /= 62
	}
	return append(value, out[:]...)
}
