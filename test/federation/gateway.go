// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package federation has what surrounds a cluster whose keys are published: a real S3 gateway, an edge
// in front of it that can misbehave as the edges of CDNs do, a second cluster that trusts the issuer,
// and a holder of tokens that has both clusters judge them.
package federation

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"k8s.io/client-go/util/cert"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
)

const (
	publisher = "publisher"
	// Reader is a user of the gateway who may read every bucket, and write none.
	Reader = "reader"

	region = "us-east-1"
	// readable is the policy of a bucket that all the world may read.
	readable = `{"Version": "2012-10-17", "Statement": [
		{"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::%[1]s/*"}]}`
	users = `{"accessAccounts": {"reader": {"access": "reader", "secret": "reader-secret", "role": "user"}}}`
)

// Gateway serves the directories below Dir as buckets, with TLS.
type Gateway struct {
	Dir, Address, CAFile string
	// HTTP trusts its certificate.
	HTTP *http.Client

	child *exec.Cmd
}

// StartGateway starts the build of versitygw that the environment variable SACM_S3_GATEWAY names.
func StartGateway(ctx context.Context, dir string) (*Gateway, error) {
	binary := os.Getenv("SACM_S3_GATEWAY")
	if _, err := os.Stat(binary); err != nil {
		return nil, fmt.Errorf("SACM_S3_GATEWAY: %w: make test-publishing and make demo-federation set it", err)
	}
	port, err := devcluster.FreePort()
	if err != nil {
		return nil, err
	}
	g := &Gateway{Dir: filepath.Join(dir, "buckets"), Address: fmt.Sprintf("127.0.0.1:%d", port), CAFile: filepath.Join(dir, "gateway.crt")}
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		return nil, err
	}
	g.HTTP = client(certificate)
	keyFile, iam := filepath.Join(dir, "gateway.key"), filepath.Join(dir, "iam")
	if err := errors.Join(
		os.MkdirAll(g.Dir, 0o700), os.MkdirAll(iam, 0o700),
		os.WriteFile(g.CAFile, certificate, 0o600), os.WriteFile(keyFile, key, 0o600),
		os.WriteFile(filepath.Join(iam, "users.json"), []byte(users), 0o600),
	); err != nil {
		return nil, err
	}
	printed, err := os.Create(filepath.Join(dir, "gateway.log"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = printed.Close() }() // the child has it
	//nolint:gosec // G702: the caller names the binary
	g.child = exec.Command(binary, "--access="+publisher, "--secret="+Secret(publisher), "--port="+g.Address, "--cert="+g.CAFile, "--key="+keyFile,
		"--iam-dir="+iam, "--health=/health", "--quiet", "posix", g.Dir)
	g.child.Stdout, g.child.Stderr = printed, printed
	if err := g.child.Start(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := await.Poll(ctx, func(ctx context.Context) error {
		_, err := get(ctx, g.HTTP, "https://"+g.Address+"/health")
		return err
	}); err != nil {
		said, _ := os.ReadFile(printed.Name())
		g.Stop()
		return nil, fmt.Errorf("the S3 gateway does not serve: %w\n%s", err, said)
	}
	g.HTTP.CloseIdleConnections()
	return g, nil
}

// Stop ends it.
func (g *Gateway) Stop() {
	g.HTTP.CloseIdleConnections()
	_ = g.child.Process.Signal(os.Interrupt)
	_ = g.child.Wait() // how it ends does not matter
}

// Secret returns the secret key of a user.
func Secret(user string) string { return user + "-secret" }

// Environment returns the variables with which a process publishes as a user.
func Environment(user string) []string {
	return []string{"AWS_ACCESS_KEY_ID=" + user, "AWS_SECRET_ACCESS_KEY=" + Secret(user)}
}

// NewBucket makes a bucket that everybody may read, and returns the destination that is below it.
func (g *Gateway) NewBucket(ctx context.Context, name string) (destination string, err error) {
	s3, err := minio.New(g.Address, &minio.Options{
		Creds: credentials.NewStaticV4(publisher, Secret(publisher), ""), Secure: true, Region: region, Transport: g.HTTP.Transport,
	})
	if err != nil {
		return "", err
	}
	if err := s3.MakeBucket(ctx, name, minio.MakeBucketOptions{Region: region}); err != nil {
		return "", err
	}
	defer g.HTTP.CloseIdleConnections()
	return "s3://" + name + "/cluster?endpoint=" + g.Address + "&region=" + region + "&ca-file=" + g.CAFile,
		s3.SetBucketPolicy(ctx, name, fmt.Sprintf(readable, name))
}

// Publisher returns the variables with which the owner of the buckets publishes.
func Publisher() []string { return Environment(publisher) }

// RemoveBucket takes a bucket away, as if somebody had deleted it, until restore is called.
func (g *Gateway) RemoveBucket(name string) (restore func() error, err error) {
	there, away := filepath.Join(g.Dir, name), filepath.Join(g.Dir, "..", name+".gone")
	return func() error { return os.Rename(away, there) }, os.Rename(there, away)
}

func client(roots []byte) *http.Client {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(roots)
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}}
}

// get returns what is served with status 200.
func get(ctx context.Context, from *http.Client, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := from.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, response.Status)
	}
	return body, err
}
