// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/manifests"
)

// takenOver writes our manifest as a dry run prints it.
func (p *controlPlane) takenOver(t *testing.T, args ...string) {
	t.Helper()
	got := p.takeover(t, append(args, "--dry-run")...)
	_, diff, ok := strings.Cut(got.Stdout, "\n+++ "+p.config.manifest(manager)+"\n")
	diff, _, _ = strings.Cut(diff, "\n2. ")
	if got.Code != 0 || !ok {
		t.Fatalf("%+v, want our manifest", got)
	}
	p.write(t, ownFile, []byte(regexp.MustCompile(`(?m)^(@@.*\n|\+)`).ReplaceAllString(diff+"\n", "")))
}

// TestTakeoverAgain: a rewrite keeps what the takeover before was given, and says what goes.
func TestTakeoverAgain(t *testing.T) {
	t.Parallel()
	const template, client = "--extra-arg=--account-template=/srv/a.yaml", "--extra-arg=--webhook-client-ca-file=/srv/ca.crt"
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
			record: []string{"--token-secrets=manual", client, "--extra-arg=--account_template=/srv/b.yaml"},
		},
		"FlagForExtraArg": {
			reason: "the extra argument would come last and count", first: []string{"--extra-arg=--token-secrets=auto", client},
			second: []string{"--token-secrets=manual"}, kept: client, loses: "--token-secrets=auto",
			record: []string{"--token-secrets=manual", client},
		},
		"Reset": {
			first: []string{"--token-secrets=auto", template, client}, second: []string{"--reset", client},
			loses: "--token-secrets=auto --account-template=/srv/a.yaml", record: []string{client},
		},
		"BinaryForImage": {first: []string{image("v1")}, second: []string{"--binary=/opt/new"}, record: []string{"--binary=/opt/new"}},
		"Signer": {
			reason: "our manifest says so", first: []string{"--external-signer"}, second: []string{template}, record: []string{template},
		},
		"ResetSigner": {
			reason: "kube-apiserver has not been changed yet", first: []string{"--external-signer"}, second: []string{"--reset"},
			loses: "--external-signer-socket=/run/sa-controller-manager/signer.sock " +
				"--service-account-issuer=https://kubernetes.default.svc.cluster.local --service-account-key-file=/etc/kubernetes/pki/sa.pub",
			record: []string{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newTakeoverNode(t)
			p.takenOver(t, tc.first...)
			got := p.takeover(t, append(tc.second, "--dry-run")...)
			if got.Code != 0 {
				t.Fatalf("%+v", got)
			}
			line := func(before, after string) string {
				found := regexp.MustCompile(`(?m)^` + before + `(.*)` + after + `$`).FindStringSubmatch(got.Stdout)
				return strings.Join(found[min(1, len(found)):], "")
			}
			testutil.Check(t, tc.reason+": kept", tc.kept, line("Kept from the last takeover: ", `\. --reset drops them\.`))
			testutil.Check(t, tc.reason+": lost", tc.loses, line("Our process loses: ", `\.`))
			annotation := regexp.MustCompile(`(?m)^[+ ] +` + manifests.RecordAnnotation + `: '(.*)'$`).FindStringSubmatch(got.Stdout)
			record := slices.DeleteFunc(slices.Clone(tc.first), func(flag string) bool { return flag == "--external-signer" })
			if annotation != nil {
				record = nil
				testutil.Must(t, json.Unmarshal([]byte(annotation[1]), &record))
			}
			testutil.Check(t, tc.reason+": record", tc.record, record)
		})
	}
}

// TestRecordIsRefused: a record that this version does not understand is not dropped silently.
func TestRecordIsRefused(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ record, want string }{
		"NoList": {"x", "its annotation sa-controller-manager/takeover is no list of flags: invalid character"},
		"Unknown": {`["--dry-run=false"]`,
			`its annotation sa-controller-manager/takeover has "--dry-run=false", which this version does not know`},
	} {
		t.Run(name, func(t *testing.T) {
			p := newTakeoverNode(t)
			manifest, err := manifests.StaticPod(manifests.StaticPodOptions{Record: tc.record})
			testutil.Must(t, err)
			p.write(t, ownFile, manifest)
			want := "Error: " + p.config.manifest(manager) + ": " + tc.want
			if got := p.takeover(t, "--dry-run"); got.Code != 1 || !strings.HasPrefix(got.Stderr, want) {
				t.Errorf("%+v, want %s", got, want)
			}
			if got := p.takeover(t, "--dry-run", "--reset"); got.Code != 0 {
				t.Errorf("with --reset: %+v", got)
			}
		})
	}
}
