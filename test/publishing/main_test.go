// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package publishing publishes keys in a bucket of a real S3 gateway, by the code of the product and
// by a whole manager. It is a module of its own, because the gateway brings some hundred packages.
package publishing

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/cert"

	"sa-controller-manager/test/integration/testcluster"
)

// gateway is the one of all tests.
var gateway struct {
	binary, dir, address string
	caFile               string
	client               *http.Client
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "publishing")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	stop, err := startGateway(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, "start the S3 gateway:", err)
		return 1
	}
	defer stop()
	return testcluster.Main(m)
}

// startGateway serves the directory "buckets" below dir as S3 on loopback, with TLS.
func startGateway(dir string) (stop func(), err error) {
	gateway.dir = filepath.Join(dir, "buckets")
	gateway.caFile = filepath.Join(dir, "tls.crt")
	keyFile := filepath.Join(dir, "tls.key")
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		return nil, err
	}
	for path, data := range map[string][]byte{gateway.caFile: certificate, keyFile: key} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			return nil, err
		}
	}
	if err := os.Mkdir(gateway.dir, 0o700); err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certificate)
	gateway.client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}
	// The manager inherits them.
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": "publisher", "AWS_SECRET_ACCESS_KEY": "publisher-secret"} {
		if err := os.Setenv(name, value); err != nil {
			return nil, err
		}
	}
	gateway.binary = filepath.Join(dir, "versitygw")
	build := exec.Command("go", "build", "-o", gateway.binary, "github.com/versity/versitygw/cmd/versitygw")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build it: %w\n%s", err, out)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a port for the child
	if err != nil {
		return nil, err
	}
	gateway.address = listener.Addr().String()
	_ = listener.Close()
	child := exec.Command(gateway.binary, "--access=publisher", "--secret=publisher-secret", "--port="+gateway.address,
		"--cert="+gateway.caFile, "--key="+keyFile, "--quiet", "posix", gateway.dir)
	if err := child.Start(); err != nil {
		return nil, err
	}
	stop = func() {
		_ = child.Process.Signal(os.Interrupt)
		_ = child.Wait()
	}
	err = wait.PollUntilContextTimeout(context.Background(), 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+gateway.address+"/", nil)
		if err != nil {
			return false, err
		}
		response, err := gateway.client.Do(request)
		if err != nil {
			return false, nil //nolint:nilerr // not yet
		}
		return true, response.Body.Close()
	})
	if err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

// newBucket returns the destination of a new bucket.
func newBucket(t *testing.T, name string) string {
	t.Helper()
	if err := os.Mkdir(filepath.Join(gateway.dir, name), 0o700); err != nil {
		t.Fatal(err)
	}
	return "s3://" + name + "/cluster?endpoint=" + gateway.address + "&region=us-east-1&ca-file=" + gateway.caFile
}
