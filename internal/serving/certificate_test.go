// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"

	"sa-controller-manager/internal/serving/settings"
	"sa-controller-manager/internal/testutil"
)

// keptCert is the certificate in dir, "" if there is none and none can be made.
func keptCert(t *testing.T, dir string) (string, error) {
	t.Helper()
	content, err := certificate("sa-controller-manager", &settings.Port{TLS: settings.TLS{CertDir: dir}})
	if err != nil {
		return "", err
	}
	// It ends at once, and with it what it has begun when it was made.
	ended, end := context.WithCancel(t.Context())
	end()
	content.(dynamiccertificates.ControllerRunner).Run(ended, 1)
	cert, _ := content.CurrentCertKeyContent()
	return string(cert), nil
}

func TestKeptCertificate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, err := keptCert(t, dir)
	testutil.Must(t, err)
	if again, err := keptCert(t, dir); err != nil || again != first {
		t.Errorf("the certificate of the first start is not found again: %v", err)
	}
	var files []string
	entries, err := os.ReadDir(dir)
	testutil.Must(t, err)
	for _, entry := range entries {
		files = append(files, entry.Name())
	}
	testutil.Check(t, "files", []string{"sa-controller-manager" + ".crt", "sa-controller-manager" + ".key"}, files)
	// The user may have moved one of them on purpose, or a process was killed between the two files.
	for moved, stays := range map[string]string{".key": ".crt", ".crt": ".key"} {
		path := filepath.Join(dir, "sa-controller-manager")
		kept, err := os.ReadFile(path + stays)
		testutil.Must(t, err)
		testutil.Must(t, os.Rename(path+moved, path+".moved"))
		if _, err := keptCert(t, dir); err == nil || !strings.Contains(err.Error(), "--cert-dir") || !strings.Contains(err.Error(), path+moved) {
			t.Errorf("without %s: %v", moved, err)
		}
		now, err := os.ReadFile(path + stays)
		testutil.Must(t, err)
		testutil.Check(t, stays, string(kept), string(now))
		testutil.Must(t, os.Rename(path+".moved", path+moved))
	}
}

func TestSelfSigned(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		bind   net.IP
		names  []string
		others []string
	}{
		"Unspecified": {net.IPv4zero, []string{"localhost", "127.0.0.1", "::1"}, []string{"0.0.0.0", "example.com"}},
		"None":        {nil, []string{"localhost"}, nil},
		"Address":     {net.IPv4(192, 0, 2, 1), []string{"192.0.2.1", "127.0.0.1"}, []string{"192.0.2.2"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			certPEM, keyPEM, err := selfSigned(tc.bind)
			testutil.Must(t, err)
			made, err := tls.X509KeyPair(certPEM, keyPEM)
			testutil.Must(t, err)
			cert, trusted := made.Leaf, x509.NewCertPool() // as a file of --cert-dir may be
			trusted.AddCert(cert)
			for _, host := range tc.names {
				if _, err := cert.Verify(x509.VerifyOptions{DNSName: host, Roots: trusted}); err != nil {
					t.Errorf("%s: %v", host, err)
				}
			}
			for _, host := range tc.others {
				if cert.VerifyHostname(host) == nil {
					t.Errorf("valid for %s", host)
				}
			}
			if left := time.Until(cert.NotAfter); left < 364*24*time.Hour {
				t.Errorf("it is valid for %v, want a year", left)
			}
		})
	}
}
