// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"bytes"
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/ownflags"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/internal/testutil/staticpodtest"
	"sa-controller-manager/manifests/component"
	"sa-controller-manager/manifests/takeover/takeovertest"
)

// Files of a controlPlane.
const (
	ownFile       = takeovertest.OwnFile
	apiServerFile = takeovertest.APIServerFile
	kcmFile       = takeovertest.KCMFile

	apiServerPatch = "sa-controller-manager-patches/kube-apiserver-sa-controller-manager+json.yaml"
)

// Flags of the components.
const (
	// controllersOff is what a takeover adds to --controllers.
	controllersOff = "-serviceaccount-controller,-root-ca-certificate-publisher-controller,-legacy-serviceaccount-token-cleaner-controller"
	pluginOff      = "--disable-admission-plugins=ServiceAccount"
	endpointFlag   = "service-account-signing-endpoint"
	gate           = "ManifestBasedAdmissionControlConfig"

	// theKey is what kubeadm writes.
	theKey = "--service-account-private-key-file=/etc/kubernetes/pki/sa.key"
)

// controlPlane is a node and what to do with it.
type controlPlane struct {
	*takeovertest.Node

	config Config
	out    bytes.Buffer
}

// newControlPlane has what kubeadm writes, with further flags of kube-apiserver.
func newControlPlane(t *testing.T, sample string, flags ...string) *controlPlane {
	t.Helper()
	p := &controlPlane{Node: takeovertest.New(t, sample, flags...)}
	p.config = Config{
		Node: "n", ManifestsDir: p.Dir + "/manifests",
		DryRun: true, Out: &p.out, SkipKeyCheck: true, // the keys of the samples are not there
		StepTimeout: time.Millisecond,
		Pod: &Pod{
			Binary: "/usr/local/bin/sa-controller-manager", OtherVersion: true, Flags: ownflags.Flags{}, MaxInFlight: 600,
			Version:   func(context.Context, string) (string, error) { return "sa-controller-manager v1.2.3\n", nil },
			ExtraArgs: []string{"--secure-port=1"}, // a process of ours may listen on the default port of this machine
		},
	}
	return p
}

// command is what kube-apiserver runs with.
func (p *controlPlane) command(t *testing.T) []string {
	t.Helper()
	return staticpodtest.Spec(t, staticpodtest.Read(t, p.config.manifest(component.APIServer))).Containers[0].Command
}

// way is in or out.
type way func(*Config, *observed) ([]step, error)

func takeover(c *Config, o *observed) ([]step, error) {
	d, err := c.desire(o)
	if err != nil {
		return nil, err
	}
	return c.planTakeover(o, d)
}

func handback(c *Config, o *observed) ([]step, error) { return c.planHandback(o) }

func (p *controlPlane) steps(t *testing.T, way way) []step {
	t.Helper()
	o := testutil.Get(p.config.observe())(t)
	return testutil.Get(way(&p.config, o))(t)
}

// all is more than a way has steps.
const all = 9

// writeSteps does the first n steps of a way, or all, as far as files go.
func (p *controlPlane) writeSteps(t *testing.T, way way, n int) {
	t.Helper()
	steps := p.steps(t, way)
	for _, s := range steps[:min(n, len(steps))] {
		for _, w := range s.writes {
			testutil.Must(t, w.Do())
		}
	}
}

// withoutBackups is every file but the backups, which a handback leaves.
func (p *controlPlane) withoutBackups(t *testing.T) map[string]string {
	t.Helper()
	files := p.Files(t)
	maps.DeleteFunc(files, func(file, _ string) bool { return strings.HasPrefix(file, "sa-controller-manager-backup/") })
	return files
}

// refuses wants an error of a way, a dry run of which changes nothing.
func (p *controlPlane) refuses(t *testing.T, reason string, way func(context.Context, Config) error, want string) {
	t.Helper()
	before := p.Files(t)
	wantError(t, reason, way(t.Context(), p.config), want)
	testutil.Check(t, reason+": files", before, p.Files(t))
}

func mirror(component, node string, isReady bool, command ...string) *corev1.Pod {
	status := corev1.ConditionFalse
	if isReady {
		status = corev1.ConditionTrue
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceSystem, Name: component + "-" + node, Labels: map[string]string{"component": component},
			Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "hash"},
		},
		Spec:   corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: component, Command: command}}},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}},
	}
}

// wantError wants an error with a text, or none if that is empty.
func wantError(t *testing.T, what string, err error, want string) {
	t.Helper()
	testutil.Expect(t, (want != "" || err == nil) && (want == "" || err != nil && strings.Contains(err.Error(), want)),
		"%s: error %v, want %q", what, err, want)
}

// onlySigner is what --only=signer asks for.
func (p *controlPlane) onlySigner() {
	p.config.OnlySigner, p.config.ExternalSigner, p.config.KeepPlugin, p.config.Rewrite = true, true, true, true
	p.config.Steps = []string{StepManager, StepAPIServer}
}
