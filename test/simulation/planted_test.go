// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// plant is a bug in the product's source, or a fix that is taken back. All of them are in one build, where the
// variable plantVariable chooses one.
type plant struct {
	name string
	// shows is what a violation says that the bug leads to.
	shows *regexp.Regexp
	// seed is one that finds it, alone or among the nine after it.
	seed  uint64
	edits []edit
}

// edit replaces the one occurrence of search in a file of the product. The new text may call isPlanted.
type edit struct{ file, search, replace string }

const plantVariable = "SIMULATION_PLANT"

var plants = []plant{
	{"wrong signing key",
		regexp.MustCompile(`^promise 4: .* no key of the ring has signed its token$`), 1, []edit{
			{"tokens/issue.go",
				"return i.sign(ctx, signing.LegacyHeader, claims)", `token, err := i.sign(ctx, signing.LegacyHeader, claims)
	if isPlanted("wrong signing key") && err == nil {
		token = token[:len(token)-12] + "AAAAAAAAAAAA"
	}
	return token, err`},
		}},
	{"dropped tombstones",
		regexp.MustCompile(`^promise 3: .* references \S+, which is gone$`), 82, []edit{
			{"internal/reconcile/watch.go",
				"obj = tombstone.Obj", `if isPlanted("dropped tombstones") {
				return
			}
			obj = tombstone.Obj`},
		}},
	{"missing UID precondition",
		regexp.MustCompile(`^promise 1: .* token Secret \S+ was deleted, and its account lives$`), 1, []edit{
			{"controllers/tokensecrets/live.go",
				"metav1.DeleteOptions{Preconditions: meta.Preconditions(secret)}",
				"planted(metav1.DeleteOptions{Preconditions: meta.Preconditions(secret)})"},
			{"controllers/tokensecrets/live.go",
				"// Delete deletes this very version", `func planted(o metav1.DeleteOptions) metav1.DeleteOptions {
	if isPlanted("missing UID precondition") {
		return metav1.DeleteOptions{}
	}
	return o
}

// Delete deletes this very version`},
		}},
	{"deletion of what nothing references",
		regexp.MustCompile(`^promise 1: .* token Secret \S+ was deleted, and its account lives$`), 1, []edit{
			{"controllers/tokensecret/account.go",
				"satisfied, adopt := planAccount(account, secrets, c.Auto, c.AutoExcluded)\n",
				`satisfied, adopt := planAccount(account, secrets, c.Auto, c.AutoExcluded)
	for _, secret := range secrets {
		referenced := tokensecrets.References(account, secret.Name)
		if isPlanted("deletion of what nothing references") && satisfied && secret.AutoCreated() && !referenced {
			_, _ = tokensecrets.Delete(ctx, c.Client, c.Recorder, secret, "Planted", "nothing references it")
		}
	}
`},
		}},
	{"patch that rewrites a list",
		regexp.MustCompile(`^promise 1: .* was rewritten where it is the user's`), 1, []edit{
			{"controllers/tokensecret/patch.go",
				"return changeReferences(account, accountPatch{Secrets: []entryPatch{{Name: secret}}}, added)", `entries := []entryPatch{{Name: secret}}
	if isPlanted("patch that rewrites a list") {
		entries = []entryPatch{{Directive: "replace"}, {Name: secret}}
	}
	return changeReferences(account, accountPatch{Secrets: entries}, added)`},
		}},
	{"leader without a fence",
		regexp.MustCompile(`^promise 9: .* began \S+ after the renew deadline`), 1, []edit{
			{"internal/leaderelection/leaderelection.go",
				"defer lock.fence(func() { lost.Store(true); stop(reconcile.ErrAtOnce) })()", `if !isPlanted("leader without a fence") {
					defer lock.fence(func() { lost.Store(true); stop(reconcile.ErrAtOnce) })()
				}`},
			{"internal/leaderelection/leaderelection.go",
				"fenced(working, lock.overdue)", `fenced(working, func() bool { return !isPlanted("leader without a fence") && lock.overdue() })`},
		}},
	// Registering a handler takes as long as in a large cluster, with the plant and without it.
	{"a deletion between a cache read and a handler",
		regexp.MustCompile(`^promise (1: .* references no token Secret|3: .* references \S+, which is gone)$`), 3, []edit{
			{"internal/reconcile/watch.go",
				"		registration, failed := h.Informer.AddEventHandler(gated{h.Handler, added})",
				`		var handler cache.ResourceEventHandler = gated{h.Handler, added}
		if isPlanted("a deletion between a cache read and a handler") {
			handler = h.Handler
		}
		registration, failed := h.Informer.AddEventHandler(handler)
		time.Sleep(100 * time.Millisecond)`},
			{"internal/reconcile/watch.go",
				`	"sync"
`, `	"sync"
	"time"
`},
			{"controllers/tokensecret/controller.go",
				"	return reconcile.WithHandlers(func() {\n		c.queueDanglingReferences()\n",
				`	if isPlanted("a deletion between a cache read and a handler") {
		c.queueDanglingReferences()
	}
	return reconcile.WithHandlers(func() {
		if !isPlanted("a deletion between a cache read and a handler") {
			c.queueDanglingReferences()
		}
`},
		}},
	{"a Secret filled before the first answer about its key",
		regexp.MustCompile(`^promise 4: .* was filled before kube-apiserver had accepted the key$`), 31, []edit{
			{"controllers/keyprobe/activator.go",
				"	if last.keyID != id {\n", "	if last.keyID != id && !isPlanted(\"a Secret filled before the first answer about its key\") {\n"},
		}},
}

// isPlanted is added to each package that has an edit.
const isPlanted = `package %s

import "os"

func isPlanted(name string) bool { return os.Getenv("` + plantVariable + `") == name }
`

// overlay writes the product's files with all plants, and returns the file for go build -overlay. A text that is not
// there exactly once is an error: the product has changed and the plant has to follow.
func overlay(root, dir string) (string, error) {
	files := map[string]string{}
	for _, plant := range plants {
		for _, edit := range plant.edits {
			content, known := files[edit.file]
			if !known {
				read, err := os.ReadFile(filepath.Join(root, edit.file))
				if err != nil {
					return "", err
				}
				content = string(read)
				files[filepath.Join(filepath.Dir(edit.file), "is_planted.go")] = fmt.Sprintf(isPlanted, filepath.Base(filepath.Dir(edit.file)))
			}
			if n := strings.Count(content, edit.search); n != 1 {
				return "", fmt.Errorf("plant %q: %s holds this %d times, want once: %s", plant.name, edit.file, n, edit.search)
			}
			files[edit.file] = strings.Replace(content, edit.search, edit.replace, 1)
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

// TestPlanted wants each plant found by the seeds that are known to find it, and nothing found by them without it.
func TestPlanted(t *testing.T) {
	dir := t.TempDir()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	file, err := overlay(root, dir)
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "planted.test")
	if output, err := exec.Command("go", "test", "-c", "-vet=off", "-overlay="+file, "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("build the plants: %v\n%s", err, output)
	}
	for _, plant := range plants {
		t.Run(plant.name, func(t *testing.T) {
			for _, planted := range []string{plant.name, ""} {
				command := exec.Command(binary, "-test.run=^TestSimulation$", fmt.Sprintf("-seed=%d", plant.seed), //nolint:gosec // our own
					"-seeds=10", "-step=1", "-shorten=false", "-first")
				command.Env = append(os.Environ(), plantVariable+"="+planted, "GOMAXPROCS=1")
				output, _ := command.CombinedOutput()
				if planted == "" && strings.Contains(string(output), "promise ") {
					t.Errorf("from seed %d on something is found without the plant:\n%s", plant.seed, output)
				}
				if planted != "" && !plant.found(string(output)) {
					t.Errorf("from seed %d on it is not found:\n%s", plant.seed, output)
				}
			}
		})
	}
}

func (p plant) found(output string) bool {
	for line := range strings.Lines(output) {
		if at := strings.Index(line, "promise "); at >= 0 && p.shows.MatchString(strings.TrimSpace(line[at:])) {
			return true
		}
	}
	return false
}
