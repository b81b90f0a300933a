// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/sets"
)

// checkKeys compares key files with what kube-apiserver verifies with. It may have
// further keys, such as its own for bound tokens.
func checkKeys(ctx context.Context, c *Cluster) (Answer, error) {
	if len(c.KeyFiles) == 0 {
		return Answer{Note: "nothing to compare: give --service-account-private-key-file, --service-account-key-ring or --service-account-key-file"}, nil
	}
	ids, err := c.knownKeyIDs(ctx)
	if err != nil {
		return Answer{}, err
	}
	return Answer{Findings: strangeKeys(c.KeyFiles, ids), Note: count(len(c.KeyFiles), "file", "files") + " compared"}, nil
}

func strangeKeys(files []KeyFile, known sets.Set[string]) []Finding {
	var findings []Finding
	for _, file := range files {
		for _, key := range file.Keys {
			if known.Has(key.ID) {
				continue
			}
			findings = append(findings, found(
				fmt.Sprintf("kube-apiserver does not know key %s of --%s=%s: it refuses the tokens that are signed with it", key.ID, file.Flag, file.Path),
				"give every kube-apiserver its public half once more with --service-account-key-file, keep the other keys, and restart it"))
		}
	}
	return findings
}
