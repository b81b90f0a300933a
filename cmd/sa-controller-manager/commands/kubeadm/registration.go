// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"context"
	"errors"
	"fmt"
	"os"

	"sa-controller-manager/admission/registration"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/manifests"
)

const (
	registrationFlag = "webhook-registration"
	staticDirFlag    = "static-registration-dir"
)

// switchedOff refuses to rely on files that an administrator has switched off: our process keeps them
// away and is ready.
func (c *Config) switchedOff(context.Context) error {
	off := c.onNode(registration.StaticOffPath(manifests.StaticDirectory))
	if _, err := os.Stat(off); err == nil {
		return cli.Permanent(fmt.Errorf("%s switches the webhook off; %s webhook register --%s=%s lets it in again",
			off, manager, staticDirFlag, manifests.StaticDirectory))
	}
	return nil
}

// unused refuses to stop our process while kube-apiserver needs it to start or to admit Pods.
func (c *Config) unused(context.Context) error {
	now, err := c.observe()
	if err != nil {
		return cli.Permanent(err)
	}
	if now.apiServer().Signs() || now.apiServer().ReadsFiles() {
		err = errors.New("kube-apiserver needs sa-controller-manager, to start if it signs its tokens, and to admit Pods if it is called " +
			"by files; first run: kubeadm handback --steps=" + StepAPIServer)
	}
	return cli.Permanent(err)
}

// unregistered waits until the API binds no webhook, which a takeover does not do.
func (c *Config) unregistered(ctx context.Context) error {
	if err := registration.IsInactive(ctx, c.Client); err != nil {
		return fmt.Errorf("%w; run: sa-controller-manager webhook unregister%s", err, adminFlags)
	}
	return nil
}

// deleteFiles deletes the files of the webhook and what switches them off, once our process is gone that would make them again.
func (c *Config) deleteFiles(context.Context) error {
	files := c.onNode(manifests.StaticDirectory)
	return errors.Join(registration.RemoveStatic(files), registration.RegisterStatic(files))
}
