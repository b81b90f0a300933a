// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"sa-controller-manager/admission/registration"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/staticpod"
	"sa-controller-manager/manifests"
)

const (
	registrationFlag    = "webhook-registration"
	staticDirFlag       = "static-registration-dir"
	gatesFlag           = "feature-gates"
	emulatedFlag        = "emulated-version"
	admissionConfigFlag = "admission-control-config-file"

	// staticGate is off by default in v1.staticMinor, the first that has it, and on from
	// v1.staticOnMinor on (KEP-5793).
	staticGate    = "ManifestBasedAdmissionControlConfig"
	staticMinor   = 36
	staticOnMinor = 37

	// admissionConfigFile is what kube-apiserver reads instead of the operator's file.
	admissionConfigFile = manifests.StaticDirectory + "/config/admission.yaml"
)

// staticMounts are what kube-apiserver sees: not their parent, which has the key of our serving CA.
func staticMounts() []staticpod.Mount {
	var mounts []staticpod.Mount
	for _, directory := range append(registration.StaticDirs(manifests.StaticDirectory), path.Dir(admissionConfigFile)) {
		mounts = append(mounts, staticpod.Mount{Name: manager + "-" + path.Base(directory), Path: directory})
	}
	return mounts
}

// registeredStatically adds to a way of kube-apiserver that it reads our webhook from files.
func registeredStatically(plain component) component {
	one := plain
	one.lines = append(slices.Clone(plain.lines), assign(gatesFlag, staticGate+"=true"), assign(admissionConfigFlag, admissionConfigFile))
	one.mounts = append(slices.Clone(plain.mounts), staticMounts()...)
	one.out = func(m *staticpod.Manifest) (staticpod.Edit, error) {
		e, err := plain.out(m)
		if err != nil {
			return staticpod.Edit{}, err
		}
		return staticOut(m, e)
	}
	one.rest = func(m *staticpod.Manifest, e staticpod.Edit) (staticpod.Edit, error) {
		if plain.rest != nil {
			var err error
			if e, err = plain.rest(m, e); err != nil {
				return staticpod.Edit{}, err
			}
		}
		return m.Remount(e, false, staticMounts()...)
	}
	return one
}

// staticOut appends the gate and our file. Gates add up, and of two files kube-apiserver reads the last.
func staticOut(m *staticpod.Manifest, e staticpod.Edit) (staticpod.Edit, error) {
	flags, err := m.Flags(gatesFlag, admissionConfigFlag, emulatedFlag)
	if err != nil {
		return staticpod.Edit{}, err
	}
	behavesAs := gatesOf(m.Image(), staticpod.List(flags[emulatedFlag]))
	if err := knowsStatic(behavesAs); err != nil {
		return staticpod.Edit{}, err
	}
	_, minor, _ := version(behavesAs)
	on := minor >= staticOnMinor
	for _, gate := range staticpod.List(flags[gatesFlag]) {
		if name, value, _ := strings.Cut(strings.TrimPrefix(gate, "kube:"), "="); name == staticGate {
			if on = value == "true"; !on {
				return staticpod.Edit{}, fmt.Errorf("--%s has %s, and --static-registration needs it to be true; remove it there first", gatesFlag, gate)
			}
		}
	}
	if !on {
		e.Append = append(e.Append, assign(gatesFlag, staticGate+"=true"))
	}
	if staticpod.Last(flags[admissionConfigFlag]) != admissionConfigFile {
		e.Append = append(e.Append, assign(admissionConfigFlag, admissionConfigFile))
	}
	return m.Remount(e, true, staticMounts()...)
}

// gatesOf returns the version whose feature gates kube-apiserver has: that which it emulates, if any, else
// that of its image. emulated is its list --emulated-version, with the component kube unless named.
func gatesOf(image string, emulated []string) string {
	for _, one := range emulated {
		component, minor, named := strings.Cut(one, "=")
		if !named {
			component, minor = "kube", one
		}
		if strings.TrimSpace(component) == "kube" {
			return "v" + strings.TrimPrefix(strings.TrimSpace(minor), "v") + ".0"
		}
	}
	return image
}

// knowsStatic refuses versions of kube-apiserver without the gate. of is an image or a version.
func knowsStatic(of string) error {
	return notOlder(of, staticMinor, "that reads webhook configurations from files (--static-registration)")
}

// static reports whether kube-apiserver is to read our webhook from files, or one of the two manifests
// is for that already.
func (c *Config) static(o *observed) bool {
	return c.StaticRegistration || ownFlag(o.manager, staticDirFlag) == manifests.StaticDirectory || o.readsFiles()
}

// readsFiles reports whether the manifest of kube-apiserver has our file.
func (o *observed) readsFiles() bool {
	m, err := o.parsed(apiServerComponent())
	if err != nil {
		return false // the callers that need the manifest report it
	}
	files, err := m.Flag(admissionConfigFlag)
	return err == nil && staticpod.Last(files) == admissionConfigFile
}

// planStatic adds to the step of kube-apiserver the file that it reads, and what undoes the step if it
// does not come: until then no Pod is admitted through this kube-apiserver.
func (c *Config) planStatic(o *observed, s *step) error {
	m, err := o.parsed(apiServerComponent())
	if err != nil {
		return err
	}
	content, err := c.admissionConfig(m)
	if err != nil {
		return fmt.Errorf("--%s of %s: %w", admissionConfigFlag, apiServer, err)
	}
	file := c.onNode(admissionConfigFile)
	before, err := readIfThere(file)
	if err != nil {
		return err // it names the path
	}
	if o.readsFiles() && before != nil && !bytes.Equal(before, content) {
		return fmt.Errorf("%s is not what a takeover makes of the operator's file now, and kube-apiserver reads it only when it starts; first run: kubeadm handback --steps=%s", file, StepAPIServer)
	}
	s.writes = append(appendWrite(nil, file, before, content), s.writes...)
	s.waits = append(s.waits, c.managerReady(o), c.called)
	for _, w := range slices.Backward(s.writes) {
		if w.path != c.backup(apiServer) {
			s.rollback = append(s.rollback, write{path: w.path, before: w.after, after: w.before})
		}
	}
	s.undone = "the previous manifest of " + apiServer + " is back"
	return nil
}

// called checks that kube-apiserver calls our webhook, by a Pod with dryRun.
func (c *Config) called(ctx context.Context) error {
	id := string(uuid.NewUUID())
	pod, err := c.Client.CoreV1().Pods(metav1.NamespaceSystem).Create(ctx, registration.ProbePod(id), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
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
	if err == nil && now.readsFiles() {
		err = fmt.Errorf("%s reads the webhook of sa-controller-manager from files, and would admit no Pod without it; first run: kubeadm handback --steps=%s", apiServer, StepAPIServer)
	}
	return cli.Permanent(err)
}
