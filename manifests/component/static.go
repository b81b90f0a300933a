// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"sa-controller-manager/manifests"
	"sa-controller-manager/manifests/staticpod"
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
	AdmissionConfigFile = manifests.StaticDirectory + "/" + manifests.AdmissionConfig
)

// files adds our file and our directories. Of two files kube-apiserver reads the last.
func (t *Taken) files(m *staticpod.Manifest) error {
	if err := m.Understands(gatesFlag, AdmissionConfigFlag, emulatedFlag); err != nil {
		return err
	}
	if !ReadsManifests(m.Image(), m.Command()) {
		return fmt.Errorf("kube-apiserver reads no webhook configurations from files: v1.%d does, v1.%d with --%s=%s=true in its manifest",
			staticOnMinor, staticMinor, gatesFlag, staticGate)
	}
	if m.Command().Last(AdmissionConfigFlag) != AdmissionConfigFile {
		t.Lines = append(t.Lines, Assign(AdmissionConfigFlag, AdmissionConfigFile))
	}
	// Not their parent, which has the key of our serving CA.
	for _, directory := range append(manifests.StaticDirs(manifests.StaticDirectory), path.Dir(AdmissionConfigFile)) {
		t.mount(m, Mount{Name: Manager + "-" + path.Base(directory), Path: directory})
	}
	return nil
}

// ReadsManifests reports whether kube-apiserver reads webhook configurations from files: it emulates a version that does, and
// the gate is on.
func ReadsManifests(image string, command staticpod.Command) bool {
	minor := version(image)
	for _, one := range command.List(emulatedFlag) { // 1.36, or kube=1.36 among components
		one = strings.TrimPrefix(one, "kube=")
		_, _ = fmt.Sscanf(strings.TrimPrefix(one, "v"), "1.%d", &minor) // that of another component does not count
	}
	on, stage := minor >= staticOnMinor, "AllAlpha"
	if on {
		stage = "AllBeta"
	}
	for _, counts := range []string{stage, staticGate} { // its own counts more, wherever it is
		for _, gate := range command.List(gatesFlag) {
			if name, value, _ := strings.Cut(strings.TrimPrefix(gate, "kube:"), "="); name == counts {
				on = value == "true"
			}
		}
	}
	return on && minor >= staticMinor
}

// ReadsFiles reports whether the manifest of kube-apiserver has our file.
func (f Files) ReadsFiles() bool {
	return f.Command().Last(AdmissionConfigFlag) == AdmissionConfigFile
}

// PluginIsOff reports whether the manifest of kube-apiserver turns its ServiceAccount plugin off.
func (f Files) PluginIsOff() bool {
	return PluginIsOff(f.Command())
}

// PluginIsOff reports whether a kube-apiserver with a command has no ServiceAccount plugin.
func PluginIsOff(command staticpod.Command) bool {
	return slices.Contains(command.List(disableFlag), pluginName)
}
