// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/hex"
	"os"
	"strings"
	"testing"
)

// The vectors of docs/protocol.md are what the code makes. Those who write another client, or the page's script, go by them.
func TestTheVectorsOfTheProtocolPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	nonce := bytes.Repeat([]byte{1}, 32)
	hash := strings.Repeat("AgIC", 10) + "AgI=" // 32 bytes of 2
	yes := WebDecision{Nonce: nonce, Decision: []byte(`{"hash":"` + hash + `","approve":true}`)}
	no := WebDecision{Nonce: bytes.Repeat([]byte{3}, 32), Decision: []byte(`{"hash":"` + hash + `","approve":false,"stop":true}`)}
	one, two := Challenge([]WebDecision{yes}, []int64{1900000000}), Challenge([]WebDecision{yes, no}, []int64{1900000000, 1900000300})
	login := LoginChallenge(nonce)
	asked := &WebReq{Nonce: nonce, Body: []byte(`{"call":"c1"}`)}
	answer := Sum(Answered("show", asked, &WebResp{Body: []byte(`{"rp":"localhost"}`)}))
	refusal := Sum(Answered("show", asked, &WebResp{Code: CodeNotFound, Body: []byte(`{"code":"not_found","reason":"no"}`)}))
	for what, sum := range map[string][]byte{
		"an answer": answer[:], "a refusal": refusal[:],
		"one decision": one[:], "two decisions": two[:], "a login": login[:],
	} {
		if !strings.Contains(string(page), "| "+what+" | `"+hex.EncodeToString(sum)+"` |") {
			t.Errorf("docs/protocol.md does not have | %s | `%x` |", what, sum)
		}
	}
}

// No two things that may be signed or keyed have one text: each tag ends in a zero byte, which no other tag goes on behind.
func TestNoTagBeginsAnother(t *testing.T) {
	tags := []string{answerTag, challengeTag, loginTag, EnrolTag}
	for i, a := range tags {
		if !strings.HasSuffix(a, "\x00") || strings.Count(a, "\x00") != 1 {
			t.Errorf("%q does not end in its only zero byte", a)
		}
		for j, b := range tags {
			if i != j && strings.HasPrefix(a, b) {
				t.Errorf("%q begins %q", b, a)
			}
		}
	}
}
