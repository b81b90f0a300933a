// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package component is the home of what a takeover changes in the manifests of kube-apiserver and
// kube-controller-manager, how a handback removes it, and which flags of kube-controller-manager our
// process carries over.
//
// Everything here is pure: it gets the files that the node has, and returns what they become.
package component

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/staticpod"
	"sa-controller-manager/manifests"
)

// The components whose manifests are edited, named as their Pods and files; and Manager, our own.
const (
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Manager           = "sa-controller-manager"
)

// Flags of the three.
const (
	ControllersFlag = "controllers"
	KeyFlag         = "service-account-private-key-file"
	KeyRingFlag     = "service-account-key-ring"
	disableFlag     = "disable-admission-plugins"
	enableFlag      = "enable-admission-plugins"
	// admissionControlFlag is the older form of disableFlag and enableFlag.
	admissionControlFlag = "admission-control"

	pluginName = "ServiceAccount"
)

// Component is kube-apiserver or kube-controller-manager, as a takeover with certain flags changes it.
type Component struct {
	Name    string
	changes Changes // of kube-apiserver
	// lines are the flags that a takeover appends to the command.
	lines []string
	// mounts are the directories that a takeover mounts.
	mounts []staticpod.Mount
	// out makes the edit of a takeover, none if everything that we replace is off already.
	out []change
	// rest adds what does not follow from lines to the edit of a handback.
	rest []change
}

// change adds to the edit of a manifest.
type change func(*staticpod.Manifest, *staticpod.Edit) error

// edit returns the manifest with the changes.
func edit(m *staticpod.Manifest, changes ...change) (*staticpod.Manifest, error) {
	e, err := collect(m, changes...)
	if err != nil {
		return nil, err
	}
	return m.Apply(e)
}

func collect(m *staticpod.Manifest, changes ...change) (e staticpod.Edit, err error) {
	for _, change := range changes {
		if err = change(m, &e); err != nil {
			break
		}
	}
	return e, err
}

// ForControllerManager returns kube-controller-manager.
func ForControllerManager() Component {
	lines := []string{Assign(ControllersFlag, controllersOff), Assign(ControllersFlag, trustBundleOff), Assign(KeyFlag, "")}
	return Component{Name: ControllerManager, lines: lines, out: []change{controllersOut}}
}

// Changes are what a takeover changes in kube-apiserver.
type Changes struct {
	Plugin bool // it loses its ServiceAccount plugin
	Files  bool // it reads our webhook from files
	Signer bool // our process signs its tokens
	// Running is its version, for an image that names none.
	Running string
}

// ForAPIServer returns kube-apiserver. A handback gives it keys where no record says which it had.
func ForAPIServer(changes Changes, keys SigningKeys) Component {
	c := Component{Name: APIServer, changes: changes, out: []change{changes.refuseOld}}
	if changes.Plugin {
		c.lines, c.out = append(c.lines, Assign(disableFlag, pluginName)), append(c.out, pluginOut)
	}
	if changes.Signer {
		c.lines = append(c.lines, Assign(endpointFlag, manifests.SignerSocket))
		c.mounts = append(c.mounts, socketMount())
		c.out, c.rest = append(c.out, changes.signerOut), append(c.rest, keys.signerIn)
	}
	if changes.Files {
		c.lines = append(c.lines, Assign(gatesFlag, staticGate+"=true"), Assign(AdmissionConfigFlag, AdmissionConfigFile))
		c.mounts = append(c.mounts, staticMounts()...)
		c.out, c.rest = append(c.out, changes.staticOut), append(c.rest, staticIn)
	}
	return c
}

// version returns what names the version of kube-apiserver.
func (c Changes) version(m *staticpod.Manifest) string { return cmp.Or(c.Running, m.Image()) }

// refuseOld changes nothing.
func (c Changes) refuseOld(m *staticpod.Manifest, _ *staticpod.Edit) error {
	return supported(c.version(m))
}

// Assign returns a flag with its value, as in a command.
func Assign(flag, value string) string { return "--" + flag + "=" + value }

// WebhookPlugins are the plugins of kube-apiserver that call webhooks, in the order of
// registration.StaticDirs.
func WebhookPlugins() []string {
	return []string{"MutatingAdmissionWebhook", "ValidatingAdmissionWebhook"}
}

// pluginOut disables the ServiceAccount plugin of kube-apiserver.
func pluginOut(m *staticpod.Manifest, e *staticpod.Edit) error {
	flags, err := m.Flags(admissionControlFlag, enableFlag, disableFlag)
	if err != nil {
		return err
	}
	if len(flags[admissionControlFlag]) > 0 {
		return fmt.Errorf("--%s is in use, which kube-apiserver does not accept together with --%s; use --%s and --%s instead first",
			admissionControlFlag, disableFlag, enableFlag, disableFlag)
	}
	if slices.Contains(staticpod.List(flags[enableFlag]), pluginName) {
		return fmt.Errorf("--%s names %s, which kube-apiserver does not accept for a disabled plugin; remove it there first, "+
			"and from apiServer.extraArgs in the ConfigMap kube-system/kubeadm-config: it is on by default", enableFlag, pluginName)
	}
	disabled := staticpod.List(flags[disableFlag])
	for _, webhooks := range WebhookPlugins() {
		if slices.Contains(disabled, webhooks) {
			return fmt.Errorf("--%s names %s, and without that plugin no webhook is called", disableFlag, webhooks)
		}
	}
	if !slices.Contains(disabled, pluginName) {
		e.Append = append(e.Append, Assign(disableFlag, pluginName))
	}
	return nil
}

// Files are a component's manifest and what takeovers have kept of it and for kubeadm, nil for a file
// that does not exist.
type Files struct {
	Name                    string
	Manifest, Backup, Patch []byte
	// WithOurs says that our process has a manifest on this node.
	WithOurs bool
}

// Parse returns the manifest.
func (f Files) Parse() (*staticpod.Manifest, error) {
	m, err := staticpod.Parse(f.Manifest, f.Name)
	if err != nil {
		return nil, fmt.Errorf("the manifest of %s: %w", f.Name, err)
	}
	return m, nil
}

// Operators returns the manifest as the operator wrote it: the backup, or the current one without the
// lines that takeovers have added.
func (c Component) Operators(f Files) (*staticpod.Manifest, error) {
	now, err := f.Parse()
	if err != nil {
		return nil, err
	}
	lines, known := recorded(f.Patch)
	if first := c.original(f, now); first != now || !known && !f.WithOurs {
		return first, nil
	}
	if !known {
		lines = c.lines
	}
	return edit(now, takenOut(lines))
}

// Taken is what a takeover makes of a component: its manifest, the backup of the one before any takeover, and
// the patch for kubeadm.
type Taken struct {
	After         *staticpod.Manifest
	Backup, Patch []byte
}

// Takeover returns what a takeover makes of the component.
func (c Component) Takeover(f Files) (t Taken, err error) {
	now, err := f.Parse()
	if err != nil {
		return t, err
	}
	if t.After, err = edit(now, c.out...); err != nil {
		return t, fmt.Errorf("the manifest of %s: %w", c.Name, err)
	}
	first := c.original(f, now)
	// One with lines of a takeover, as kubeadm upgrade writes it with the patch, is no backup.
	if t.Backup = f.Backup; t.After != now && !hasRecorded(first, f.Patch) {
		t.Backup = first.Bytes()
	}
	t.Patch, err = c.patch(f, first, t.After)
	return t, err
}

// sameLines reports whether two manifests differ in nothing but the order of their lines: takeovers with
// different flags append theirs one after the other.
func sameLines(a, b []byte) bool {
	return slices.Equal(slices.Sorted(strings.Lines(string(a))), slices.Sorted(strings.Lines(string(b))))
}

// original returns the manifest from before any takeover: the backup, if a takeover turns it into the
// current manifest, and otherwise the current one.
func (c Component) original(f Files, now *staticpod.Manifest) *staticpod.Manifest {
	backup, err := staticpod.Parse(f.Backup, c.Name)
	if err != nil || hasRecorded(backup, f.Patch) {
		return now
	}
	for all := range 8 {
		way := c
		if c.Name == APIServer {
			way = ForAPIServer(Changes{all&1 > 0, all&2 > 0, all&4 > 0, c.changes.Running}, SigningKeys{})
		}
		taken, err := edit(backup, way.out...)
		if err == nil && (bytes.Equal(taken.Bytes(), now.Bytes()) || taken != backup && sameLines(taken.Bytes(), now.Bytes())) {
			return backup
		}
	}
	return now
}
