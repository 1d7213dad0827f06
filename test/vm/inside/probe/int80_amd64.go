// SPDX-License-Identifier: Apache-2.0

package main

func int80() int32
