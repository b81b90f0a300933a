// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"io"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"sa-controller-manager/manifests"
)

// manager is the name of our static pod and of its manifest.
const manager = "sa-controller-manager"

// Names of the steps, for Config.Steps.
const (
	StepManager           = "manager"
	StepControllerManager = controllerManager
	StepAPIServer         = apiServer
	StepWebhook           = "webhook"
)

// TakeoverSteps returns the steps of a takeover, in order.
func TakeoverSteps() []string { return []string{StepManager, StepControllerManager, StepAPIServer} }

// HandbackSteps returns the steps of a handback, in order.
func HandbackSteps() []string {
	return []string{StepAPIServer, StepControllerManager, StepWebhook, StepManager}
}

// Config describes the node and what to do with it.
type Config struct {
	// Node is the name of this node's Node object.
	Node string
	// ManifestsDir is the directory that the kubelet reads. The other two must be elsewhere: the
	// kubelet takes every file for a manifest whose name does not begin with a dot.
	ManifestsDir, BackupDir, PatchesDir string
	// SigningKeyFile is the key that kube-controller-manager signs with after a handback if
	// neither its manifest nor ours names one.
	SigningKeyFile string
	// SkipKeyCheck hands back although the key files lack keys that are in use.
	SkipKeyCheck bool
	// NewKey gives the two components a new private key, and all public keys in use, in their key files.
	NewKey bool
	// AcceptFlags are flags of kube-controller-manager that a takeover leaves out instead of
	// refusing them.
	AcceptFlags []string
	// Steps are the steps to run; all if empty.
	Steps []string
	// DryRun prints the plan and changes nothing.
	DryRun bool
	// StepTimeout bounds each wait of a step.
	StepTimeout time.Duration

	// ExternalSigner has our process sign kube-apiserver's tokens. If it does so already, that stays
	// without this.
	ExternalSigner bool
	// StaticRegistration has kube-apiserver read our webhook from files. It stays likewise.
	StaticRegistration bool

	// Binary is the file on the node that our Pod runs, "" if the image contains the program.
	Binary string
	// Render makes our manifest from options that follow from the other two. Rewrite replaces an
	// existing one.
	Render  func(manifests.StaticPodOptions) ([]byte, error)
	Rewrite bool

	// Client is an administrator's, with a request timeout. ClientAt makes one like it for the
	// kube-apiserver at a URL.
	Client   kubernetes.Interface
	ClientAt func(url string) (kubernetes.Interface, error)
	Clock    clock.Clock
	// Out gets the plan and the finished steps. Progress, unless nil, is called with what is still
	// missing while a step waits.
	Out      io.Writer
	Progress func(string)
}

func (c *Config) manifest(name string) string { return filepath.Join(c.ManifestsDir, name+".yaml") }
func (c *Config) backup(name string) string   { return filepath.Join(c.BackupDir, name+".yaml") }

// patch is the path of a component's JSON patch for kubeadm: target, suffix and type
// (cmd/kubeadm/app/util/patches).
func (c *Config) patch(name string) string {
	return filepath.Join(c.PatchesDir, name+"-"+manager+"+json.yaml")
}

func (c *Config) includes(step string) bool {
	return len(c.Steps) == 0 || slices.Contains(c.Steps, step)
}
