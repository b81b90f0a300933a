// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import "errors"

// exitFindings is the exit code of a command that was able to do its work and has found
// what a person has to see to. Scripts tell it from 1, which is that it could not.
const exitFindings = 2

// errFindings is returned by such a command after it has printed them.
var errFindings = errors.New("there are findings")
