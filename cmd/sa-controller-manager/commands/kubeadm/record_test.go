// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/manifests/component"
)

// takenOver writes our manifest as a dry run prints it, and what it records.
func (p *controlPlane) takenOver(t *testing.T, args ...string) {
	t.Helper()
	got := p.takeover(t, append(args, "--dry-run")...)
	_, diff, ok := strings.Cut(got.Stdout, "\n+++ "+p.config.manifest(manager)+"\n")
	diff, _, _ = strings.Cut(diff, "\n2. ")
	testutil.Require(t, got.Code == 0 && ok, "%+v, want our manifest", got)
	p.write(t, ownFile, []byte(regexp.MustCompile(`(?m)^(@@.*\n|\+)`).ReplaceAllString(diff+"\n", "")))
	if record := (component.Record{Flags: p.recorded(t, args...)}).Encode(); record != nil {
		p.write(t, "sa-controller-manager-backup/record.json", record)
	}
}

// recorded are the flags that a takeover records.
func (p *controlPlane) recorded(t *testing.T, args ...string) []string {
	t.Helper()
	f, pod, fs := newNodeFlags(), newPodFlags(), pflag.NewFlagSet("", pflag.ContinueOnError)
	f.Pod = &pod
	f.addTakeover(fs)
	f.ManifestsDir = p.config.ManifestsDir
	testutil.Must(t, fs.Parse(args))
	testutil.Must(t, f.keep(fs))
	return f.Given
}

// TestTakeoverAgain: a rewrite keeps what the takeover before was given, and says what goes.
func TestTakeoverAgain(t *testing.T) {
	t.Parallel()
	const template, client = "--extra-arg=--account-template=/srv/a.yaml", "--extra-arg=--webhook-client-ca-file=/srv/ca.crt"
	const ring, noFile = "--extra-arg=--service-account-key-ring=/etc/kubernetes/pki/ring",
		"--extra-arg=--service-account-private-key-file="
	image := func(tag string) string { return "--image=registry.example.com/sa-controller-manager:" + tag }
	for name, tc := range map[string]struct {
		reason        string
		first, second []string
		kept, loses   string // as printed
		record        []string
	}{
		"AnotherFlag": {
			first: []string{"--token-secrets=auto", template, client}, second: []string{image("v2")},
			kept:   "--token-secrets=auto " + template + " " + client,
			record: []string{image("v2"), "--token-secrets=auto", template, client},
		},
		"SameFlag": {
			reason: "what is given counts", first: []string{"--token-secrets=auto", template, client},
			second: []string{"--token-secrets=manual", "--extra-arg=--account_template=/srv/b.yaml"},
			kept:   client, loses: "--token-secrets=auto --account-template=/srv/a.yaml",
			record: []string{"--token-secrets=manual", "--extra-arg=--account_template=/srv/b.yaml", client},
		},
		"NoFlag": {first: []string{template}, kept: template, second: []string{"--rewrite"}, record: []string{template}},
		"Reset": {
			first: []string{"--token-secrets=auto", template, client}, second: []string{"--reset", client},
			loses: "--token-secrets=auto --account-template=/srv/a.yaml", record: []string{client},
		},
		"BinaryForImage": {first: []string{image("v1")}, second: []string{"--binary=/opt/new"}, record: []string{"--binary=/opt/new"}},
		"Signer": {
			reason: "our manifest says so", first: []string{"--external-signer"}, second: []string{template}, record: []string{template},
		},
		"OnlySigner": {
			reason: "until another takeover is to do more", first: []string{"--only=signer", ring}, second: []string{"--rewrite"},
			kept: ring + " --only=signer", record: []string{ring, "--only=signer"},
		},
		"EverythingAfterTheSigner": {
			first: []string{"--only=signer", ring}, second: []string{"--only=", noFile}, kept: ring, loses: "signer",
			record: []string{noFile, ring},
		},
		"ResetSigner": {
			reason: "kube-apiserver has not been changed yet", first: []string{"--external-signer"}, second: []string{"--reset"},
			loses: "--external-signer-socket=/run/sa-controller-manager/signer.sock " +
				"--service-account-issuer=https://kubernetes.default.svc.cluster.local " +
				"--service-account-key-file=/etc/kubernetes/pki/sa.pub",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newTakeoverNode(t)
			writeRing(t, p.dir+"/pki/ring")
			p.takenOver(t, tc.first...)
			testutil.Check(t, tc.reason+": record", tc.record, p.recorded(t, tc.second...))
			got := p.takeover(t, append(tc.second, "--dry-run")...)
			testutil.Require(t, got.Code == 0, "%+v", got)
			line := func(before, after string) string {
				found := regexp.MustCompile(`(?m)^` + before + `(.*)` + after + `$`).FindStringSubmatch(got.Stdout)
				return strings.Join(found[min(1, len(found)):], "")
			}
			testutil.Check(t, tc.reason+": kept", tc.kept, line("Kept from the last takeover: ", `\. --reset drops them\.`))
			testutil.Check(t, tc.reason+": lost", tc.loses, line("Our process loses: ", `\.`))
		})
	}
}

// TestRecordIsRefused: a record that this version does not understand is not dropped silently.
func TestRecordIsRefused(t *testing.T) {
	t.Parallel()
	const noRecord = ": want the record of a takeover, as JSON: invalid character"
	for name, tc := range map[string]struct{ record, want, reset string }{
		"NoRecord": {"x", noRecord, noRecord},
		"Two":      {"{}}", noRecord, noRecord},
		"Unknown":  {`{"flags": ["--new-flag=1"]}`, `: no such flag -new-flag; --reset goes on without`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := newTakeoverNode(t)
			p.write(t, "sa-controller-manager-backup/record.json", []byte(tc.record))
			before := p.files(t)
			want := "Error: " + p.config.recordFile() + tc.want
			got := p.takeover(t, "--dry-run")
			testutil.Expect(t, got.Code == 1 && strings.HasPrefix(got.Stderr, want), "%+v, want %s", got, want)
			if got := p.takeover(t, "--dry-run", "--reset"); got.Code != 0 != (tc.reset != "") || !strings.Contains(got.Stderr, tc.reset) {
				t.Errorf("with --reset: %+v", got)
			}
			testutil.Check(t, "files", before, p.files(t))
		})
	}
}
