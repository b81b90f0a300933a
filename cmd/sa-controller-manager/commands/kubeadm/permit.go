// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"sa-controller-manager/manifests"
)

// permit applies the permissions of our process before the process is there that signs
// for kube-apiserver. Without that its init container does it, and waits for
// kube-apiserver; but now kube-apiserver waits for it, each time that the node starts.
func (c *Config) permit(ctx context.Context, d direction, o *observed, s step) error {
	if d != takeover || s.name != StepManager || len(s.writes) == 0 {
		return nil
	}
	if signs, err := c.signs(o); err != nil || !signs {
		return err
	}
	objects, err := manifests.Permissions()
	if err != nil {
		return err
	}
	return c.await(ctx, func(ctx context.Context) error {
		for _, object := range objects {
			path, err := object.Path()
			if err != nil {
				return permanentError{err}
			}
			err = c.Client.CoreV1().RESTClient().Patch(types.ApplyYAMLPatchType).AbsPath(path).
				Param("fieldManager", manager).Param("force", "true").Body(object.YAML).Do(ctx).Error()
			if err != nil {
				return fmt.Errorf("apply %s: %w", object, err)
			}
		}
		return nil
	})
}
