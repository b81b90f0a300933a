// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"sa-controller-manager/admission"
	"sa-controller-manager/internal/testutil"
)

// FuzzAdmit sends any JSON object as a Pod, in both modes. It is refused, or the patch
// applies, the patched Pod is patched no more, and it decodes as the plugin has foreseen.
func FuzzAdmit(f *testing.F) {
	files, err := filepath.Glob("testdata/*/*.yaml")
	if err != nil || len(files) == 0 {
		f.Fatalf("no seeds: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		testutil.Must(f, err)
		var tc podCase
		testutil.Must(f, yaml.Unmarshal(data, &tc))
		f.Add([]byte(tc.Pod), true)
		f.Add([]byte(tc.Pod), false)
	}
	f.Add([]byte(`{"spec":{"containers":[{},{"volumeMounts":[null]}],"volumes":[null],"imagePullSecrets":[null]}}`), false)
	f.Fuzz(func(t *testing.T, object []byte, secretMode bool) {
		// The framework hands over what it has decoded as JSON before.
		if !json.Valid(object) || !bytes.HasPrefix(bytes.TrimSpace(object), []byte("{")) {
			t.Skip()
		}
		existing := account(testNamespace, defaultAccount)
		existing.Secrets = []corev1.ObjectReference{{Name: "default-token"}}
		existing.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "pull"}, {Name: ""}}
		w := newWorld(existing)
		w.tokens["default-token"] = true
		config := DefaultConfig()
		if secretMode {
			config.Mode = Secret
		}
		_, patched, err := admitTwice(t, w.plugin(config), creation(object))
		if code, message := codeAndMessage(err); err != nil {
			if code != 400 && code != 403 {
				t.Errorf("refused with %d %q", code, message)
			}
			return
		}
		checkForeseen(t, w.plugin(config), object, patched)
	})
}

// checkForeseen compares the Pod that the edits describe, which is what references are
// limited in, with the patched JSON.
func checkForeseen(t *testing.T, plugin *Plugin, object, patched []byte) {
	t.Helper()
	foreseen := testutil.Get(decodePod(&admission.Request{Object: object}))(t)
	if foreseen.isMirror() {
		return
	}
	if _, err := plugin.complete(t.Context(), creation(object), newEdits(foreseen), &admission.Response{}); err != nil {
		t.Fatal(err)
	}
	got, err := decodePod(&admission.Request{Object: patched})
	if err != nil {
		t.Fatalf("the patched Pod cannot be decoded: %v", err)
	}
	// Nobody looks into the volume that was added.
	unread := cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Projected" }, cmp.Ignore())
	if diff := cmp.Diff(got.Spec, foreseen.Spec, unread, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("the Pod (-is +was foreseen):\n%s", diff)
	}
}
