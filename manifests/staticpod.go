// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	_ "embed"
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
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
	// Signer shares SignerDirectory with kube-apiserver. Flags are for Args.
	Signer bool
	// OnlySigner runs SignerCommand, with Args but without Carried and TokenSecrets, and its own permissions.
	OnlySigner bool
	// StaticRegistration has the Pod write its webhook configurations below StaticDirectory.
	StaticRegistration bool
	// Carried are flags in the place of the file's own; those that it does not have are added.
	Carried []string
	// CreateSecrets has the Pod grant itself that, too.
	CreateSecrets bool
	// Args are further flags, after all others.
	Args []string
	// Files are on the node, with absolute paths. The containers see the directory of each under
	// the same path, so that a file which is replaced by another one is seen too.
	Files []string
	// Sockets are paths on the node where other processes serve. The containers see their directories
	// as those of Files, which are made if need be: we start without those processes.
	Sockets []string
	// CertDir is the directory on the node with ca.crt, the cluster's CA; empty is pkiDirectory.
	CertDir string
}

// pkiDirectory is mounted in any case.
const pkiDirectory = "/etc/kubernetes/pki"

// SignerCommand is the subcommand of package commands that signs, and does nothing else.
const SignerCommand = "signer"

const (
	// SignerDirectory is on the node and, shared, in the static pods of kube-apiserver and
	// sa-controller-manager.
	SignerDirectory = "/run/sa-controller-manager"
	// SignerSocket is where the one signs for the other.
	SignerSocket = SignerDirectory + "/signer.sock"
	// KeyRing is the file that the overlay of the signer has.
	KeyRing = pkiDirectory + "/sa-keys/ring.json"
	// StaticDirectory is on the node and in the static pod of sa-controller-manager; kube-apiserver has
	// directories below it.
	StaticDirectory = "/etc/kubernetes/sa-controller-manager/static"
	// AdmissionConfig is below StaticDirectory: kube-apiserver's admission configuration with our directories, which a
	// takeover makes of the operator's.
	AdmissionConfig = "config/admission.yaml"
)

// StaticDirs returns the directories below dir that kube-apiserver reads: staticManifestsDir of
// MutatingAdmissionWebhook, ValidatingAdmissionWebhook and MutatingAdmissionPolicy. The plugins must not
// share one, because each refuses the others' kinds.
func StaticDirs(dir string) []string {
	return []string{filepath.Join(dir, "mutating"), filepath.Join(dir, "validating"), filepath.Join(dir, "policies")}
}

// StaticPod returns the manifest for /etc/kubernetes/manifests, as YAML that begins with
// a comment for the reader who finds it there. The same options give the same bytes.
func StaticPod(o StaticPodOptions) ([]byte, error) {
	pod, err := o.pod()
	if err != nil {
		return nil, err
	}
	return printPod(pod)
}

// MainArgs returns the flags of our process with these options.
func (o StaticPodOptions) MainArgs() ([]string, error) {
	pod, err := o.pod()
	if err != nil {
		return nil, err
	}
	return pod.Spec.Containers[0].Args, nil
}

func (o StaticPodOptions) pod() (*corev1.Pod, error) {
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
	return &pod, nil
}

func (o StaticPodOptions) validate() error {
	if o.Image != "" && !imageName().MatchString(o.Image) {
		return fmt.Errorf("image %q: want a name with a tag or a digest", o.Image)
	}
	for _, file := range slices.Concat(o.Files, o.Sockets) {
		if err := Mountable(file); err != nil {
			return err
		}
	}
	return nil
}

// Mountable refuses a file whose directory would hide what the Pod has mounted itself.
func Mountable(file string) error {
	directory := path.Dir(file)
	for _, own := range []string{pkiDirectory, "/usr/local/bin/sa-controller-manager", SignerDirectory} {
		if own != directory && (directory == "/" || strings.HasPrefix(own, directory+"/")) {
			return fmt.Errorf("%s: our static pod cannot mount %s, where it has files of its own; put the file into %s, "+
				"or a socket into a directory of its own", file, directory, pkiDirectory)
		}
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
		shareDirectory(pod, "signer", SignerDirectory)
	}
	if o.StaticRegistration {
		shareDirectory(pod, "static", StaticDirectory)
		o.Carried = append(o.Carried, "--webhook-registration=static", "--static-registration-dir="+StaticDirectory)
	}
	if o.CertDir != "" && o.CertDir != pkiDirectory {
		o.Files = append(o.Files, path.Join(o.CertDir, "ca.crt"))
		for i := range pod.Spec.InitContainers {
			pod.Spec.InitContainers[i].Args = append(pod.Spec.InitContainers[i].Args, "--cert-dir="+o.CertDir)
		}
	}
	for _, file := range o.Files {
		mountDirectory(pod, path.Dir(file), corev1.HostPathDirectory)
	}
	for _, socket := range o.Sockets {
		mountDirectory(pod, path.Dir(socket), corev1.HostPathDirectoryOrCreate)
	}
	o.applyCommand(&pod.Spec.Containers[0], &pod.Spec.InitContainers[0])
}

// applyCommand sets the flags of our process, and of the container that gives it its identity.
func (o StaticPodOptions) applyCommand(main, identity *corev1.Container) {
	if o.CreateSecrets {
		identity.Args = append(identity.Args, "--create-secrets")
	}
	if o.TokenSecrets != "" {
		o.Carried = append(o.Carried, tokenSecretsFlag+o.TokenSecrets)
	}
	if o.OnlySigner {
		o.Carried = nil // and of the file's flags only those that it has
		ofManager := regexp.MustCompile(`^--(token-secrets|service-account-private-key-file|root-ca-file|webhook-[a-z]+)=`)
		main.Args = append([]string{SignerCommand}, slices.DeleteFunc(main.Args, ofManager.MatchString)...)
		main.Ports = slices.DeleteFunc(main.Ports, func(port corev1.ContainerPort) bool { return port.Name == "webhook" })
		identity.Args = append(identity.Args, "--only-signer")
	}
	for _, arg := range o.Carried {
		name, _, _ := strings.Cut(arg, "=")
		if i := slices.IndexFunc(main.Args, func(own string) bool { return strings.HasPrefix(own, name+"=") }); i >= 0 {
			main.Args[i] = arg
		} else {
			main.Args = append(main.Args, arg)
		}
	}
	main.Args = append(main.Args, o.Args...)
	for _, arg := range main.Args {
		port, found := strings.CutPrefix(arg, "--secure-port=")
		for _, probe := range []*corev1.Probe{main.StartupProbe, main.LivenessProbe, main.ReadinessProbe} {
			if found {
				probe.HTTPGet.Port = intstr.Parse(port)
			}
		}
	}
}

// mountDirectory mounts a directory of the node, read only, unless all of its files are there.
func mountDirectory(pod *corev1.Pod, directory string, kind corev1.HostPathType) {
	covers := func(m corev1.VolumeMount) bool {
		return directory == m.MountPath || strings.HasPrefix(directory, m.MountPath+"/")
	}
	if slices.ContainsFunc(pod.Spec.Containers[0].VolumeMounts, covers) {
		return
	}
	name := fmt.Sprintf("files-%d", len(pod.Spec.Volumes))
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: directory, Type: &kind},
	}})
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			containers[i].VolumeMounts = append(containers[i].VolumeMounts,
				corev1.VolumeMount{Name: name, MountPath: directory, ReadOnly: true})
		}
	}
}

// shareDirectory mounts a directory that kube-apiserver has too, as overlays/external-signer does.
func shareDirectory(pod *corev1.Pod, name, directory string) {
	kind := corev1.HostPathDirectoryOrCreate
	pod.Spec.Volumes = slices.Insert(pod.Spec.Volumes, 0, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: directory, Type: &kind},
	}})
	main := &pod.Spec.Containers[0]
	main.VolumeMounts = slices.Insert(main.VolumeMounts, 0, corev1.VolumeMount{Name: name, MountPath: directory})
}

// printed says to the reader what the comments of the sources say.
const printed = `# The static pod of sa-controller-manager. --token-secrets=manual fills the token Secrets
# that users create, as in Kubernetes 1.24 and newer. With auto every ServiceAccount gets a
# token that does not expire, as before 1.24; the container identity then needs --create-secrets.
# "signer" has no such flag: it only signs for kube-apiserver (docs/signer.md).
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
