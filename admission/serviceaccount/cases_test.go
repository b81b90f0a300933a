// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"sa-controller-manager/admission"
	"sa-controller-manager/internal/testutil"
)

// podCase is a file in testdata: a Pod, the world it is admitted in, and what becomes
// of it.
type podCase struct {
	Reason string `json:"reason"`
	// Config is the plugin's configuration.
	Config json.RawMessage `json:"config"`
	// Accounts exist in the namespace "shop". If none are given, it is "default".
	Accounts []*corev1.ServiceAccount `json:"accounts"`
	// Tokens are the usable token Secrets.
	Tokens []string        `json:"tokens"`
	Pod    json.RawMessage `json:"pod"`

	// Patch is the expected patch. The value "token volume" stands for a list with
	// the projected volume in it, or for the volume where the path ends in /-.
	Patch []map[string]any `json:"patch"`
	// Code and Refusal are expected instead of a patch.
	Code    int32  `json:"code"`
	Refusal string `json:"refusal"`
}

// tokenVolume is the volume that upstream adds, with a name that ends in "abcde".
const tokenVolume = `
name: kube-api-access-abcde
projected:
  defaultMode: 420
  sources:
  - serviceAccountToken: {expirationSeconds: 3607, path: token}
  - configMap:
      name: kube-root-ca.crt
      items: [{key: ca.crt, path: ca.crt}]
  - downwardAPI:
      items:
      - path: namespace
        fieldRef: {apiVersion: v1, fieldPath: metadata.namespace}
`

// TestCreate admits the Pods in testdata/create.
func TestCreate(t *testing.T) {
	t.Parallel()
	forEachCase(t, "create", func(t *testing.T, tc podCase) {
		response, _, err := admitTwice(t, tc.plugin(t), creation(tc.Pod))
		tc.check(t, response, err)
	})
}

// TestEphemeralContainers validates the updates in testdata/ephemeral, which are
// never patched.
func TestEphemeralContainers(t *testing.T) {
	t.Parallel()
	forEachCase(t, "ephemeral", func(t *testing.T, tc podCase) {
		plugin, response := tc.plugin(t), &admission.Response{}
		err := plugin.Admit(t.Context(), ephemeralUpdate(tc.Pod), response)
		testutil.Expect(t, err == nil && len(response.Patch) <= 0, "Admit has an opinion about an update: %v, %v", err, response.Patch)
		tc.check(t, response, plugin.Validate(t.Context(), ephemeralUpdate(tc.Pod), response))
	})
}

// forEachCase runs check in a bubble, where waiting takes no time.
func forEachCase(t *testing.T, directory string, check func(*testing.T, podCase)) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", directory, "*.yaml"))
	testutil.Require(t, err == nil && len(files) != 0, "no cases in %s: %v", directory, err)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			tc := readCase(t, file)
			synctest.Test(t, func(t *testing.T) { check(t, tc) })
		})
	}
}

func readCase(t *testing.T, file string) podCase {
	t.Helper()
	data := testutil.Get(os.ReadFile(file))(t)
	var tc podCase
	err := yaml.UnmarshalStrict(data, &tc)
	testutil.Require(t, err == nil, "%s: %v", file, err)
	testutil.Require(t, tc.Reason != "", "%s has no reason", file)
	return tc
}

func (tc podCase) plugin(t *testing.T) *Plugin {
	t.Helper()
	config := DefaultConfig()
	testutil.Must(t, yaml.UnmarshalStrict(tc.Config, &config))
	w := newWorld()
	if tc.Accounts == nil {
		w = newWorld(account(testNamespace, defaultAccount))
	}
	for _, account := range tc.Accounts {
		account.Namespace = testNamespace
		_ = w.cache.Add(account)
		_ = w.server.Add(account)
	}
	for _, token := range tc.Tokens {
		w.tokens[token] = true
	}
	return w.plugin(config)
}

func (tc podCase) check(t *testing.T, response *admission.Response, err error) {
	t.Helper()
	code, message := codeAndMessage(err)
	testutil.Expect(t, code == tc.Code && message == tc.Refusal, "%s\nrefused with %d %q, want %d %q", tc.Reason, code, message, tc.Code,
		tc.Refusal)
	testutil.Check(t, tc.Reason+"\npatch", tc.patch(t), decodePatch(t, response.Patch), cmpopts.EquateEmpty())
}

// patch is the expected patch with the token volume written out.
func (tc podCase) patch(t *testing.T) []map[string]any {
	t.Helper()
	var volume any
	testutil.Must(t, yaml.Unmarshal([]byte(tokenVolume), &volume))
	for _, operation := range tc.Patch {
		if operation["value"] != "token volume" {
			continue
		}
		operation["value"] = []any{volume}
		if path, _ := operation["path"].(string); strings.HasSuffix(path, "/-") {
			operation["value"] = volume
		}
	}
	return tc.Patch
}

func decodePatch(t *testing.T, operations []admission.PatchOperation) []map[string]any {
	t.Helper()
	encoded := testutil.Get(json.Marshal(operations))(t)
	var decoded []map[string]any
	testutil.Must(t, json.Unmarshal(encoded, &decoded))
	return decoded
}
