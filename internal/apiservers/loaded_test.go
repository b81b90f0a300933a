// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package apiservers

import (
	"strings"
	"testing"

	"sa-controller-manager/internal/testutil"
)

func TestReadLoaded(t *testing.T) {
	t.Parallel()
	const series = "# TYPE a counter\na 1\n" + loadedMetric +
		`{apiserver_id_hash="sha256:us",hash="sha256:x",plugin="MutatingAdmissionWebhook"} 1` + "\n"
	got, err := readLoaded(strings.NewReader(series), map[string]bool{"sha256:us": true})
	testutil.Must(t, err)
	testutil.Check(t, "loaded", map[string]string{"MutatingAdmissionWebhook": "sha256:x"}, got)
	if _, err := readLoaded(strings.NewReader(series), map[string]bool{"sha256:another": true}); err == nil {
		t.Error("the answer of another host's kube-apiserver was taken")
	}
}
