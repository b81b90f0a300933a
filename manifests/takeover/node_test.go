// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"bytes"
	"context"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"

	"sa-controller-manager/controllers/keyring/ring"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/internal/testutil/staticpodtest"
	"sa-controller-manager/manifests/component"
	"sa-controller-manager/signing/testkeys"
)

// Files of a controlPlane.
const (
	ownFile       = "manifests/sa-controller-manager.yaml"
	apiServerFile = "manifests/kube-apiserver.yaml"
	kcmFile       = "manifests/kube-controller-manager.yaml"

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

// controlPlane is /etc/kubernetes of a node without a node: nothing runs.
type controlPlane struct {
	dir    string
	config Config
	out    bytes.Buffer
}

// newControlPlane has what kubeadm writes, with further flags of kube-apiserver.
func newControlPlane(t *testing.T, sample string, flags ...string) *controlPlane {
	t.Helper()
	p := &controlPlane{dir: t.TempDir() + "/etc/kubernetes"}
	p.config = Config{
		Node: "n", ManifestsDir: p.dir + "/manifests",
		DryRun: true, Out: &p.out, SkipKeyCheck: true, // the keys of the samples are not there
		StepTimeout: time.Millisecond,
		Pod: &podFlags{
			binary:    "/usr/local/bin/sa-controller-manager",
			versionOf: func(context.Context, string) (string, error) { return "sa-controller-manager v1.2.3\n", nil },
			extraArgs: []string{"--secure-port=1"}, // a process of ours may listen on the default port of this machine
		},
	}
	p.write(t, "../../usr/local/bin/sa-controller-manager", nil)
	writeFiles(t, p.dir+"/pki")
	for _, name := range []string{component.ControllerManager, component.APIServer} {
		p.write(t, "manifests/"+name+".yaml", stock(t, sample, name))
	}
	for _, flag := range flags {
		p.change(t, component.APIServer, "    image:", "    - "+flag+"\n    image:")
	}
	return p
}

// stock is one of kubeadm's manifests.
func stock(t *testing.T, sample, name string) []byte {
	t.Helper()
	return staticpodtest.Read(t, "../component/testdata/manifests/"+sample+"/"+name+".yaml")
}

// writeFiles writes what the samples and the tests name.
func writeFiles(t *testing.T, dir string) {
	t.Helper()
	testutil.Must(t, os.MkdirAll(dir, 0o700))
	for name, data := range map[string][]byte{"sa.key": testkeys.RSA2048(), "ours.key": testkeys.P256(), "ca.crt": theRootCA()} {
		testutil.Must(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
}

// writeRing makes a key ring.
func writeRing(t *testing.T, file string) {
	t.Helper()
	testutil.Must(t, ring.At(file).Init(testkeys.Parse(testkeys.P256()), nil, nil, time.Now()))
}

var theRootCA = sync.OnceValue(func() []byte {
	pem, _, err := cert.GenerateSelfSignedCertKey("kubernetes", nil, nil)
	if err != nil {
		panic(err)
	}
	return pem
})

func (p *controlPlane) write(t *testing.T, name string, data []byte) {
	t.Helper()
	path := filepath.Join(p.dir, name)
	testutil.Must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	testutil.Must(t, os.WriteFile(path, data, 0o600))
}

// located replaces ROOT by the directory that is the root of the node.
func (p *controlPlane) located(text string) string {
	return strings.ReplaceAll(text, "ROOT", strings.TrimSuffix(p.dir, "/etc/kubernetes"))
}

func (p *controlPlane) remove(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		testutil.Must(t, os.Remove(filepath.Join(p.dir, name)))
	}
}

// change edits the manifest of a component.
func (p *controlPlane) change(t *testing.T, name, old, replacement string) {
	t.Helper()
	p.write(t, "manifests/"+name+".yaml", replaced(t, staticpodtest.Read(t, p.config.manifest(name)), old, replacement))
}

// replaced wants the old text to be there once.
func replaced(t *testing.T, text []byte, old, replacement string) []byte {
	t.Helper()
	n := strings.Count(string(text), old)
	testutil.Require(t, n == 1, "%q is there %d times, want once:\n%s", old, n, text)
	return bytes.Replace(text, []byte(old), []byte(replacement), 1)
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

// files is every file of a control plane.
func (p *controlPlane) files(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(p.dir, func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			files[strings.TrimPrefix(path, p.dir+"/")] = string(staticpodtest.Read(t, path))
		}
		return err
	})
	testutil.Must(t, err)
	return files
}

// withoutBackups is every file but the backups, which a handback leaves.
func (p *controlPlane) withoutBackups(t *testing.T) map[string]string {
	t.Helper()
	files := p.files(t)
	maps.DeleteFunc(files, func(file, _ string) bool { return strings.HasPrefix(file, "sa-controller-manager-backup/") })
	return files
}

// refuses wants an error of a way, a dry run of which changes nothing.
func (p *controlPlane) refuses(t *testing.T, reason string, way func(context.Context, Config) error, want string) {
	t.Helper()
	before := p.files(t)
	wantError(t, reason, way(t.Context(), p.config), want)
	testutil.Check(t, reason+": files", before, p.files(t))
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
