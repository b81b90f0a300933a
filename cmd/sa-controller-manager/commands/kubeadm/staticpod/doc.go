// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package staticpod edits the command and the mounts of a static pod's manifest and keeps every other
// byte: comments, order, quoting, indentation and line ends.
//
// A YAML parser finds the positions of the command's items, and the text between them is edited in
// place. Marshalling would lose comments and style. Only one form is accepted: one Pod with one
// container, whose command is a block list of one-line strings that begins with the program itself.
// Anything else is refused with the reason and the line.
//
// The result is parsed again, and an edit with any other effect than the requested one is an error.
//
// Everything here is pure: bytes in, bytes out. A Manifest is immutable and may be used from any
// goroutine.
package staticpod
