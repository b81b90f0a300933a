// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"sa-controller-manager/admission/podpolicy"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/internal/testutil"
)

// policyAPI keeps the policies for Pods, by path in JSON, and takes what is missing.
type policyAPI struct {
	has     map[string]string
	old     bool // it knows no MutatingAdmissionPolicy
	refuses bool
	written int
}

func (a *policyAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch object, exists := a.has[r.URL.Path]; {
	case a.refuses:
		w.WriteHeader(http.StatusForbidden)
	case a.old && strings.Contains(r.URL.Path, "mutatingadmissionpolic"):
		http.NotFound(w, r)
	case r.Method == http.MethodPost:
		body, _ := io.ReadAll(r.Body)
		body, _ = yaml.YAMLToJSON(body)
		var named struct {
			Metadata struct{ Name string } `json:"metadata"`
		}
		_ = yaml.Unmarshal(body, &named)
		at := path.Join(r.URL.Path, named.Metadata.Name)
		if _, exists := a.has[at]; exists {
			w.WriteHeader(http.StatusConflict)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"AlreadyExists","code":409}`)
			return
		}
		a.written++
		a.has[at] = string(body)
		w.WriteHeader(http.StatusCreated)
	case !exists:
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
	default:
		_, _ = io.WriteString(w, object)
	}
}

// TestRestricted: kube-apiserver's plugin goes only while the policies are those of the manifests.
func TestRestricted(t *testing.T) {
	t.Parallel()
	const api = "/apis/admissionregistration.k8s.io/v1/"
	both := []podpolicy.Policy{podpolicy.Refusal, podpolicy.Completion}
	all := func(t *testing.T, policies ...podpolicy.Policy) map[string]string {
		t.Helper()
		has := map[string]string{}
		for _, policy := range policies {
			objects := testutil.Get(policy.Objects())(t)
			for _, object := range objects {
				body := testutil.Get(yaml.YAMLToJSON(object.YAML))(t)
				has[object.Path()] = string(body)
			}
		}
		return has
	}
	for name, tc := range map[string]struct {
		policies []podpolicy.Policy
		old, set bool   // set: --pod-token=secret and the like
		without  string // the object that is missing
		at       string // the object in which from becomes to
		from, to string
		refuses  bool
		writes   int
		want     string // part of the error, "" for none
	}{
		"Right":   {policies: both},
		"Missing": {writes: 7},
		"Old":     {old: true, writes: 2},
		"NoBinding": {
			policies: both, without: "validatingadmissionpolicybindings/" + podpolicy.Name, writes: 1,
		},
		"Warns": {
			policies: both,
			at:       "validatingadmissionpolicybindings/" + podpolicy.Name, from: "Deny", to: "Warn",
			want: "spec.validationActions is [Warn], want [Deny]",
		},
		"Audits": {
			policies: both,
			at:       "validatingadmissionpolicybindings/" + podpolicy.Name, from: `"Deny"`, to: `"Deny","Audit"`,
		},
		"NoRule": {
			policies: both,
			at:       "validatingadmissionpolicies/" + podpolicy.Name, from: `"pods"`, to: `"nothing"`, want: "spec.matchConstraints is",
		},
		"NoNamespace": {
			policies: both,
			at:       "validatingadmissionpolicybindings/" + podpolicy.Name, from: `"spec":{`,
			to: `"spec":{"matchResources":{"namespaceSelector":{"matchLabels":{"a":"b"}}},`, want: "spec.matchResources is",
		},
		"OtherCompletion": {
			policies: both,
			at:       "mutatingadmissionpolicies/" + podpolicy.CompletionName, from: "3607", to: "36070", want: "spec.variables is",
		},
		"CompletionOfAllAccounts": {
			policies: both,
			at:       "mutatingadmissionpolicybindings/" + podpolicy.CompletionName + "-kube-system",
			from:     `"kube-system"]`, to: `"kube-system","b"]`, want: "spec.matchResources is",
		},
		"Secret": {policies: []podpolicy.Policy{podpolicy.Refusal}, set: true},
		"SecretAndCompletion": {
			policies: both, set: true, want: "completed in another way than by our plugin",
		},
		"Forbidden": {refuses: true, want: "read ValidatingAdmissionPolicy"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			served := &policyAPI{has: all(t, tc.policies...), old: tc.old, refuses: tc.refuses}
			delete(served.has, api+tc.without)
			if tc.at != "" {
				before := served.has[api+tc.at]
				served.has[api+tc.at] = strings.Replace(before, tc.from, tc.to, 1)
				testutil.Require(t, before != served.has[api+tc.at], "%s has no %s", tc.at, tc.from)
			}
			server := httptest.NewServer(served)
			t.Cleanup(server.Close)
			client, err := kubernetes.NewForConfig(&rest.Config{
				Host: server.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"},
			})
			testutil.Must(t, err)
			err = (&Config{Client: client}).restricted(!tc.set)(t.Context())
			wantError(t, name, err, tc.want)
			if permanent := tc.want != "" && !tc.refuses; cli.IsPermanent(err) != permanent {
				t.Errorf("%v: permanent %t, want %t", err, !permanent, permanent)
			} else if permanent {
				wantError(t, "the way out", err, " --kubeconfig=/etc/kubernetes/admin.conf")
			}
			testutil.Expect(t, served.written == tc.writes, "%d objects were written, want %d", served.written, tc.writes)
		})
	}
}
