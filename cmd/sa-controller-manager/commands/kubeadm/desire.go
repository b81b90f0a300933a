// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"bytes"
	"cmp"
	"fmt"
	"path"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"sa-controller-manager/admission/registration"
	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/app/options/secureport"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/component"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/staticpod"
	"sa-controller-manager/controllers/rootca"
	"sa-controller-manager/manifests"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/ring"
)

// desired is what a takeover leads to.
type desired struct {
	// mode is how kube-apiserver learns of our webhook, and note says why, if that is not plain.
	mode    registration.Mode
	note    string
	changes component.Changes
	kcm     *component.Carried

	// manifest is ours, with the command own, and written reports whether this takeover makes it.
	manifest []byte
	own      staticpod.Command
	written  bool
	// If it does: the directory of the cluster's CA, "" for kubeadm's; whether our process makes token Secrets; and
	// the files that it names, nil if it names none.
	certDir       string
	createSecrets bool
	key           *signing.PrivateKey
	rootCA        *rootca.Bundle

	// Files of the components: kube-apiserver may first read our files, which needs copied, and then lose its plugin.
	controllerManager, readsFiles, apiServer component.Files
	copied                                   []byte
}

func (d *desired) fromFiles() bool { return d.mode == registration.Static }

// inAPI reports whether the webhook is an object of the API.
func (d *desired) inAPI() bool { return d.mode == registration.URL || d.mode == registration.Service }

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
	if err := c.chooseMode(o, d, api); err != nil {
		return nil, err
	}
	d.changes = c.changes(o, d.mode)
	own := o.current
	if _, recorded := o.record.Components[component.ControllerManager]; recorded {
		own = nil
	}
	_, flags, err := secureport.Parse(nil)
	if err != nil {
		return nil, err
	}
	d.kcm = component.Carry(kcm, flags, own, c.AcceptFlags)
	if d.manifest, d.own = o.manager, o.current; d.written {
		if err := c.render(o, d, api); err != nil {
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
	return d, c.desireFiles(o, d, api)
}

// desireFiles decides what the files of the two components become.
func (c *Config) desireFiles(o *observed, d *desired, api *staticpod.Manifest) (err error) {
	if d.controllerManager, err = o.files[component.ControllerManager].Takeover(d.changes); err != nil {
		return err
	}
	d.readsFiles = o.apiServer()
	if d.fromFiles() {
		if d.copied, err = c.copyOf(o, api); err != nil {
			return err
		}
		beside := d.changes
		beside.Plugin = false // it stays until our process has proved the call
		if d.readsFiles, err = o.apiServer().Takeover(beside); err != nil {
			return err
		}
	}
	d.apiServer, err = o.apiServer().Takeover(d.changes)
	if bytes.Equal(d.apiServer.Manifest, o.apiServer().Manifest) {
		d.readsFiles = d.apiServer // both are done
	}
	return err
}

// changes are those of kube-apiserver in a mode.
func (c *Config) changes(o *observed, mode registration.Mode) component.Changes {
	// Where an upgrade without our patches gave kube-apiserver its key files back, these may have missed a rotation.
	signs := c.ExternalSigner || !c.Reset && o.current.Last(ownSocketFlag) == manifests.SignerSocket || o.apiServer().Signs()
	return component.Changes{
		Plugin: mode != registration.None, Files: mode == registration.Static, Signer: signs,
	}
}

// keepsMode returns the mode that is asked for or that our manifest has, and whether nothing has to be decided.
func (c *Config) keepsMode(o *observed) (registration.Mode, bool) {
	if c.Registration != "" {
		return c.Registration, true
	}
	before := o.mode()
	return before, o.manager != nil && !c.Rewrite || before == registration.URL || before == registration.Static
}

// chooseMode decides how kube-apiserver learns of our webhook: from files wherever it reads them, which
// needs nothing of other nodes, and otherwise by the loopback URL of this node, which no other
// kube-apiserver could call.
func (c *Config) chooseMode(o *observed, d *desired, m *staticpod.Manifest) error {
	before, unasked := o.mode(), component.FilesUnasked(m.Image(), m.Command())
	switch mode, kept := c.keepsMode(o); {
	case kept:
		d.mode = mode
	case unasked:
		d.mode = registration.Static
	default:
		d.mode, d.note = alone(o)
	}
	switch {
	case before != "" && before != registration.None && before != d.mode:
		return fmt.Errorf("our manifest has --%s=%s, and kube-apiserver would refuse Pods while it becomes %s; first run: kubeadm handback",
			registrationFlag, before, d.mode)
	case d.mode == registration.None:
		d.note = cmp.Or(d.note, "kube-apiserver keeps its ServiceAccount plugin: our manifest registers no webhook. --rewrite decides again, "+
			"with --reset if an --extra-arg has decided it.")
	case d.mode == registration.URL && unasked:
		d.note = "The webhook stays in the API, by URL. For files, which no client of the API can delete: kubeadm handback, then " +
			"kubeadm takeover."
	}
	return nil
}

// alone leaves kube-apiserver its plugin if there are several. A dry run may have no API server to ask.
func alone(o *observed) (registration.Mode, string) {
	const version = "it reads no webhook from files (v1.37 does)"
	if !o.asked {
		return registration.URL, "If another kube-apiserver runs, this one keeps its ServiceAccount plugin: " + version + "."
	}
	if len(o.hosts) != 1 {
		return registration.None, fmt.Sprintf("kube-apiserver keeps its ServiceAccount plugin: %s, and a webhook by URL is for one host. "+
			"By their identity Leases kube-apiservers run on %q.", version, o.hosts)
	}
	return registration.URL, ""
}

// render makes our manifest from the other two.
func (c *Config) render(o *observed, d *desired, api *staticpod.Manifest) error {
	if err := d.kcm.Refusal(); err != nil {
		if c.DryRun {
			d.kcm.Table(c.Out, nil)
		}
		return err
	}
	pod := manifests.StaticPodOptions{Image: d.kcm.Image(), Carried: d.kcm.Args, Files: d.kcm.Files}
	if err := c.ofAPIServer(o, d, api, &pod); err != nil {
		return err
	}
	d.certDir = pod.CertDir
	args, err := c.Pod(&pod)
	if err != nil {
		return err
	}
	d.own = args
	if pod.Sockets, err = c.signerSockets(d.own); err != nil {
		return err
	}
	if d.createSecrets, err = createsSecrets(d.own); err != nil {
		return err
	}
	pod.CreateSecrets = d.createSecrets
	if d.manifest, err = manifests.StaticPod(pod); err != nil {
		return err
	}
	var made corev1.Pod
	if err := yaml.Unmarshal(d.manifest, &made); err != nil {
		return fmt.Errorf("read our manifest: %w", err)
	}
	if err := staticpod.Check(&made.Spec); err != nil {
		return fmt.Errorf("our manifest: %w", err)
	}
	d.own = component.PodCommand(&made)
	return nil
}

// ofAPIServer sets the options that follow from kube-apiserver's manifest: the directory of the CA for
// client certificates and, if our process signs its tokens, the settings of the signer.
func (c *Config) ofAPIServer(o *observed, d *desired, m *staticpod.Manifest, pod *manifests.StaticPodOptions) error {
	if err := m.Understands(clientCAFlag); err != nil {
		return fmt.Errorf("the manifest of %s: %w", component.APIServer, err)
	}
	if file := m.Command().Last(clientCAFlag); path.Base(file) == "ca.crt" {
		host, err := m.HostPath(file)
		if err != nil {
			return fmt.Errorf("--%s of %s: %w", clientCAFlag, component.APIServer, err)
		}
		pod.CertDir = path.Dir(host)
	}
	pod.StaticRegistration, pod.Signer = d.fromFiles(), d.changes.Signer
	pod.Carried = append(pod.Carried, component.Assign(registrationFlag, string(cmp.Or(d.mode, registration.URL))))
	if limit := inFlight(m.Command()); limit > options.New().Webhook.MaxInFlight {
		pod.Carried = append(pod.Carried, component.Assign("webhook-max-in-flight", strconv.Itoa(limit)))
	}
	if !d.changes.Signer {
		return nil
	}
	args, files, err := c.signerFlags(m, o.own.All(component.VerifyKeyFlag))
	if err != nil {
		return fmt.Errorf("the manifest of %s: %w", component.APIServer, err)
	}
	pod.Args, pod.Files = args, append(pod.Files, files...)
	return nil
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
func (c *Config) readNamed(d *desired) error {
	var err error
	if file := d.own.Last(component.KeyRingFlag); file != "" {
		if _, err := ring.At(c.onNode(file)).Read(); err != nil {
			return fmt.Errorf("our --%s: %w", component.KeyRingFlag, err)
		}
	}
	if file := d.own.Last(component.KeyFlag); file != "" {
		if d.key, err = cli.ReadFile(component.KeyFlag, c.onNode(file), signing.ParsePrivateKey); err != nil {
			return fmt.Errorf("our %w", err)
		}
	}
	here, err := component.OwnControllers(d.own)
	file := d.own.Last(component.RootCAFlag)
	if err != nil || file == "" || !here.Enabled(options.RootCACertificatePublisher) {
		return err
	}
	if d.rootCA, err = cli.ReadFile(component.RootCAFlag, c.onNode(file), rootca.ParseBundle); err != nil {
		return fmt.Errorf("our %w", err)
	}
	if err := d.rootCA.CheckSize(); err != nil {
		return fmt.Errorf("our --%s: %w", component.RootCAFlag, err)
	}
	return nil
}
