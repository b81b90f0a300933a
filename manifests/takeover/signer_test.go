// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"sa-controller-manager/controllers/keyring/remote"
	"sa-controller-manager/controllers/keyring/ring"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/internal/testutil/staticpodtest"
	"sa-controller-manager/manifests/component"
	"sa-controller-manager/manifests/staticpod"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
)

// TestSignerFlags is what our process shares with kube-apiserver, which must lose no key that it verifies with.
func TestSignerFlags(t *testing.T) {
	t.Parallel()
	const socket, issuer = "--external-signer-socket=/run/sa-controller-manager/signer.sock", "--service-account-issuer=https://a"
	const first, second = "/etc/kubernetes/pki/1.pub", "/etc/kubernetes/pki/2.pub"
	issuers := []string{issuer, "--service-account-issuer=https://b"}
	keys := []string{"--service-account-key-file=" + first, "--service-account-key-file=" + second}
	for name, tc := range map[string]struct {
		reason   string
		flags    []string // of kube-apiserver
		key      []byte   // the first file
		previous []string // files that an earlier takeover has removed
		files    []string
		want     []string // beside the socket
		refused  string
	}{
		"All": {
			flags: slices.Concat(issuers, keys, []string{"--service-account-max-token-expiration=17520h"}),
			files: []string{first, second},
			want:  slices.Concat(issuers, keys, []string{"--external-signer-max-token-expiration=17520h0m0s"}),
		},
		"Previous":     {flags: []string{issuer}, previous: []string{second}, files: []string{second}, want: []string{issuer, keys[1]}},
		"ShorterLimit": {flags: []string{issuer, "--service-account-max-token-expiration=24h"}, want: []string{issuer}},
		"Short": {
			flags: []string{issuer, keys[0]}, key: slices.Concat(testkeys.RSA2048(), testkeys.RSA1024()),
			refused: "--service-account-key-file: ROOT/etc/kubernetes/pki/1.pub: found an RSA key of 1024 bits; accepted is ",
		},
		"Usable": {
			flags: []string{issuer, keys[0]}, key: slices.Concat(testkeys.RSA2048(), testkeys.P256()), files: []string{first},
			want: []string{issuer, keys[0]},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newControlPlane(t, "v1.37")
			if tc.key != nil {
				p.Write(t, "pki/1.pub", tc.key)
			}
			m := testutil.Get(staticpod.Parse(staticpodtest.Manifest(append([]string{component.APIServer}, tc.flags...)),
				component.APIServer))(t)
			got, files, err := p.config.signerFlags(m, tc.previous)
			wantError(t, tc.reason, err, p.Located(tc.refused))
			if err != nil {
				return
			}
			testutil.Check(t, "files", tc.files, files)
			testutil.Check(t, "flags", append([]string{socket}, tc.want...), got)
		})
	}
}

// TestTakeoverWithARemoteKey: our Pod sees the socket of the process that has the key, whether that runs
// already or not, and kube-apiserver does not.
func TestTakeoverWithARemoteKey(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ socket, want string }{
		"Mounted":       {socket: "hsm: /run/sa-kms-signer/hsm.sock"},
		"NoLine":        {socket: "other: /run/sa-kms-signer/other.sock", want: `kep740:hsm is what signs with key`},
		"NoFile":        {want: `want a line "hsm: PATH" with the path of its socket`},
		"Shared":        {socket: "hsm: /run/sa-controller-manager/hsm.sock", want: "kube-apiserver has /run/sa-controller-manager too"},
		"NotADirectory": {socket: "hsm: /run/hsm.sock", want: "hsm: /run/hsm.sock: our static pod cannot mount /run"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newControlPlane(t, "v1.37")
			key := signing.RemoteKey("hsm", testkeys.Parse(testkeys.P384()).Public(), nil)
			file := ring.At(p.Dir + "/keys/ring.json")
			testutil.Must(t, file.Init(key, nil, nil, time.Now()))
			pod := p.config.Pod
			pod.ExtraArgs = []string{
				component.Assign(component.KeyFlag, ""), component.Assign(component.KeyRingFlag, file.Path()),
			}
			if tc.socket != "" {
				p.Write(t, "keys/sockets.yaml", []byte("schemaVersion: 1\nsockets:\n  "+tc.socket+"\n"))
				pod.ExtraArgs = append(pod.ExtraArgs, component.Assign(remote.SocketsFlag, p.Dir+"/keys/sockets.yaml"))
			}
			p.config.Rewrite = true
			o := testutil.Get(p.config.observe())(t)
			d, err := p.config.desire(o)
			wantError(t, "", err, tc.want)
			if tc.want != "" {
				return
			}
			spec := staticpodtest.Spec(t, d.manifest)
			volume := slices.IndexFunc(spec.Volumes, func(v corev1.Volume) bool {
				return v.HostPath != nil && v.HostPath.Path == "/run/sa-kms-signer" && *v.HostPath.Type == corev1.HostPathDirectoryOrCreate
			})
			if volume < 0 || !slices.ContainsFunc(spec.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool {
				return m.Name == spec.Volumes[volume].Name && m.MountPath == "/run/sa-kms-signer"
			}) {
				t.Errorf("our Pod does not see the socket:\n%s", d.manifest)
			}
		})
	}
}
