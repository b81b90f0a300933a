// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sa-controller-manager/internal/testutil"
)

// docs/metrics.md and docs/operations.md are compared with the code, so that an engineer who reads them
// at night finds every metric, every Event and every alert, and none that was renamed.

const (
	metricsFile    = "../docs/metrics.md"
	operationsFile = "../docs/operations.md"
)

func TestPageHasEveryMetric(t *testing.T) {
	t.Parallel()
	var ours []string
	for _, name := range documented(t, "Metrics") {
		if regexp.MustCompile(`^(sacm|root_ca_cert_publisher)_`).MatchString(name) {
			ours = append(ours, name)
		}
	}
	testutil.Check(t, "metrics of the code, and of "+metricsFile, metricNames(t), ours)
}

func TestPageHasEveryEvent(t *testing.T) {
	t.Parallel()
	testutil.Check(t, "reasons of Events of the code, and of "+metricsFile, eventReasons(t), documented(t, "Events"))
}

// documented are the names in the first cells of the tables below a heading, sorted.
func documented(t *testing.T, heading string) []string {
	t.Helper()
	_, text, found := strings.Cut(page(t, metricsFile), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("%s has no heading %q", metricsFile, heading)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	names := map[string]bool{}
	for line := range strings.Lines(text) {
		cells := strings.Split(line, "|")
		if len(cells) < 3 {
			continue
		}
		for _, match := range regexp.MustCompile("`([A-Za-z0-9_]+)`").FindAllStringSubmatch(cells[1], -1) {
			names[match[1]] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

func page(t *testing.T, file string) string {
	t.Helper()
	text := testutil.Get(os.ReadFile(file))(t)
	return string(text)
}

// sources are the texts of the product's packages, by directory.
func sources(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, root := range []string{"../admission", "../cmd", "../controllers", "../internal", "../signing"} {
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if path == "../internal/testutil" {
				return filepath.SkipDir // only tests import it
			}
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			found[filepath.Dir(path)] += string(text)
			return err
		})
		testutil.Must(t, err)
	}
	return found
}

// constantsIn are all strings that have a name, in functions too.
func constantsIn(text string) map[string]string {
	found := map[string]string{}
	for _, match := range regexp.MustCompile(`(\w+) += "([^"]*)"`).FindAllStringSubmatch(text, -1) {
		found[match[1]] = match[2]
	}
	return found
}

// metricNames are those in the options of component-base's metrics, sorted.
func metricNames(t *testing.T) []string {
	t.Helper()
	names := map[string]bool{}
	for directory, text := range sources(t) {
		constants := constantsIn(text)
		for _, options := range regexp.MustCompile(`(?s)\bmetrics\.\w+Opts\{(.*?)Help:`).FindAllStringSubmatch(text, -1) {
			var full []string
			for _, field := range []string{"Namespace", "Subsystem", "Name"} {
				match := regexp.MustCompile(`\b` + field + `:\s+(?:"(\w+)"|(?:\w+\.)?(\w+))`).FindStringSubmatch(options[1])
				if match == nil {
					continue
				}
				full = append(full, match[1]+constants[match[2]])
			}
			if len(full) == 0 || full[len(full)-1] == "" {
				t.Errorf("%s: a metric whose name is no constant: %s", directory, options[1])
			}
			names[strings.Join(full, "_")] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// eventReasons are what Events are filtered by: the second arguments of calls that record one,
// and the constants called reason..., sorted.
func eventReasons(t *testing.T) []string {
	t.Helper()
	camel := regexp.MustCompile(`^[A-Z][A-Za-z]+$`)
	reasons := map[string]bool{}
	for directory, text := range sources(t) {
		constants := constantsIn(text)
		for name, value := range constants {
			if strings.HasPrefix(name, "reason") && camel.MatchString(value) {
				reasons[value] = true
			}
		}
		for _, match := range regexp.MustCompile(`(?s)\.(?:Warn|Normal|warn)\([^;]{0,200}?,\s+(?:"(\w+)"|(\w+)),`).FindAllStringSubmatch(text,
			-1) {
			switch reason := match[1] + constants[match[2]]; {
			case camel.MatchString(reason):
				reasons[reason] = true
			case match[2] != "reason": // handed on, or one of the constants above
				t.Errorf("%s: %s has a reason that is neither a constant nor called reason", directory, match[0])
			}
		}
	}
	return slices.Sorted(maps.Keys(reasons))
}
