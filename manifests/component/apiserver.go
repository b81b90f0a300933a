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

// Flags of kube-apiserver for its plugins.
const (
	disableFlag = "disable-admission-plugins"
	enableFlag  = "enable-admission-plugins"
	// admissionControlFlag is the older form of disableFlag and enableFlag.
	admissionControlFlag = "admission-control"

	pluginName = "ServiceAccount"
)

// Flags of kube-apiserver for its keys.
const (
	SigningKeyFlag = "service-account-signing-key-file"
	VerifyKeyFlag  = "service-account-key-file"
	endpointFlag   = "service-account-signing-endpoint"

	// signerMinor is the first Kubernetes 1.x in which the external signer is on by
	// default (k8s.io/kubernetes pkg/features, ExternalServiceAccountTokenSigner).
	signerMinor = 34
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

// Changes are what a takeover changes in kube-apiserver.
type Changes struct {
	Plugin bool // it loses its ServiceAccount plugin
	Files  bool // it reads our webhook from files
	Signer bool // our process signs its tokens
}

// of returns the changes of a manifest that has none of them.
func (c Changes) of(m *staticpod.Manifest) (t Taken, err error) {
	if c.Signer {
		err = t.signer(m)
	}
	if c.Files && err == nil {
		err = t.files(m)
	}
	if c.Plugin && err == nil {
		err = t.pluginOff(m)
	}
	return t, err
}

// WebhookPlugins are the plugins of kube-apiserver that call webhooks, in the order of
// manifests.StaticDirs.
func WebhookPlugins() []string {
	return []string{"MutatingAdmissionWebhook", "ValidatingAdmissionWebhook"}
}

// pluginOff disables the ServiceAccount plugin of kube-apiserver.
func (t *Taken) pluginOff(m *staticpod.Manifest) error {
	if err := m.Understands(admissionControlFlag, enableFlag, disableFlag); err != nil {
		return err
	}
	command := m.Command()
	if len(command.All(admissionControlFlag)) > 0 {
		return fmt.Errorf("--%s is in use, which kube-apiserver does not accept together with --%s; use --%s and --%s instead first",
			admissionControlFlag, disableFlag, enableFlag, disableFlag)
	}
	if slices.Contains(command.List(enableFlag), pluginName) {
		return fmt.Errorf("--%s names %s, which kube-apiserver does not accept for a disabled plugin; remove it there first, "+
			"and from apiServer.extraArgs in the ConfigMap kube-system/kubeadm-config: it is on by default", enableFlag, pluginName)
	}
	disabled := command.List(disableFlag)
	for _, webhooks := range WebhookPlugins() {
		if slices.Contains(disabled, webhooks) {
			return fmt.Errorf("--%s names %s, and without that plugin no webhook is called", disableFlag, webhooks)
		}
	}
	if !slices.Contains(disabled, pluginName) {
		t.Lines = append(t.Lines, Assign(disableFlag, pluginName))
	}
	return nil
}

// signer replaces the key flags by the socket. It removes them, because kube-apiserver counts an
// empty one as given (k8s.io/kubernetes pkg/controlplane/apiserver/options/validation.go).
func (t *Taken) signer(m *staticpod.Manifest) error {
	if err := notOlder(m.Image(), signerMinor, "with an external signer that is on by default"); err != nil {
		return err
	}
	if err := m.Understands(endpointFlag, SigningKeyFlag, VerifyKeyFlag); err != nil {
		return err
	}
	command := m.Command()
	switch last := command.Last(endpointFlag); {
	case last != "" && last != manifests.SignerSocket:
		return fmt.Errorf("--%s=%s is in use already by another signer", endpointFlag, last)
	case last == "":
		t.Lines = append(t.Lines, signerLine())
	}
	for i, one := range command {
		if line := (staticpod.Command{one}); len(line.All(SigningKeyFlag))+len(line.All(VerifyKeyFlag)) > 0 {
			t.Removed = append(t.Removed, Line{At: i, Text: one})
		}
	}
	// The directory is mounted as a whole, because a recreated socket is another file.
	t.mount(m, Mount{Name: Manager, Path: manifests.SignerDirectory})
	return nil
}

// Signs reports whether our process signs kube-apiserver's tokens now.
func (f Files) Signs() bool {
	return f.Command().Last(endpointFlag) == manifests.SignerSocket
}

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
