// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package flagfile reads files that flags name.
package flagfile

import (
	"fmt"
	"os"
)

// Read reads and parses the file of a flag once, as commands do, which follow no file. Its error names the flag and the file.
func Read[T any](flag, path string, parse func([]byte) (T, error)) (parsed T, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return parsed, fmt.Errorf("--%s: %w", flag, err)
	}
	if parsed, err = parse(data); err != nil {
		return parsed, fmt.Errorf("--%s: %s: %w", flag, path, err)
	}
	return parsed, nil
}
