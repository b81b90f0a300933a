// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"fmt"
	"path"
	"strings"

	"sa-controller-manager/admission/registration"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/staticpod"
	"sa-controller-manager/manifests"
)

// What names the files to kube-apiserver.
const (
	AdmissionConfigFlag = "admission-control-config-file"
	gatesFlag           = "feature-gates"
	emulatedFlag        = "emulated-version"

	// staticGate is off by default in v1.staticMinor, the first that has it, and on from
	// v1.staticOnMinor on (KEP-5793).
	staticGate    = "ManifestBasedAdmissionControlConfig"
	staticMinor   = 36
	staticOnMinor = 37

	// AdmissionConfigFile is what kube-apiserver reads instead of the operator's file.
	AdmissionConfigFile = manifests.StaticDirectory + "/config/admission.yaml"
)

// staticMounts are what kube-apiserver sees: not their parent, which has the key of our serving CA.
func staticMounts() []staticpod.Mount {
	var mounts []staticpod.Mount
	for _, directory := range append(registration.StaticDirs(manifests.StaticDirectory), path.Dir(AdmissionConfigFile)) {
		mounts = append(mounts, staticpod.Mount{Name: Manager + "-" + path.Base(directory), Path: directory})
	}
	return mounts
}

// staticIn removes the mounts, which are not flags.
func staticIn(m *staticpod.Manifest, e *staticpod.Edit) (err error) {
	*e, err = m.Remount(*e, false, staticMounts()...)
	return err
}

// staticOut appends the gate and our file. Gates add up, and of two files kube-apiserver reads the last.
func staticOut(m *staticpod.Manifest, e *staticpod.Edit) error {
	flags, err := m.Flags(gatesFlag, AdmissionConfigFlag, emulatedFlag)
	if err != nil {
		return err
	}
	behavesAs := gatesOf(m.Image(), staticpod.List(flags[emulatedFlag]))
	if err := knowsStatic(behavesAs); err != nil {
		return err
	}
	_, minor, _ := version(behavesAs)
	on := minor >= staticOnMinor
	for _, gate := range staticpod.List(flags[gatesFlag]) {
		if name, value, _ := strings.Cut(strings.TrimPrefix(gate, "kube:"), "="); name == staticGate {
			if on = value == "true"; !on {
				return fmt.Errorf("--%s has %s, and --static-registration needs it to be true; remove it there first", gatesFlag, gate)
			}
		}
	}
	if !on {
		e.Append = append(e.Append, Assign(gatesFlag, staticGate+"=true"))
	}
	if staticpod.Last(flags[AdmissionConfigFlag]) != AdmissionConfigFile {
		e.Append = append(e.Append, Assign(AdmissionConfigFlag, AdmissionConfigFile))
	}
	*e, err = m.Remount(*e, true, staticMounts()...)
	return err
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

// ReadsFiles reports whether the manifest of kube-apiserver has our file.
func (f Files) ReadsFiles() bool {
	m, err := f.Parse()
	if err != nil {
		return false // the callers that need the manifest report it
	}
	files, err := m.Flag(AdmissionConfigFlag)
	return err == nil && staticpod.Last(files) == AdmissionConfigFile
}
