// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"bytes"
	stdcmp "cmp"
	"context"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/clock"

	"sa-controller-manager/admission/registration"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/component"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/staticpod/staticpodtest"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/manifests"
	"sa-controller-manager/signing/ring"
	"sa-controller-manager/signing/testkeys"
)

// controlPlane is a node's files without a node.
type controlPlane struct {
	dir    string
	config Config
	out    bytes.Buffer
}

func newControlPlane(t *testing.T, sample string) *controlPlane {
	t.Helper()
	p := &controlPlane{dir: t.TempDir() + "/etc/kubernetes"}
	p.config = Config{
		Registration: registration.URL,
		Node:         "n", ManifestsDir: p.dir + "/manifests", BackupDir: p.dir + "/backup", PatchesDir: p.dir + "/patches",
		Version: func(context.Context, string) (string, error) { return "sa-controller-manager v1.2.3\n", nil },
		DryRun:  true, Out: &p.out, SkipKeyCheck: true, // the keys of the samples are not there
		Render: func(o manifests.StaticPodOptions) ([]byte, error) {
			return []byte("kind: Pod\nspec:\n  containers:\n  - image: " + o.Image +
				"\n    args:\n    - --service-account-private-key-file=/etc/kubernetes/pki/ours.key\n    - --webhook-registration=url\n"), nil
		},
	}
	writeFiles(t, p.dir+"/pki")
	for _, name := range []string{component.ControllerManager, component.APIServer} {
		p.write(t, "manifests/"+name+".yaml", staticpodtest.Read(t, "testdata/manifests/"+sample+"/"+name+".yaml"))
	}
	return p
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

// atRoot names the files of a control plane by their paths on the node, except for backups and patches.
func (p *controlPlane) atRoot() {
	p.dir = strings.TrimSuffix(p.dir, "/etc/kubernetes")
	p.config.BackupDir, p.config.PatchesDir = p.dir+"/backup", p.dir+"/patches"
}

func (p *controlPlane) write(t *testing.T, name string, data []byte) {
	t.Helper()
	path := filepath.Join(p.dir, name)
	testutil.Must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	testutil.Must(t, os.WriteFile(path, data, 0o600))
}

// way is in or out.
type way func(*Config, *observed) ([]step, error)

func takeover(c *Config, o *observed) ([]step, error) {
	if err := c.chooseMode(context.Background(), o); err != nil {
		return nil, err
	}
	if err := c.render(o); err != nil {
		return nil, err
	}
	return c.planTakeover(o)
}

func handback(c *Config, o *observed) ([]step, error) { return c.planHandback(o) }

// plan is what would be written, as "step: +file -file ~file".
func (p *controlPlane) plan(t *testing.T, way way) []string {
	t.Helper()
	var plan []string
	for _, s := range p.steps(t, way) {
		line := s.name + ":"
		for _, w := range s.writes {
			sign := " ~"
			if w.Before == nil {
				sign = " +"
			} else if w.After == nil {
				sign = " -"
			}
			line += sign + strings.TrimPrefix(w.Path, p.dir+"/")
		}
		plan = append(plan, line)
	}
	return plan
}

func (p *controlPlane) steps(t *testing.T, way way) []step {
	t.Helper()
	o, err := p.config.observe()
	testutil.Must(t, err)
	steps, err := way(&p.config, o)
	testutil.Must(t, err)
	return steps
}

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

// all is every file of a control plane.
func (p *controlPlane) all(t *testing.T) map[string]string {
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

const (
	apiServerFile = "manifests/kube-apiserver.yaml"
	apiServerAway = "kube-apiserver: +backup/kube-apiserver.yaml +patches/kube-apiserver-sa-controller-manager+json.yaml ~" + apiServerFile
	kcmAway       = "kube-controller-manager: +backup/kube-controller-manager.yaml " +
		"+patches/kube-controller-manager-sa-controller-manager+json.yaml ~manifests/kube-controller-manager.yaml"
	apiServerBack = "kube-apiserver: ~" + apiServerFile + " -patches/kube-apiserver-sa-controller-manager+json.yaml"
	kcmBack       = "kube-controller-manager: ~manifests/kube-controller-manager.yaml " +
		"-patches/kube-controller-manager-sa-controller-manager+json.yaml"
)

func TestPlan(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason  string
		sample  string
		prepare func(*testing.T, *controlPlane)
		way     way // takeover if nil
		want    []string
	}{
		"Stock": {
			want: []string{"manager: +manifests/sa-controller-manager.yaml", kcmAway, apiServerAway},
		},
		"AfterTheFirstStep": {
			prepare: func(t *testing.T, p *controlPlane) { p.writeSteps(t, takeover, 1) },
			want:    []string{"manager:", kcmAway, apiServerAway},
		},
		"AfterTheSecondStep": {
			prepare: func(t *testing.T, p *controlPlane) { p.writeSteps(t, takeover, 2) },
			want:    []string{"manager:", "kube-controller-manager:", apiServerAway},
		},
		"Done": {
			prepare: func(t *testing.T, p *controlPlane) { p.writeSteps(t, takeover, 3) },
			want:    []string{"manager:", "kube-controller-manager:", "kube-apiserver:"},
		},
		"OurManifestIsAnother": {
			reason: "the operator or an older version has written it",
			prepare: func(t *testing.T, p *controlPlane) {
				p.write(t, "manifests/sa-controller-manager.yaml", staticpodtest.Own([]string{"--service-account-private-key-file=k"}))
			},
			want: []string{"manager:", kcmAway, apiServerAway},
		},
		"OurManifestIsToBeAnother": {
			prepare: func(t *testing.T, p *controlPlane) {
				p.write(t, "manifests/sa-controller-manager.yaml", staticpodtest.Own([]string{"--service-account-private-key-file=k"}))
				p.config.Rewrite = true
			},
			want: []string{"manager: +backup/sa-controller-manager.yaml ~manifests/sa-controller-manager.yaml", kcmAway, apiServerAway},
		},
		"SomeSteps": {
			prepare: func(_ *testing.T, p *controlPlane) { p.config.Steps = []string{StepManager} },
			want:    []string{"manager: +manifests/sa-controller-manager.yaml"},
		},
		"KubeadmUpgradeWithoutPatches": {
			reason: "the backup is that of the manifest which is replaced",
			prepare: func(t *testing.T, p *controlPlane) {
				p.writeSteps(t, takeover, 3)
				p.write(t, apiServerFile, staticpodtest.Read(t, "testdata/manifests/v1.34/kube-apiserver.yaml"))
			},
			want: []string{"manager:", "kube-controller-manager:", "kube-apiserver: ~backup/kube-apiserver.yaml ~" + apiServerFile},
		},
		"ThePatchIsGone": {
			prepare: func(t *testing.T, p *controlPlane) {
				p.writeSteps(t, takeover, 3)
				testutil.Must(t, os.Remove(p.config.patch(component.APIServer)))
			},
			want: []string{"manager:", "kube-controller-manager:", "kube-apiserver: +patches/kube-apiserver-sa-controller-manager+json.yaml"},
		},
		"HandbackOfNothing": {
			way:  handback,
			want: []string{"kube-apiserver:", "kube-controller-manager:", "webhook:", "manager:"},
		},
		"Handback": {
			prepare: func(t *testing.T, p *controlPlane) { p.writeSteps(t, takeover, 3) },
			way:     handback,
			want:    []string{apiServerBack, kcmBack, "webhook:", "manager: -manifests/sa-controller-manager.yaml"},
		},
		"HandbackAfterHalfAHandback": {
			prepare: func(t *testing.T, p *controlPlane) {
				p.writeSteps(t, takeover, 3)
				p.writeSteps(t, handback, 2)
			},
			way:  handback,
			want: []string{"kube-apiserver:", "kube-controller-manager:", "webhook:", "manager: -manifests/sa-controller-manager.yaml"},
		},
		"HandbackAfterHalfATakeover": {
			prepare: func(t *testing.T, p *controlPlane) { p.writeSteps(t, takeover, 2) },
			way:     handback,
			want:    []string{"kube-apiserver:", kcmBack, "webhook:", "manager: -manifests/sa-controller-manager.yaml"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := newControlPlane(t, "v1.37")
			if tc.prepare != nil {
				tc.prepare(t, p)
			}
			if tc.way == nil {
				tc.way = takeover
			}
			testutil.Check(t, tc.reason, tc.want, p.plan(t, tc.way))
		})
	}
}

// A rewrite whose Pod does not become ready must not stay: the webhook is bound, and no Pod would be
// admitted.
func TestRewriteThatDoesNotCome(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		before []byte // our manifest, nil if there is none
		want   string
		advice string
	}{
		"Rewrite": {
			staticpodtest.Own([]string{theKey}),
			"; the previous DIR/manifests/sa-controller-manager.yaml is back, and until its process is ready this kube-apiserver refuses Pods",
			"Look at the log of the Pod kube-system/sa-controller-manager-n",
		},
		"First": {nil, "it did not come within 1ms", "Nothing of the control plane has been changed"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newControlPlane(t, "v1.37")
			rendered := staticpodtest.Own([]string{theKey, "--secure-port=1"})
			p.config.Render = func(manifests.StaticPodOptions) ([]byte, error) { return rendered, nil }
			p.config.Rewrite, p.config.StepTimeout, p.config.Clock, p.config.Client = true, time.Millisecond, clock.RealClock{}, fake.NewClientset()
			if tc.before != nil {
				p.write(t, "manifests/sa-controller-manager.yaml", tc.before)
			}
			own := p.steps(t, takeover)[0]
			own.proofs, own.guards = nil, nil // they ask kube-apiserver
			err := p.config.step(t.Context(), own)
			if err == nil || !strings.Contains(err.Error(), strings.ReplaceAll(tc.want, "DIR", p.dir)) || !strings.Contains(own.advice, tc.advice) {
				t.Errorf("%v\n%s\nwant %s and %s", err, own.advice, tc.want, tc.advice)
			}
			files := p.all(t)
			want := stdcmp.Or(string(tc.before), string(rendered))
			if got := files["manifests/sa-controller-manager.yaml"]; got != want {
				t.Errorf("the manifest is %q, want %q", got, want)
			}
			if got := files["backup/sa-controller-manager.yaml"]; got != string(tc.before) {
				t.Errorf("the backup is %q, want %q", got, tc.before)
			}
		})
	}
}

// TestAPIServerThatDoesNotCome: it gets back what it had, by whichever step.
func TestAPIServerThatDoesNotCome(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		plane  func(*testing.T) *controlPlane
		before int // steps that are done
	}{
		"ByURL": {func(t *testing.T) *controlPlane { return newControlPlane(t, "v1.37") }, 2},
		"WithTheSigner": {func(t *testing.T) *controlPlane {
			p := newSigningControlPlane(t)
			p.config.ExternalSigner = true
			return p
		}, 2},
		"ReadsFiles": {func(t *testing.T) *controlPlane { return newStaticControlPlane(t) }, 2},
		"HasFiles":   {func(t *testing.T) *controlPlane { return newStaticControlPlane(t) }, 3},
	} {
		t.Run(name, func(t *testing.T) {
			p := tc.plane(t)
			p.writeSteps(t, takeover, tc.before)
			p.config.StepTimeout, p.config.Clock, p.config.Client = time.Millisecond, clock.RealClock{}, fake.NewClientset()
			before := p.all(t)
			steps := p.steps(t, takeover)
			step := steps[len(steps)-1]
			if name == "ReadsFiles" {
				step = steps[2]
			}
			step.proofs, step.guards = nil, nil // they ask kube-apiserver
			wantError(t, "", p.config.step(t.Context(), step), "; the previous manifest of kube-apiserver is back")
			after := p.all(t)
			maps.DeleteFunc(before, func(file, _ string) bool { return strings.HasPrefix(file, "backup/") })
			maps.DeleteFunc(after, func(file, _ string) bool { return strings.HasPrefix(file, "backup/") })
			testutil.Check(t, "files", before, after)
		})
	}
}

// TestWrongNode: without the mirror pod no step can be proved, and nothing is written.
func TestWrongNode(t *testing.T) {
	t.Parallel()
	p := newControlPlane(t, "v1.37")
	before := p.all(t)
	p.config.DryRun, p.config.StepTimeout, p.config.Clock = false, time.Millisecond, clock.RealClock{}
	p.config.Client = fake.NewClientset(mirror(component.APIServer, "another", true))
	wantError(t, "Takeover", Takeover(t.Context(), p.config),
		`step 1, manager: it did not come within 1ms: pods "kube-apiserver-n" not found: is --node-name "n" the name of this node's Node object?`)
	testutil.Check(t, "files", before, p.all(t))
}

// TestRefusalSaysEnough: a guard that no waiting changes is not followed by advice to wait.
func TestRefusalSaysEnough(t *testing.T) {
	t.Parallel()
	p := newControlPlane(t, "v1.37")
	p.config.DryRun, p.config.StepTimeout, p.config.Clock = false, time.Millisecond, clock.RealClock{}
	p.config.Client = fake.NewClientset(mirror(component.APIServer, "n", true, "--advertise-address=10.0.0.9"))
	err := Takeover(t.Context(), p.config)
	const want = `step 1, manager: --node-name "n" is not this node, or the kubeconfig is of another cluster: `
	if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v, want one sentence", err)
	}
}

// Nothing is changed if a later step could not be done.
func TestRefusedBeforeTheFirstStep(t *testing.T) {
	t.Parallel()
	p := newControlPlane(t, "v1.37")
	p.config.DryRun = false
	p.write(t, apiServerFile, bytes.Replace(staticpodtest.Read(t, p.config.manifest(component.APIServer)), []byte("NodeRestriction"),
		[]byte("NodeRestriction,ServiceAccount"), 1))
	before := p.all(t)
	err := Takeover(t.Context(), p.config)
	const want = "the manifest of kube-apiserver: --enable-admission-plugins names ServiceAccount"
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("error %v, want %s", err, want)
	}
	if diff := cmp.Diff(before, p.all(t)); diff != "" || p.out.Len() > 0 {
		t.Errorf("files have changed (-before +after):\n%s\nprinted: %s", diff, &p.out)
	}
}

func TestDryRun(t *testing.T) {
	t.Parallel()
	p := newControlPlane(t, "v1.37")
	before := p.all(t)
	testutil.Must(t, Takeover(t.Context(), p.config))
	for _, want := range []string{
		"1. manager: ", "2. kube-controller-manager: ", "3. kube-apiserver: ",
		"--- /dev/null\n+++ " + p.config.manifest(manager) + "\n",
		"--- " + p.config.manifest(component.APIServer) + "\n+++ " + p.config.manifest(component.APIServer) + "\n@@ -39,6 +39,7 @@\n",
		"\n+    - --disable-admission-plugins=ServiceAccount\n",
		"is kept in " + p.config.backup(component.APIServer) + ".\n",
	} {
		if !strings.Contains(p.out.String(), want) {
			t.Errorf("it does not print %q:\n%s", want, &p.out)
		}
	}
	p.out.Reset()
	testutil.Must(t, Handback(t.Context(), p.config))
	if diff := cmp.Diff(before, p.all(t)); diff != "" {
		t.Errorf("files have changed (-before +after):\n%s", diff)
	}
}
