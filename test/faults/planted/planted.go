// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package planted builds the product with a bug in its source, so that the fault suite proves that
// it finds each of them.
//
// A bug is laid over the source at build time (go build -overlay): one edit calls a small function
// of testdata. An edit whose text the product no longer has is an error.
package planted

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
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
	Name    string
	Promise int
	// Race is the one in which it shows.
	Race string
	// Shows is what the violation says that the bug leads to. Any other one of the same promise may
	// be no more than work that is not done yet.
	Shows *regexp.Regexp
	// Edits call the function planted of testdata/NAME.go, if there is that file. It is added to
	// the package of the first edit.
	Edits []Edit
}

// Edit replaces the one occurrence of Search in a file of the product.
type Edit struct{ File, Search, Replace string }

//go:embed testdata
var functions embed.FS

// Plants are the bugs that the suite must find.
func Plants() []Plant {
	return []Plant{
		{Name: "wrong signing key", Promise: 4, Race: "dropped-reference", Shows: regexp.MustCompile(
			`^token Secret \S+: no key of the ring has signed its token$`,
		), Edits: []Edit{{
			"tokens/issue.go",
			"i.sign(ctx, signing.LegacyHeader, claims)", "planted(i.sign(ctx, signing.LegacyHeader, claims))",
		}}},
		{Name: "dropped tombstones", Promise: 3, Race: "missed-deletion", Shows: regexp.MustCompile(
			`^account \S+-missed-deletion/missed references missed-token-[a-z0-9]{5}, which is gone$`,
		), Edits: []Edit{{
			"internal/reconcile/watch.go",
			"obj = tombstone.Obj", "_ = tombstone; return",
		}}},
		{Name: "missing UID precondition", Promise: 1, Race: "late-deletion", Shows: regexp.MustCompile(
			`^token Secret \S+-late-deletion/reused was deleted, and its account lives$`,
		), Edits: []Edit{{
			"controllers/tokensecrets/live.go",
			"Preconditions: meta.Preconditions(secret)", "",
		}}},
		{Name: "deletion of what nothing references", Promise: 1, Race: "dropped-reference", Shows: regexp.MustCompile(
			`^token Secret \S+-dropped-reference/(edited-token-[a-z0-9]{5}|copy) was deleted, and its account lives$`,
		), Edits: []Edit{{
			"controllers/tokensecret/account.go",
			"planAccount(account, secrets, c.Auto, c.AutoExcluded)", "c.planted(ctx, account, secrets)",
		}}},
		{Name: "patch that rewrites a list", Promise: 1, Race: "missed-deletion", Shows: regexp.MustCompile(
			`^account \S+ was rewritten where it is the user's: it lists \[\] and \["pull"\], want \["first" "second"\] and \["pull"\]$`,
		), Edits: []Edit{{
			"controllers/tokensecret/patch.go",
			"[]entryPatch{{Name: secret}}}, added)", `[]entryPatch{{Directive: "replace"}, {Name: secret}}}, added)`,
		}}},
		{Name: "token in a log line", Promise: 6, Race: "dropped-reference", Shows: regexp.MustCompile(
			`^a log holds a token in base64$`,
		), Edits: []Edit{{
			"controllers/tokensecrets/live.go",
			"types.MergePatchType, body,", "types.MergePatchType, planted(ctx, body),",
		}}},
		{Name: "leader without a fence", Promise: 9, Race: "lease", Shows: regexp.MustCompile(
			`-lease/\S* began \d\S* after the renew deadline, and kube-apiserver took it$`,
		), Edits: []Edit{{
			"internal/leaderelection/leaderelection.go",
			"defer lock.fence(func() { lost.Store(true); stop(reconcile.ErrAtOnce) })()", "_ = reconcile.ErrAtOnce",
		}, {
			"internal/leaderelection/leaderelection.go", "fenced(working, lock.overdue)", "working",
		}}},
	}
}

// Shown selects what the plant leads to.
func (p Plant) Shown(found []checker.Violation) []checker.Violation {
	return slices.DeleteFunc(checker.Of(found, p.Promise), func(v checker.Violation) bool { return !p.Shows.MatchString(v.What) })
}

// Slug is the name as it stands in names of files and namespaces.
func (p Plant) Slug() string { return strings.ToLower(strings.ReplaceAll(p.Name, " ", "-")) }

// apply renders the files of a plant, by path. A text that is not there exactly once is an
// error: then the product has changed and the plant has to follow.
func (p Plant) apply(read func(path string) ([]byte, error)) (map[string]string, error) {
	files := map[string]string{}
	for _, edit := range p.Edits {
		content, known := files[edit.File]
		if !known {
			read, err := read(edit.File)
			if err != nil {
				return nil, fmt.Errorf("plant %q: %w", p.Name, err)
			}
			content = string(read)
		}
		if n := strings.Count(content, edit.Search); n != 1 {
			return nil, fmt.Errorf("plant %q: %s holds this %d times, want once: %s", p.Name, edit.File, n, edit.Search)
		}
		files[edit.File] = strings.Replace(content, edit.Search, edit.Replace, 1)
	}
	function, err := functions.ReadFile("testdata/" + p.Slug() + ".go")
	if errors.Is(err, fs.ErrNotExist) {
		return files, nil
	}
	files[filepath.Join(filepath.Dir(p.Edits[0].File), "planted.go")] = string(function)
	return files, err
}

// Build builds the product with the plant laid over its source, which stays as it is. It gives
// way to all other programs: the faults go on meanwhile, and a process that is starved is not
// to be taken for one that is slow.
func (p Plant) Build(ctx context.Context, root, dir string) (devcluster.Binary, error) {
	dir = filepath.Join(dir, p.Slug())
	files, err := p.apply(func(path string) ([]byte, error) { return os.ReadFile(filepath.Join(root, path)) })
	if err != nil {
		return devcluster.Binary{}, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return devcluster.Binary{}, fmt.Errorf("make a directory: %w", err)
	}
	var overlay struct{ Replace map[string]string }
	overlay.Replace = map[string]string{}
	for path, content := range files {
		planted := filepath.Join(dir, strings.ReplaceAll(path, "/", "_"))
		if err := os.WriteFile(planted, []byte(content), 0o600); err != nil {
			return devcluster.Binary{}, fmt.Errorf("write a planted file: %w", err)
		}
		overlay.Replace[filepath.Join(root, path)] = planted
	}
	encoded, err := json.Marshal(overlay)
	if err != nil {
		return devcluster.Binary{}, err
	}
	overlayFile := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlayFile, encoded, 0o600); err != nil {
		return devcluster.Binary{}, fmt.Errorf("write the overlay: %w", err)
	}
	binary := filepath.Join(dir, "sa-controller-manager")
	build := exec.CommandContext(ctx, "nice", "-n", "19", "go", "build", "-buildvcs=false", "-ldflags=-s -w", "-overlay="+overlayFile, "-o",
		binary, "./cmd/sa-controller-manager")
	build.Dir = root
	if output, err := build.CombinedOutput(); err != nil {
		return devcluster.Binary{}, fmt.Errorf("build plant %q: %w\n%s", p.Name, err, output)
	}
	return devcluster.Binary{Path: binary}, nil
}
