// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"sa-controller-manager/internal/testutil"
)

// TestStaticPodIsTheRenderedOne: without options, both are what kustomize makes.
func TestStaticPodIsTheRenderedOne(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		options  StaticPodOptions
		rendered []byte
	}{
		"Image":      {StaticPodOptions{}, staticPod},
		"HostBinary": {StaticPodOptions{HostBinary: "/opt/sa-controller-manager/bin/sa-controller-manager"}, staticPodHostBinary},
		"Signer": {StaticPodOptions{Signer: true, Args: []string{
			"--external-signer-socket=" + SignerSocket, "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
			"--service-account-key-file=/etc/kubernetes/pki/sa.pub",
		}}, []byte(page(t, "rendered/external-signer.yaml"))},
	} {
		t.Run(name, func(t *testing.T) {
			testutil.Check(t, "rendered and made", readPod(t, tc.rendered), made(t, tc.options))
		})
	}
}

func TestStaticPodOptions(t *testing.T) {
	t.Parallel()
	before := made(t, StaticPodOptions{HostBinary: "/opt/b"})
	after := made(t, StaticPodOptions{
		Image: "registry.k8s.io/kube-controller-manager:v1.31.0", HostBinary: "/srv/x y", TokenSecrets: "auto",
		Args: []string{"-v=4", "--service-accounts=default,builder: #1"},
	})
	for _, pod := range []*corev1.Pod{before, after} {
		testutil.Require(t, len(pod.Spec.InitContainers) == 1 && len(pod.Spec.Containers) == 1, "want one container of each kind: %v", pod.Spec)
	}
	want := before.DeepCopy()
	want.Spec.InitContainers[0].Image = "registry.k8s.io/kube-controller-manager:v1.31.0"
	want.Spec.Containers[0].Image = "registry.k8s.io/kube-controller-manager:v1.31.0"
	want.Spec.Containers[0].Args[0] = "--token-secrets=auto"
	want.Spec.Containers[0].Args = append(want.Spec.Containers[0].Args, "-v=4", "--service-accounts=default,builder: #1")
	for i := range want.Spec.Volumes {
		if want.Spec.Volumes[i].Name == "binary" {
			want.Spec.Volumes[i].HostPath.Path = "/srv/x y"
		}
	}
	testutil.Check(t, "result", want, after)
}

// TestStaticPodOnlySigner: the command of the overlay, on the port of the process that it stands in for, and its own permissions.
func TestStaticPodOnlySigner(t *testing.T) {
	t.Parallel()
	given := []string{"--service-account-key-ring=" + KeyRing, "--service-account-issuer=https://kubernetes.default.svc.cluster.local"}
	pod := made(t, StaticPodOptions{OnlySigner: true, TokenSecrets: "auto", Carried: []string{"--controllers=*"}, Args: given})
	args := append([]string{"--secure-port=10261"}, readPod(t, []byte(page(t, "rendered/signer.yaml"))).Spec.Containers[0].Args...)
	first := pod.Spec.Containers[0].Args[0]
	testutil.Expect(t, first == SignerCommand, "it runs %q", first)
	slices.Sort(args)
	slices.Sort(pod.Spec.Containers[0].Args)
	testutil.Check(t, "flags", args, pod.Spec.Containers[0].Args)
	testutil.Check(t, "identity", []string{"kubeadm", "kubeconfig", "--apply-permissions", "--watch", "--only-signer"},
		pod.Spec.InitContainers[0].Args)
}

// TestStaticPodSeesFiles: each where it is on the node, and its directory once.
func TestStaticPodSeesFiles(t *testing.T) {
	t.Parallel()
	before := made(t, StaticPodOptions{})
	after := made(t, StaticPodOptions{
		Carried: []string{"--root-ca-file=/etc/ssl/certs/corp.crt", "--legacy-service-account-token-clean-up-period=87600h"},
		Files:   []string{"/etc/ssl/certs/corp.crt", "/etc/kubernetes/pki/sa.key", "/etc/kubernetes/ssl/sa.key"},
		CertDir: "/etc/kubernetes/ssl",
	})
	want := before.DeepCopy()
	main, init := &want.Spec.Containers[0], &want.Spec.InitContainers[0]
	for i, arg := range main.Args {
		if strings.HasPrefix(arg, "--root-ca-file=") {
			main.Args[i] = "--root-ca-file=/etc/ssl/certs/corp.crt"
		}
	}
	main.Args = append(main.Args, "--legacy-service-account-token-clean-up-period=87600h")
	init.Args = append(init.Args, "--cert-dir=/etc/kubernetes/ssl")
	kind := corev1.HostPathDirectory
	for i, directory := range []string{"/etc/ssl/certs", "/etc/kubernetes/ssl"} {
		name := fmt.Sprintf("files-%d", len(before.Spec.Volumes)+i)
		want.Spec.Volumes = append(want.Spec.Volumes,
			corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: directory, Type: &kind}}})
		mount := corev1.VolumeMount{Name: name, MountPath: directory, ReadOnly: true}
		main.VolumeMounts, init.VolumeMounts = append(main.VolumeMounts, mount), append(init.VolumeMounts, mount)
	}
	testutil.Check(t, "result", want, after)
}

func TestStaticPodRefuses(t *testing.T) {
	t.Parallel()
	digest := "@sha256:" + strings.Repeat("0", 64)
	for _, good := range []string{"localhost:5000/kcm:v1.36.3", "registry.k8s.io/kcm" + digest, "kcm:v1.36.3-eks_1" + digest} {
		made(t, StaticPodOptions{Image: good}) // kube-controller-manager may have it
	}
	for name, tc := range map[string]struct {
		options StaticPodOptions
		want    string
	}{
		"NoTag":     {StaticPodOptions{Image: "sa-controller-manager"}, `image "sa-controller-manager"`},
		"TwoLines":  {StaticPodOptions{Image: "a:b\nx: y"}, "image"},
		"HidesOurs": {StaticPodOptions{Files: []string{"/etc/kubernetes/corp.crt"}}, "our static pod cannot mount /etc/kubernetes"},
		"Root":      {StaticPodOptions{Files: []string{"/corp.crt"}}, "our static pod cannot mount /, where"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := StaticPod(tc.options)
			testutil.Expect(t, err != nil && strings.Contains(err.Error(), tc.want), "got %v, want an error about %s", err, tc.want)
		})
	}
}

func made(t *testing.T, o StaticPodOptions) *corev1.Pod {
	t.Helper()
	data := testutil.Get(StaticPod(o))(t)
	for _, never := range []string{"status:", "creationTimestamp"} {
		testutil.Expect(t, !strings.Contains(string(data), never), "%q is in\n%s", never, data)
	}
	return readPod(t, data)
}

func readPod(t *testing.T, data []byte) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	testutil.Must(t, yaml.UnmarshalStrict(data, pod))
	return pod
}

// TestStaticPodProbesItsPort: of a flag that is given twice, the last one counts.
func TestStaticPodProbesItsPort(t *testing.T) {
	t.Parallel()
	main := made(t, StaticPodOptions{Args: []string{"--secure-port=20261", "--secure-port=20262"}}).Spec.Containers[0]
	for _, probe := range []*corev1.Probe{main.StartupProbe, main.LivenessProbe, main.ReadinessProbe} {
		testutil.Check(t, "port of the probe", "20262", probe.HTTPGet.Port.String())
	}
}
