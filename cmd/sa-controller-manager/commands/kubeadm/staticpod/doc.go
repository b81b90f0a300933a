// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package staticpod changes the command of a static pod's manifest, may mount a directory
// of the host in it, and keeps every other byte: comments, order, quoting, indentation and
// line ends.
//
// A YAML parser says where the items of the command are; what is changed is the file's
// own text between those positions. Nothing is marshalled, because that would lose what
// a person wrote. So only what is surely understood is changed: one Pod with one
// container, whose command is a block list of one-line strings that begins with the
// program itself. Anything else is refused with the reason and the line.
//
// What comes out is parsed again, and an edit that did anything but what was asked is an
// error.
//
// Everything here is pure: bytes in, bytes out. A Manifest is immutable and may be used
// from any goroutine.
package staticpod
