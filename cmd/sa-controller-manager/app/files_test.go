// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/app/options/secureport"
	"sa-controller-manager/controllers/rootca"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/reload"
	"sa-controller-manager/signing/testkeys"
)

// certificatePEM is a new self-signed certificate.
func certificatePEM(t *testing.T) []byte {
	t.Helper()
	cert, _, err := certutil.GenerateSelfSignedCertKey("localhost", nil, nil)
	testutil.Must(t, err)
	return cert
}

// parse returns the options that args make, unvalidated.
func parse(t *testing.T, args ...string) *options.Options {
	t.Helper()
	o, _, err := secureport.Parse(args)
	testutil.Must(t, err)
	return o
}

func keyID(private []byte) string { return testkeys.Parse(private).ID() }

func keyIDs(keys []signing.PublicKey) []string {
	var ids []string
	for _, key := range keys {
		ids = append(ids, key.ID)
	}
	return ids
}

func TestOpenFiles(t *testing.T) {
	t.Parallel()
	cert := certificatePEM(t)
	f, _, err := openAll(&options.Keys{
		PrivateKeyFile: testutil.WriteFile(t, "sa.key", testkeys.P256()),
		VerifyKeyFiles: []string{
			testutil.WriteFile(t, "two.pem", slices.Concat(testkeys.P384(), testkeys.P521())),
			testutil.WriteFile(t, "one.pem", testkeys.RSA2048()),
		},
		RootCAFile: testutil.WriteFile(t, "ca.crt", cert),
	}, &rest.Config{})
	testutil.Must(t, err)
	testutil.Check(t, "signing key", keyID(testkeys.P256()), f.store.Load().ActiveID())
	want := []string{keyID(testkeys.P384()), keyID(testkeys.P521()), keyID(testkeys.RSA2048())}
	testutil.Check(t, "verification keys", want, keyIDs(f.publicKeys()))
	testutil.Check(t, "root CA", string(cert), string(f.rootCA.Get().PEM()))

	none, _, err := openAll(&options.Keys{}, &rest.Config{})
	testutil.Expect(t, err == nil && none.store == nil && none.publicKeys() == nil && none.rootCA == nil,
		"without any flag: got %+v and error %v, want nothing", none, err)
}

// openAll opens all files in the order of a start.
func openAll(o *options.Keys, config *rest.Config) (*files, *rootca.Bundle, error) {
	f := &files{}
	if err := f.open(o); err != nil {
		return nil, nil, err
	}
	bundle, err := f.openRootCA(o, config)
	return f, bundle, err
}

func TestOpenFilesRefuses(t *testing.T) {
	t.Parallel()
	cert, garbage := certificatePEM(t), []byte("hello")
	const privateKey, verifyKey, rootCA = "--service-account-private-key-file", "--service-account-key-file", "--root-ca-file"
	missing, public := filepath.Join(t.TempDir(), "missing"), testutil.WriteFile(t, "sa.pub", testkeys.P256())
	inKubeconfig := rest.TLSClientConfig{CAFile: missing}
	for name, tc := range map[string]struct {
		flag   string // that the error names
		path   string
		args   []string // before the flag
		config rest.TLSClientConfig
		want   string // besides flag and file
	}{
		"CertificateAsKey": {flag: privateKey, path: testutil.WriteFile(t, "sa.key", cert), want: "found a certificate"},
		"GarbageVerifyKey": {flag: verifyKey, path: testutil.WriteFile(t, "sa.pub", garbage), want: "accepted is"},
		"SecondVerifyKey":  {flag: verifyKey, path: missing, args: []string{verifyKey + "=" + public}, want: "no such file"},
		"KeyAsRootCA":      {flag: rootCA, path: testutil.WriteFile(t, "ca.crt", testkeys.P256()), want: "at least one certificate"},
		"FlagBeatsInline":  {flag: rootCA, path: missing, config: rest.TLSClientConfig{CAData: cert}, want: "no such file"},
		"PathInKubeconfig": {flag: "certificate-authority of the kubeconfig", path: missing, config: inKubeconfig, want: "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := tc.args
			if strings.HasPrefix(tc.flag, "--") {
				args = append(args, tc.flag+"="+tc.path)
			}
			_, _, err := openAll(&parse(t, args...).Keys, &rest.Config{TLSClientConfig: tc.config})
			testutil.Require(t, err != nil, "the file is accepted")
			if !strings.HasPrefix(err.Error(), tc.flag+": ") || strings.Count(err.Error(), tc.path) != 1 ||
				!strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error %q, want it to begin with %q, to name %s once and to contain %q", err, tc.flag, tc.path, tc.want)
			}
		})
	}
}

func TestRootCASource(t *testing.T) {
	t.Parallel()
	ofFlag, inline, ofPath := certificatePEM(t), certificatePEM(t), certificatePEM(t)
	flagFile, pathFile := testutil.WriteFile(t, "flag.crt", ofFlag), testutil.WriteFile(t, "path.crt", ofPath)
	path, both := rest.TLSClientConfig{CAFile: pathFile}, rest.TLSClientConfig{CAData: inline, CAFile: pathFile}
	for name, tc := range map[string]struct {
		reason, flag string
		config       rest.TLSClientConfig
		want         []byte
		file         string // that is watched
	}{
		"Nowhere": {reason: "none is published"},
		"Inline":  {reason: "the kubeconfig is not watched", config: rest.TLSClientConfig{CAData: inline}, want: inline},
		"Path":    {reason: "of the kubeconfig; KCM does not read this one", config: path, want: ofPath, file: pathFile},
		"Both":    {reason: "client-go prefers the inline CA", config: both, want: inline},
		"Flag":    {reason: "beats both", flag: flagFile, config: both, want: ofFlag, file: flagFile},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := &rest.Config{TLSClientConfig: tc.config}
			f, bundle, err := openAll(&options.Keys{RootCAFile: tc.flag}, config)
			testutil.Must(t, err)
			var got, file string
			if bundle != nil {
				got = string(bundle.PEM())
			}
			if f.rootCA != nil {
				file = f.rootCA.Path()
			}
			testutil.Check(t, tc.reason+": bundle and watched file", []string{string(tc.want), tc.file}, []string{got, file})
		})
	}

	_, _, err := openAll(&options.Keys{}, &rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: []byte("hello")}})
	testutil.Expect(t, err != nil && strings.HasPrefix(err.Error(), "certificate-authority-data of the kubeconfig: "),
		"garbage inline: got error %v, want one that says where it is", err)
}

// skippedKeys returns the logged lines about unusable keys.
func skippedKeys(logger klog.Logger) (lines []string) {
	for _, entry := range logger.GetSink().(ktesting.Underlier).GetBuffer().Data() {
		if line := fmt.Sprintln(append([]any{entry.Message}, entry.ParameterKVList...)...); strings.HasPrefix(line, "Skipped") {
			lines = append(lines, line)
		}
	}
	return lines
}

// TestWatchLogsSkippedKeys of the file at the start and after a change: kube-apiserver may verify
// with them.
func TestWatchLogsSkippedKeys(t *testing.T) {
	t.Parallel()
	path := testutil.WriteFile(t, "sa.pub", slices.Concat(testkeys.P224(), testkeys.P256()))
	f := &files{
		verifyKeys: []*reload.File[verifyKeys]{mustOpen(t, path, parseVerifyKeys)},
		reloads:    newReloads(metrics.NewKubeRegistry().MustRegister),
	}
	logger := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(0)))
	ring := signing.NewKeyring(signing.KeyFileRing(nil), f.publicKeys()...)
	f.followAll(ring, nil)
	stop := testutil.Start(t, func(ctx context.Context) error { return f.watch(klog.NewContext(ctx, logger)) })
	await(t, "the key at the start", func() bool { return len(skippedKeys(logger)) == 1 })
	replace(t, path, slices.Concat(testkeys.RSA1024(), testkeys.P384()))
	await(t, "the key after a change", func() bool { return len(skippedKeys(logger)) == 2 })
	replace(t, path, testkeys.P521())
	await(t, "the fixed file", func() bool { return slices.Equal(keyIDs(ring.Keys().All()), []string{keyID(testkeys.P521())}) })
	stop()
	logged := skippedKeys(logger)
	testutil.Require(t, len(logged) == 2, "logged %q, want two lines", logged)
	for i, cause := range []string{"an EC key on P-224", "an RSA key of 1024 bits"} {
		want := "Skipped an unsupported verification key file " + path + " cause found " + cause + "; accepted is "
		testutil.Expect(t, strings.HasPrefix(logged[i], want), "logged %q, want %q", logged[i], want)
	}
}

// TestWarnLooseKeys wants one line for each file, with its flag and mode.
func TestWarnLooseKeys(t *testing.T) {
	t.Parallel()
	loose, tight := testutil.WriteFile(t, "loose.key", testkeys.P256()), testutil.WriteFile(t, "tight.key", testkeys.P256())
	testutil.Must(t, os.Chmod(loose, 0o644))
	testutil.Must(t, os.Chmod(tight, 0o640))
	for name, tc := range map[string]struct{ args, want []string }{
		"Key": {
			[]string{"--service-account-private-key-file=" + loose},
			[]string{`"flag"="--service-account-private-key-file" "file"="` + loose + `" "mode"="-rw-r--r--"`},
		},
		"Ring": {
			[]string{"--service-account-key-ring=" + loose},
			[]string{`"flag"="--service-account-key-ring" "file"="` + loose + `" "mode"="-rw-r--r--"`},
		},
		"TLS": {
			[]string{"--tls-private-key-file=" + loose, "--webhook-tls-private-key-file=" + loose},
			[]string{`"flag"="--tls-private-key-file"`, `"flag"="--webhook-tls-private-key-file"`},
		},
		"Tight": {
			[]string{"--service-account-private-key-file=" + tight, "--service-account-key-file=" + loose,
				"--tls-private-key-file=/nowhere"},
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var lines []string
			warnLooseKeys(funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{}), parse(t, tc.args...))
			testutil.Require(t, len(lines) == len(tc.want), "%q, want %d lines", lines, len(tc.want))
			for i, want := range tc.want {
				testutil.CheckContains(t, "line", want, lines[i])
			}
		})
	}
}
