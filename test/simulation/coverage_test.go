// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// plansOf are the files that decide.
var plansOf = regexp.MustCompile(`/(tokencontroller|serviceaccount|rootca|legacytokencleaner|keyring/reissue)/` +
	`(plan|state|account|secret|orphan|reference|controller|publisher|trustbundle|bundlecontroller|configmap|candidates|act)\.go$`)

// TestUnmet prints the branches of the controllers that no world has met.
func TestUnmet(t *testing.T) {
	if *unmet == 0 {
		t.Skip("run by hand, with -unmet=N for the first N seeds")
	}
	dir := t.TempDir()
	binary := filepath.Join(dir, "covered.test")
	build := exec.Command("go", "test", "-c", "-cover", "-covermode=set", "-coverpkg=sa-controller-manager/controllers/...", "-o", binary, ".")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, output)
	}
	var running sync.WaitGroup
	processes := runtime.NumCPU()
	for i := range processes {
		running.Go(func() {
			one := exec.Command(binary, "-test.run=^TestSimulation$", "-test.timeout=0", fmt.Sprintf("-seed=%d", 1+i), fmt.Sprintf("-seeds=%d",
				*unmet-uint64(i)), fmt.Sprintf("-step=%d", processes), "-shorten=false", "-test.coverprofile="+filepath.Join(dir, strconv.Itoa(i)))
			one.Env = append(os.Environ(), "GOMAXPROCS=1")
			if output, err := one.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, output)
			}
		})
	}
	running.Wait()
	met := map[string]bool{} // by block
	for i := range processes {
		profile, err := os.ReadFile(filepath.Join(dir, strconv.Itoa(i)))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(profile)) {
			if block := strings.Fields(line); len(block) == 3 {
				met[block[0]] = met[block[0]] || block[2] != "0"
			}
		}
	}
	all, lines := 0, []string(nil)
	for block, was := range met {
		file, place, _ := strings.Cut(block, ":")
		if !plansOf.MatchString(file) {
			continue
		}
		if all++; !was {
			lines = append(lines, fmt.Sprintf("%s:%s: %s", strings.TrimPrefix(file, "sa-controller-manager/"), place, lineOf(file, place)))
		}
	}
	slices.Sort(lines)
	fmt.Printf("%d of %d branches were met by no world:\n%s\n", len(lines), all, strings.Join(lines, "\n"))
}

// lineOf is the first line of a block that says something.
func lineOf(file, place string) string {
	content, _ := os.ReadFile(filepath.Join("../..", strings.TrimPrefix(file, "sa-controller-manager/")))
	from, _, _ := strings.Cut(place, ".")
	at, _ := strconv.Atoi(from)
	if lines := strings.Split(string(content), "\n"); at > 0 && at < len(lines) {
		return strings.TrimSpace(lines[at-1]) + " " + strings.TrimSpace(lines[at])
	}
	return ""
}
