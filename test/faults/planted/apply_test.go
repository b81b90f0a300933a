// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package planted

import (
	"os"
	"path/filepath"
	"testing"
)

// TestPlantsApply says early that the product has changed and a plant has to follow.
func TestPlantsApply(t *testing.T) {
	t.Parallel()
	for _, plant := range Plants() {
		t.Run(plant.Name, func(t *testing.T) {
			t.Parallel()
			files, err := plant.apply(func(path string) ([]byte, error) { return os.ReadFile(filepath.Join("..", "..", "..", path)) })
			if err != nil {
				t.Error(err)
			}
			if len(files) == 0 {
				t.Error("it changes nothing")
			}
		})
	}
	missing := Plant{Name: "x", Edits: []Edit{{File: "f", Search: "there", Replace: "y"}}}
	for name, content := range map[string]string{"None": "here", "Two": "there there"} {
		if _, err := missing.apply(func(string) ([]byte, error) { return []byte(content), nil }); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
