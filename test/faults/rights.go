// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"sa-controller-manager/test/devcluster"
)

// ordinaryRights has processes of root be refused what the mode of a file forbids, as those of
// any other user are: they go without the capabilities that override it (capabilities(7)), as
// in a container that drops all. setpriv is of util-linux.
func (w *World) ordinaryRights(binary devcluster.Binary) (devcluster.Binary, error) {
	if os.Geteuid() != 0 {
		return binary, nil
	}
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		return binary, fmt.Errorf("find setpriv: %w", err)
	}
	script := fmt.Sprintf("#!/bin/sh\nexec %s --bounding-set=-dac_override,-dac_read_search -- %s \"$@\"\n", quoted(setpriv),
		quoted(binary.Path))
	binary.Path = filepath.Join(w.cluster.Dir(), "without-override")
	if err := os.WriteFile(binary.Path, []byte(script), 0o700); err != nil { //nolint:gosec // G306: it is to be executed
		return binary, fmt.Errorf("write a script: %w", err)
	}
	return binary, nil
}

// quoted is text as one word of a shell.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
