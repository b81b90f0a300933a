// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli/clitest"
	"sa-controller-manager/internal/await"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/internal/testutil/staticpodtest"
	"sa-controller-manager/manifests/component"
	"sa-controller-manager/manifests/staticpod"
	"sa-controller-manager/manifests/takeover/takeovertest"
)

// TestStatus is about what the files of a node say.
func TestStatus(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		steps    int // of a takeover that are done
		signer   bool
		only     bool // the signer
		upgraded bool // without patches
		damaged  bool // our manifest
		want     string
		kcm, api ComponentStatus
	}{
		"Stock":     {want: NotTakenOver},
		"FirstStep": {steps: 1, want: Partly},
		"Signer": {
			steps: all, signer: true, want: TakenOver, kcm: ComponentStatus{"", true, true, true},
			api: ComponentStatus{"", true, true, true},
		},
		"OnlySigner": {steps: all, only: true, want: TakenOver, api: ComponentStatus{"", true, true, true}},
		"Damaged": {
			steps: all, damaged: true, want: Partly, kcm: ComponentStatus{"", true, true, true}, api: ComponentStatus{"", true, true, true},
		},
		"Upgraded": {
			steps: all, upgraded: true, want: Partly, kcm: ComponentStatus{"", true, true, true},
			api: ComponentStatus{"", false, true, true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newControlPlane(t, "v1.37")
			p.config.ExternalSigner = tc.signer
			if tc.only {
				p.onlySigner()
			}
			p.config.Given = []string{"--token-secrets=auto"}
			p.writeSteps(t, takeover, tc.steps)
			if tc.upgraded {
				p.Write(t, apiServerFile, takeovertest.Stock(t, "v1.37", component.APIServer))
			}
			p.config.ExternalSigner = false
			own := staticpod.CommandIn([]byte(p.Files(t)[ownFile]))
			if tc.damaged {
				own = nil
				p.Write(t, ownFile, []byte("kind: ["))
			}
			got := testutil.Get(p.config.Status())(t)
			tc.kcm.Name, tc.api.Name = component.ControllerManager, component.APIServer
			testutil.Check(t, "components", []ComponentStatus{tc.kcm, tc.api}, got.Components)
			flags := "--token-secrets=auto"
			if tc.steps == 0 {
				flags = ""
			}
			testutil.Expect(t, got.State == tc.want && slices.Equal(got.Command, own) && strings.Join(got.Flags, " ") == flags,
				"%+v, want %s, %q, %q", got, tc.want, own, flags)
		})
	}
}

// TestConfirmation: a no leaves everything as it is, and nothing is asked if nothing is to change.
func TestConfirmation(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		way   func(context.Context, Config) error
		steps []string
		asks  bool
	}{
		"Takeover":            {Run, nil, true},
		"HandbackHasNoChange": {Handback, []string{StepControllerManager}, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := newControlPlane(t, "v1.37")
			before, asked := p.Files(t), false
			p.config.DryRun, p.config.Steps, p.config.Client = false, tc.steps, fake.NewClientset()
			p.config.Confirm = func(context.Context, string) bool {
				asked = true
				return false
			}
			err := tc.way(t.Context(), p.config)
			testutil.Expect(t, asked == tc.asks && (!tc.asks || err != nil && err.Error() == "nothing was changed"), "asked: %v, %v", asked,
				err)
			testutil.Check(t, "files", before, p.Files(t))
		})
	}
}

// TestChecks is what a step awaits of the API.
func TestChecks(t *testing.T) {
	t.Parallel()
	command := []string{component.APIServer, "--a=1"}
	m := testutil.Get(staticpod.Parse(staticpodtest.Manifest(command), component.APIServer))(t)
	runs := func(c *Config) await.Check { return c.runs(component.APIServer, m) }
	restarted := mirror(component.APIServer, "n", true, command...)
	restarted.Annotations[component.RestartAnnotation] = "before"
	deleted := mirror(component.APIServer, "n", true, command...)
	deleted.DeletionTimestamp, deleted.Finalizers = &metav1.Time{Time: time.Now()}, []string{"x/y"}
	on := mirror(component.APIServer, "n", true, component.APIServer, "--disable-admission-plugins=PodSecurity")
	waits := mirror(component.APIServer, "n", false, command...)
	waits.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
		Reason: "CrashLoopBackOff", Message: "back-off 2m40s restarting failed container",
	}}}}
	for name, tc := range map[string]struct {
		check   func(*Config) await.Check
		objects []runtime.Object
		want    string
	}{
		"Runs":    {check: runs, objects: []runtime.Object{mirror(component.APIServer, "n", true, command...)}},
		"NoPod":   {check: runs, want: `pods "kube-apiserver-n" not found`},
		"Former":  {check: runs, objects: []runtime.Object{on}, want: "still runs Pod kube-apiserver-n of the previous manifest"},
		"Restart": {check: runs, objects: []runtime.Object{restarted}, want: "still runs Pod kube-apiserver-n of the previous manifest"},
		"NotReady": {
			check: runs, objects: []runtime.Object{mirror(component.APIServer, "n", false, command...)},
			want: "the Pod kube-apiserver-n is not ready yet",
		},
		"BacksOff": {
			check: runs, objects: []runtime.Object{waits},
			want: "the Pod kube-apiserver-n is not ready yet: CrashLoopBackOff: back-off 2m40s restarting",
		},
		"OnItsLast": {check: runs, objects: []runtime.Object{deleted}, want: "the Pod kube-apiserver-n is not ready yet"},
	} {
		c := Config{Node: "n", Client: fake.NewClientset(tc.objects...)}
		err := tc.check(&c)(t.Context())
		wantError(t, name, err, tc.want)
		testutil.Expect(t, !await.IsPermanent(err), "%s: permanent", name)
	}
}

func TestManagerReady(t *testing.T) {
	t.Parallel()
	const exclude = "?exclude=webhook-registration"
	waits := mirror(manager, "n", false)
	waits.Status.ContainerStatuses = []corev1.ContainerStatus{{
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
			Reason: "RunContainerError", Message: "exec: no such file or directory",
		}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 128}},
	}}
	for name, tc := range map[string]struct {
		reason   string
		status   int
		pod      *corev1.Pod // nil if there is none
		previous bool        // it is of another manifest
		query    string
		want     string
	}{
		"Ready":    {status: 200, pod: mirror(manager, "n", true)},
		"NotReady": {status: 500, pod: mirror(manager, "n", true), want: "500 Internal Server Error: [-]caches failed"},
		"NoPod":    {status: 200, want: "not found"},
		"BeforeFilesAreRead": {
			reason: "the kubelet asks for all checks", status: 200, pod: mirror(manager, "n", false), query: exclude,
		},
		"Previous": {
			status: 200, pod: mirror(manager, "n", true), previous: true,
			want: "still runs Pod sa-controller-manager-n of the previous manifest",
		},
		"NothingListens": {want: "connection refused"},
		"Waits": {
			reason: "the kubelet says more", pod: waits,
			want: "refused: RunContainerError: exec: no such file or directory (exit code 128)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			manifest := listening(t, tc.query, tc.status, "[+]ping ok\n[-]caches failed\n")
			client := fake.NewClientset()
			if tc.pod != nil {
				if !tc.previous {
					runsFrom(t, tc.pod, manifest)
				}
				client = fake.NewClientset(tc.pod)
			}
			c := Config{Node: "n", Client: client}
			d := &desired{manifest: []byte(manifest), own: staticpod.CommandIn([]byte(manifest))}
			wantError(t, tc.reason, c.managerReady(d, tc.query)(t.Context()), tc.want)
		})
	}
}

// listening is the manifest of a process of ours that answers so to a query; with status 0 nothing listens.
func listening(t *testing.T, query string, status int, body string) string {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		want := "/readyz" + query
		testutil.Expect(t, r.URL.String() == want, "asked for %s, want %s", r.URL, want)
		http.Error(w, body, status)
	}))
	t.Cleanup(server.Close)
	if status == 0 {
		server.Close()
	}
	return fmt.Sprintf("kind: Pod\nspec:\n  containers:\n  - args: [--secure-port=%d]\n", server.Listener.Addr().(*net.TCPAddr).Port)
}

// TestHandbackKeepsTheManager while the API binds a webhook, or nothing can be said about that.
func TestHandbackKeepsTheManager(t *testing.T) {
	t.Parallel()
	away := fake.NewClientset()
	away.PrependReactor("get", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("refused") })
	for want, client := range map[string]*fake.Clientset{
		"read the MutatingWebhookConfiguration": away,
		"the MutatingWebhookConfiguration 00-sa-controller-manager still binds a webhook; run: " +
			"sa-controller-manager webhook unregister --kubeconfig=": fake.NewClientset(clitest.Configurations(nil, 1)...),
	} {
		p := newControlPlane(t, "v1.37")
		p.writeSteps(t, takeover, all)
		p.writeSteps(t, handback, 2)
		p.config.DryRun, p.config.Client, p.config.Steps = false, client, []string{StepManager}
		wantError(t, "Handback", Handback(t.Context(), p.config), "step 1, manager: it did not come within 1ms: "+want)
		_, there := p.Files(t)[ownFile]
		testutil.Expect(t, there, "%s: the manifest is gone", want)
	}
}

// runsFrom has a mirror pod run what a manifest says.
func runsFrom(t *testing.T, pod *corev1.Pod, manifest string) {
	t.Helper()
	var of corev1.Pod
	testutil.Must(t, yaml.Unmarshal([]byte(manifest), &of))
	pod.Spec.Containers, pod.Spec.Volumes = of.Spec.Containers, of.Spec.Volumes
}
