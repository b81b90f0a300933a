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

// manager is our own static pod: the name of the Pod and of its file.
const manager = "sa-controller-manager"

// Steps of both directions, by the names that Config.Steps takes.
const (
	StepManager           = "manager"
	StepControllerManager = controllerManager
	StepAPIServer         = apiServer
	StepWebhook           = "webhook"
)

// TakeoverSteps are those of a takeover, in their order.
func TakeoverSteps() []string { return []string{StepManager, StepControllerManager, StepAPIServer} }

// HandbackSteps are those of a handback, in their order.
func HandbackSteps() []string {
	return []string{StepAPIServer, StepControllerManager, StepWebhook, StepManager}
}

// Config says which node is meant and what to do with it.
type Config struct {
	// Node is the name of this node's Node object.
	Node string
	// ManifestsDir is what the kubelet reads. The other two must be elsewhere: it takes
	// every file without a dot for a manifest.
	ManifestsDir, BackupDir, PatchesDir string
	// SigningKeyFile is what kube-controller-manager signs with after a handback, if
	// neither its manifest nor ours says so.
	SigningKeyFile string
	// SkipKeyCheck hands back without looking whether the key files have the keys that
	// are in use.
	SkipKeyCheck bool
	// AcceptFlags are flags of kube-controller-manager that a takeover leaves out instead of
	// refusing them.
	AcceptFlags []string
	// Steps are those to do; all if empty.
	Steps []string
	// DryRun prints what would be done, and does nothing.
	DryRun bool
	// StepTimeout bounds the wait of each step.
	StepTimeout time.Duration

	// ExternalSigner has kube-apiserver's tokens signed by our process. One that has them
	// signed there already goes on to.
	ExternalSigner bool

	// Binary is the file on the node that our Pod runs, "" if its image has the program.
	Binary string
	// Render makes our manifest, given what follows from the two others. Rewrite replaces one
	// that is there.
	Render  func(manifests.StaticPodOptions) ([]byte, error)
	Rewrite bool

	// Client may do anything. It must time out by itself. ClientAt makes one like it for the
	// kube-apiserver at a URL.
	Client   kubernetes.Interface
	ClientAt func(url string) (kubernetes.Interface, error)
	Clock    clock.Clock
	// Out gets the plan and what has been done. Progress, unless nil, gets a line for
	// each look while something is awaited.
	Out      io.Writer
	Progress func(string)
}

func (c *Config) manifest(name string) string { return filepath.Join(c.ManifestsDir, name+".yaml") }
func (c *Config) backup(name string) string   { return filepath.Join(c.BackupDir, name+".yaml") }

// patch is where kubeadm looks for a JSON patch of a component: the target, a suffix and
// the type (cmd/kubeadm/app/util/patches).
func (c *Config) patch(name string) string {
	return filepath.Join(c.PatchesDir, name+"-"+manager+"+json.yaml")
}

func (c *Config) does(step string) bool { return len(c.Steps) == 0 || slices.Contains(c.Steps, step) }
