// SPDX-License-Identifier: Apache-2.0

package radicale

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/doorward/doorward/test/vendors/standin"
)

const event = "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:-//example//test//EN\r\nBEGIN:VEVENT\r\n" +
	"UID:x@example.test\r\nDTSTAMP:20261101T000000Z\r\nDTSTART:20310101T100000Z\r\nSUMMARY:x\r\n" +
	"END:VEVENT\r\nEND:VCALENDAR\r\n"

func TestTheRealServerAnswersThroughTheRecorder(t *testing.T) {
	s := Start(t, Options{Password: "secret"})
	client := s.Client()
	put := func(password string) (int, error) {
		r, err := http.NewRequestWithContext(t.Context(), "PUT", s.Base()+s.Calendar()+"x.ics", strings.NewReader(event))
		if err != nil {
			t.Fatal(err)
		}
		r.SetBasicAuth("ada", password)
		r.Header.Set("Content-Type", "text/calendar")
		r.Header.Set("If-None-Match", "*")
		response, err := client.Do(r)
		if err != nil {
			return 0, err
		}
		defer response.Body.Close()
		_, err = io.ReadAll(response.Body)
		return response.StatusCode, err
	}
	if status, err := put("wrong"); err != nil || status != http.StatusUnauthorized {
		t.Errorf("wrong password: %d, %v", status, err)
	}
	s.Faults.Add(standin.Fault{Method: "PUT", Times: 1, Drop: standin.DropBefore})
	if _, err := put("secret"); err == nil {
		t.Error("an answer came where the connection was to end")
	}
	if _, there := s.Object(s.Calendar() + "x.ics"); there {
		t.Error("the event is there though the connection ended before it")
	}
	s.Faults.Add(standin.Fault{Method: "PUT", Times: 1, Drop: standin.DropAfter})
	if _, err := put("secret"); err == nil {
		t.Error("an answer came where the connection was to end")
	}
	if text, there := s.Object(s.Calendar() + "x.ics"); !there || !strings.Contains(string(text), "SUMMARY:x") {
		t.Errorf("the event is not there: %q", text)
	}
	if status, err := put("secret"); err != nil || status != http.StatusPreconditionFailed {
		t.Errorf("created twice: %d, %v", status, err)
	}
	record := s.Rec.Find("PUT", s.Calendar())
	if len(record) != 4 || s.Rec.Handled("PUT", "/") != 1 || string(record[2].Body) != event {
		t.Errorf("record: %d requests, %d handled", len(record), s.Rec.Handled("PUT", "/"))
	}
	if record[0].Credential != "other" || record[3].Credential != "real" || record[3].Status != 412 {
		t.Errorf("record: %s, %s, %d", record[0].Credential, record[3].Credential, record[3].Status)
	}
}
