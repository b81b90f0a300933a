// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package planted builds the product with bugs in its source, so that the fault suite and the simulation prove that
// they find each of them.
//
// All of them are laid over the source at build time (go build -overlay), and Variable chooses one in the process. An
// edit whose text the product no longer has is an error.
package planted

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/faults/checker"
)

// Plant is a bug in the product's source, and what a check must say because of it.
type Plant struct {
	Name string
	// Race is the one of the fault suite in which it shows.
	Race string
	// Shows is the violation that the bug leads to. Any other one of the same promise may be no more than work that is
	// not done yet.
	Shows *regexp.Regexp
	Edits []Edit
}

// Edit replaces the one occurrence of Search in a file of the product. The new text may call isPlanted.
type Edit struct{ File, Search, Replace string }

// Variable names the plant that a process has.
const Variable = "SACM_PLANT"

// Plants are the bugs that the fault suite must find. The simulation has those that need no real kube-apiserver.
func Plants() []Plant { return []Plant{WrongKey(), TokenInLog(), NoFence()} }

// WrongKey signs with a key that is in no ring.
func WrongKey() Plant {
	return Plant{"wrong signing key", "fills", regexp.MustCompile(`^promise 4: .* no key of the ring has signed its token$`), []Edit{{
		"tokens/issue.go",
		"return i.sign(ctx, signing.LegacyHeader, claims)", `token, err := i.sign(ctx, signing.LegacyHeader, claims)
	if isPlanted("wrong signing key") && err == nil {
		token = token[:len(token)-12] + "AAAAAAAAAAAA"
	}
	return token, err`,
	}}}
}

// TokenInLog logs the body of a patch.
func TokenInLog() Plant {
	return Plant{"token in a log line", "fills", regexp.MustCompile(`^promise 6: a log holds a token in base64$`), []Edit{{
		"controllers/tokensecrets/live.go",
		"	answer, err := client.CoreV1().Secrets(secret.Namespace).Patch(", `	if isPlanted("token in a log line") {
		klog.FromContext(ctx).Info("Patch", "body", string(body))
	}
	answer, err := client.CoreV1().Secrets(secret.Namespace).Patch(`,
	}}}
}

// NoFence goes on to write without a Lease.
func NoFence() Plant {
	return Plant{"leader without a fence", "lease", regexp.MustCompile(`^promise 9: .* began \S+ after the renew deadline`), []Edit{{
		"internal/leaderelection/leaderelection.go",
		"defer lock.fence(func() { lost.Store(true); stop(reconcile.ErrAtOnce) })()", `if !isPlanted("leader without a fence") {
					defer lock.fence(func() { lost.Store(true); stop(reconcile.ErrAtOnce) })()
				}`,
	}, {
		"internal/leaderelection/leaderelection.go",
		"fenced(working, lock.overdue)", `fenced(working, func() bool { return !isPlanted("leader without a fence") && lock.overdue() })`,
	}}}
}

// Shown selects what the plant leads to.
func (p Plant) Shown(found []checker.Violation) []checker.Violation {
	return slices.DeleteFunc(slices.Clone(found), func(v checker.Violation) bool { return !p.Shows.MatchString(v.String()) })
}

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
				files[filepath.Join(filepath.Dir(edit.File), "is_planted.go")] = fmt.Sprintf(isPlanted, filepath.Base(filepath.Dir(edit.File)))
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

// Build builds the product with all plants of the fault suite in it. It gives way to all other programs: the faults go on
// meanwhile, and a process that is starved is not to be taken for one that is slow.
func Build(ctx context.Context, root, dir string) (devcluster.Binary, error) {
	overlay, err := Overlay(root, dir, Plants())
	if err != nil {
		return devcluster.Binary{}, err
	}
	binary := filepath.Join(dir, "sa-controller-manager")
	build := exec.CommandContext(ctx, "nice", "-n", "19", "go", "build", "-buildvcs=false", "-ldflags=-s -w", "-overlay="+overlay, "-o",
		binary, "./cmd/sa-controller-manager")
	build.Dir = root
	if output, err := build.CombinedOutput(); err != nil {
		return devcluster.Binary{}, fmt.Errorf("build the plants: %w\n%s", err, output)
	}
	return devcluster.Binary{Path: binary}, nil
}
