// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package conformance runs upstream's own specs for ServiceAccounts, those of
// k8s.io/kubernetes/test/e2e/auth, against a control plane in which
// sa-controller-manager has taken the place of the ServiceAccount controllers of
// kube-controller-manager and of the admission plugin of kube-apiserver.
//
//	make conformance                                        # a control plane of its own
//	make conformance KUBECONFIG=PATH SPECS=specs-nodes.txt  # a cluster that is there
//
// Which specs run is listed in a file, and all of the list must pass: a spec that has
// vanished from upstream, or that skips itself, is a failure. It is a module of its own
// because it compiles against k8s.io/kubernetes.
package conformance

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	"github.com/onsi/gomega"
	_ "k8s.io/kubernetes/test/e2e/auth" // the specs
	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"

	"sa-controller-manager/test/devcluster"
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

// startControlPlane starts etcd, kube-apiserver without its ServiceAccount plugin,
// kube-controller-manager without its ServiceAccount controllers, and the binary under
// test in their place. stop logs on stderr what it could not end.
func startControlPlane(ctx context.Context) (kubeconfig string, stop func(), err error) {
	cluster, err := devcluster.Start(ctx, devcluster.Options{
		APIServerFlags: map[string][]string{"disable-admission-plugins": {"ServiceAccount"}},
	})
	if err != nil {
		return "", nil, err
	}
	stop = func() {
		if err := cluster.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	if err := startManagers(ctx, cluster); err != nil {
		stop()
		return "", nil, err
	}
	return cluster.Kubeconfig(), stop, nil
}

func startManagers(ctx context.Context, cluster *devcluster.Cluster) error {
	// Without an empty key file it would go on with its token controller.
	kcm, err := cluster.StartKubeControllerManager("--service-account-private-key-file=", "--controllers="+strings.Join([]string{
		"*", "-serviceaccount-controller", "-root-ca-certificate-publisher-controller", "-legacy-serviceaccount-token-cleaner-controller",
		"-kube-apiserver-serving-clustertrustbundle-publisher-controller",
	}, ","))
	if err != nil {
		return err
	}
	binary, err := devcluster.FindBinary(ctx)
	if err != nil {
		return err
	}
	port, err := devcluster.FreePort()
	if err != nil {
		return err
	}
	manager, err := binary.StartManager(cluster, "--token-secrets=manual", "--webhook-port="+strconv.Itoa(port),
		"--webhook-registration=url")
	if err != nil {
		return err
	}
	return errors.Join(kcm.Ready(ctx), manager.Ready(ctx))
}
