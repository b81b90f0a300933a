// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"sa-controller-manager/admission/registration"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/manifests"
	"sa-controller-manager/manifests/component"
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

// unused refuses to stop our process while kube-apiserver needs it to start or to admit Pods, and while controllers would run
// nowhere afterwards, whatever has put the two manifests as they are.
func (c *Config) unused(context.Context) error {
	now, err := c.observe()
	if err != nil {
		return cli.Permanent(err)
	}
	api, kcm := now.apiServer(), now.files[component.ControllerManager]
	if api.Signs() || api.ReadsFiles() {
		return cli.Permanent(errors.New("kube-apiserver needs sa-controller-manager, to start if it signs its tokens, and to admit Pods if it " +
			"is called by files; first run: kubeadm handback --steps=" + StepAPIServer))
	}
	if api.PluginIsOff() {
		return cli.Permanent(fmt.Errorf("%s has its ServiceAccount plugin off, and Pods would get neither account nor token; first take "+
			"ServiceAccount out of its --disable-admission-plugins, or remove our manifest by hand", c.manifest(api.Name)))
	}
	m, err := kcm.Parse()
	if kcm.Manifest == nil || now.current == nil {
		return nil // it does not run, or nothing says what ours runs
	}
	if err != nil {
		return cli.Permanent(err)
	}
	if alone := component.RunsHereAlone(m, now.current); len(alone) > 0 {
		err = fmt.Errorf("%s runs in our process alone; first run kubeadm handback --steps=%s, or turn it on in %s, the token controller by a "+
			"--%s; or remove our manifest by hand", strings.Join(alone, ", "), StepControllerManager, c.manifest(kcm.Name), component.KeyFlag)
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
