// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"sa-controller-manager/admission/registration"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/component"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/nodefile"
	"sa-controller-manager/internal/apiservers"
	"sa-controller-manager/manifests"
)

const (
	registrationFlag = "webhook-registration"
	staticDirFlag    = "static-registration-dir"
)

// inAPI are the modes whose webhook is an object of the API.
func (o *observed) inAPI() bool { return o.mode == registration.URL || o.mode == registration.Service }

func (o *observed) fromFiles() bool { return o.mode == registration.Static }

// chooseMode decides how kube-apiserver learns of our webhook: from files wherever it reads them, which
// needs nothing of other nodes, and otherwise by the loopback URL of this node, which no other
// kube-apiserver could call.
func (c *Config) chooseMode(ctx context.Context, o *observed) error {
	m, err := o.apiServer().Parse()
	if err != nil {
		return err
	}
	// An image may be named by its digest, or have a tag of the operator's own.
	if c.Client != nil && !component.HasVersion(m.Image()) {
		running, err := c.Client.Discovery().ServerVersion()
		if err != nil {
			return fmt.Errorf("ask kube-apiserver for its version: %w", err)
		}
		o.running = running.GitVersion
	}
	unasked := component.FilesUnasked(cmp.Or(o.running, m.Image()), m.Command())
	before := o.mode
	switch {
	case c.Registration != "":
		o.mode = c.Registration
	case o.manager != nil && !c.Rewrite || before == registration.URL || o.fromFiles():
	case unasked:
		o.mode = registration.Static
	default:
		o.mode = registration.URL
		err = c.checkAlone(ctx, o)
	}
	switch {
	case err != nil:
	case before != "" && before != registration.None && before != o.mode:
		err = fmt.Errorf("our manifest has --%s=%s, and kube-apiserver would refuse Pods while it becomes %s; first run: kubeadm handback",
			registrationFlag, before, o.mode)
	case o.mode == registration.None:
		o.note = cmp.Or(o.note, "kube-apiserver keeps its ServiceAccount plugin: our manifest registers no webhook. --rewrite decides again, "+
			"with --reset if an --extra-arg has decided it.")
	case o.mode == registration.URL && unasked:
		o.note = "The webhook stays in the API, by URL. For files, which no client of the API can delete: kubeadm handback, then " +
			"kubeadm takeover."
	}
	return err
}

// checkAlone leaves kube-apiserver its plugin if there are several. A dry run may have no API server to ask.
func (c *Config) checkAlone(ctx context.Context, o *observed) error {
	const version = "it reads no webhook from files (v1.37 does; v1.36 with --static-registration)"
	if c.Client == nil {
		o.note = "If another kube-apiserver runs, this one keeps its ServiceAccount plugin: " + version + "."
		return nil
	}
	hosts, err := apiservers.LiveHosts(ctx, c.Client, c.Clock.Now())
	if err == nil && len(hosts) != 1 {
		o.mode = registration.None
		o.note = fmt.Sprintf("kube-apiserver keeps its ServiceAccount plugin: %s, and a webhook by URL is for one host. "+
			"By their identity Leases kube-apiservers run on %q.", version, hosts)
	}
	return err
}

// planStatic plans the step after which kube-apiserver reads our files and still has its plugin: our
// process binds the webhook only once it has called it.
func (c *Config) planStatic(o *observed, changes component.Changes, s *step) error {
	reads := o.apiServer().ReadsFiles()
	m, err := o.apiServer().Parse()
	if err != nil {
		return err
	}
	content, err := c.admissionConfig(m)
	if err != nil {
		return fmt.Errorf("--%s of %s: %w", component.AdmissionConfigFlag, component.APIServer, err)
	}
	file := c.onNode(component.AdmissionConfigFile)
	before, err := nodefile.Read(file)
	if err != nil {
		return err // it names the path
	}
	if reads && before != nil && !bytes.HasPrefix(before, []byte(copyHead)) {
		content = before // of a cluster that was created with our process
	} else if reads && before != nil && !bytes.Equal(before, content) {
		return fmt.Errorf("%s is not what a takeover makes of the operator's file now, and kube-apiserver reads it only when it starts; "+
			"first run: kubeadm handback --steps=%s", file, StepAPIServer)
	}
	changes.Plugin = false // it stays until our process has proved the call
	if err := c.planEdit(o, component.ForAPIServer(changes, component.SigningKeys{}), s); err != nil {
		return err
	}
	s.writes = append(nodefile.Append(nil, file, before, content), s.writes...)
	s.waits = append(s.waits, c.managerReady(o, ""))
	c.rollsBack(s)
	return nil
}

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
	signs, err := now.apiServer().Signs()
	if err == nil && (signs || now.apiServer().ReadsFiles()) {
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
		if err != nil || o.fromFiles() && !exists {
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
