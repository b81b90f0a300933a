// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/component-base/metrics"

	"sa-controller-manager/admission/certs"
	"sa-controller-manager/admission/podpolicy"
	"sa-controller-manager/admission/registration"
	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/app/options/secureport"
	"sa-controller-manager/internal/pki"
	"sa-controller-manager/internal/testutil"
)

func TestWebhookCallersHosts(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ args, want []string }{
		"None":    {},
		"URL":     {args: []string{"--webhook-registration=url", "--webhook-url-host=10.0.0.1"}, want: []string{"10.0.0.1"}},
		"Service": {args: []string{"--webhook-registration=service"}, want: certs.ServiceHosts("kube-system", "sa-controller-manager")},
	} {
		t.Run(name, func(t *testing.T) {
			o := parse(t, tc.args...).Webhook
			testutil.Check(t, "hosts", tc.want, callersHosts(&o))
		})
	}
}

// TestWebhookTLSMinVersion: the flag of the secure port counts for the webhook too.
func TestWebhookTLSMinVersion(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string]uint16{"": tls.VersionTLS12, "VersionTLS12": tls.VersionTLS12, "VersionTLS13": tls.VersionTLS13} {
		o := parse(t, "--tls-min-version="+flag)
		config := testutil.Get((&webhook{source: &certs.Source{}}).tlsConfig(&o.Webhook, secureport.Of(o).Serving.MinTLSVersion))(t)
		testutil.Check(t, "minimum with "+flag, want, config.MinVersion)
	}
}

// TestWebhookCallers: both flags let kube-apiserver call, and no other client of its CA. What others get is in TestServerTLS.
func TestWebhookCallers(t *testing.T) {
	t.Parallel()
	until := time.Now().Add(time.Hour)
	ca, caKey, err := pki.Issue(&x509.Certificate{IsCA: true, KeyUsage: x509.KeyUsageCertSign, NotAfter: until}, nil, nil)
	testutil.Must(t, err)
	cert, key, err := certutil.GenerateSelfSignedCertKey("localhost", nil, nil)
	testutil.Must(t, err)
	served := testutil.Get(certs.NewFiles(certs.FilesConfig{
		CertFile: testutil.WriteFile(t, "tls.crt", cert), KeyFile: testutil.WriteFile(t, "tls.key", key),
	}))(t)
	free, err := net.Listen("tcp", "127.0.0.2:0") // no test of another process is on this address
	testutil.Must(t, err)
	testutil.Must(t, free.Close())
	_, port, _ := net.SplitHostPort(free.Addr().String())
	o := parse(t, "--webhook-bind-address=127.0.0.2", "--webhook-port="+port, "--webhook-drain-delay=0",
		"--webhook-client-ca-file="+testutil.WriteFile(t, "ca.crt", pki.CertPEM(ca)), "--webhook-client-allowed-names=kube-apiserver")
	w := &webhook{source: served.Source}
	testutil.Must(t, w.listen(o, http.NotFoundHandler(), nil))
	w.follow(Connected, served.Run)
	w.follow(Connected, w.server.Run)
	for _, part := range w.followers {
		testutil.Start(t, part.Run)
	}
	for name, want := range map[string]int{
		"kube-apiserver": http.StatusNotFound, "system:node:n": http.StatusUnauthorized, "": http.StatusUnauthorized,
	} {
		config := &tls.Config{InsecureSkipVerify: true}
		if name != "" {
			made, clientKey, err := pki.Issue(&x509.Certificate{
				Subject: pkix.Name{CommonName: name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, NotAfter: until,
			}, ca, caKey)
			testutil.Must(t, err)
			config.Certificates = []tls.Certificate{{Certificate: [][]byte{made.Raw}, PrivateKey: clientKey}}
		}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
		answer, err := client.Get("https://" + free.Addr().String() + "/mutate")
		testutil.Must(t, err)
		testutil.Must(t, answer.Body.Close())
		testutil.Check(t, "status for "+name, want, answer.StatusCode)
	}
}

// TestTracingFile: a file that never ends must not keep the process from starting, nor from stopping.
func TestTracingFile(t *testing.T) {
	t.Parallel()
	fifo := filepath.Join(t.TempDir(), "fifo")
	testutil.Must(t, syscall.Mkfifo(fifo, 0o600))
	for file, want := range map[string]string{fifo: "is not a regular file", "/dev/zero": "is not a regular file", "none": "no such file"} {
		_, err := traced(http.NotFoundHandler(), file)
		testutil.CheckContains(t, file, want, fmt.Sprint(err))
		testutil.CheckContains(t, file, "--tracing-config-file: ", fmt.Sprint(err))
	}
}

func TestAnyReplicaProves(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason, certFile string
		registration     registration.Mode
		want             bool
	}{
		"OwnCA":           {reason: "its certificates are this cluster's", registration: registration.URL, want: true},
		"OwnCAAndService": {reason: "likewise", registration: registration.Service, want: true},
		"Files": {
			reason: "another cluster may be at the URL, with a certificate of the same CA", registration: registration.URL,
			certFile: "tls.crt",
		},
		"FilesAndAService": {
			reason: "a Service leads to this cluster's replicas", registration: registration.Service, certFile: "tls.crt", want: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := options.Webhook{Registration: tc.registration, CertFile: tc.certFile}
			testutil.Check(t, tc.reason, tc.want, anyReplicaProves(&o))
		})
	}
}

// policyObjects are those of a policy as the manifests have them.
func policyObjects(t *testing.T, policy podpolicy.Policy) (all []runtime.Object) {
	t.Helper()
	objects := testutil.Get(policy.Objects())(t)
	for _, one := range objects {
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(one.YAML, nil, nil)
		testutil.Must(t, err)
		all = append(all, object)
	}
	return all
}

// TestPodPolicyDetail: /readyz says what is wrong with the policies for Pods, and does not fail for it.
func TestPodPolicyDetail(t *testing.T) {
	t.Parallel()
	refusal, completion := policyObjects(t, podpolicy.Refusal), policyObjects(t, podpolicy.Completion)
	warning := policyObjects(t, podpolicy.Refusal)
	binding := warning[0].(*admissionregistrationv1.ValidatingAdmissionPolicyBinding)
	binding.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Warn}
	both := slices.Concat(refusal, completion)
	for name, tc := range map[string]struct {
		flags   []string
		objects []runtime.Object
		err     error
		want    string // part of the detail, "" for none
		code    string // of the finding in the metric
	}{
		"Right": {objects: both},
		"Warns": {
			objects: slices.Concat(warning, completion),
			want:    "its spec.validationActions is [Warn], want [Deny]", code: "policy-missing",
		},
		"NoCompletion": {objects: refusal, want: "finding completion-missing: the policy " +
			"sa-controller-manager-completion is missing", code: "completion-missing"},
		"Secret": {flags: []string{"--pod-token=secret"}, objects: refusal},
		"SecretAndCompletion": {
			flags: []string{"--pod-token=secret"}, objects: both, want: "ordinary Pods are completed in another way than by our plugin",
			code: "completion-unwanted",
		},
		"LimitsAndCompletion": {
			flags: []string{"--limit-secret-references"}, objects: both,
			want: "ordinary Pods are completed in another way than by our plugin",
			code: "completion-unwanted",
		},
		"Unknown": {err: errors.New("boom"), want: "read ValidatingAdmissionPolicyBinding sa-controller-manager-pods: boom"},
	} {
		testutil.Bubble(t, name, func(t *testing.T) {
			client := fake.NewClientset(tc.objects...)
			if tc.err != nil {
				client.PrependReactor("get", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, tc.err })
			}
			registry := metrics.NewKubeRegistry()
			m := &Manager{Host: Host{
				Options: parse(t, append(tc.flags, "--webhook-registration=url")...), Clients: Clients{Client: client},
				Registry: registry,
			}}
			var p Part
			testutil.Must(t, m.buildPodPolicy(&p))
			detail, err := p.probe()()
			testutil.Expect(t, detail == "not checked yet" && err == nil, "at first: %q, %v", detail, err)
			ctx, stop := context.WithCancel(t.Context())
			go func() { _ = p.Run(ctx) }()
			synctest.Wait()
			if detail, err := p.probe()(); err != nil || (detail == "") != (tc.want == "") || !strings.Contains(detail, tc.want) {
				t.Errorf("got %q, %v, want %q", detail, err, tc.want)
			}
			var series []string
			if tc.code != "" {
				series = []string{`sacm_pod_policy_findings{code="` + tc.code + `"} 1`}
			}
			testutil.Check(t, "series", series, testutil.Series(registry, "sacm_pod_policy_findings"), cmpopts.EquateEmpty())
			stop()
		})
	}
	var none Part
	testutil.Must(t, (&Manager{Host: Host{Options: parse(t)}}).buildPodPolicy(&none))
	testutil.Expect(t, none.Run == nil && none.Findings == nil, "without a registration there is a check")
}
