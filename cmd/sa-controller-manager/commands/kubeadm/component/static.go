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

// files adds the gate, our file and our directories. Gates add up, and of two files kube-apiserver reads the last.
func (c Changes) files(m *staticpod.Manifest, t *Taken) error {
	if err := m.Understands(gatesFlag, AdmissionConfigFlag, emulatedFlag); err != nil {
		return err
	}
	on, err := gateOn(c.version(m), m.Command())
	if err != nil {
		return err
	}
	if !on {
		t.Lines = append(t.Lines, Assign(gatesFlag, staticGate+"=true"))
	}
	if m.Command().Last(AdmissionConfigFlag) != AdmissionConfigFile {
		t.Lines = append(t.Lines, Assign(AdmissionConfigFlag, AdmissionConfigFile))
	}
	// Not their parent, which has the key of our serving CA.
	for _, directory := range append(registration.StaticDirs(manifests.StaticDirectory), path.Dir(AdmissionConfigFile)) {
		t.mount(m, Mount{Name: Manager + "-" + path.Base(directory), Path: directory})
	}
	return nil
}

// gateOn reports whether kube-apiserver reads webhook configurations from files as it is. An error says
// that it cannot, or must not. of is its image or version.
func gateOn(of string, command staticpod.Command) (bool, error) {
	behavesAs := gatesOf(of, command.List(emulatedFlag))
	if err := notOlder(behavesAs, staticMinor, "that reads webhook configurations from files (--static-registration)"); err != nil {
		return false, err
	}
	_, minor, _ := version(behavesAs)
	on := minor >= staticOnMinor
	for _, gate := range command.List(gatesFlag) {
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
	on, err := gateOn(of, command)
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
	m, err := f.Parse() // the callers that need the manifest report the error
	return err == nil && m.Command().Last(AdmissionConfigFlag) == AdmissionConfigFile
}
