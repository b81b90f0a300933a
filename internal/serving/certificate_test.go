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

	"github.com/go-logr/logr/funcr"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/klog/v2"

	"sa-controller-manager/internal/serving/settings"
	"sa-controller-manager/internal/testutil"
)

// keptCert is the certificate in dir, "" if there is none and none can be made.
func keptCert(t *testing.T, logger klog.Logger, dir string) (string, error) {
	t.Helper()
	content, err := certificate(logger, "sa-controller-manager", &settings.Port{TLS: settings.TLS{CertDir: dir}})
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
	first, err := keptCert(t, klog.Logger{}, dir)
	testutil.Must(t, err)
	if again, err := keptCert(t, klog.Logger{}, dir); err != nil || again != first {
		t.Errorf("the certificate of the first start is not found again: %v", err)
	}
	var files []string
	entries, err := os.ReadDir(dir)
	testutil.Must(t, err)
	for _, entry := range entries {
		files = append(files, entry.Name())
	}
	testutil.Check(t, "files", []string{"sa-controller-manager" + ".crt", "sa-controller-manager" + ".key"}, files)
	// The user may have moved the certificate on purpose.
	testutil.Must(t, os.Remove(filepath.Join(dir, "sa-controller-manager"+".key")))
	if _, err := keptCert(t, klog.Logger{}, dir); err == nil || !strings.Contains(err.Error(), "--cert-dir") {
		t.Errorf("a certificate without its key: %v", err)
	}
}

// TestKeyWithoutCertificate: a process was killed between the two files, or somebody has
// taken the certificate away. The key may be needed with it.
func TestKeyWithoutCertificate(t *testing.T) {
	t.Parallel()
	var logged []string
	logger := funcr.New(func(_, line string) { logged = append(logged, line) }, funcr.Options{})
	dir := t.TempDir()
	path := filepath.Join(dir, "sa-controller-manager"+".key")
	write := func(path, content string) {
		t.Helper()
		testutil.Must(t, os.WriteFile(path, []byte(content), 0o600))
	}
	holds := func(path, want string) {
		t.Helper()
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s holds another key: %v", path, err)
		}
	}
	write(path, "former")
	first, err := keptCert(t, logger, dir)
	testutil.Must(t, err)
	if again, err := keptCert(t, logger, dir); err != nil || again != first {
		t.Errorf("the new pair is not found again: %v", err)
	}
	holds(path+".old", "former")
	want := `"level"=0 "msg"="Renamed a private key without certificate in --cert-dir to create a new pair" "file"="` + path + `.old"`
	testutil.Check(t, "log", []string{want}, logged)

	// Again: there is no name left.
	testutil.Must(t, os.Remove(filepath.Join(dir, "sa-controller-manager"+".crt")))
	write(path, "second")
	if _, err := keptCert(t, logger, dir); err == nil || !strings.Contains(err.Error(), ".key has no certificate, and sa-controller-manager.key.old is there too") {
		t.Errorf("with two keys: %v", err)
	}
	holds(path, "second")
	holds(path+".old", "former")
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
