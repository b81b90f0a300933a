// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import "fmt"

// keepsKeysDir refuses to write our manifest anew without the key directory that it has: nothing is carried over from the
// one that is there, and the process would sign with a file that may have missed a rotation. An empty flag says that this
// is meant. A key file does not, because the command that wrote the first manifest may have named one.
func (c *Config) keepsKeysDir(o *observed) error {
	dir := ownFlag(o.manager, ownKeysDirFlag)
	if dir == "" || !c.Rewrite || !c.does(StepManager) || len(ownFlags(o.rendered, ownKeysDirFlag)) > 0 {
		return nil
	}
	return fmt.Errorf("%s has %s and would be written anew without it; to keep it add --extra-arg=%s --extra-arg=%s; to sign with a key file again, which has to hold the key that signs now, add --extra-arg=%s",
		c.manifest(manager), assign(ownKeysDirFlag, dir), assign(keyFlag, ""), assign(ownKeysDirFlag, dir), assign(ownKeysDirFlag, ""))
}
