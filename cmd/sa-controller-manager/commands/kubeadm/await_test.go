// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	"sa-controller-manager/admission/registration"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/component"
	"sa-controller-manager/internal/testutil"
)

func TestRuns(t *testing.T) {
	t.Parallel()
	command := []string{component.APIServer, "--a=1"}
	deleted := mirror(component.APIServer, "n", true, command...)
	deleted.DeletionTimestamp, deleted.Finalizers = &metav1.Time{Time: time.Now()}, []string{"x/y"}
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"Runs":      {mirror(component.APIServer, "n", true, command...), ""},
		"NoPod":     {mirror(component.APIServer, "other", true, command...), `pods "kube-apiserver-n" not found`},
		"Former":    {mirror(component.APIServer, "n", true, component.APIServer), "still runs Pod kube-apiserver-n with its previous command"},
		"NotReady":  {mirror(component.APIServer, "n", false, command...), "the Pod kube-apiserver-n is not ready yet"},
		"OnItsLast": {deleted, "the Pod kube-apiserver-n is not ready yet"},
	} {
		c := Config{Node: "n", Clock: clock.RealClock{}, Client: fake.NewClientset(tc.pod)}
		wantError(t, name, c.runs(component.APIServer, command)(t.Context()), tc.want)
	}
}

// No kube-apiserver may be left without its neighbour, see peers.go.
func TestMayRegister(t *testing.T) {
	t.Parallel()
	url := []byte("kind: Pod\nspec:\n  containers:\n  - args: [--webhook-registration=url]\n")
	none := []byte("kind: Pod\nspec:\n  containers:\n  - args: [--webhook-registration=url, --webhook-registration=none]\n")
	here := mirror(component.APIServer, "n", true)
	for name, tc := range map[string]struct {
		manifest []byte
		pods     []runtime.Object
		want     string
	}{
		"OneNode":              {url, []runtime.Object{here}, ""},
		"AnotherNode":          {url, []runtime.Object{here, mirror(component.APIServer, "m", true)}, "kube-apiserver runs on m too"},
		"OneWithoutLease": {
			url, []runtime.Object{here, mirror(component.APIServer, "m", true), lease("n")}, "kube-apiserver runs on m too",
		},
		"AnotherNodeWithUs": {url, []runtime.Object{here, mirror(component.APIServer, "m", true), mirror(manager, "m", true)}, ""},
		"AnotherNodeWithUsNotReady": {
			url, []runtime.Object{here, mirror(component.APIServer, "m", true), mirror(manager, "m", false)}, "kube-apiserver runs on m too",
		},
		"TwoOtherNodes": {
			url,
			[]runtime.Object{
				mirror(component.APIServer, "z", true), mirror(component.APIServer, "m", true), mirror(manager, "m", true),
				mirror(component.APIServer, "a", true),
			},
			"runs on a, z too",
		},
		"RegistersNothing": {none, []runtime.Object{here, mirror(component.APIServer, "m", true)}, ""},
		"APodOfThatName": {
			url,
			[]runtime.Object{
				here,
				&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-apiserver-m"}, Spec: corev1.PodSpec{NodeName: "m"}},
			},
			"",
		},
	} {
		c := Config{Node: "n", Clock: clock.RealClock{}, Client: fake.NewClientset(tc.pods...)}
		err := c.mayRegister(&observed{rendered: tc.manifest})(t.Context())
		wantError(t, name, err, tc.want)
		if tc.want != "" && !cli.IsPermanent(err) {
			t.Errorf("%s: it would be awaited", name)
		}
	}
}

func TestPluginsOn(t *testing.T) {
	t.Parallel()
	off := []string{component.APIServer, "--disable-admission-plugins=PodSecurity,ServiceAccount"}
	here, there := mirror(component.APIServer, "n", true, component.APIServer), mirror(component.APIServer, "m", true, component.APIServer,
		"--disable-admission-plugins=PodSecurity")
	bound := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: registration.Name}, Webhooks: []admissionregistrationv1.ValidatingWebhook{{Name: "validate"}},
	}
	for name, tc := range map[string]struct {
		pods []runtime.Object
		want string
	}{
		"On": {[]runtime.Object{bound, here, there, lease("n"), lease("m")}, ""},
		"Off": {
			[]runtime.Object{bound, here, mirror(component.APIServer, "m", true, off...)}, "kube-apiserver on m has no ServiceAccount plugin",
		},
		"OffAndUnbound": {[]runtime.Object{mirror(component.APIServer, "n", true, off...)}, ""},
		"NotShownHere":  {[]runtime.Object{bound, there}, `a Pod of kube-apiserver only on ["m"]`},
		"NotShownThere": {[]runtime.Object{bound, here, lease("n"), lease("m")}, `a Pod of kube-apiserver only on ["n"]`},
		"WithoutLeases": {[]runtime.Object{bound, here, there}, ""},
	} {
		c := Config{Node: "n", Clock: clock.RealClock{}, Client: fake.NewClientset(tc.pods...)}
		wantError(t, name, c.pluginsOn(t.Context()), tc.want)
	}
}

func TestManagerWorks(t *testing.T) {
	t.Parallel()
	webhooks := func(off string, n int) []runtime.Object {
		meta := metav1.ObjectMeta{Name: registration.Name, Annotations: map[string]string{registration.Annotation: off}}
		return []runtime.Object{
			&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: meta, Webhooks: make([]admissionregistrationv1.MutatingWebhook, n)},
			&admissionregistrationv1.ValidatingWebhookConfiguration{
				ObjectMeta: meta, Webhooks: make([]admissionregistrationv1.ValidatingWebhook, n),
			},
		}
	}
	cases := map[string]struct {
		status    int
		objects   []runtime.Object
		register  string
		want      string
		permanent bool
		previous  bool // the Pod is of another manifest
	}{
		"Works": {200, append(webhooks("", 1), mirror(manager, "n", true)), "url", "", false, false},
		"NotReady": {
			500, append(webhooks("", 1), mirror(manager, "n", true)), "url", "500 Internal Server Error: [-]caches failed", false, false,
		},
		"NoPod":        {200, webhooks("", 1), "url", "not found", false, false},
		"PodNotReady":  {200, append(webhooks("", 1), mirror(manager, "n", false)), "url", "is not ready yet", false, false},
		"NotBound":     {200, append(webhooks("", 0), mirror(manager, "n", true)), "url", "binds no webhook yet", false, false},
		"NotToBeBound": {200, append(webhooks("", 0), mirror(manager, "n", true)), "none", "", false, false},
		"SwitchedOff": {
			200, append(webhooks("off", 0), mirror(manager, "n", true)), "url",
			"sa-controller-manager webhook register --kubeconfig=/etc/kubernetes/admin.conf lets it in again", true, false,
		},
		"Previous": {
			200, append(webhooks("", 1), mirror(manager, "n", true)), "url", "still runs Pod sa-controller-manager-n of the previous manifest",
			false, true,
		},
		"NothingListens": {0, nil, "url", "connection refused", false, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			manifest := listening(t, tc.register, tc.status, "[+]ping ok\n[-]caches failed\n")
			for _, object := range tc.objects {
				if pod, ok := object.(*corev1.Pod); ok && !tc.previous {
					runsFrom(t, pod, manifest)
				}
			}
			c := Config{Node: "n", Clock: clock.RealClock{}, Client: fake.NewClientset(tc.objects...)}
			err := c.managerWorks(&observed{manager: []byte(manifest)})(t.Context())
			wantError(t, name, err, tc.want)
			if cli.IsPermanent(err) != tc.permanent {
				t.Errorf("permanent: %t", !tc.permanent)
			}
		})
	}
}

// lease is that of a kube-apiserver.
func lease(host string) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: "kube-system", Name: "apiserver-" + host,
		Labels: map[string]string{"apiserver.kubernetes.io/identity": "kube-apiserver", corev1.LabelHostname: host},
	}}
}

// listening is the manifest of a process of ours that answers so; with status 0 nothing listens.
func listening(t *testing.T, register string, status int, body string) string {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, body, status) }))
	t.Cleanup(server.Close)
	if status == 0 {
		server.Close()
	}
	return fmt.Sprintf("kind: Pod\nspec:\n  containers:\n  - args: [--secure-port=%d, --webhook-registration=%s]\n",
		server.Listener.Addr().(*net.TCPAddr).Port, register)
}

// Without kube-apiserver nothing can be said about the webhook, and so nothing be done.
func TestHandbackKeepsTheManagerWithoutAnAPI(t *testing.T) {
	t.Parallel()
	p := newControlPlane(t, "v1.37")
	p.writeSteps(t, takeover, 3)
	client := fake.NewClientset()
	client.PrependReactor("get", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("refused") })
	p.config.DryRun, p.config.Client, p.config.Clock = false, client, clock.RealClock{}
	p.config.StepTimeout, p.config.Steps = time.Millisecond, []string{StepManager}
	err := Handback(t.Context(), p.config)
	wantError(t, "Handback", err, "step 1, manager: it did not come within 1ms: read the MutatingWebhookConfiguration")
	if _, there := p.all(t)["manifests/sa-controller-manager.yaml"]; !there {
		t.Error("the manifest is gone, and kube-apiserver may call the webhook")
	}
}

func TestDeleteConfigurationsLast(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	off := metav1.ObjectMeta{Name: registration.Name, Annotations: map[string]string{registration.Annotation: registration.AnnotationOff}}
	client := fake.NewClientset(mirror(manager, "m", true), &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: off})
	c := Config{Node: "n", Clock: clock.RealClock{}, Client: client, Out: &out}
	list := func() int {
		found, err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().List(t.Context(), metav1.ListOptions{})
		testutil.Must(t, err)
		return len(found.Items)
	}
	wantError(t, "with another node", c.deleteConfigurations(t.Context()), "")
	if list() != 1 || !strings.Contains(out.String(), "still runs on another node") {
		t.Errorf("the configuration was deleted too soon; printed: %s", &out)
	}
	testutil.Must(t, client.CoreV1().Pods("kube-system").Delete(t.Context(), manager+"-m", metav1.DeleteOptions{}))
	wantError(t, "alone", c.deleteConfigurations(t.Context()), "")
	if list() != 0 {
		t.Error("the configuration is still there")
	}
}

func mirror(component, node string, isReady bool, command ...string) *corev1.Pod {
	status := corev1.ConditionFalse
	if isReady {
		status = corev1.ConditionTrue
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceSystem, Name: component + "-" + node,
			Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "hash"},
		},
		Spec:   corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: component, Command: command}}},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}},
	}
}

// runsFrom has a mirror pod run what a manifest says.
func runsFrom(t *testing.T, pod *corev1.Pod, manifest string) {
	t.Helper()
	var of corev1.Pod
	testutil.Must(t, yaml.Unmarshal([]byte(manifest), &of))
	pod.Spec.Containers, pod.Spec.Volumes = of.Spec.Containers, of.Spec.Volumes
}

func wantError(t *testing.T, what string, err error, want string) {
	t.Helper()
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("%s: error %v, want %q", what, err, want)
	}
}
