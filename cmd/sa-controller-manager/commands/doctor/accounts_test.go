// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"sa-controller-manager/internal/accounttemplate"
	"sa-controller-manager/internal/testutil"
)

func TestAccounts(t *testing.T) {
	t.Parallel()
	template := func(rules string, objects ...func() runtime.Object) func(*testing.T, *cluster, *fake.Clientset) {
		return func(t *testing.T, c *cluster, client *fake.Clientset) {
			t.Helper()
			var err error
			c.Template, err = accounttemplate.Parse([]byte("{schemaVersion: 1, rules: [" + rules + "]}"))
			testutil.Must(t, err)
			c.AccountNames = []string{"default", "builder"}
			adding(objects...)(t, c, client)
		}
	}
	asked := func(_ *testing.T, c *cluster, _ *fake.Clientset) { c.AccountsAsked = true }
	of := func(name string, changes ...func(*corev1.ServiceAccount)) func() runtime.Object {
		return func() runtime.Object { return edited(account("shop", name), changes...) }
	}
	young := func(a *corev1.ServiceAccount) { a.CreationTimestamp = metav1.NewTime(time.Now()) }
	asWanted := func(a *corev1.ServiceAccount) {
		a.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "own"}, {Name: "registry"}}
		a.Labels = map[string]string{"a": "b", "c": "d"}
	}
	const mounts = "default-account-mounts: default accounts whose token every Pod mounts that does not opt out (CIS 5.1.5, 5.1.6): kube-system/default, shop/default"
	const differs = "account-differs: accounts that differ from --account-template, which changes no existing ones: "
	const registry = "{automountServiceAccountToken: true}, {accounts: [builder, other], imagePullSecrets: [{name: registry}], labels: {a: b}}"
	try(t, "accounts", map[string]checkCase{
		"NotAsked": {reason: "most clusters have default accounts that mount tokens"},
		"Asked":    {reason: "--only", change: asked, want: []string{mounts}},
		"Differs": {
			reason: "what is missing counts, not what there is besides; other is not created by us",
			change: template(registry, of("builder"), of("other")), want: []string{differs + "shop/builder (imagePullSecrets labels)"},
		},
		"AsWanted": {reason: "it has more", change: template(registry, of("builder", asWanted))},
		"Young":    {reason: "the user may not be done with it", change: template(registry, of("builder", young))},
		"Automount": {
			reason: "the template says so: one finding is enough",
			change: template("{automountServiceAccountToken: false}"),
			want:   []string{differs + "kube-system/default (automountServiceAccountToken), shop/default (automountServiceAccountToken)"},
		},
		"NoAutomount": {reason: "the template leaves it open", change: template("{labels: {}, annotations: {x: z}, namespaces: [none]}"), want: []string{mounts}},
		"Elsewhere": {
			reason: "the other one may be the first", objects: []runtime.Object{mirrorPod("kube-controller-manager", "--controllers=*")}, change: template("{automountServiceAccountToken: true}"),
			want: []string{"accounts-without-template: kube-controller-managers that create accounts too, without --account-template: kube-controller-manager-cp (" +
				"serviceaccount-controller, root-ca-certificate-publisher-controller, legacy-serviceaccount-token-cleaner-controller)"},
		},
		"Off": {reason: "its other controllers create none", objects: []runtime.Object{mirrorPod("kube-controller-manager", "--controllers=*,-serviceaccount-controller")}, change: template("{automountServiceAccountToken: true}")},
		"Down": {reason: "not asked", change: func(t *testing.T, c *cluster, client *fake.Clientset) {
			t.Helper()
			asked(t, c, client)
			failing("list", "namespaces")(t, c, client)
		}, wantErr: "list namespaces: the API is down"},
	})
}

func TestPatchOfAnAccount(t *testing.T) {
	t.Parallel()
	got := (&cluster{Kubeconfig: " --kubeconfig=given.conf"}).patchAccount(account("shop", "default"), accounttemplate.Fields{
		AutomountServiceAccountToken: new(false), ImagePullSecrets: []corev1.LocalObjectReference{{Name: "registry"}},
		Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"note": "it's; reboot"},
	})
	testutil.Check(t, "command", `kubectl --namespace=shop patch serviceaccount default --patch='{"automountServiceAccountToken":false,`+
		`"imagePullSecrets":[{"name":"registry"}],"metadata":{"labels":{"a":"b"},"annotations":{"note":"it\u0027s; reboot"}}}' --kubeconfig=given.conf`, got)
}
