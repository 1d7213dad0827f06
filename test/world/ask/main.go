// SPDX-License-Identifier: Apache-2.0

// Command ask sends one message of the protocol from wherever it is started and prints the answer: tests use it to ask
// as a person, a cell, a worker or a stranger. It is started as `ask SOCKET VERB HEXBODY [FILE]...`.
package main

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/doorward/doorward/internal/wire"
	"github.com/vmihailenco/msgpack/v5"
)

// Answer is what is printed, as JSON.
type answer struct {
	Body  string      `json:"body,omitempty"` // hex
	Err   *wire.Error `json:"err,omitempty"`
	Fault string      `json:"fault,omitempty"` // no answer of the protocol came
	Files [][]byte    `json:"files,omitempty"` // what came along, read
}

func main() {
	a, err := ask(os.Args[1:])
	if err != nil {
		a.Fault = err.Error()
	}
	if err := json.NewEncoder(os.Stdout).Encode(a); err != nil {
		fmt.Fprintln(os.Stderr, "ask:", err)
		os.Exit(1)
	}
}

func ask(args []string) (answer, error) {
	if len(args) < 3 {
		return answer{}, errors.New("usage: ask SOCKET VERB HEXBODY [FILE]")
	}
	body, err := hex.DecodeString(args[2])
	if err != nil {
		return answer{}, err
	}
	var fds []int
	for _, name := range args[3:] {
		f, err := os.Open(name)
		if err != nil {
			return answer{}, err
		}
		defer f.Close()
		fds = append(fds, int(f.Fd()))
	}
	c, err := wire.Dial(args[0], 10*time.Minute)
	if err != nil {
		return answer{}, err
	}
	defer c.Close()
	if err := c.Write(&wire.Msg{ID: 1, Verb: args[1], Body: msgpack.RawMessage(body)}, fds...); err != nil {
		return answer{}, err
	}
	m, got, err := c.Read()
	if err != nil {
		return answer{}, err
	}
	a := answer{Body: hex.EncodeToString(m.Body), Err: m.Err}
	for _, fd := range got {
		f := os.NewFile(uintptr(fd), "")
		info, err := f.Stat()
		if err != nil {
			return a, err
		}
		b := make([]byte, min(info.Size(), 1<<20))
		if _, err := f.ReadAt(b, 0); err != nil {
			return a, err
		}
		a.Files = append(a.Files, b)
		f.Close()
	}
	return a, nil
}
