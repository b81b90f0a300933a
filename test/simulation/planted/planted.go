// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package planted lays bugs over the product's source, so that the simulation proves that it finds each of them.
//
// All of them are laid over the source at build time (go build -overlay), and Variable chooses one in the process. An
// edit whose text the product no longer has is an error.
package planted

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Plant is a bug in the product's source, and what a check must say because of it.
type Plant struct {
	Name string
	// Shows is the violation that the bug leads to. Any other one of the same promise may be no more than work that is
	// not done yet.
	Shows *regexp.Regexp
	Edits []Edit
}

// Edit replaces the one occurrence of Search in a file of the product. The new text may call isPlanted.
type Edit struct{ File, Search, Replace string }

// Variable names the plant that a process has.
const Variable = "SACM_PLANT"

// isPlanted is added to each package that has an edit.
const isPlanted = `package %s

import "os"

func isPlanted(name string) bool { return os.Getenv("` + Variable + `") == name }
`

// Overlay writes the product's files with all plants, and returns the file for go build -overlay.
func Overlay(root, dir string, plants []Plant) (string, error) {
	files := map[string]string{}
	for _, plant := range plants {
		for _, edit := range plant.Edits {
			content, known := files[edit.File]
			if !known {
				read, err := os.ReadFile(filepath.Join(root, edit.File))
				if err != nil {
					return "", fmt.Errorf("plant %q: %w", plant.Name, err)
				}
				content = string(read)
				files[filepath.Join(filepath.Dir(edit.File), "is_planted.go")] = fmt.Sprintf(isPlanted,
					filepath.Base(filepath.Dir(edit.File)))
			}
			if n := strings.Count(content, edit.Search); n != 1 {
				return "", fmt.Errorf("plant %q: %s holds this %d times, want once: %s", plant.Name, edit.File, n, edit.Search)
			}
			files[edit.File] = strings.Replace(content, edit.Search, edit.Replace, 1)
		}
	}
	replace := map[string]string{}
	for path, content := range files {
		replace[filepath.Join(root, path)] = filepath.Join(dir, strings.ReplaceAll(path, "/", "_"))
		if err := os.WriteFile(replace[filepath.Join(root, path)], []byte(content), 0o600); err != nil {
			return "", err
		}
	}
	encoded, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	return file, os.WriteFile(file, encoded, 0o600)
}
