// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"sa-controller-manager/admission/registration"
	"sa-controller-manager/controllers/keyring/hosts"
	"sa-controller-manager/controllers/keyring/ring"
	"sa-controller-manager/internal/await"
	"sa-controller-manager/manifests"
	"sa-controller-manager/manifests/component"
	"sa-controller-manager/manifests/nodefile"
)

// Handback undoes Run.
func Handback(ctx context.Context, c Config) error {
	o, err := c.observe()
	if err != nil {
		return err
	}
	if err := c.checkStrayManifests(); err != nil {
		return err
	}
	unknown := c.Silent
	if c.Client != nil {
		published, err := hosts.Fetch(ctx, c.Client)
		c.revoked = published.Removed
		if unknown = err; ring.IsDone(err) {
			unknown = nil
		}
	}
	steps, err := c.planHandback(o)
	if err != nil {
		return err
	}
	if file := o.own.Last(component.KeyRingFlag); unknown != nil && file != "" {
		fmt.Fprintf(c.Out, "The key files are compared with %s alone, which lacks what other hosts have revoked since: %v\n", file, unknown)
	}
	return c.run(ctx, steps)
}

// planHandback returns the steps of a handback. None of them waits for our process, which may be what
// is broken.
func (c *Config) planHandback(o *observed) ([]step, error) {
	w := written{c: c, record: o.record, data: o.recordFile}
	var steps []step
	for _, one := range []step{
		{name: StepAPIServer, summary: "kube-apiserver has its ServiceAccount plugin again"},
		{name: StepControllerManager, summary: "kube-controller-manager has its ServiceAccount controllers again"},
	} {
		if !c.includes(one.name) {
			continue
		}
		if err := w.givesBack(&one, o); err != nil {
			return nil, err
		}
		if o.manager == nil && o.recordFile == nil {
			one.notes = append(one.notes, "This node is not taken over: no file is changed.")
		}
		steps = append(steps, one)
	}
	if c.includes(StepManager) {
		steps = append(steps, step{
			name:    StepManager,
			summary: "sa-controller-manager ends, and the files of its webhook are deleted",
			guards:  []await.Check{c.unused, c.unregistered, c.isNode(o)},
			writes: append(nodefile.Append(nil, c.manifest(manager), o.manager, nil),
				w.next(component.Record{Components: w.record.Components})...),
			waits: []await.Check{c.managerGone(o), c.deleteFiles, c.unrestricted, c.forgetRing},
		})
	}
	return steps, nil
}

// forgetRing has no rotation on other nodes wait for the key ring of this one.
func (c *Config) forgetRing(ctx context.Context) error {
	host, err := hosts.HostName()
	if err == nil {
		err = hosts.Forget(ctx, c.Client, host)
	}
	if ring.IsDone(err) {
		return nil
	}
	return err
}

// givesBack plans the writes and waits of a handback's step. The record goes last.
func (w *written) givesBack(s *step, o *observed) error {
	c, before := w.c, o.files[s.name]
	after, err := before.Handback()
	if err != nil {
		return c.damaged(s.name, err)
	}
	m, err := after.Parse()
	if err != nil {
		return err
	}
	if s.notes, err = c.checkKeyFiles(o, s.name, m); err != nil {
		return err
	}
	s.advice = logOf(s.name) + "\n" + again + "."
	s.waits = []await.Check{c.runs(s.name, m)}
	// Edits since the takeover become part of the backup, so that nothing is taken out of them twice.
	s.writes = nodefile.Append(s.writes, c.backup(s.name), before.Backup, after.Backup)
	s.writes = nodefile.Append(s.writes, c.manifest(s.name), before.Manifest, after.Manifest)
	s.writes = nodefile.Append(s.writes, c.patch(s.name), before.Patch, nil)
	if s.name == component.APIServer {
		if o.current == nil && len(s.writes) > 0 {
			s.notes = append(s.notes, "Our manifest is gone or damaged. The keys in use are those of "+c.backup(manager)+", or unknown.")
		}
		if bytes.HasPrefix(o.copied, []byte(copyHead)) && m.Command().Last(component.AdmissionConfigFlag) != component.AdmissionConfigFile {
			s.writes = nodefile.Append(s.writes, c.onNode(component.AdmissionConfigFile), o.copied, nil)
		}
	}
	s.writes = append(s.writes, w.next(w.record.With(after.Name, after.Taken))...)
	return nil
}

// answers checks that there is a kube-apiserver to ask. Whatever status it answers with, or with which certificate, it runs.
func (c *Config) answers(context.Context) error {
	_, err := c.Client.Discovery().ServerVersion()
	if errors.As(err, new(apierrors.APIStatus)) || errors.As(err, new(*tls.CertificateVerificationError)) {
		return nil
	}
	return err
}

// wayBack offers to restore what kube-apiserver had, where it does not answer after a takeover that was interrupted.
func (c *Config) wayBack(ctx context.Context, silent error) error {
	silent = fmt.Errorf("kube-apiserver does not answer: %w", silent)
	if ctx.Err() != nil || c.Confirm != nil && !c.Confirm(ctx,
		silent.Error()+"\nA takeover has changed its manifest. Put the previous one back?") {
		return fmt.Errorf("%w; kubeadm handback --steps=%s puts its previous manifest back", silent, StepAPIServer)
	}
	back := *c
	back.Steps, back.Confirm = []string{StepAPIServer}, nil
	if err := Handback(ctx, back); err != nil {
		return errors.Join(silent, err)
	}
	return fmt.Errorf("%w; its previous manifest is back", silent)
}

// unused refuses to stop our process while kube-apiserver needs it to start or to admit Pods, and while controllers would run
// nowhere afterwards, however the two manifests came about.
func (c *Config) unused(context.Context) error {
	now, err := c.observe()
	if err != nil {
		return await.Permanent(err)
	}
	api, kcm := now.apiServer(), now.files[component.ControllerManager]
	if api.Signs() || api.ReadsFiles() {
		return await.Permanent(errors.New("kube-apiserver depends on sa-controller-manager (external token signer, or webhook from " +
			"files); first run: kubeadm handback --steps=" + StepAPIServer))
	}
	if api.PluginIsOff() {
		return await.Permanent(fmt.Errorf("%s has its ServiceAccount plugin off, and Pods would get neither account nor token; first take "+
			"ServiceAccount out of its --disable-admission-plugins, or remove our manifest by hand", c.manifest(api.Name)))
	}
	m, err := kcm.Parse()
	if kcm.Manifest == nil || now.current == nil {
		return nil // it does not run, or nothing says what ours runs
	}
	if err != nil {
		return await.Permanent(err)
	}
	if alone := component.RunsHereAlone(m, now.current); len(alone) > 0 {
		err = fmt.Errorf("%s runs in our process alone; first run kubeadm handback --steps=%s, or enable it in %s, the token controller "+
			"by a --%s; or remove our manifest by hand", strings.Join(alone, ", "), StepControllerManager, c.manifest(kcm.Name),
			component.KeyFlag)
	}
	return await.Permanent(err)
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
