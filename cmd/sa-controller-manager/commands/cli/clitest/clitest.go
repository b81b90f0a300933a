// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clitest runs a command as a process would, and shows what a user sees of it.
package clitest

import (
	"bytes"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"sa-controller-manager/admission/podpolicy"
	"sa-controller-manager/admission/registration"
	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/app/options/secureport"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
	"sa-controller-manager/tokens"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata/ from what the tests get")

// Golden compares with a file below testdata.
func Golden(t *testing.T, file, got string) {
	t.Helper()
	path := filepath.Join("testdata", file)
	if *update {
		testutil.Must(t, os.WriteFile(path, []byte(got), 0o600))
	}
	want := testutil.Get(os.ReadFile(path))(t)
	diff := cmp.Diff(string(want), got)
	testutil.Expect(t, diff == "", "%s; go test -update accepts it (-want +got):\n%s", path, diff)
}

// Outcome is what a user sees of a run.
type Outcome struct {
	Code           int
	Stdout, Stderr string
}

// Run runs cmd as a sub-command of the program.
func Run(t *testing.T, cmd *cobra.Command, args ...string) Outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	root := &cobra.Command{Use: options.ProgramName}
	cli.SetUpRoot(root, &stdout, &stderr)
	cli.Add(root, cmd)
	code := cli.Execute(t.Context(), root, append([]string{cmd.Name()}, args...), &stderr)
	return Outcome{code, stdout.String(), stderr.String()}
}

// Refusals are command lines that are refused, and how the errors begin, by name.
type Refusals map[string]struct {
	Args []string
	Want string
}

// Refuses runs commands that have to end with an error alone. No error has what files hold, which is CANARY.
func Refuses(t *testing.T, command func() *cobra.Command, cases Refusals) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := Run(t, command(), tc.Args...)
			if got.Code != 1 || got.Stdout != "" || !strings.HasPrefix(got.Stderr, tc.Want) || strings.Contains(got.Stderr, "CANARY") {
				t.Errorf("%+v, want code 1 and %q at first", got, tc.Want)
			}
		})
	}
}

// Parse returns the options that args make, unvalidated.
func Parse(t *testing.T, args ...string) *options.Options {
	t.Helper()
	o, _, err := secureport.Parse(args)
	testutil.Require(t, err == nil, "parse %q: %v", args, err)
	return o
}

// LegacyToken is signed with the P-256 key of tests.
func LegacyToken(t *testing.T) string {
	t.Helper()
	token := testutil.Get(tokens.NewIssuer(testkeys.Parse(testkeys.P256()), tokens.CompatClaims).Legacy(t.Context(),
		tokens.Account{Namespace: "shop", Name: "robot", UID: "1"}, "robot-token"))(t)
	return token
}

// JWKS is that of private keys.
func JWKS(t *testing.T, keys ...[]byte) []byte {
	t.Helper()
	var public []signing.PublicKey
	for _, data := range keys {
		public = append(public, testkeys.Parse(data).Public())
	}
	return testutil.Get(signing.MarshalJWKS(public))(t)
}

// IdentityLeases are those of kube-apiservers that live, one on each host.
func IdentityLeases(hosts ...string) (leases []runtime.Object) {
	for _, host := range hosts {
		leases = append(leases, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceSystem, Name: "apiserver-" + host,
			Labels: map[string]string{"apiserver.kubernetes.io/identity": "kube-apiserver", corev1.LabelHostname: host},
		}})
	}
	return leases
}

// ControlPlane are the objects of one with a kube-apiserver on each host, and these addresses of the Service kubernetes.
func ControlPlane(hosts []string, addresses ...string) []runtime.Object {
	return append(IdentityLeases(hosts...), &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "kubernetes", Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"},
		},
		Ports:     []discoveryv1.EndpointPort{{Port: new(int32(6443))}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: addresses}},
	})
}

// Configurations are those of the webhook, with so many webhooks each.
func Configurations(annotations map[string]string, webhooks int) []runtime.Object {
	meta := metav1.ObjectMeta{Name: registration.Name, Annotations: annotations}
	return []runtime.Object{
		&admissionregistrationv1.MutatingWebhookConfiguration{
			ObjectMeta: *meta.DeepCopy(), Webhooks: make([]admissionregistrationv1.MutatingWebhook, webhooks),
		},
		&admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: *meta.DeepCopy(), Webhooks: make([]admissionregistrationv1.ValidatingWebhook, webhooks),
		},
	}
}

// Policy returns the objects of a policy for Pods as the manifests have them.
func Policy(policy podpolicy.Policy) []runtime.Object {
	all, err := policy.Objects()
	if err != nil {
		panic(err) // they are embedded
	}
	var decoded []runtime.Object
	for _, one := range all {
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(one.YAML, nil, nil)
		if err != nil {
			panic(err)
		}
		decoded = append(decoded, object)
	}
	return decoded
}

// Refusal returns the policy that refuses Pods.
func Refusal() *admissionregistrationv1.ValidatingAdmissionPolicy {
	return Policy(podpolicy.Refusal)[1].(*admissionregistrationv1.ValidatingAdmissionPolicy) //nolint:forcetypeassert // see there
}

// RefusalBinding returns its binding with an action.
func RefusalBinding(action admissionregistrationv1.ValidationAction) *admissionregistrationv1.ValidatingAdmissionPolicyBinding {
	binding := Policy(podpolicy.Refusal)[0].(*admissionregistrationv1.ValidatingAdmissionPolicyBinding) //nolint:forcetypeassert // a test
	binding.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{action}
	return binding
}

// KubeClient is a fake client that also serves documents, such as that of discovery: what answer
// has for a path, or 404.
type KubeClient struct {
	*fake.Clientset
	discovery discovery.DiscoveryInterfaces
}

// NewKubeClient returns a cluster with these objects.
func NewKubeClient(answer func(path string) string, objects ...runtime.Object) *KubeClient {
	transport := roundTripper(func(request *http.Request) (*http.Response, error) {
		response := httptest.NewRecorder()
		document := answer(request.URL.Path)
		if document == "" {
			response.WriteHeader(http.StatusNotFound)
		}
		_, err := response.WriteString(document)
		return response.Result(), err
	})
	client := kubernetes.NewForConfigOrDie(&rest.Config{Host: "https://apiserver", Transport: transport, QPS: -1})
	return &KubeClient{fake.NewClientset(objects...), client.Discovery()}
}

// Discovery serves the documents.
func (c *KubeClient) Discovery() discovery.DiscoveryInterfaces { return c.discovery }

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
