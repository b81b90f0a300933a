// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"sa-controller-manager/admission/registration"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/component"
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

// pluginOn checks by the mirror pod that kube-apiserver has its plugin. It does not matter once the
// webhook is unregistered.
func (c *Config) pluginOn(ctx context.Context) error {
	if registration.IsInactive(ctx, c.Client) == nil {
		return nil
	}
	pod, err := c.mirror(ctx, component.APIServer)
	if err != nil || !component.PluginIsOff(pod) {
		return err
	}
	return cli.Permanent(fmt.Errorf("kube-apiserver has no ServiceAccount plugin, and without the webhook Pods would get no account; "+
		"first run: kubeadm handback --steps=%s,%s; if it had none before the takeover: sa-controller-manager webhook unregister",
		StepAPIServer, StepControllerManager))
}

// unregister removes the webhook from the API. With files nothing is there, unless a person has unregistered and
// registered it there, and nothing is to be left.
func (c *Config) unregister(o *observed) cli.Check {
	return func(ctx context.Context) error {
		found, err := registration.Inspect(ctx, c.Client)
		exists := slices.ContainsFunc(found, func(one registration.Inspected) bool { return one.Exists })
		if err != nil || o.mode() == registration.Static && !exists {
			return err
		}
		return registration.Unregister(ctx, c.Client)
	}
}

// deleteRegistration deletes the configurations of the webhook and what switches them off, once our
// process is gone that would make them again.
func (c *Config) deleteRegistration(ctx context.Context) error {
	files := c.onNode(manifests.StaticDirectory)
	return errors.Join(registration.Delete(ctx, c.Client), registration.RemoveStatic(files), registration.RegisterStatic(files))
}
