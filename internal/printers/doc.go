// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package printers writes what a command has found out in the format of its --output: for people as text, which is mostly a
// table, and for programs as JSON or YAML.
//
// Much of it was written by strangers: names, key IDs, claims, the words of a server. What must never happen: that it steers a
// terminal, or makes a document that no reader takes.
package printers
