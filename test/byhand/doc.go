// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package byhand runs the commands of the documentation as they stand there,
// against a real control plane. It holds tests only.
//
// A page is a list of fenced blocks. A block "sh" is run by bash, all of a page in one
// shell and one empty directory. A block "text" right after it is what it must print.
package byhand
