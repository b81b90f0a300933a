// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/testcluster"
)

// auditPolicy makes kube-apiserver log the user and the object of each request, and no body.
const auditPolicy = `{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": [{"level": "Metadata"}]}`

// audited is a line of the audit log.
type audited struct {
	Verb, UserAgent string
	User            struct{ Username string }
	ObjectRef       struct{ Resource, Subresource, Namespace, Name string }
}

// what returns verb and resource, and the name of a ConfigMap.
func (a audited) what() string {
	object := a.ObjectRef
	if object.Resource == "configmaps" {
		return a.Verb + " configmaps " + object.Name
	}
	return strings.TrimSuffix(a.Verb+" "+object.Resource+"/"+object.Subresource, "/")
}

// writers returns the users of all writes of managers in an audit log.
func writers(t *testing.T, file string) map[string][]string {
	t.Helper()
	log, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]map[string]bool{}
	for line := range strings.Lines(string(log)) {
		var a audited
		if json.Unmarshal([]byte(line), &a) != nil || !strings.HasPrefix(a.UserAgent, "sa-controller-manager/") {
			continue // the last line may be half written
		}
		if slices.Contains([]string{"get", "list", "watch"}, a.Verb) {
			continue
		}
		if found[a.what()] == nil {
			found[a.what()] = map[string]bool{}
		}
		found[a.what()][a.User.Username] = true
	}
	users := map[string][]string{}
	for what, names := range found {
		users[what] = slices.Sorted(maps.Keys(names))
	}
	return users
}

// TestAuditLogNamesTheProcess has every write in kube-apiserver's audit log bear the one
// identity of the process, and none be there that is not expected.
func TestAuditLogNamesTheProcess(t *testing.T) {
	dir := t.TempDir()
	policy, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	c := testcluster.New(t, devcluster.Options{APIServerFlags: map[string][]string{"audit-policy-file": {policy}, "audit-log-path": {log}}})
	const process = "the-process"
	kubeconfig, _, err := c.Identity(process, "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	c.Manage(t, "--kubeconfig="+kubeconfig, "--token-secrets=auto", "--leader-elect=true")
	namespace := c.Namespace(t)
	c.AwaitAutoSecret(t, namespace, "default")
	c.CreateSecret(t, testcluster.TokenSecret(namespace, "mine", "default"))
	c.AwaitFilled(t, namespace, "mine")
	c.AwaitRootCA(t, namespace, c.RootCA(t))
	if _, err := c.API.CoreV1().ConfigMaps(namespace).Patch(t.Context(), testcluster.RootCAName, types.MergePatchType, []byte(`{"data":null}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	c.AwaitRootCA(t, namespace, c.RootCA(t))

	want := map[string][]string{}
	for _, write := range []string{
		"create serviceaccounts", "patch serviceaccounts", "create secrets", "patch secrets",
		"create configmaps kube-root-ca.crt", "update configmaps kube-root-ca.crt", "update secrets", // of the state of the root CA
		"create leases", "update leases", "create selfsubjectaccessreviews", "create selfsubjectreviews", "create tokenreviews",
	} {
		want[write] = []string{process}
	}
	testcluster.Poll(t, "await the end of the audit log", func() error {
		got := writers(t, log)
		for optional := range got {
			// By whom is asked who may read metrics, and what is said in Events.
			if strings.HasSuffix(optional, "subjectaccessreviews") && want[optional] == nil || strings.HasSuffix(optional, "events") {
				delete(got, optional)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("users of writes (-want +got):\n%s", diff)
		}
		return nil
	})
}
