// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

var (
	//go:embed rendered/static-pod.yaml
	staticPod []byte
	//go:embed rendered/static-pod-host-binary.yaml
	staticPodHostBinary []byte
)

// tokenSecretsFlag is in the rendered file with the value "manual".
const tokenSecretsFlag = "--token-secrets="

// StaticPodOptions is what differs from one control plane to another. The zero value is
// the rendered file's.
type StaticPodOptions struct {
	// Image is run, or with HostBinary the one that the binary is mounted into; empty
	// leaves the overlay's.
	Image string
	// HostBinary is the path on the node of a static binary, which is run instead of the
	// image's; empty runs the image's.
	HostBinary string
	// TokenSecrets is "manual" or "auto"; empty is manual.
	TokenSecrets string
	// Signer shares SignerDirectory with kube-apiserver, which waits for this Pod then: its
	// init container does not wait for kube-apiserver. Flags are for Args.
	Signer bool
	// Args are further flags.
	Args []string
}

const (
	// SignerDirectory is on the node and, shared, in the static pods of kube-apiserver and
	// sa-controller-manager.
	SignerDirectory = "/run/sa-controller-manager"
	// SignerSocket is where the one signs for the other.
	SignerSocket = SignerDirectory + "/signer.sock"
)

// StaticPod returns the manifest for /etc/kubernetes/manifests, as YAML that begins with
// a comment for whoever finds it there. The same options give the same bytes.
func StaticPod(o StaticPodOptions) ([]byte, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	rendered := staticPod
	if o.HostBinary != "" {
		rendered = staticPodHostBinary
	}
	var pod corev1.Pod
	if err := yaml.UnmarshalStrict(rendered, &pod); err != nil {
		return nil, fmt.Errorf("read the static pod: %w", err)
	}
	o.apply(&pod)
	return printPod(&pod)
}

func (o StaticPodOptions) validate() error {
	if o.Image != "" && !imageName().MatchString(o.Image) {
		return fmt.Errorf("image %q: want a name with a tag or a digest", o.Image)
	}
	if o.HostBinary != "" && !strings.HasPrefix(o.HostBinary, "/") {
		return fmt.Errorf("binary %q: want a path that begins with /", o.HostBinary)
	}
	if !slices.Contains([]string{"", "manual", "auto"}, o.TokenSecrets) {
		return fmt.Errorf("token secrets %q: want manual or auto", o.TokenSecrets)
	}
	return nil
}

// imageName knows enough of a reference to keep a mistake from being found by a kubelet.
func imageName() *regexp.Regexp {
	return regexp.MustCompile(`^[a-z0-9][a-zA-Z0-9._:/-]*(:[a-zA-Z0-9_][a-zA-Z0-9._-]*|@sha256:[0-9a-f]{64})$`)
}

func (o StaticPodOptions) apply(pod *corev1.Pod) {
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			if o.Image != "" {
				containers[i].Image = o.Image
			}
		}
	}
	for i := range pod.Spec.Volumes {
		if volume := &pod.Spec.Volumes[i]; volume.Name == "binary" {
			volume.HostPath.Path = o.HostBinary
		}
	}
	if o.Signer {
		shareSignerDirectory(pod)
	}
	main := &pod.Spec.Containers[0]
	for i, arg := range main.Args {
		if strings.HasPrefix(arg, tokenSecretsFlag) && o.TokenSecrets != "" {
			main.Args[i] = tokenSecretsFlag + o.TokenSecrets
		}
	}
	main.Args = append(main.Args, o.Args...)
}

// shareSignerDirectory is what overlays/external-signer does.
func shareSignerDirectory(pod *corev1.Pod) {
	const name = "signer"
	kind := corev1.HostPathDirectoryOrCreate
	pod.Spec.Volumes = slices.Insert(pod.Spec.Volumes, 0, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: SignerDirectory, Type: &kind},
	}})
	main := &pod.Spec.Containers[0]
	main.VolumeMounts = slices.Insert(main.VolumeMounts, 0, corev1.VolumeMount{Name: name, MountPath: SignerDirectory})
	for i := range pod.Spec.InitContainers {
		pod.Spec.InitContainers[i].Args = slices.DeleteFunc(pod.Spec.InitContainers[i].Args, func(arg string) bool { return arg == "--apply-permissions" })
	}
}

// printed says to the reader what the comments of the sources say.
const printed = `# The static pod of sa-controller-manager. --token-secrets=manual fills the token Secrets
# that users create, as in Kubernetes 1.24 and newer. With auto every ServiceAccount gets a
# token that does not expire, as before 1.24.
`

func printPod(pod *corev1.Pod) ([]byte, error) {
	data, err := yaml.Marshal(struct {
		APIVersion string         `json:"apiVersion"`
		Kind       string         `json:"kind"`
		Metadata   any            `json:"metadata"`
		Spec       corev1.PodSpec `json:"spec"`
	}{pod.APIVersion, pod.Kind, pod.ObjectMeta, pod.Spec})
	if err != nil {
		return nil, fmt.Errorf("print the static pod: %w", err)
	}
	return append([]byte(printed), data...), nil
}
