// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"encoding/json"
	"strings"
	"testing"
)

// FuzzParseConfig: a configuration is refused with the name of the plugin, or says the same once it
// is written again.
func FuzzParseConfig(f *testing.F) {
	for _, seed := range []string{
		"", "{}", "null", "mode: secret", "mode: ''", "mode: none", "Mode: secret", "limitSecretReferences: true\nlimitSecretReferences: false",
		"mountServiceAccountToken: no", `{"requireAPIToken":false,"strictMountableSecrets":true}`, "[]", "{", "mode: &a secret\nmode: *a",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		config, err := ParseConfig(data)
		if err != nil {
			if config != (Config{}) || !strings.Contains(err.Error(), Name) {
				t.Errorf("refused with %+v and %q", config, err)
			}
			return
		}
		written, err := json.Marshal(config)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := ParseConfig(written); err != nil || again != config {
			t.Errorf("%+v is read again as %+v, %v", config, again, err)
		}
	})
}
