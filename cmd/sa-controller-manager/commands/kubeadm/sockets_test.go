// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/remote"
	"sa-controller-manager/signing/ringfile"
	"sa-controller-manager/signing/rotation"
	"sa-controller-manager/signing/testkeys"
)

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
			ring := ringfile.At(p.dir + "/keys/ring.json")
			testutil.Must(t, ring.Init(key, nil, time.Now(), rotation.Policy{}))
			flags := newPodFlags()
			flags.binary, flags.extraArgs = "/opt/b", []string{assign(keyFlag, ""), assign(keyRingFlag, ring.Path())}
			if tc.socket != "" {
				p.write(t, "keys/sockets.yaml", []byte("schemaVersion: 1\nsockets:\n  "+tc.socket+"\n"))
				flags.extraArgs = append(flags.extraArgs, assign(remote.SocketsFlag, p.dir+"/keys/sockets.yaml"))
			}
			p.config.Render, p.config.Rewrite = flags.render, true
			o, err := p.config.observe()
			testutil.Must(t, err)
			wantError(t, "", p.config.render(o), tc.want)
			if tc.want != "" {
				return
			}
			spec := podOf(t, o.rendered)
			volume := slices.IndexFunc(spec.Volumes, func(v corev1.Volume) bool {
				return v.HostPath != nil && v.HostPath.Path == "/run/sa-kms-signer" && *v.HostPath.Type == corev1.HostPathDirectoryOrCreate
			})
			if volume < 0 || !slices.ContainsFunc(spec.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool {
				return m.Name == spec.Volumes[volume].Name && m.MountPath == "/run/sa-kms-signer"
			}) {
				t.Errorf("our Pod does not see the socket:\n%s", o.rendered)
			}
		})
	}
}
