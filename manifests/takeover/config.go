// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"cmp"
	"context"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"

	"sa-controller-manager/controllers/keyring/ring"
	"sa-controller-manager/manifests/component"
	"sa-controller-manager/manifests/staticpod"
)

// manager is the name of our static pod and of its manifest.
const manager = component.Manager

// Names of the steps, for Config.Steps.
const (
	StepManager           = "manager"
	StepControllerManager = component.ControllerManager
	StepAPIServer         = component.APIServer
)

// Config describes the node and what to do with it.
type Config struct {
	// Node is the name of this node's Node object.
	Node string
	// ManifestsDir is the directory that the kubelet reads. Backups and patches are beside it: the kubelet takes every file
	// in it for a manifest whose name does not begin with a dot.
	ManifestsDir string
	// SkipKeyCheck hands back although the key files lack keys that are in use.
	SkipKeyCheck bool
	// Given are all flags to record. Kept are those among them that this takeover has from the last one, and Reset drops those.
	Given, Kept []string
	Reset       bool
	// Steps are the steps to run; all if empty.
	Steps []string
	// DryRun prints the plan and changes nothing.
	DryRun bool
	// StepTimeout bounds each wait of a step.
	StepTimeout time.Duration

	// ExternalSigner has our process sign kube-apiserver's tokens. If it does so already, that stays
	// without this.
	ExternalSigner bool
	// OnlySigner has our process do nothing else, and leaves kube-controller-manager and the plugin alone.
	OnlySigner bool
	// KeepPlugin leaves kube-apiserver its plugin.
	KeepPlugin bool

	// Pod is what our manifest has that does not follow from the other two; only a takeover has it. Rewrite replaces an
	// existing manifest.
	Pod     *Pod
	Rewrite bool

	// Confirm, unless nil, asks the user after the plan and before the first step that changes something.
	Confirm func(ctx context.Context, question string) bool
	// Cluster names the cluster of Client, for the user.
	Cluster string
	// Client is an administrator's, with a request timeout. A dry run has none if Silent is why
	// kube-apiserver does not answer.
	Client kubernetes.Interface
	Silent error
	// Out gets the plan and the finished steps. Progress, unless nil, is called with what is still
	// missing while a step waits.
	Out      io.Writer
	Progress func(string)

	// revoked are the keys that hosts have revoked, as far as the API server says so.
	revoked ring.Revocations
}

func (c *Config) manifest(name string) string { return filepath.Join(c.ManifestsDir, name+".yaml") }
func (c *Config) backup(name string) string   { return c.beside("backup", name+".yaml") }

// RecordFile is the path of what takeovers of this node have recorded.
func (c *Config) RecordFile() string { return c.beside("backup", "record.json") }

func (c *Config) beside(directory, file string) string {
	return filepath.Join(filepath.Dir(filepath.Clean(c.ManifestsDir)), manager+"-"+directory, file)
}

// patch is the path of a component's JSON patch for kubeadm: target, suffix and type
// (cmd/kubeadm/app/util/patches).
func (c *Config) patch(name string) string {
	return c.beside("patches", name+"-"+manager+"+json.yaml")
}

func (c *Config) includes(step string) bool {
	return len(c.Steps) == 0 || slices.Contains(c.Steps, step)
}

// onNode returns the path at which this process sees a file of the node, whose disk may be mounted in
// another directory. Paths below that directory are left alone.
func (c *Config) onNode(path string) string {
	root, ok := strings.CutSuffix(filepath.Clean(c.ManifestsDir), "/etc/kubernetes/manifests")
	if !ok || root == "" || strings.HasPrefix(path, root+"/") {
		return path
	}
	return filepath.Join(root, path)
}

// ownPort returns the port of our /readyz.
func ownPort(own staticpod.Command) string { return cmp.Or(own.Last("secure-port"), "10261") }
