// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import "encoding/hex"

// dump is how client-go logs a body that is not text.
func dump(body []byte) string { return hex.Dump(body) }
