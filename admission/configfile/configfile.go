// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package configfile is about the copy that a takeover makes of the operator's admission configuration, and finds what was
// edited there since: kube-apiserver reads the copy.
package configfile

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sa-controller-manager/internal/check"
	"sa-controller-manager/manifests"
)

// Changed is found on the host alone, by the files there.
var Changed = check.Fact{
	Code: "admission-config-changed", Message: "kube-apiserver does not have the operator's admission configuration as it is now",
	Cost: "what was changed in it has no effect",
	Remedy: "on that node: sa-controller-manager kubeadm handback --steps=kube-apiserver, then kubeadm takeover " +
		"with the flags of the first one",
	Unready: true,
}

const sourceMark = "#sha256:"

// Source returns a line for the head of the copy: which file of the host it was made of.
func Source(file string, content []byte) string {
	return fmt.Sprintf("%s%x %s\n", sourceMark, sha256.Sum256(content), file)
}

// Sources returns the paths of the files of which the copy was made.
func Sources(copied []byte) (files []string) {
	for line := range strings.Lines(string(copied)) {
		if _, file, _ := strings.Cut(line, " "); strings.HasPrefix(line, sourceMark) {
			files = append(files, strings.TrimSpace(file))
		}
	}
	return files
}

// Findings finds the files that have changed since the copy below dir was made of them.
func Findings(dir string) (result check.Result, err error) {
	copied, err := os.ReadFile(filepath.Join(dir, manifests.AdmissionConfig))
	if err != nil {
		return check.Skip("not compared: " + err.Error()), nil //nolint:nilerr // there need be none
	}
	var changed []string
	for _, file := range Sources(copied) {
		if content, err := os.ReadFile(file); err != nil {
			result = check.Skip("not compared: " + err.Error())
		} else if !bytes.Contains(copied, []byte(Source(file, content))) {
			changed = append(changed, file)
		}
	}
	result.Findings = Changed.Found().About(changed)
	return result, nil
}
