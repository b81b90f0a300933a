// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sa-controller-manager/test/faults/planted"
)

// plant is a bug in the product's source, or a fix that is taken back.
type plant struct {
	planted.Plant
	// seed is one that finds it, alone or among the nine after it.
	seed uint64
}

// edits are of a file, a text in it and what replaces that, again and again.
func edits(texts ...string) (all []planted.Edit) {
	for edit := range slices.Chunk(texts, 3) {
		all = append(all, planted.Edit{File: edit[0], Search: edit[1], Replace: edit[2]})
	}
	return all
}

var plants = []plant{
	{planted.WrongKey(), 1},
	{planted.NoFence(), 1},
	{planted.Plant{Name: "dropped tombstones", Shows: regexp.MustCompile(
		`^promise 3: .* references \S+, which is gone$`), Edits: edits(
		"internal/reconcile/watch.go",
		"obj = tombstone.Obj", `if isPlanted("dropped tombstones") {
				return
			}
			obj = tombstone.Obj`,
	)}, 82},
	{planted.Plant{Name: "missing UID precondition", Shows: regexp.MustCompile(
		`^promise 1: .* token Secret \S+ was deleted, and its account lives$`), Edits: edits(
		"controllers/tokensecrets/live.go",
		"metav1.DeleteOptions{Preconditions: meta.Preconditions(secret)}",
		"planted(metav1.DeleteOptions{Preconditions: meta.Preconditions(secret)})",
		"controllers/tokensecrets/live.go",
		"// Delete deletes this very version", `func planted(o metav1.DeleteOptions) metav1.DeleteOptions {
	if isPlanted("missing UID precondition") {
		return metav1.DeleteOptions{}
	}
	return o
}

// Delete deletes this very version`,
	)}, 1},
	{planted.Plant{Name: "deletion of what nothing references", Shows: regexp.MustCompile(
		`^promise 1: .* token Secret \S+ was deleted, and its account lives$`), Edits: edits(
		"controllers/tokencontroller/account.go",
		"satisfied, adopt := planAccount(account, secrets)\n",
		`satisfied, adopt := planAccount(account, secrets)
	for _, secret := range secrets {
		referenced := tokensecrets.References(account, secret.Name)
		if isPlanted("deletion of what nothing references") && satisfied && secret.AutoCreated() && !referenced {
			_, _ = tokensecrets.Delete(ctx, c.Client, c.Recorder, secret, "Planted", "nothing references it")
		}
	}
`,
	)}, 1},
	{planted.Plant{Name: "patch that rewrites a list", Shows: regexp.MustCompile(
		`^promise 1: .* was rewritten where it is the user's`), Edits: edits(
		"controllers/tokencontroller/account.go",
		"append([]corev1.ObjectReference{{Name: secret}}, account.Secrets...)", "planted(account, secret)",
		"controllers/tokencontroller/account.go",
		"// reference adds the Secret", `func planted(account *corev1.ServiceAccount, secret string) []corev1.ObjectReference {
	list := []corev1.ObjectReference{{Name: secret}}
	if isPlanted("patch that rewrites a list") {
		return list
	}
	return append(list, account.Secrets...)
}

// reference adds the Secret`,
	)}, 1},
	{planted.Plant{Name: "a Secret filled before the first answer about its key", Shows: regexp.MustCompile(
		`^promise 4: .* was filled before kube-apiserver had accepted the key$`), Edits: edits(
		"controllers/keyprobe/prober.go",
		"	if last.keyID != id {\n", "	if last.keyID != id && !isPlanted(\"a Secret filled before the first answer about its key\") {\n",
	)}, 31},
}

// TestPlanted wants each plant found by the seeds that are known to find it, and nothing found by them without it.
func TestPlanted(t *testing.T) {
	dir := t.TempDir()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	var all []planted.Plant
	for _, plant := range plants {
		all = append(all, plant.Plant)
	}
	file, err := planted.Overlay(root, dir, all)
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "planted.test")
	if output, err := exec.Command("go", "test", "-c", "-vet=off", "-overlay="+file, "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("build the plants: %v\n%s", err, output)
	}
	from := func(seed uint64, plant string) string {
		command := exec.Command(binary, "-test.run=^TestSimulation$", fmt.Sprintf("-seed=%d", seed),
			"-seeds=10", "-step=1", "-shorten=false", "-first")
		command.Env = append(os.Environ(), planted.Variable+"="+plant, "GOMAXPROCS=1")
		output, _ := command.CombinedOutput()
		return string(output)
	}
	without := map[uint64]bool{}
	for _, plant := range plants {
		t.Run(plant.Name, func(t *testing.T) {
			t.Parallel()
			if output := from(plant.seed, plant.Name); !plant.found(output) {
				t.Errorf("from seed %d on it is not found:\n%s", plant.seed, output)
			}
		})
		if without[plant.seed] {
			continue
		}
		without[plant.seed] = true
		t.Run(fmt.Sprintf("no plant from seed %d on", plant.seed), func(t *testing.T) {
			t.Parallel()
			if output := from(plant.seed, ""); !strings.HasPrefix(output, "PASS") {
				t.Errorf("something is found:\n%s", output)
			}
		})
	}
}

func (p plant) found(output string) bool {
	for line := range strings.Lines(output) {
		if at := strings.Index(line, "promise "); at >= 0 && p.Shows.MatchString(strings.TrimSpace(line[at:])) {
			return true
		}
	}
	return false
}
