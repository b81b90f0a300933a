// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"fmt"
	"os"

	"sa-controller-manager/signing"
)

// losesNone refuses to take key files from kube-apiserver if one of them has a key that our process cannot verify with:
// kube-apiserver would learn of it no more and refuse its tokens. What else is wrong with a file our process says when it
// starts, and then kube-apiserver is left alone.
func (c *Config) losesNone(files []string) error {
	for _, path := range c.allOnNode(files) {
		data, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		if _, err := signing.ParseAllPublicKeys(data); err != nil {
			return fmt.Errorf("--%s of %s: %s: %w", verifyKeyFlag, apiServer, path, err)
		}
	}
	return nil
}
