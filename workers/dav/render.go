// SPDX-License-Identifier: Apache-2.0

package dav

import (
	"errors"

	"github.com/doorward/doorward/workers"
)

var errTodo = errors.New("not yet")

func renderContactDelete(*workers.Rendering) ([]byte, string, error) { return nil, "", nil }
func renderContact(*workers.Rendering) ([]byte, string, error)       { return nil, "", errTodo }
func renderCreate(*workers.Rendering) ([]byte, string, error)        { return nil, "", errTodo }
func renderDelete(*workers.Rendering) ([]byte, string, error)        { return nil, "", errTodo }
func renderUpdate(*workers.Rendering) ([]byte, string, error)        { return nil, "", errTodo }
func renderRespond(*workers.Rendering) ([]byte, string, error)       { return nil, "", errTodo }
