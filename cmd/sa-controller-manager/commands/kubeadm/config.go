// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	"sa-controller-manager/admission/registration"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/component"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/nodefile"
	"sa-controller-manager/controllers/rootca"
	"sa-controller-manager/manifests"
	"sa-controller-manager/signing"
)

// manager is the name of our static pod and of its manifest.
const manager = component.Manager

// Names of the steps, for Config.Steps.
const (
	StepManager           = "manager"
	StepControllerManager = component.ControllerManager
	StepAPIServer         = component.APIServer
	StepWebhook           = "webhook"
)

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
	// refusing them. Kept are the flags that this one has from the last takeover, and Reset drops those.
	AcceptFlags []string
	Kept        []string
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
	// Registration is how kube-apiserver is to learn of our webhook, "" to decide.
	Registration registration.Mode

	// Binary is the file on the node that our Pod runs, "" if the image contains the program. Version runs it
	// and returns its version.
	Binary  string
	Version func(ctx context.Context, file string) (string, error)
	// Render makes our manifest from options that follow from the other two. Rewrite replaces an
	// existing one.
	Render  func(manifests.StaticPodOptions) ([]byte, error)
	Rewrite bool

	// Confirm, unless nil, asks the user after the plan and before the first step that changes something.
	Confirm func(context.Context) bool
	// Cluster names the cluster of Client, for the user.
	Cluster string
	// Client is an administrator's, with a request timeout. A dry run has none if Silent is why
	// kube-apiserver does not answer.
	Client kubernetes.Interface
	Silent error
	Clock  clock.Clock
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

// onNode returns the path at which this process sees a file of the node, whose disk may be mounted in
// another directory. Paths below that directory are left alone.
func (c *Config) onNode(path string) string {
	root, ok := strings.CutSuffix(filepath.Clean(c.ManifestsDir), "/etc/kubernetes/manifests")
	if !ok || root == "" || strings.HasPrefix(path, root+"/") {
		return path
	}
	return filepath.Join(root, path)
}

// defaultPort is the port of our /readyz, unless our manifest names another.
const defaultPort = 10261

// observed has the current files of the node, nil for those that do not exist.
type observed struct {
	manager, managerBackup []byte
	files                  map[string]component.Files // by component
	kcm                    *component.Carried         // in a takeover
	certDir                string                     // of the cluster's CA, "" if it is kubeadm's default
	rendered               []byte                     // our manifest as it should be, in a takeover that writes it
	key                    *signing.PrivateKey        // what rendered names, nil if it names none
	rootCA                 *rootca.Bundle             // likewise
	createSecrets          bool                       // whether that makes token Secrets

	// mode is how kube-apiserver learns of our webhook: as our manifest has it or, in a takeover, is to
	// have it. It is "" if that is not known. note says why it is so, if that is not plain.
	mode registration.Mode
	note string
	// running is the version of kube-apiserver, in a takeover, if its image names none.
	running string
}

func (c *Config) observe() (*observed, error) {
	o := &observed{files: map[string]component.Files{}}
	var err error
	if o.manager, err = nodefile.Read(c.manifest(manager)); err != nil {
		return nil, err
	}
	if o.managerBackup, err = nodefile.Read(c.backup(manager)); err != nil {
		return nil, err
	}
	for _, name := range []string{component.ControllerManager, component.APIServer} {
		f := component.Files{Name: name, WithOurs: o.manager != nil}
		// A handback of kube-apiserver alone works without the manifest of kube-controller-manager.
		needed := name == component.APIServer || c.Render != nil || c.includes(name)
		if f.Manifest, err = os.ReadFile(c.manifest(name)); err != nil && (needed || !os.IsNotExist(err)) {
			return nil, fmt.Errorf("read the manifest of %s: %w; is this a control-plane node of kubeadm?", name, err)
		}
		if f.Backup, err = nodefile.Read(c.backup(name)); err != nil {
			return nil, err
		}
		if f.Patch, err = nodefile.Read(c.patch(name)); err != nil {
			return nil, err
		}
		o.files[name] = f
	}
	o.mode = registration.Mode(component.OwnFlag(o.manager, registrationFlag))
	if o.apiServer().ReadsFiles() {
		o.mode = registration.Static
	}
	return o, nil
}

// apiServer has the files of kube-apiserver.
func (o *observed) apiServer() component.Files { return o.files[component.APIServer] }

// own returns our manifest, or its backup if the manifest is gone or damaged.
func (o *observed) own() []byte {
	if o.ownIsThere() {
		return o.manager
	}
	return o.managerBackup
}

func (o *observed) ownIsThere() bool {
	var pod corev1.Pod
	return yaml.Unmarshal(o.manager, &pod) == nil && len(pod.Spec.Containers) > 0
}

// changes are what this call changes in kube-apiserver.
func (c *Config) changes(o *observed) (component.Changes, error) {
	signs, err := c.signs(o)
	return component.Changes{Plugin: o.mode != registration.None, Files: o.fromFiles(), Signer: signs, Running: o.running}, err
}

// ownPort returns the port of our /readyz.
func ownPort(manifest []byte) int {
	port, err := strconv.Atoi(component.OwnFlag(manifest, "secure-port"))
	if err != nil {
		return defaultPort
	}
	return port
}
