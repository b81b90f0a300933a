// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	apimachineryversion "k8s.io/apimachinery/pkg/version"
	fakediscovery "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli/clitest"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/manifests/component"
	"sa-controller-manager/manifests/nodefile"
)

// TestHangup: a dropped SSH session ends a wait, so that the step rolls back.
func TestHangup(t *testing.T) {
	if signal.Ignored(syscall.SIGHUP) {
		t.Skip("the tests run under nohup, which says to go on")
	}
	p, f := newControlPlane(t, "v1.37"), newNodeFlags()
	cmd := &cobra.Command{SilenceUsage: true, SilenceErrors: true, RunE: func(cmd *cobra.Command, _ []string) error {
		return f.run(cmd, func(ctx context.Context, _ Config) error {
			testutil.Must(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
			<-ctx.Done()
			return ctx.Err()
		})
	}}
	f.addPlaces(cmd)
	cmd.SetArgs(p.nodeFlags(t))
	err := cmd.ExecuteContext(t.Context())
	testutil.Expect(t, errors.Is(err, context.Canceled), "%v", err)
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
			before := p.files(t)[apiServerFile]
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
			wantError(t, name, Takeover(t.Context(), p.config), tc.want)
			testutil.Expect(t, strings.HasSuffix(asked, "A takeover has changed its manifest. Put the previous one back?") != tc.restarted,
				"asked %q", asked)
			back := p.files(t)[apiServerFile] == before
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
		for way, run := range map[string]func(context.Context, Config) error{"takeover": Takeover, "handback": Handback} {
			p := newControlPlane(t, "v1.37")
			p.writeSteps(t, takeover, all)
			if data := p.files(t)[apiServerFile]; tc.left < 0 {
				p.remove(t, apiServerFile)
			} else {
				p.write(t, apiServerFile, []byte(data)[:tc.left])
			}
			p.refuses(t, name+" "+way, run, tc.want)
			wantError(t, name+" "+way, run(t.Context(), p.config),
				p.config.backup(component.APIServer)+" has it from before the last takeover")
		}
	}
	p := newControlPlane(t, "v1.37")
	p.write(t, "manifests/kube-apiserver.yaml.bak", []byte(p.files(t)[apiServerFile]))
	p.refuses(t, "a copy", Handback, "kube-apiserver.yaml.bak is a manifest of kube-apiserver too")
	p.remove(t, "manifests/kube-apiserver.yaml.bak")
	p.write(t, "sa-controller-manager-backup/record.json", []byte("{"))
	p.refuses(t, "the record", Handback, "sa-controller-manager-backup/record.json: want the record of a takeover, as JSON")
}

// TestStaleAdmissionConfig: an edit of the operator's file has no effect until kube-apiserver gets another copy, and the status says so.
func TestStaleAdmissionConfig(t *testing.T) {
	t.Parallel()
	p := newControlPlane(t, "v1.37", "--admission-control-config-file=/etc/kubernetes/pki/admission.yaml")
	p.write(t, "pki/admission.yaml", []byte(admissionHead))
	p.writeSteps(t, takeover, all)
	for _, tc := range []struct{ content, state, stale string }{
		{"", takenOver, ""},
		{"- name: EventRateLimit\n", partly, "is not what a takeover makes of /etc/kubernetes/pki/admission.yaml now"},
	} {
		p.write(t, "pki/admission.yaml", []byte(admissionHead+tc.content))
		s := testutil.Get(p.config.status())(t)
		why := ""
		for _, finding := range s.Findings {
			why += finding.Code + finding.Why
		}
		testutil.Expect(t, s.State == tc.state && (why == "") == (tc.stale == "") && strings.Contains(why, tc.stale), "%+v, want %s, %q", s,
			tc.state, tc.stale)
	}
	if got := clitest.Run(t, NewCommand(), append([]string{"status"}, p.nodeFlags(t)...)...); got.Code != 2 ||
		!strings.Contains(got.Stdout, "State: partly\n") {
		t.Errorf("%+v", got)
	}
}

// TestDisk: an error of the disk names the disk, and not kube-apiserver's log; what killed writers left goes.
func TestDisk(t *testing.T) {
	t.Parallel()
	p := newControlPlane(t, "v1.37")
	for _, left := range []string{
		"manifests/.kube-apiserver.yaml-1", "sa-controller-manager-patches/.kube-apiserver-sa-controller-manager+json.yaml-2",
		"sa-controller-manager-backup/.record.json-3",
	} {
		p.write(t, left, nil)
	}
	p.config.DryRun = false
	p.write(t, "full", nil)
	s := step{name: "kube-apiserver", advice: "Look at the log of kube-apiserver"}
	s.writes = []nodefile.Write{{Path: p.dir + "/full/x", After: []byte("x")}}
	err := p.config.run(t.Context(), []step{s})
	testutil.Expect(t, err != nil && !strings.Contains(err.Error(), "Look at the log") && strings.Contains(err.Error(), p.dir+"/full"),
		"%v",
		err)
	for file := range p.files(t) {
		testutil.Expect(t, !strings.HasPrefix(filepath.Base(file), "."), "%s is left", file)
	}
}
