// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"

	"sa-controller-manager/admission/configfile"
	"sa-controller-manager/admission/registration"
	"sa-controller-manager/controllers/keyring/ring"
	"sa-controller-manager/controllers/rootca"
	"sa-controller-manager/internal/flagfile"
	"sa-controller-manager/manifests"
	"sa-controller-manager/manifests/component"
	"sa-controller-manager/manifests/staticpod"
	"sa-controller-manager/signing"
)

// desired is what a takeover leads to.
type desired struct {
	// files reports whether kube-apiserver reads our webhook from files and loses its plugin, and note says why not.
	files bool
	note  string
	// earlier are what changes Pods before a webhook of ours from files.
	earlier []string
	changes component.Changes

	// manifest is ours, with the command own, and written reports whether this takeover makes it.
	manifest []byte
	own      staticpod.Command
	written  bool
	// If it does: the options of our Pod; which flags of kube-controller-manager it does not get; and the files that it
	// names, nil if it names none.
	pod    manifests.StaticPodOptions
	left   []string
	key    *signing.PrivateKey
	rootCA *rootca.Bundle

	// Files of the components: kube-apiserver may first read our files, which needs copied, and then lose its plugin.
	controllerManager, readsFiles, apiServer component.Files
	copied                                   []byte
}

// desire decides what a takeover leads to, and refuses what it could not do.
func (c *Config) desire(o *observed) (*desired, error) {
	d := &desired{written: o.manager == nil || c.Rewrite}
	api, err := o.apiServer().Operators()
	if err != nil {
		return nil, c.damaged(component.APIServer, err)
	}
	kcm, err := o.files[component.ControllerManager].Operators()
	if err != nil {
		return nil, c.damaged(component.ControllerManager, err)
	}
	if err := c.chooseFiles(o, d, api); err != nil {
		return nil, err
	}
	if c.OnlySigner && len(o.record.Components[component.ControllerManager].Lines) > 0 {
		return nil, errors.New("our process is more than the signer on this node; first run: kubeadm handback")
	}
	if d.files {
		if d.copied, err = c.copyOf(o, api); err != nil {
			return nil, err
		}
	}
	d.changes = c.changes(o, d.files)
	if d.manifest, d.own = o.manager, o.current; d.written {
		if err := c.render(o, d, api, kcm); err != nil {
			return nil, err
		}
	}
	if err := c.checkKeyRing(o, d); err != nil {
		return nil, err
	}
	if c.includes(StepControllerManager) {
		if err := component.CheckControllers(kcm, d.own); err != nil {
			return nil, err
		}
	}
	return d, c.desireFiles(o, d)
}

// desireFiles decides what the files of the two components become.
func (c *Config) desireFiles(o *observed, d *desired) (err error) {
	if c.includes(StepControllerManager) {
		d.controllerManager, err = o.files[component.ControllerManager].Takeover(d.changes)
	}
	if err != nil {
		return err
	}
	now := o.apiServer()
	d.readsFiles = now
	if d.files && !(now.ReadsFiles() && now.PluginIsOff()) {
		beside := d.changes
		beside.Plugin = false // it stays until our process has proved the call
		if d.readsFiles, err = now.Takeover(beside); err != nil {
			return err
		}
	}
	d.apiServer, err = now.Takeover(d.changes)
	return err
}

// changes are those of kube-apiserver.
func (c *Config) changes(o *observed, files bool) component.Changes {
	// Where an upgrade without our patches gave kube-apiserver its key files back, these may have missed a rotation.
	signs := c.ExternalSigner || !c.Reset && o.current.Last(SocketFlag) == manifests.SignerSocket || o.apiServer().Signs()
	return component.Changes{Plugin: files, Files: files, Signer: signs}
}

// chooseFiles decides whether kube-apiserver learns of our webhook, which a takeover has it read from files of the node: that
// needs nothing of other nodes, and no client of the API can delete it. Otherwise kube-apiserver keeps its plugin.
func (c *Config) chooseFiles(o *observed, d *desired, m *staticpod.Manifest) error {
	now, before := o.apiServer().ReadsFiles(), o.registers()
	switch {
	case before == registration.URL || before == registration.Service:
		return fmt.Errorf("our manifest has --%s=%s, and a takeover registers from files; first run: kubeadm handback",
			RegistrationFlag, before)
	case c.KeepPlugin:
	case o.manager != nil && !c.Rewrite:
		d.files = now || before == registration.Static
	default:
		d.files = now || component.ReadsManifests(m.Image(), m.Command())
	}
	switch {
	case d.files:
	case now:
		return errors.New("kube-apiserver reads our webhook from files, and would refuse Pods while that ends; first run: kubeadm handback")
	case c.OnlySigner:
		d.note = "Our process signs its tokens, and does nothing else. --only= takes over the rest, too."
	case component.ReadsManifests(m.Image(), m.Command()):
		d.note = "kube-apiserver keeps its ServiceAccount plugin: our manifest registers no webhook. --rewrite decides again, " +
			"with --reset if an --extra-arg has decided it."
	default:
		d.note = "kube-apiserver keeps its ServiceAccount plugin: it reads no webhook from files (v1.37 does)."
	}
	return nil
}

// render makes our manifest from the other two.
func (c *Config) render(o *observed, d *desired, api, kcm *staticpod.Manifest) error {
	carried, err := c.carry(o, kcm)
	if err != nil {
		return err
	}
	d.left = carried.Notes
	d.pod = manifests.StaticPodOptions{Image: kcm.Image(), Carried: carried.Args, Files: carried.Files, OnlySigner: c.OnlySigner}
	if err := c.ofAPIServer(o, d, api); err != nil {
		return fmt.Errorf("the manifest of %s: %w", component.APIServer, err)
	}
	hidden := func(file string) bool { return manifests.Mountable(file) != nil }
	// Our process reports whether they change.
	d.pod.Files = append(d.pod.Files, slices.DeleteFunc(configfile.Sources(d.copied), hidden)...)
	args, err := c.Pod.complete(&d.pod)
	if err != nil {
		return err
	}
	if d.pod.Sockets, err = c.signerSockets(args); err != nil {
		return err
	}
	if d.pod.CreateSecrets, err = c.Pod.Flags.CreatesSecrets(args); err != nil {
		return err
	}
	d.manifest, err = manifests.StaticPod(d.pod)
	d.own = staticpod.CommandIn(d.manifest)
	return err
}

// carry returns what our process takes over of kube-controller-manager.
func (c *Config) carry(o *observed, kcm *staticpod.Manifest) (*component.Carried, error) {
	if c.OnlySigner {
		return &component.Carried{}, nil
	}
	own := o.current
	if _, recorded := o.record.Components[component.ControllerManager]; recorded {
		own = nil
	}
	return component.Carry(kcm, c.Pod.Flags.AsKCM, own)
}

// ofAPIServer sets the options that follow from kube-apiserver's manifest: the directory of the CA for
// client certificates and, if our process signs its tokens, the settings of the signer.
func (c *Config) ofAPIServer(o *observed, d *desired, m *staticpod.Manifest) error {
	if err := m.Understands(clientCAFlag); err != nil {
		return err
	}
	if file := m.Command().Last(clientCAFlag); path.Base(file) == "ca.crt" {
		host, err := m.HostPath(file)
		if err != nil {
			return fmt.Errorf("--%s: %w", clientCAFlag, err)
		}
		d.pod.CertDir = path.Dir(host)
	}
	d.pod.StaticRegistration, d.pod.Signer = d.files, d.changes.Signer
	if !d.files {
		d.pod.Carried = append(d.pod.Carried, component.Assign(RegistrationFlag, string(registration.None)))
	}
	if limit := inFlight(m.Command()); limit > c.Pod.MaxInFlight {
		d.pod.Carried = append(d.pod.Carried, component.Assign("webhook-max-in-flight", strconv.Itoa(limit)))
	}
	if !d.changes.Signer {
		return nil
	}
	args, files, err := c.signerFlags(m, o.own.All(component.VerifyKeyFlag))
	d.pod.Args, d.pod.Files = args, append(d.pod.Files, files...)
	return err
}

// inFlight returns how many requests kube-apiserver may have in flight. With fewer our webhook would refuse Pods of a burst.
func inFlight(server staticpod.Command) (limit int) {
	defaults := map[string]int{"max-requests-inflight": 400, "max-mutating-requests-inflight": 200}
	for flag, otherwise := range defaults {
		if n, err := strconv.Atoi(server.Last(flag)); err == nil {
			otherwise = n
		}
		limit += otherwise
	}
	return limit
}

// checkKeyRing refuses to rewrite our manifest without its key ring, as with --reset: the process would sign
// with a key file that may have missed a rotation. An empty flag gives the key ring up on purpose. A key file
// does not, because the command that wrote the first manifest may have named one.
func (c *Config) checkKeyRing(o *observed, d *desired) error {
	ring := o.current.Last(component.KeyRingFlag)
	if ring == "" || !d.written || !c.includes(StepManager) || len(d.own.All(component.KeyRingFlag)) > 0 {
		return nil
	}
	kept, none := component.Assign(component.KeyRingFlag, ring), component.Assign(component.KeyRingFlag, "")
	return fmt.Errorf("%s has %s, and the rewrite would drop it; to keep it add --extra-arg=%s --extra-arg=%s; "+
		"to sign with a key file again, which has to hold the key that signs now, add --extra-arg=%s",
		c.manifest(manager), kept, component.Assign(component.KeyFlag, ""), kept, none)
}

// readNamed reads the files that our new manifest names, without which the process would not start or could not work.
func (c *Config) readNamed(d *desired) (err error) {
	if _, err = c.ownRing(d.own); err != nil {
		return err
	}
	if d.key, err = readOwn(c, d.own, component.KeyFlag, signing.ParsePrivateKey); err != nil {
		return err
	}
	if component.Enabled(d.own, component.RootCAPublisher) {
		d.rootCA, err = readOwn(c, d.own, component.RootCAFlag, func(data []byte) (*rootca.Bundle, error) {
			bundle, err := rootca.ParseBundle(data)
			if err == nil {
				err = bundle.CheckSize()
			}
			return bundle, err
		})
	}
	return err
}

// readOwn reads the file that a flag of ours names, and returns the zero value if none does.
func readOwn[T any](c *Config, own staticpod.Command, flag string, parse func([]byte) (T, error)) (value T, err error) {
	if file := own.Last(flag); file != "" {
		if value, err = flagfile.Read(flag, c.onNode(file), parse); err != nil {
			err = fmt.Errorf("our %w", err)
		}
	}
	return value, err
}

// ownRing reads our key ring, an empty one if our command names none.
func (c *Config) ownRing(own staticpod.Command) (state ring.State, err error) {
	if file := own.Last(component.KeyRingFlag); file != "" {
		if state, err = ring.At(c.onNode(file)).Read(); err != nil {
			err = fmt.Errorf("our --%s: %w", component.KeyRingFlag, err)
		}
	}
	return state, err
}
