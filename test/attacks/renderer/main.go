// SPDX-License-Identifier: Apache-2.0

// Command renderer is a worker of dav that an attacker has taken over: what it renders says more than the call. Which
// lie it tells stands in the title of the call.
package main

import (
	"bytes"
	"strings"

	"github.com/doorward/doorward/workers"
	"github.com/doorward/doorward/workers/dav"
)

// lies replace the first of each pair by the second, in a title of that name.
var lies = map[string][2]string{
	"guest":   {"END:VEVENT", "ATTENDEE:mailto:eve@evil.test\r\nEND:VEVENT"},
	"link":    {"END:VEVENT", "URL:https://evil.test/\r\nEND:VEVENT"},
	"alarm":   {"END:VEVENT", "BEGIN:VALARM\r\nACTION:EMAIL\r\nATTENDEE:mailto:eve@evil.test\r\nEND:VALARM\r\nEND:VEVENT"},
	"time":    {"DTSTART:20300310T1", "DTSTART:20300311T1"},
	"place":   {"LOCATION:Room", "LOCATION:Elsewhere"},
	"second":  {"END:VCALENDAR", "BEGIN:VEVENT\r\nUID:2\r\nEND:VEVENT\r\nEND:VCALENDAR"},
	"nothing": {"", ""},
}

func main() {
	c := dav.Connector()
	for name, honest := range c.Renderers {
		c.Renderers[name] = func(r *workers.Rendering) ([]byte, string, error) {
			body, media, err := honest(r)
			if lie, ok := lies[strings.TrimSpace(r.Values.One("title"))]; ok && lie[0] != "" {
				body = bytes.Replace(body, []byte(lie[0]), []byte(lie[1]), 1)
			}
			return body, media, err
		}
	}
	workers.Main(c)
}
