// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	"github.com/onsi/gomega"
	_ "k8s.io/kubernetes/test/e2e/auth" // the specs
	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"
)

// area begins the name of every spec that is of interest here.
const area = "[sig-auth] "

// startPatience bounds the start of the control plane on a loaded machine.
const startPatience = 3 * time.Minute

var (
	specsFile = flag.String("specs", "specs.txt", "file with the names of the specs that must pass")
	wanted    []string
	passed    = map[string]bool{}
)

// TestMain is upstream's contract: its framework reads flags once, before any spec.
func TestMain(m *testing.M) {
	config.CopyFlags(config.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	flag.Parse()
	os.Exit(run(m))
}

// run is a function of its own so that what it defers happens before the exit.
func run(m *testing.M) int {
	var err error
	if wanted, err = readSpecs(*specsFile); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if framework.TestContext.KubeConfig == "" {
		ctx, cancel := context.WithTimeout(context.Background(), startPatience)
		defer cancel()
		kubeconfig, stop, err := startControlPlane(ctx)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer stop()
		framework.TestContext.KubeConfig = kubeconfig
	}
	framework.TestContext.Provider = "skeleton" // no cloud
	framework.AfterReadingAllFlags(&framework.TestContext)
	return m.Run()
}

// TestConformance runs the specs of the list and no others.
func TestConformance(t *testing.T) {
	gomega.RegisterFailHandler(framework.Fail)
	suite, reporter := ginkgo.GinkgoConfiguration()
	for _, spec := range wanted {
		suite.FocusStrings = append(suite.FocusStrings, regexp.QuoteMeta(area+spec)+labels)
	}
	reporter.Succinct = true
	ginkgo.RunSpecs(t, "ServiceAccounts", suite, reporter)
	for _, spec := range wanted {
		if !passed[spec] {
			t.Errorf("%q has not passed: it failed, was skipped or is not there any more", spec)
		}
	}
	t.Logf("%d of %d specs of %s passed", len(passed), len(wanted), *specsFile)
}

// labels may follow the name of a spec.
const labels = `( \[[^]]*\])*$`

var _ = ginkgo.ReportAfterEach(func(report ginkgo.SpecReport) {
	name := strings.TrimPrefix(regexp.MustCompile(labels).ReplaceAllString(report.FullText(), ""), area)
	if report.State == types.SpecStatePassed && slices.Contains(wanted, name) {
		passed[name] = true
	}
})

// readSpecs returns the lines of a list that are no comments.
func readSpecs(path string) ([]string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--specs: %w", err)
	}
	var specs []string
	for line := range strings.Lines(string(content)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			specs = append(specs, line)
		}
	}
	if len(specs) == 0 {
		return nil, fmt.Errorf("--specs: %s names no spec", path)
	}
	return specs, nil
}
