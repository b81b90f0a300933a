// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"bufio"
	"errors"
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
		testutil.Expect(t, spec.HostNetwork && spec.NodeSelector["node-role.kubernetes.io/control-plane"] == "" && len(spec.NodeSelector) == 1,
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
