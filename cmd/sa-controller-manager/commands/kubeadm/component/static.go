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
func (c Changes) staticOut(m *staticpod.Manifest, e *staticpod.Edit) error {
	flags, err := m.Flags(gatesFlag, AdmissionConfigFlag, emulatedFlag)
	if err != nil {
		return err
	}
	on, err := gateOn(c.version(m), staticpod.List(flags[emulatedFlag]), staticpod.List(flags[gatesFlag]))
	if err != nil {
		return err
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

// gateOn reports whether kube-apiserver reads webhook configurations from files as it is. An error says
// that it cannot, or must not. of is its image or version, emulated and gates are its lists.
func gateOn(of string, emulated, gates []string) (bool, error) {
	behavesAs := gatesOf(of, emulated)
	if err := notOlder(behavesAs, staticMinor, "that reads webhook configurations from files (--static-registration)"); err != nil {
		return false, err
	}
	_, minor, _ := version(behavesAs)
	on := minor >= staticOnMinor
	for _, gate := range gates {
		if name, value, _ := strings.Cut(strings.TrimPrefix(gate, "kube:"), "="); name == staticGate {
			if on = value == "true"; !on {
				return false, fmt.Errorf("--%s has %s, and static registration needs it to be true; remove it there first", gatesFlag, gate)
			}
		}
	}
	return on, nil
}

// FilesUnasked reports whether kube-apiserver reads webhook configurations from files without a feature
// gate of ours. of is its image or version.
func FilesUnasked(of string, command []string) bool {
	on, err := gateOn(of, listIn(command, emulatedFlag), listIn(command, gatesFlag))
	return err == nil && on
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

// ReadsFiles reports whether the manifest of kube-apiserver has our file.
func (f Files) ReadsFiles() bool {
	m, err := f.Parse()
	if err != nil {
		return false // the callers that need the manifest report it
	}
	files, err := m.Flag(AdmissionConfigFlag)
	return err == nil && staticpod.Last(files) == AdmissionConfigFile
}
