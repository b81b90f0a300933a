// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	yamlutil "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"

	"sa-controller-manager/internal/testutil"
)

// documents splits a file.
func documents(t *testing.T, file string) [][]byte {
	t.Helper()
	reader := yamlutil.NewYAMLReader(bufio.NewReader(strings.NewReader(page(t, file))))
	var found [][]byte
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return found
		}
		testutil.Must(t, err)
		found = append(found, document)
	}
}

// strictly decodes into the type of the API. A field that it does not have is an error, and so is an object
// that only clusters with the Prometheus operator have.
func strictly(t *testing.T, file string, document []byte) runtime.Object {
	t.Helper()
	decoder := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme.Scheme, scheme.Scheme,
		json.SerializerOptions{Yaml: true, Strict: true})
	object, _, err := decoder.Decode(document, nil, nil)
	testutil.Require(t, err == nil, "%s: %v\n%s", file, err, document)
	return object
}

func rendered(t *testing.T) map[string][]runtime.Object {
	t.Helper()
	files, err := filepath.Glob("rendered/*.yaml")
	testutil.Require(t, err == nil && len(files) != 0, "rendered files: %v, %v", files, err)
	all := map[string][]runtime.Object{}
	for _, file := range files {
		for _, document := range documents(t, file) {
			all[file] = append(all[file], strictly(t, file, document))
		}
	}
	return all
}

func TestRenderedObjects(t *testing.T) {
	t.Parallel()
	for file, objects := range rendered(t) {
		for _, object := range objects {
			accessor := testutil.Get(meta.Accessor(object))(t)
			name := file + ": " + object.GetObjectKind().GroupVersionKind().Kind + " " + accessor.GetName()
			labels := accessor.GetLabels()
			testutil.Expect(t, labels["app.kubernetes.io/name"] == "sa-controller-manager" && labels["app.kubernetes.io/component"] != "",
				"%s: labels %v, want app.kubernetes.io/name and component", name, labels)
			if spec := podSpec(object); spec != nil {
				examinePod(t, name, spec)
			}
		}
	}
}

func podSpec(object runtime.Object) *corev1.PodSpec {
	switch o := object.(type) {
	case *corev1.Pod:
		return &o.Spec
	case *appsv1.Deployment:
		return &o.Spec.Template.Spec
	case *appsv1.DaemonSet:
		return &o.Spec.Template.Spec
	}
	return nil
}

// examinePod holds every Pod to what does not depend on where it runs.
func examinePod(t *testing.T, name string, spec *corev1.PodSpec) {
	t.Helper()
	if security := spec.SecurityContext; security == nil || security.SeccompProfile == nil ||
		security.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("%s: no seccomp profile", name)
	}
	testutil.Expect(t, spec.AutomountServiceAccountToken != nil && !*spec.AutomountServiceAccountToken,
		"%s: waits for a token that this program itself may have to mount", name)
	testutil.Expect(t, strings.HasPrefix(spec.PriorityClassName, "system-"), "%s: priority class %q", name, spec.PriorityClassName)
	for _, container := range slices.Concat(spec.InitContainers, spec.Containers) {
		security := container.SecurityContext
		want := &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(bool), ReadOnlyRootFilesystem: new(true),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}
		testutil.Check(t, name+", container "+container.Name, want, security)
		if _, tag, found := strings.Cut(filepath.Base(container.Image), ":"); !found || tag == "latest" {
			t.Errorf("%s, container %s: image %q, want a tag and not latest", name, container.Name, container.Image)
		}
		testutil.Expect(t, !container.Resources.Requests.Memory().IsZero() && !container.Resources.Requests.Cpu().IsZero(),
			"%s, container %s: no requests", name, container.Name)
	}
	args := spec.Containers[0].Args
	if args[0] != "signer" && !slices.Contains(args, "--token-secrets=manual") ||
		!slices.Contains(args, "--bind-address=127.0.0.1") {
		t.Errorf("%s: arguments %v", name, args)
	}
}

// TestDaemonSetStartsFirst: its Pods must start on a node that has neither a network for Pods nor
// kube-proxy, and be reached and reach kube-apiserver without either.
func TestDaemonSetStartsFirst(t *testing.T) {
	t.Parallel()
	found := 0
	for _, object := range rendered(t)["rendered/daemonset.yaml"] {
		switch object.(type) {
		case *corev1.Service, *appsv1.Deployment:
			t.Errorf("there is a %T", object)
		}
		if namespace, ok := object.(*corev1.Namespace); ok && namespace.Labels["pod-security.kubernetes.io/enforce"] != "privileged" {
			t.Errorf("labels of the namespace %v: its Pods would be refused", namespace.Labels)
		}
		set, ok := object.(*appsv1.DaemonSet)
		if !ok {
			continue
		}
		found++
		spec := set.Spec.Template.Spec
		container := spec.Containers[0]
		testutil.Expect(t, spec.HostNetwork && spec.NodeSelector["node-role.kubernetes.io/control-plane"] == "" &&
			len(spec.NodeSelector) == 1,
			"hostNetwork %v on nodes %v", spec.HostNetwork, spec.NodeSelector)
		for _, taint := range []corev1.Taint{
			{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule},
			{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule},
			{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute},
			{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: corev1.TaintEffectNoSchedule},
		} {
			if !slices.ContainsFunc(spec.Tolerations,
				func(one corev1.Toleration) bool { return one.ToleratesTaint(klog.Background(), &taint, false) }) {
				t.Errorf("it does not tolerate %s", taint.ToString())
			}
		}
		if !slices.Contains(container.Args, "--webhook-registration=url") ||
			strings.Contains(strings.Join(container.Args, " "), "--webhook-service") {
			t.Errorf("arguments %v", container.Args)
		}
		if len(container.Env) < 2 || container.Env[0].Name != "KUBERNETES_SERVICE_HOST" ||
			container.Env[0].ValueFrom.FieldRef.FieldPath != "status.hostIP" ||
			container.Env[1].Name != "KUBERNETES_SERVICE_PORT" || container.Env[1].Value == "" {
			t.Errorf("the API server's address is %v", container.Env)
		}
		// The name of the node may be another one than the hostname, by which kube-apiserver there names itself.
		testutil.Expect(t, !slices.ContainsFunc(container.Env, func(env corev1.EnvVar) bool { return env.Name == "NODE_NAME" }),
			"on the network of the host it is named otherwise than by the hostname")
		probe := container.ReadinessProbe.HTTPGet
		testutil.Expect(t, probe.Host == "127.0.0.1", "the probe asks %q, and the webhook listens on loopback", probe.Host)
	}
	testutil.Check(t, "DaemonSets", 1, found)
}

func TestPermissions(t *testing.T) {
	t.Parallel()
	objects := testutil.Get(Permissions(true, false))(t)
	paths := map[string]bool{}
	for _, object := range objects {
		path := object.Path()
		testutil.Expect(t, !paths[path], "%s is there twice", object)
		paths[path] = true
		testutil.CheckContains(t, "whose it is", "sa-controller-manager", object.String())
	}
	for _, want := range []string{
		"/apis/rbac.authorization.k8s.io/v1/clusterroles/system:sa-controller-manager:token",
		"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/system:sa-controller-manager:token",
		"/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/roles/system:sa-controller-manager:leader-election",
		"/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/rolebindings/system:sa-controller-manager:leader-election",
		"/api/v1/namespaces/kube-system/secrets/sa-controller-manager-root-ca",
		"/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/sa-controller-manager",
	} {
		testutil.Expect(t, paths[want], "no object at %s", want)
	}
}

// TestPermissionsOfTheSigner: all of its directory, and no Secret but that of the key ring.
func TestPermissionsOfTheSigner(t *testing.T) {
	t.Parallel()
	objects := testutil.Get(Permissions(false, true))(t)
	var got []string
	for _, object := range objects {
		got = append(got, strings.ReplaceAll(object.String(), "system:sa-controller-manager:", ""))
	}
	testutil.Check(t, "objects", []string{
		"Role kube-system/signer", "RoleBinding kube-system/signer", "ClusterRole signer", "ClusterRoleBinding signer",
		"ClusterRole secure-serving", "ClusterRoleBinding secure-serving", "Role kube-system/secure-serving",
		"RoleBinding kube-system/secure-serving", "Secret kube-system/sa-controller-manager-key-ring",
	}, got)
}

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
		testutil.Require(t, len(pod.Spec.InitContainers) == 1 && len(pod.Spec.Containers) == 1, "want one container of each kind: %v",
			pod.Spec)
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
			corev1.Volume{Name: name,
				VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: directory, Type: &kind}}})
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
			testutil.CheckError(t, "error", tc.want, err)
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
