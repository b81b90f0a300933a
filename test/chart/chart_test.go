// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package chart tests manifests/chart with Helm's and kustomize's own code. It is a module of its own,
// so that neither is in the go.mod of the product.
package chart

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const (
	manifests = "../../manifests"
	chart     = manifests + "/chart"
)

type object = map[string]any

// apiVersions are those of Kubernetes 1.36 and newer.
var apiVersions = []string{"admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"}

// render returns the objects of the chart by kind, namespace and name, those of hooks apart.
func render(t *testing.T, namespace, values string) (objects, hooks map[string]object, err error) {
	t.Helper()
	loaded, err := loader.Load(chart)
	if err != nil {
		t.Fatal(err)
	}
	given, err := common.ReadValues([]byte(values))
	if err != nil {
		t.Fatal(err)
	}
	if given["networkPolicy"] == nil {
		given["networkPolicy"] = object{"enabled": false}
	}
	all, err := util.ToRenderValues(loaded, given, common.ReleaseOptions{Name: "any", Namespace: namespace, IsInstall: true},
		&common.Capabilities{APIVersions: append(slices.Clone(common.DefaultCapabilities.APIVersions), apiVersions...)})
	if err != nil {
		return nil, nil, err
	}
	files, err := engine.Render(loaded, all)
	if err != nil {
		return nil, nil, err
	}
	objects, hooks = map[string]object{}, map[string]object{}
	for path, text := range files {
		if filepath.Ext(path) != ".yaml" {
			continue
		}
		for key, o := range parse(t, text, namespace) {
			into := objects
			if _, isHook := field(o, "metadata", "annotations", "helm.sh/hook").(string); isHook {
				into = hooks
			}
			if into[key] != nil {
				t.Errorf("%s is rendered twice", key)
			}
			into[key] = o
		}
	}
	return objects, hooks, nil
}

// parse puts objects without a namespace into the given one, as an installation does; those without one
// by their kind have it in both.
func parse(t *testing.T, text, namespace string) map[string]object {
	t.Helper()
	found := map[string]object{}
	for document := range strings.SplitSeq("\n"+text, "\n---") {
		var o object
		if err := yaml.Unmarshal([]byte(document), &o); err != nil {
			t.Fatalf("%v\n%s", err, document)
		}
		if o == nil {
			continue
		}
		metadata := o["metadata"].(object)
		if metadata["namespace"] == nil {
			metadata["namespace"] = namespace
		}
		found[strings.Join([]string{o["kind"].(string), metadata["namespace"].(string), metadata["name"].(string)}, " ")] = o
	}
	return found
}

func field(o any, path ...string) any {
	for _, name := range path {
		inner, _ := o.(object)
		o = inner[name]
	}
	return o
}

// kustomized returns what kustomize makes of a kustomization over the manifests.
func kustomized(t *testing.T, namespace, kustomization string) map[string]object {
	t.Helper()
	dir, err := os.MkdirTemp(chart, ".test-") // kustomize wants resources by relative paths
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(kustomization), 0o600); err != nil {
		t.Fatal(err)
	}
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatal(err)
	}
	text, err := made.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, string(text), namespace)
}

// TestChartIsTheOverlay: an installation of the chart is what "kubectl apply -k" makes.
func TestChartIsTheOverlay(t *testing.T) {
	const namespace = "sa-controller-manager"
	for name, tc := range map[string]struct{ values, kustomization string }{
		"default":              {"", "resources: [../../overlays/deployment, ../../permissions/completion]"},
		"no completion policy": {"completionPolicy: false", "resources: [../../overlays/deployment]"},
		"token Secrets": {
			"extraArgs: [--token-secrets=auto]", `
resources: [../../overlays/deployment, ../../overlays/deployment/token-secrets, ../../permissions/completion]
patches:
- target: {kind: Deployment}
  patch: '[{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--token-secrets=auto"}]'`,
		},
		"monitoring": {
			"monitoring: {enabled: true}",
			"resources: [../../overlays/deployment, ../../monitoring, ../../permissions/completion]\ncomponents: " +
				"[../../monitoring/deployment]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, hooks, err := render(t, namespace, tc.values)
			if err != nil {
				t.Fatal(err)
			}
			want := kustomized(t, namespace, tc.kustomization)
			delete(want, "Namespace "+namespace+" "+namespace) // Helm makes it, and the notes say which label it should have
			for key := range want {
				if !reflect.DeepEqual(got[key], want[key]) {
					t.Errorf("%s: the chart has\n%s\nwant\n%s", key, text(t, got[key]), text(t, want[key]))
				}
			}
			for key := range got {
				if want[key] == nil {
					t.Errorf("%s is in the chart alone", key)
				}
			}
			if len(hooks) != 3 {
				t.Errorf("the chart has %d hooks, want the one that switches the webhook off and its permission", len(hooks))
			}
		})
	}
}

func text(t *testing.T, o object) string {
	t.Helper()
	data, err := yaml.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestValues(t *testing.T) {
	const deployment = "Deployment x sa-controller-manager"
	digest := "sha256:" + strings.Repeat("0", 64)
	container := func(all map[string]object) object {
		return field(all[deployment], "spec", "template", "spec", "containers").([]any)[0].(object)
	}
	for name, tc := range map[string]struct {
		values string
		is     func(map[string]object) bool
		// refused is part of the error.
		refused string
	}{
		"another namespace": {is: func(all map[string]object) bool {
			_, elsewhere := all["Deployment sa-controller-manager sa-controller-manager"]
			policy := field(all["ValidatingAdmissionPolicy x sa-controller-manager-writes-deployment"], "spec",
				"matchConditions").([]any)[0]
			subject := field(all["ClusterRoleBinding x system:sa-controller-manager:token-deployment"], "subjects").([]any)[0]
			return !elsewhere && slices.Contains(container(all)["args"].([]any), any("--webhook-service-namespace=x")) &&
				strings.Contains(field(policy, "expression").(string), "system:serviceaccount:x:") && field(subject, "namespace") == "x"
		}},
		"who may call the webhook": {
			values: "{networkPolicy: {cidrs: [10.0.0.0/28, 10.1.0.0/28]}, monitoring: {enabled: true}}",
			is: func(all map[string]object) bool {
				ingress := field(all["NetworkPolicy x sa-controller-manager"], "spec", "ingress").([]any)
				from := field(ingress[0], "from").([]any)
				return len(from) == 2 && field(from[1], "ipBlock", "cidr") == "10.1.0.0/28" && len(ingress) == 2
			},
		},
		"nobody has said who": {values: "networkPolicy: {enabled: true}", refused: "networkPolicy.cidrs"},
		"everybody, on purpose": {values: "networkPolicy: {enabled: false}", is: func(all map[string]object) bool {
			return all["NetworkPolicy x sa-controller-manager"] == nil
		}},
		"image": {values: "image: {repository: r/p, tag: v1, pullSecrets: [{name: s}]}", is: func(all map[string]object) bool {
			secrets, _ := field(all[deployment], "spec", "template", "spec", "imagePullSecrets").([]any)
			return container(all)["image"] == "r/p:v1" && len(secrets) == 1
		}},
		"one replica, which a drain may evict": {values: "replicas: 1", is: func(all map[string]object) bool {
			return field(all[deployment], "spec", "replicas") == 1.0 && all["PodDisruptionBudget x sa-controller-manager"] == nil
		}},
		"flags come last": {values: "{extraArgs: [--bind-address=::1], monitoring: {enabled: true}}", is: func(all map[string]object) bool {
			args := container(all)["args"].([]any)
			return args[len(args)-1] == "--bind-address=::1"
		}},
		"re-issue creates Secrets": {values: "extraArgs: [--service-account-key-ring=/pki/ring.json]",
			is: func(all map[string]object) bool {
				subject := field(all["ClusterRoleBinding x system:sa-controller-manager:token-secrets-deployment"], "subjects").([]any)[0]
				return field(subject, "namespace") == "x" &&
					all["ClusterRole x system:sa-controller-manager:token-secrets-deployment"] != nil
			}},
		"no flag creates Secrets": {
			values: "extraArgs: [--token-secrets-excluded-namespaces=auto, --service-account-key-ring=]",
			is: func(all map[string]object) bool {
				return all["ClusterRole x system:sa-controller-manager:token-secrets-deployment"] == nil
			},
		},
		"no completion policy beside another plugin": {values: "extraArgs: [--pod-token=secret]", is: func(all map[string]object) bool {
			return all["MutatingAdmissionPolicy x sa-controller-manager-completion"] == nil
		}},
		"no completion policy beside limits": {values: "extraArgs: [--limit-secret-references]", is: func(all map[string]object) bool {
			return all["MutatingAdmissionPolicy x sa-controller-manager-completion"] == nil
		}},
		"nodes": {values: "{nodeSelector: {a: b}, tolerations: []}", is: func(all map[string]object) bool {
			spec := field(all[deployment], "spec", "template", "spec").(object)
			return field(spec, "nodeSelector", "a") == "b" && spec["tolerations"] == nil
		}},
		"digest": {values: "image: {repository: r/p, tag: v1, digest: '" + digest + "'}", is: func(all map[string]object) bool {
			return container(all)["image"] == "r/p@"+digest
		}},
		"scheduling": {
			values: "{priorityClassName: '', affinity: {podAntiAffinity: {}}, topologySpreadConstraints: [{maxSkew: 2}], " +
				"strategy: {type: Recreate}}",
			is: func(all map[string]object) bool {
				pod := field(all[deployment], "spec", "template", "spec").(object)
				spread := pod["topologySpreadConstraints"].([]any)
				return pod["priorityClassName"] == nil && field(pod, "affinity", "podAntiAffinity") != nil &&
					len(spread) == 1 && field(spread[0], "maxSkew") == 2.0 &&
					reflect.DeepEqual(field(all[deployment], "spec", "strategy"), object{"type": "Recreate"})
			},
		},
		"annotations": {
			values: "{deploymentAnnotations: {a: d}, podAnnotations: {a: p}, serviceAnnotations: {a: s}}",
			is: func(all map[string]object) bool {
				return field(all[deployment], "metadata", "annotations", "a") == "d" &&
					field(all[deployment], "spec", "template", "metadata", "annotations", "a") == "p" &&
					field(all["Service x sa-controller-manager"], "metadata", "annotations", "a") == "s"
			},
		},
		"files for flags": {
			values: "{extraVolumes: [{name: tls, secret: {secretName: s}}], extraVolumeMounts: [{name: tls, mountPath: /tls}]}",
			is: func(all map[string]object) bool {
				volumes := field(all[deployment], "spec", "template", "spec", "volumes").([]any)
				mounts := container(all)["volumeMounts"].([]any)
				return len(volumes) == 3 && field(volumes[2], "secret", "secretName") == "s" &&
					len(mounts) == 3 && field(mounts[2], "mountPath") == "/tls"
			},
		},
		"what a drain leaves": {
			values: "{replicas: 3, podDisruptionBudget: {maxUnavailable: 50%}}", is: func(all map[string]object) bool {
				spec := field(all["PodDisruptionBudget x sa-controller-manager"], "spec").(object)
				return spec["maxUnavailable"] == "50%" && spec["minAvailable"] == nil
			},
		},
		"no limit for a drain": {values: "podDisruptionBudget: {enabled: false}", is: func(all map[string]object) bool {
			return all["PodDisruptionBudget x sa-controller-manager"] == nil
		}},
		"monitor labels": {values: "monitoring: {enabled: true, labels: {release: p}}", is: func(all map[string]object) bool {
			return field(all["ServiceMonitor x sa-controller-manager"], "metadata", "labels", "release") == "p" &&
				field(all["PrometheusRule x sa-controller-manager"], "metadata", "labels", "release") == "p" &&
				field(all["Service x sa-controller-manager-metrics"], "metadata", "labels", "release") == nil
		}},
		"runbooks": {values: "monitoring: {enabled: true, runbooks: 'https://wiki/sacm'}", is: func(all map[string]object) bool {
			groups := field(all["PrometheusRule x sa-controller-manager"], "spec", "groups").([]any)
			alert := field(groups[0], "rules").([]any)[0]
			return field(alert, "annotations", "runbook_url") == "https://wiki/sacm#sacmdown"
		}},
		"resources": {values: "resources: {limits: {memory: 1Gi}}", is: func(all map[string]object) bool {
			return field(container(all), "resources", "limits", "memory") == "1Gi"
		}},
		"unknown value":  {values: "replicaCount: 3", refused: "replicaCount"},
		"no replica":     {values: "replicas: 0", refused: "/replicas"},
		"no flag":        {values: "extraArgs: [v=2]", refused: "/extraArgs/0"},
		"wrong type":     {values: "monitoring: {enabled: \"no\"}", refused: "/monitoring/enabled"},
		"digest as tag":  {values: "image: {tag: \"sha256:0\"}", refused: "/image/tag"},
		"short digest":   {values: "image: {digest: \"sha256:0\"}", refused: "/image/digest"},
		"our label":      {values: "commonLabels: {app.kubernetes.io/name: x}", refused: "/commonLabels"},
		"number":         {values: "podAnnotations: {a: 1}", refused: "/podAnnotations/a"},
		"strategy":       {values: "strategy: {type: Blue}", refused: "/strategy/type"},
		"unknown policy": {values: "image: {pullPolicy: Sometimes}", refused: "/image/pullPolicy"},
	} {
		t.Run(name, func(t *testing.T) {
			all, hooks, err := render(t, "x", tc.values)
			switch {
			case tc.refused != "":
				if err == nil || !strings.Contains(err.Error(), tc.refused) {
					t.Errorf("got %v, want an error that names %s", err, tc.refused)
				}
			case err != nil:
				t.Error(err)
			case !tc.is(all):
				t.Error(text(t, all[deployment]))
			case field(hooks["Job x sa-controller-manager-uninstall"], "metadata", "annotations", "helm.sh/hook") != "pre-delete":
				t.Errorf("the hooks are %v", hooks)
			}
		})
	}
}

// TestCommonLabels: every object and Pod has them, and no selector, which cannot be changed later.
func TestCommonLabels(t *testing.T) {
	const values = "monitoring: {enabled: true}\n"
	before, hooksBefore, err := render(t, "x", values)
	if err != nil {
		t.Fatal(err)
	}
	objects, hooks, err := render(t, "x", values+"commonLabels: {team: a}")
	if err != nil {
		t.Fatal(err)
	}
	for key, o := range hooksBefore {
		before[key], objects[key] = o, hooks[key]
	}
	for key, o := range objects {
		metadata := []any{field(o, "metadata")}
		if template := field(o, "spec", "template"); template != nil {
			metadata = append(metadata, field(template, "metadata"))
		}
		for _, m := range metadata {
			if field(m, "labels", "team") != "a" {
				t.Errorf("%s does not have the label everywhere:\n%s", key, text(t, o))
				break
			}
			labels := field(m, "labels").(object)
			delete(labels, "team")
			if len(labels) == 0 && field(before[key], "metadata", "labels") == nil {
				delete(m.(object), "labels")
			}
		}
		if !reflect.DeepEqual(o, before[key]) {
			t.Errorf("%s: more than labels changed from\n%s\nto\n%s", key, text(t, before[key]), text(t, o))
		}
	}
}

// TestNamespaces: the signing key and its Pods are in a namespace of their own.
func TestNamespaces(t *testing.T) {
	for namespace, refused := range map[string]bool{"kube-system": true, "kube-public": true, "default": true, "kube": false,
		"ours": false} {
		if _, _, err := render(t, namespace, ""); (err != nil) != refused || err != nil && !strings.Contains(err.Error(), namespace) {
			t.Errorf("%s: got %v, want an error %t", namespace, err, refused)
		}
	}
}

func TestLint(t *testing.T) {
	linted := lint.RunAll(chart, nil, "x")
	for _, message := range linted.Messages {
		if message.Severity > support.InfoSev {
			t.Error(message)
		}
	}
}
