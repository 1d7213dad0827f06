// SPDX-License-Identifier: Apache-2.0

package approver

import (
	"bytes"
	"encoding/hex"
	"os"
	"strings"
	"testing"
)

// The vector of docs/protocol.md is what the code makes.
func TestTheMACOfTheProtocolPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	mac := EnrolMAC(bytes.Repeat([]byte{4}, 32), []byte(`{"id":"AQ"}`))
	if !strings.Contains(string(page), "| an enrolment | `"+hex.EncodeToString(mac)+"` |") {
		t.Errorf("docs/protocol.md does not have | an enrolment | `%x` |", mac)
	}
}
