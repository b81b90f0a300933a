// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
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
		kcm, api statusComponent
	}{
		"Stock":     {want: notTakenOver},
		"FirstStep": {steps: 1, want: partly},
		"Signer": {
			steps: all, signer: true, want: takenOver, kcm: statusComponent{"", true, true, true},
			api: statusComponent{"", true, true, true},
		},
		"OnlySigner": {steps: all, only: true, want: takenOver, api: statusComponent{"", true, true, true}},
		"Damaged": {
			steps: all, damaged: true, want: partly, kcm: statusComponent{"", true, true, true}, api: statusComponent{"", true, true, true},
		},
		"Upgraded": {
			steps: all, upgraded: true, want: partly, kcm: statusComponent{"", true, true, true},
			api: statusComponent{"", false, true, true},
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
				p.write(t, apiServerFile, stock(t, "v1.37", component.APIServer))
			}
			p.config.ExternalSigner = false
			own := staticpod.CommandIn([]byte(p.files(t)[ownFile]))
			if tc.damaged {
				own = nil
				p.write(t, ownFile, []byte("kind: ["))
			}
			got := testutil.Get(p.config.status())(t)
			tc.kcm.Name, tc.api.Name = component.ControllerManager, component.APIServer
			testutil.Check(t, "components", []statusComponent{tc.kcm, tc.api}, got.Components)
			flags := "--token-secrets=auto"
			if tc.steps == 0 {
				flags = ""
			}
			testutil.Expect(t, got.State == tc.want && slices.Equal(got.Command, own) && strings.Join(got.Flags, " ") == flags,
				"%+v, want %s, %q, %q", got, tc.want, own, flags)
		})
	}
}

// TestStatusCommand: the files are enough.
func TestStatusCommand(t *testing.T) {
	t.Parallel()
	p := newControlPlane(t, "v1.37")
	args := append([]string{"status"}, p.nodeFlags(t)...)
	if got := clitest.Run(t, NewCommand(), args...); got.Code != 0 ||
		!strings.HasPrefix(got.Stdout, "Node:  n\nState: not taken over\n") {
		t.Errorf("%+v", got)
	}
	got := clitest.Run(t, NewCommand(), append(args, "-o", "json")...)
	var document map[string]any
	testutil.Must(t, json.Unmarshal([]byte(got.Stdout), &document))
	testutil.Expect(t, document["kind"] == "TakeoverStatus" && document["state"] == notTakenOver, "%v", document)
}

// TestConfirmation: a no leaves everything as it is, and nothing is asked if nothing is to change.
func TestConfirmation(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		way   func(context.Context, Config) error
		steps []string
		asks  bool
	}{
		"Takeover":            {Takeover, nil, true},
		"HandbackHasNoChange": {Handback, []string{StepControllerManager}, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := newControlPlane(t, "v1.37")
			before, asked := p.files(t), false
			p.config.DryRun, p.config.Steps, p.config.Client = false, tc.steps, fake.NewClientset()
			p.config.Confirm = func(context.Context, string) bool {
				asked = true
				return false
			}
			err := tc.way(t.Context(), p.config)
			testutil.Expect(t, asked == tc.asks && (!tc.asks || err != nil && err.Error() == "nothing was changed"), "asked: %v, %v", asked,
				err)
			testutil.Check(t, "files", before, p.files(t))
		})
	}
}

// takenOver writes our manifest as a dry run prints it, and what it records.
func (p *controlPlane) takenOver(t *testing.T, args ...string) {
	t.Helper()
	got := p.takeover(t, append(args, "--dry-run")...)
	_, diff, ok := strings.Cut(got.Stdout, "\n+++ "+p.config.manifest(manager)+"\n")
	diff, _, _ = strings.Cut(diff, "\n2. ")
	testutil.Require(t, got.Code == 0 && ok, "%+v, want our manifest", got)
	p.write(t, ownFile, []byte(regexp.MustCompile(`(?m)^(@@.*\n|\+)`).ReplaceAllString(diff+"\n", "")))
	if record := (component.Record{Flags: p.recorded(t, args...)}).Encode(); record != nil {
		p.write(t, "sa-controller-manager-backup/record.json", record)
	}
}

// recorded are the flags that a takeover records.
func (p *controlPlane) recorded(t *testing.T, args ...string) []string {
	t.Helper()
	f, pod, fs := newNodeFlags(), newPodFlags(), pflag.NewFlagSet("", pflag.ContinueOnError)
	f.Pod = &pod
	f.addTakeover(fs)
	f.ManifestsDir = p.config.ManifestsDir
	testutil.Must(t, fs.Parse(args))
	testutil.Must(t, f.keep(fs))
	return f.Given
}

// TestTakeoverAgain: a rewrite keeps what the takeover before was given, and says what goes.
func TestTakeoverAgain(t *testing.T) {
	t.Parallel()
	const template, client = "--extra-arg=--account-template=/srv/a.yaml", "--extra-arg=--webhook-client-ca-file=/srv/ca.crt"
	const ring, noFile = "--extra-arg=--service-account-key-ring=/etc/kubernetes/pki/ring",
		"--extra-arg=--service-account-private-key-file="
	image := func(tag string) string { return "--image=registry.example.com/sa-controller-manager:" + tag }
	for name, tc := range map[string]struct {
		reason        string
		first, second []string
		kept, loses   string // as printed
		record        []string
	}{
		"AnotherFlag": {
			first: []string{"--token-secrets=auto", template, client}, second: []string{image("v2")},
			kept:   "--token-secrets=auto " + template + " " + client,
			record: []string{image("v2"), "--token-secrets=auto", template, client},
		},
		"SameFlag": {
			reason: "what is given counts", first: []string{"--token-secrets=auto", template, client},
			second: []string{"--token-secrets=manual", "--extra-arg=--account_template=/srv/b.yaml"},
			kept:   client, loses: "--token-secrets=auto --account-template=/srv/a.yaml",
			record: []string{"--token-secrets=manual", "--extra-arg=--account_template=/srv/b.yaml", client},
		},
		"NoFlag": {first: []string{template}, kept: template, second: []string{"--rewrite"}, record: []string{template}},
		"Reset": {
			first: []string{"--token-secrets=auto", template, client}, second: []string{"--reset", client},
			loses: "--token-secrets=auto --account-template=/srv/a.yaml", record: []string{client},
		},
		"BinaryForImage": {first: []string{image("v1")}, second: []string{"--binary=/opt/new"}, record: []string{"--binary=/opt/new"}},
		"Signer": {
			reason: "our manifest says so", first: []string{"--external-signer"}, second: []string{template}, record: []string{template},
		},
		"OnlySigner": {
			reason: "until another takeover is to do more", first: []string{"--only=signer", ring}, second: []string{"--rewrite"},
			kept: ring + " --only=signer", record: []string{ring, "--only=signer"},
		},
		"EverythingAfterTheSigner": {
			first: []string{"--only=signer", ring}, second: []string{"--only=", noFile}, kept: ring, loses: "signer",
			record: []string{noFile, ring},
		},
		"ResetSigner": {
			reason: "kube-apiserver has not been changed yet", first: []string{"--external-signer"}, second: []string{"--reset"},
			loses: "--external-signer-socket=/run/sa-controller-manager/signer.sock " +
				"--service-account-issuer=https://kubernetes.default.svc.cluster.local " +
				"--service-account-key-file=/etc/kubernetes/pki/sa.pub",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newTakeoverNode(t)
			writeRing(t, p.dir+"/pki/ring")
			p.takenOver(t, tc.first...)
			testutil.Check(t, tc.reason+": record", tc.record, p.recorded(t, tc.second...))
			got := p.takeover(t, append(tc.second, "--dry-run")...)
			testutil.Require(t, got.Code == 0, "%+v", got)
			line := func(before, after string) string {
				found := regexp.MustCompile(`(?m)^` + before + `(.*)` + after + `$`).FindStringSubmatch(got.Stdout)
				return strings.Join(found[min(1, len(found)):], "")
			}
			testutil.Check(t, tc.reason+": kept", tc.kept, line("Kept from the last takeover: ", `\. --reset drops them\.`))
			testutil.Check(t, tc.reason+": lost", tc.loses, line("Our process loses: ", `\.`))
		})
	}
}

// TestRecordIsRefused: a record that this version does not understand is not dropped silently.
func TestRecordIsRefused(t *testing.T) {
	t.Parallel()
	const noRecord = ": want the record of a takeover, as JSON: invalid character"
	for name, tc := range map[string]struct{ record, want, reset string }{
		"NoRecord": {"x", noRecord, noRecord},
		"Two":      {"{}}", noRecord, noRecord},
		"Unknown":  {`{"flags": ["--new-flag=1"]}`, `: no such flag -new-flag; --reset goes on without`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := newTakeoverNode(t)
			p.write(t, "sa-controller-manager-backup/record.json", []byte(tc.record))
			before := p.files(t)
			want := "Error: " + p.config.recordFile() + tc.want
			got := p.takeover(t, "--dry-run")
			testutil.Expect(t, got.Code == 1 && strings.HasPrefix(got.Stderr, want), "%+v, want %s", got, want)
			if got := p.takeover(t, "--dry-run", "--reset"); got.Code != 0 != (tc.reset != "") || !strings.Contains(got.Stderr, tc.reset) {
				t.Errorf("with --reset: %+v", got)
			}
			testutil.Check(t, "files", before, p.files(t))
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
		_, there := p.files(t)[ownFile]
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
