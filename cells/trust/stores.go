// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"bytes"
	"crypto/sha1"
	"crypto/x509"
	"encoding/asn1"
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf16"
)

// jks is a key store of Java's own format JKS, version 2, with certificates alone (sun.security.provider.JavaKeyStore). Every
// Java reads it: with the usual password, which proves that it is whole, and without one.
func jks(root *x509.Certificate, others [][]byte) []byte {
	var b bytes.Buffer
	u32 := func(n int) { _ = binary.Write(&b, binary.BigEndian, uint32(n)) }
	text := func(s string) { // of ASCII, so Java's modified UTF-8 is the same
		_ = binary.Write(&b, binary.BigEndian, uint16(len(s)))
		b.WriteString(s)
	}
	u32(0xfeedfeed)
	u32(2)
	u32(1 + len(others))
	entry := func(alias string, der []byte) {
		u32(2) // a certificate that is trusted
		text(alias)
		_ = binary.Write(&b, binary.BigEndian, root.NotBefore.UnixMilli())
		text("X.509")
		u32(len(der))
		b.Write(der)
	}
	entry("doorward", root.Raw)
	for i, der := range others {
		entry(fmt.Sprintf("tree-%d", i), der)
	}
	sum := sha1.New()
	for _, u := range utf16.Encode([]rune("changeit")) {
		_ = binary.Write(sum, binary.BigEndian, u)
	}
	sum.Write([]byte("Mighty Aphrodite"))
	sum.Write(b.Bytes())
	return sum.Sum(b.Bytes())
}

// subjectHash is the name by which OpenSSL finds a certificate in a folder, as `openssl x509 -subject_hash` prints it: of the
// subject in canonical form (crypto/x509/x_name.c), where text is UTF-8, in lower case, and its spaces single.
func subjectHash(c *x509.Certificate) string {
	var names []asn1.RawValue // of RelativeDistinguishedName
	if _, err := asn1.Unmarshal(c.RawSubject, &names); err != nil {
		return "00000000" // ParseCertificate has read it, so it does not happen
	}
	var all []byte
	for _, rdn := range names {
		set, rest := []byte{}, rdn.Bytes
		for len(rest) > 0 {
			var atv struct {
				Type  asn1.ObjectIdentifier
				Value asn1.RawValue
			}
			var err error
			if rest, err = asn1.Unmarshal(rest, &atv); err != nil {
				return "00000000"
			}
			switch atv.Value.Tag {
			case asn1.TagUTF8String, asn1.TagPrintableString, asn1.TagIA5String:
				atv.Value = asn1.RawValue{Tag: asn1.TagUTF8String, Bytes: canonical(atv.Value.Bytes)}
			}
			der, err := asn1.Marshal(atv)
			if err != nil {
				return "00000000"
			}
			set = append(set, der...)
		}
		der, err := asn1.Marshal(asn1.RawValue{Tag: asn1.TagSet, IsCompound: true, Bytes: set})
		if err != nil {
			return "00000000"
		}
		all = append(all, der...)
	}
	sum := sha1.Sum(all)
	return fmt.Sprintf("%08x", binary.LittleEndian.Uint32(sum[:]))
}

// canonical folds ASCII alone, as OpenSSL does.
func canonical(b []byte) []byte {
	folded := strings.Join(strings.FieldsFunc(string(b), func(r rune) bool { return r == ' ' || r >= '\t' && r <= '\r' }), " ")
	return []byte(strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, folded))
}
