// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	apimachineryversion "k8s.io/apimachinery/pkg/version"
	fakediscovery "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/admission/configfile"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/internal/testutil/staticpodtest"
	"sa-controller-manager/manifests/component"
	"sa-controller-manager/manifests/nodefile"
	"sa-controller-manager/manifests/staticpod"
)

// writes does the first n writes of a way, each of which is one rename or removal, and returns how many there are.
func (p *controlPlane) writeFirst(t *testing.T, way way, n int) (all int) {
	t.Helper()
	for _, s := range p.steps(t, way) {
		for _, w := range s.writes {
			if all < n {
				testutil.Must(t, w.Do())
			}
			all++
		}
	}
	return all
}

// TestKilled ends a takeover before each of its writes, and a handback after it: each later handback leaves both manifests
// byte for byte, also where a person has edited them in between or a takeover was before.
func TestKilled(t *testing.T) {
	t.Parallel()
	everything := func(c *Config) {
		c.ExternalSigner, c.Rewrite, c.Given = true, true, []string{"--token-secrets=auto"}
	}
	edited := func(t *testing.T, p *controlPlane) {
		p.Change(t, component.APIServer, "--allow-privileged=true", "--allow-privileged=false")
		p.Change(t, component.ControllerManager, "--cluster-name=kind", "--cluster-name=other")
	}
	for name, tc := range map[string]struct {
		sample string
		before func(*testing.T, *controlPlane) // an earlier takeover, nil for none
		edit   func(*testing.T, *controlPlane)
	}{
		"First": {sample: "v1.37"},
		"HandWritten": {sample: "v1.37", edit: func(t *testing.T, p *controlPlane) {
			for _, file := range []string{apiServerFile, kcmFile} {
				p.Write(t, file, []byte("# by hand\r\n"+strings.ReplaceAll(p.Files(t)[file], "\n", "\r\n")))
			}
		}},
		"Second": {sample: "v1.37", edit: edited, before: func(t *testing.T, p *controlPlane) { p.writeSteps(t, takeover, all) }},
	} {
		for k := 0; ; k++ {
			p := newControlPlane(t, tc.sample)
			if tc.before != nil {
				tc.before(t, p)
			}
			if tc.edit != nil {
				tc.edit(t, p)
			}
			never := newControlPlane(t, tc.sample)
			if tc.edit != nil {
				tc.edit(t, never)
			}
			want := never.Files(t)
			everything(&p.config)
			takes := p.writeFirst(t, takeover, k)
			back := 0
			if k > takes {
				back = p.writeFirst(t, handback, k-takes)
			}
			p.writeSteps(t, handback, all)
			got := p.Files(t)
			for _, file := range []string{apiServerFile, kcmFile} {
				testutil.Check(t, fmt.Sprintf("%s, killed after %d writes: %s", name, k, file), want[file], got[file])
			}
			for file := range got {
				if strings.HasPrefix(file, "sa-controller-manager-patches/") || file == ownFile ||
					file == "sa-controller-manager-backup/record.json" {
					t.Errorf("%s, killed after %d writes: %s is left", name, k, file)
				}
			}
			if k > takes && k-takes > back {
				break
			}
		}
	}
}

// TestRestartTenTimes: the annotation is ours, wherever it is.
func TestRestartTenTimes(t *testing.T) {
	t.Parallel()
	for name, steps := range map[string]int{"NotTakenOver": 0, "TakenOver": all} {
		for _, one := range []string{component.APIServer, component.ControllerManager} {
			p := newControlPlane(t, "v1.37")
			before := p.Files(t)
			p.writeSteps(t, takeover, steps)
			taken := p.Files(t)
			for i := range 10 {
				value := fmt.Sprint(i)
				p.writeFirst(t, func(c *Config, o *observed) ([]step, error) {
					s, err := c.planRestart(o, one, value)
					return []step{s}, err
				}, all)
				testutil.Expect(t, strings.Contains(p.Files(t)["manifests/"+one+".yaml"],
					"\n    "+component.RestartAnnotation+": \""+value+"\"\n"),
					"%s: no annotation in\n%s", name, p.Files(t)["manifests/"+one+".yaml"])
			}
			if steps == all { // one more takeover restarts nothing
				restarted := p.Files(t)
				p.writeSteps(t, takeover, all)
				testutil.Check(t, name+": another takeover", restarted, p.Files(t))
				testutil.Check(t, name+": the patch for kubeadm", taken[apiServerPatch], restarted[apiServerPatch])
			}
			p.writeSteps(t, handback, all)
			testutil.Check(t, name+": after the handback", before, p.withoutBackups(t))
		}
	}
}

// TestInFlight: our webhook answers as many calls as kube-apiserver may make, or Pods of a burst would be refused.
func TestInFlight(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		server []string
		want   string
	}{
		"Defaults":   {},
		"Lowered":    {server: []string{"--max-requests-inflight=100"}},
		"Raised":     {server: []string{"--max-requests-inflight=800"}, want: "1000"},
		"BothRaised": {server: []string{"--max-requests-inflight=800", "--max-mutating-requests-inflight=400"}, want: "1200"},
	} {
		p := newControlPlane(t, "v1.37", tc.server...)
		p.writeSteps(t, takeover, 1)
		testutil.Check(t, name, tc.want, staticpod.CommandIn([]byte(p.Files(t)[ownFile])).Last("webhook-max-in-flight"))
	}
}

// TestWayBack: a takeover that was killed has left a kube-apiserver that does not start. The same command restores what it had.
func TestWayBack(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		yes, restarted bool // not taken over
		want           string
	}{
		"Yes": {yes: true, want: "kube-apiserver does not answer: it did not come within 10ms"},
		"No":  {want: "kubeadm handback --steps=kube-apiserver puts its previous manifest back"},
		// A restart has recorded it, and changed nothing that it could start without.
		"Restarted": {yes: true, restarted: true, want: "step 1, manager: it did not come within 10ms"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newControlPlane(t, "v1.37")
			before := p.Files(t)[apiServerFile]
			if tc.restarted {
				p.writeFirst(t, func(c *Config, o *observed) ([]step, error) {
					s, err := c.planRestart(o, component.APIServer, "now")
					return []step{s}, err
				}, all)
			} else {
				p.writeSteps(t, takeover, all)
			}
			client := fake.NewClientset()
			client.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, errors.New("connection refused")
			})
			asked := ""
			p.config.DryRun, p.config.Client, p.config.StepTimeout = false, client, 10*time.Millisecond
			p.config.Confirm = func(_ context.Context, question string) bool {
				asked = question
				return tc.yes
			}
			wantError(t, name, Run(t.Context(), p.config), tc.want)
			testutil.Expect(t, strings.HasSuffix(asked, "A takeover has changed its manifest. Put the previous one back?") != tc.restarted,
				"asked %q", asked)
			back := p.Files(t)[apiServerFile] == before
			testutil.Expect(t, back == (tc.yes && !tc.restarted), "the manifest is back: %t", back)
		})
	}
	client := fake.NewClientset()
	client.Discovery().(*fakediscovery.FakeDiscovery).FakedServerVersion = &apimachineryversion.Info{}
	testutil.Must(t, (&Config{Client: client}).answers(t.Context()))
}

// TestBrokenManifest: what is cut off, empty or gone is refused, and the backup is named.
func TestBrokenManifest(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		left int // bytes of the manifest, -1 for no file
		want string
	}{
		"Cut":      {left: 900, want: "its container has no image; the file may be cut off"},
		"CutLater": {left: 3600, want: "the file may be cut off"},
		"Empty":    {left: 0, want: "it is empty"},
		"Gone":     {left: -1, want: "manifests/kube-apiserver.yaml; is this a control-plane node of kubeadm?"},
	} {
		for way, run := range map[string]func(context.Context, Config) error{"takeover": Run, "handback": Handback} {
			p := newControlPlane(t, "v1.37")
			p.writeSteps(t, takeover, all)
			if data := p.Files(t)[apiServerFile]; tc.left < 0 {
				p.Remove(t, apiServerFile)
			} else {
				p.Write(t, apiServerFile, []byte(data)[:tc.left])
			}
			p.refuses(t, name+" "+way, run, tc.want)
			wantError(t, name+" "+way, run(t.Context(), p.config),
				p.config.backup(component.APIServer)+" has it from before the last takeover")
		}
	}
	p := newControlPlane(t, "v1.37")
	p.Write(t, "manifests/kube-apiserver.yaml.bak", []byte(p.Files(t)[apiServerFile]))
	p.refuses(t, "a copy", Handback, "kube-apiserver.yaml.bak is a manifest of kube-apiserver too")
	p.Remove(t, "manifests/kube-apiserver.yaml.bak")
	p.Write(t, "sa-controller-manager-backup/record.json", []byte("{"))
	p.refuses(t, "the record", Handback, "sa-controller-manager-backup/record.json: want the record of a takeover, as JSON")
}

// TestStaleAdmissionConfig: kube-apiserver reads its file only when it starts. So an edit of the operator's file has no effect
// until it gets another copy: the status says so, and a takeover does not change the copy under it.
func TestStaleAdmissionConfig(t *testing.T) {
	t.Parallel()
	p := newControlPlane(t, "v1.37", "--admission-control-config-file=/etc/kubernetes/pki/admission.yaml")
	p.Write(t, "pki/admission.yaml", []byte(admissionHead))
	p.writeSteps(t, takeover, all)
	sources := configfile.Sources(staticpodtest.Read(t, p.config.onNode(component.AdmissionConfigFile)))
	testutil.Check(t, "of what the copy was made", []string{"/etc/kubernetes/pki/admission.yaml"}, sources)
	for _, tc := range []struct{ content, state, stale string }{
		{"", TakenOver, ""},
		{"- name: EventRateLimit\n", Partly, "is not what a takeover makes of /etc/kubernetes/pki/admission.yaml now"},
	} {
		p.Write(t, "pki/admission.yaml", []byte(admissionHead+tc.content))
		s := testutil.Get(p.config.Status())(t)
		why := ""
		for _, finding := range s.Findings {
			why += finding.Code + finding.Why
		}
		testutil.Expect(t, s.State == tc.state && (why == "") == (tc.stale == "") && strings.Contains(why, tc.stale), "%+v, want %s, %q", s,
			tc.state, tc.stale)
	}
	p.refuses(t, "", Run, "first run: kubeadm handback --steps=kube-apiserver")
}

// TestDisk: an error of the disk names the disk, and not kube-apiserver's log; what killed writers left goes.
func TestDisk(t *testing.T) {
	t.Parallel()
	p := newControlPlane(t, "v1.37")
	for _, left := range []string{
		"manifests/.kube-apiserver.yaml-1", "sa-controller-manager-patches/.kube-apiserver-sa-controller-manager+json.yaml-2",
		"sa-controller-manager-backup/.record.json-3",
	} {
		p.Write(t, left, nil)
	}
	p.config.DryRun = false
	p.Write(t, "full", nil)
	s := step{name: "kube-apiserver", advice: "Look at the log of kube-apiserver"}
	s.writes = []nodefile.Write{{Path: p.Dir + "/full/x", After: []byte("x")}}
	err := p.config.run(t.Context(), []step{s})
	testutil.Expect(t, err != nil && !strings.Contains(err.Error(), "Look at the log") && strings.Contains(err.Error(), p.Dir+"/full"),
		"%v",
		err)
	for file := range p.Files(t) {
		testutil.Expect(t, !strings.HasPrefix(filepath.Base(file), "."), "%s is left", file)
	}
}
