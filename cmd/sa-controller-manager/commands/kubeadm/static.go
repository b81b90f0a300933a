// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"sa-controller-manager/admission/registration"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/component"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/nodefile"
	"sa-controller-manager/manifests"
)

const (
	registrationFlag = "webhook-registration"
	staticDirFlag    = "static-registration-dir"
)

// static reports whether kube-apiserver is to read our webhook from files, or one of the two manifests
// is for that already.
func (c *Config) static(o *observed) bool {
	return c.StaticRegistration || component.OwnFlag(o.manager, staticDirFlag) == manifests.StaticDirectory || o.apiServer().ReadsFiles()
}

// planStatic adds to the step of kube-apiserver the file that it reads, and what undoes the step if it
// does not come: until then no Pod is admitted through this kube-apiserver.
func (c *Config) planStatic(o *observed, s *step) error {
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
	if o.apiServer().ReadsFiles() && before != nil && !bytes.Equal(before, content) {
		return fmt.Errorf("%s is not what a takeover makes of the operator's file now, and kube-apiserver reads it only when it starts; "+
			"first run: kubeadm handback --steps=%s", file, StepAPIServer)
	}
	s.writes = append(nodefile.Append(nil, file, before, content), s.writes...)
	s.waits = append(s.waits, c.managerReady(o), c.called)
	for _, w := range slices.Backward(s.writes) {
		if w.Path != c.backup(component.APIServer) {
			s.rollback = append(s.rollback, nodefile.Write{Path: w.Path, Before: w.After, After: w.Before})
		}
	}
	s.undone = "the previous manifest of " + component.APIServer + " is back"
	return nil
}

// called checks that kube-apiserver calls our webhook, by a Pod with dryRun.
func (c *Config) called(ctx context.Context) error {
	id := string(uuid.NewUUID())
	dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	pod, err := c.Client.CoreV1().Pods(metav1.NamespaceSystem).Create(ctx, registration.ProbePod(id), dryRun)
	if err != nil {
		return fmt.Errorf("create a Pod with dryRun: %w", err)
	}
	if !registration.Answered(pod, id) {
		return errors.New("kube-apiserver admits a Pod without calling the webhook")
	}
	return nil
}

// filesUnused refuses to stop our process while kube-apiserver needs it to admit Pods.
func (c *Config) filesUnused(context.Context) error {
	now, err := c.observe()
	if err == nil && now.apiServer().ReadsFiles() {
		err = errors.New("kube-apiserver reads the webhook of sa-controller-manager from files, and would admit no Pod without it; " +
			"first run: kubeadm handback --steps=" + StepAPIServer)
	}
	return cli.Permanent(err)
}
