// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/devcluster"
)

// TestCertificateFilesOfAnotherCA replaces the certificate files of two replicas behind a
// Service, one after the other, by those of a CA that shares nothing with the one before.
// Callers need a new caBundle, one that fits both replicas at any time. No Pod is refused.
func TestCertificateFilesOfAnotherCA(t *testing.T) {
	if testing.Short() {
		t.Skip("both CAs are trusted for ten minutes, twice")
	}
	const overlap = 10 * time.Minute
	c := start(t, plugin)
	s := newService(t, c)
	before := newServingCA(t)
	var files [2]string
	for i := range files {
		files[i] = t.TempDir()
		before.issue(t, files[i])
		s.flags[i] = []string{
			"--webhook-tls-cert-file=" + filepath.Join(files[i], "tls.crt"), "--webhook-tls-private-key-file=" + filepath.Join(files[i], "tls.key"),
		}
		s.replace(t, i, currentBinary(t))
	}
	c.awaitBound(t)
	load := startTraffic(t, c.client)
	for _, order := range [][]int{{0, 1}, {1, 0}} { // the first of which leads
		next := newServingCA(t)
		for _, i := range order {
			next.issue(t, files[i])
			lasts(t, 2*time.Second)
		}
		within(t, overlap+time.Minute, "await the new caBundle", func(ctx context.Context) error {
			return c.registered(ctx, next.PEM())
		})
		for i := range files {
			if err := s.serves(i, next); err != nil {
				t.Errorf("replica %d, whose files change in the order %v: %v", i, order, err)
			}
		}
	}
	load.Unharmed(t)
	for _, m := range slices.Backward(s.replicas[:]) {
		m.stop(t)
	}
}

// servingCA issues certificates for the Service.
type servingCA struct{ *devcluster.Authority }

func newServingCA(t *testing.T) *servingCA {
	t.Helper()
	ca, err := devcluster.NewAuthority(rand.Text())
	testutil.Must(t, err)
	return &servingCA{ca}
}

// issue writes a serving certificate and its key into a directory as the kubelet does: both
// change at once, because what changes is the link to the directory that they are in.
func (ca *servingCA) issue(t *testing.T, dir string) {
	t.Helper()
	certificate, key, err := ca.Server(serviceName+".default.svc", serviceName+".default.svc.cluster.local", serviceName+".default")
	testutil.Must(t, err)
	current, next := filepath.Join(dir, "..data"), filepath.Join(dir, ".."+rand.Text())
	former, _ := os.Readlink(current)
	testutil.Must(t, os.Mkdir(next, 0o700))
	for name, content := range map[string][]byte{"tls.crt": append(certificate, ca.PEM()...), "tls.key": key} {
		testutil.Must(t, os.WriteFile(filepath.Join(next, name), content, 0o600))
		if err := os.Symlink(filepath.Join(current, name), filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrExist) {
			t.Fatal(err)
		}
	}
	testutil.Must(t, errors.Join(os.Symlink(next, current+".new"), os.Rename(current+".new", current)))
	if former != "" {
		testutil.Must(t, os.RemoveAll(former))
	}
}

// serves looks whether a replica serves with a certificate of the CA.
func (s *service) serves(i int, ca *servingCA) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.PEM())
	address := net.JoinHostPort(s.address, strconv.Itoa(s.ports[i]))
	connection, err := tls.Dial("tcp", address, &tls.Config{RootCAs: roots, ServerName: serviceName + ".default.svc"})
	if err != nil {
		return err
	}
	return connection.Close()
}

// registered looks whether all webhooks have that caBundle and nothing else.
func (c *cluster) registered(ctx context.Context, caBundle []byte) error {
	configurations := c.client.AdmissionregistrationV1()
	mutating, err := configurations.MutatingWebhookConfigurations().Get(ctx, configurationName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	validating, err := configurations.ValidatingWebhookConfigurations().Get(ctx, configurationName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, got := range [][]byte{mutating.Webhooks[0].ClientConfig.CABundle, validating.Webhooks[0].ClientConfig.CABundle} {
		if !bytes.Equal(got, caBundle) {
			return fmt.Errorf("the caBundle has %d certificates, want the new one alone", bytes.Count(got, []byte("BEGIN")))
		}
	}
	return nil
}
