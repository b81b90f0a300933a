// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/clock"

	"sa-controller-manager/admission/serviceaccount"
	"sa-controller-manager/controllers/rootca"
	"sa-controller-manager/internal/testutil"
)

// checkCase is a cluster, and what a check finds in it.
type checkCase struct {
	reason  string
	objects []runtime.Object
	change  func(*testing.T, *cluster, *fake.Clientset)
	// want are the codes, with what has shown it and the objects, one line each.
	want    []string
	wantErr string
	remedy  string // a part of that of each
	// skipped is why there was nothing to check.
	skipped string
}

// try runs cases of one check in a synctest bubble, so that waiting takes no time. Its clock
// starts at midnight, 2000-01-01.
func try(t *testing.T, name string, cases map[string]checkCase) {
	t.Helper()
	for title, tc := range cases {
		testutil.Bubble(t, title, func(t *testing.T) {
			client := fake.NewClientset(append(healthyWorld(), tc.objects...)...)
			cluster := newCluster(client)
			if tc.change != nil {
				tc.change(t, cluster, client)
			}
			results := run(t.Context(), cluster, selected([]string{name}, nil), 20*time.Second, func(string) {})
			examine(t, tc, results[0], client.Actions())
		})
	}
}

// contract is docs/cli.md, which has every code.
var contract = sync.OnceValue(func() string {
	text, err := os.ReadFile("../../../../docs/cli.md")
	if err != nil {
		panic(err)
	}
	return string(text)
})

// clusterCommand is the beginning of a command that needs a kubeconfig.
var clusterCommand = regexp.MustCompile(`kubectl |sa-controller-manager (webhook|tokens) |keys forget NAME`)

func examine(t *testing.T, tc checkCase, got result, actions []clienttesting.Action) {
	t.Helper()
	var problems []string
	for _, finding := range got.findings {
		line := finding.Code
		if finding.Why != "" {
			line += ": " + finding.Why
		}
		if len(finding.Objects) > 0 {
			line += ": " + strings.Join(finding.Objects, ", ")
		}
		problems = append(problems, line)
		if finding.Remedy == "" || !strings.Contains(finding.Remedy, tc.remedy) || finding.Check != got.Name ||
			!strings.Contains(contract(), "| `"+finding.Code+"` |") {
			t.Errorf("%s: %q has remedy %q and check %q, and code %q, which docs/cli.md may not have", tc.reason, finding.Message,
				finding.Remedy,
				finding.Check, finding.Code)
		}
		ofHost := hostCommand.ReplaceAllString(finding.Remedy, "")
		if commands := clusterCommand.FindAllString(ofHost, -1); strings.Count(finding.Remedy,
			" --kubeconfig=given.conf") != len(commands) {
			t.Errorf("%s: each of the commands %q of the remedy %q has to name the kubeconfig that was given", tc.reason, commands,
				finding.Remedy)
		}
	}
	testutil.Check(t, tc.reason+": problems", tc.want, problems)
	if skips := got.Word == "skipped"; skips != (tc.skipped != "") || skips && got.Note != tc.skipped {
		t.Errorf("%s: %s: %q, want skipped: %q", tc.reason, got.Word, got.Note, tc.skipped)
	}
	testutil.Expect(t, (got.Error != "") == (tc.wantErr != "") && strings.Contains(got.Error, tc.wantErr), "%s: error %q, want %q",
		tc.reason,
		got.Error, tc.wantErr)
	for _, action := range actions {
		if list, ok := action.(clienttesting.ListActionImpl); ok && list.Resource.Resource == "secrets" &&
			list.ListRestrictions.Fields.String() != "type=kubernetes.io/service-account-token" {
			t.Errorf("%s: it lists other Secrets too: %s", tc.reason, list.ListRestrictions.Fields)
		}
		if create, ok := action.(clienttesting.CreateActionImpl); ok && harmless(create) {
			continue
		}
		if verb := action.GetVerb(); verb != "get" && verb != "list" {
			t.Errorf("%s: it writes: %s %s", tc.reason, verb, action.GetResource().Resource)
		}
	}
}

// harmless reports whether nothing is stored of what is created.
func harmless(action clienttesting.CreateActionImpl) bool {
	dry := len(action.GetCreateOptions().DryRun) > 0
	return dry || strings.HasSuffix(action.GetResource().Resource, "reviews") || action.GetSubresource() == "token"
}

// hostCommand matches commands for the files of a host, which ask no API server.
var hostCommand = regexp.MustCompile(`sa-controller-manager webhook (un)?register --static-registration-dir=`)

func newCluster(client *fake.Clientset) *cluster {
	client.PrependReactor("create", "serviceaccounts", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{Token: "fresh"}}, nil
	})
	reviewing(client, authenticationv1.TokenReviewStatus{Authenticated: true})
	return &cluster{
		Grace: defaultGrace, Flags: " --kubeconfig=given.conf",
		Client: client, Clock: clock.RealClock{}, Namespace: metav1.NamespaceSystem, Account: "default",
		LeaseNamespace: metav1.NamespaceSystem, LeaseName: "sa-controller-manager", Plugin: serviceaccount.DefaultConfig(),
		Get: func(context.Context, string) ([]byte, error) {
			return []byte(`{"keys":[{"kid":"known"},{"kid":"other"}]}`), nil
		},
	}
}

func reviewing(client *fake.Clientset, status authenticationv1.TokenReviewStatus) {
	client.PrependReactor("create", "tokenreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &authenticationv1.TokenReview{Status: status}, nil
	})
}

// The root CAs of all tests.
const rootPEM, strangePEM = "root", "strange"

// healthyWorld has two namespaces without a problem.
func healthyWorld() []runtime.Object {
	return []runtime.Object{
		namespace("kube-system"), namespace("shop"),
		account("kube-system", "default"), account("shop", "default"),
		rootCA("kube-system", rootPEM), rootCA("shop", rootPEM),
		tokenOf("shop", "good", "default"),
		trustBundle("sa-controller-manager", rootPEM),
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: commonBinding}},
	}
}

// trustBundle is that of kube-apiserver, as a field manager has published it.
func trustBundle(manager, content string) *certificatesv1.ClusterTrustBundle {
	hash := sha256.Sum256([]byte(content))
	return &certificatesv1.ClusterTrustBundle{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("kubernetes.io:kube-apiserver-serving:%x", hash[:12]),
			ManagedFields: []metav1.ManagedFieldsEntry{{
				Manager: manager, APIVersion: "certificates.k8s.io/v1", Operation: metav1.ManagedFieldsOperationUpdate,
				FieldsType: "FieldsV1",
				FieldsV1:   metav1.NewFieldsV1(`{"f:spec":{"f:signerName":{},"f:trustBundle":{}}}`),
			}},
		},
		Spec: certificatesv1.ClusterTrustBundleSpec{SignerName: rootca.ServingSigner, TrustBundle: content},
	}
}

// hourAgo is older than any grace.
func hourAgo() metav1.Time { return metav1.NewTime(time.Now().Add(-time.Hour)) }

func namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: hourAgo()}}
}

func account(namespace, name string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + "-" + name)}}
}

func rootCA(namespace, content string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "kube-root-ca.crt"}, Data: map[string]string{"ca.crt": content},
	}
}

// tokenOf returns a token Secret without a flaw, if the account exists.
func tokenOf(namespace, name, account string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: types.UID(name), ResourceVersion: "7", CreationTimestamp: hourAgo(),
			Annotations: map[string]string{corev1.ServiceAccountNameKey: account, corev1.ServiceAccountUIDKey: namespace + "-" + account},
		},
		Type: corev1.SecretTypeServiceAccountToken,
		Data: map[string][]byte{"token": []byte(jwt("known")), "ca.crt": []byte(rootPEM), "namespace": []byte(namespace)},
	}
}

// edited applies changes to an object.
func edited[T any](object T, changes ...func(T)) T {
	for _, change := range changes {
		change(object)
	}
	return object
}

// jwt has the form of a token of the key.
func jwt(key string) string {
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"RS256","kid":"`+key+`"}`)) + "." + encode([]byte("{}")) + "." + encode([]byte("signature"))
}

// certificate is a new one, in PEM.
func certificate(t *testing.T) string {
	t.Helper()
	pem, _, err := cert.GenerateSelfSignedCertKey("ca", nil, nil)
	testutil.Must(t, err)
	return string(pem)
}
