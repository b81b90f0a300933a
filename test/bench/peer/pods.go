// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sa-controller-manager/manifests"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/must"
)

const (
	// podNamespace has the Pods.
	podNamespace = "bench-pods"
	webhooks     = "MutatingAdmissionWebhook,ValidatingAdmissionWebhook"
)

// admission is a control plane with what admits its Pods.
type admission struct {
	*world

	flags   map[string][]string // of kube-apiserver
	mutates bool
}

// The ways of admission: none, kube-apiserver's own plugin, our webhook, and that with the policy that completes Pods.
const bare, inTree, webhook, policy = 0, 1, 2, 3

// pods are created in each way of admission, one after the other. Each has a control plane of its own, because the plugin is on or
// off in a whole kube-apiserver.
func (o *Options) pods(ctx context.Context) {
	without := func(plugins string) map[string][]string {
		return map[string][]string{"disable-admission-plugins": {plugins}}
	}
	o.admitted(ctx, []*admission{
		bare:    {flags: without("ServiceAccount," + webhooks)},
		inTree:  {flags: without(webhooks), mutates: true},
		webhook: {mutates: true},
		policy:  {mutates: true},
	}, 0)
}

// admitted starts the control planes from the given one on, and measures when all run.
func (o *Options) admitted(ctx context.Context, all []*admission, from int) {
	if from < len(all) {
		onFresh(ctx, devcluster.Options{APIServerFlags: all[from].flags}, func(ctx context.Context, w *world) {
			all[from].world = w
			o.admitted(ctx, all, from+1)
		})
		return
	}
	for i, a := range all {
		o.admit(ctx, i, a)
	}
	for range o.Sizes.Repetitions {
		// A hundred clients take long, and many Pods at once; one client needs more Pods for its p99.
		o.create(ctx, "one client", 1, o.Sizes.Pods, all)
		o.create(ctx, "100 clients", 100, max(1, o.Sizes.Pods/50), all)
	}
	for _, a := range all {
		must.Do(each(ctx, o.Sizes.Accounts, writers, func(ctx context.Context, i int) error {
			return a.makeAccount(ctx, podNamespace, "account-"+strconv.Itoa(i))
		}))
	}
	o.create(ctx, fmt.Sprintf("one client, %d accounts in the namespace", o.Sizes.Accounts), 1, o.Sizes.Pods, all)
}

// admit starts ours, and returns once the world admits Pods as it has to.
func (o *Options) admit(ctx context.Context, way int, a *admission) {
	ctx, cancel := context.WithTimeoutCause(ctx, waitTimeout, errors.New("no Pod is admitted as it has to be"))
	defer cancel()
	must.Do(a.makeNamespace(ctx, podNamespace))
	if way == webhook || way == policy {
		port := must.Get(devcluster.FreePort())
		must.Get(o.start(ctx, a.world, ours, "--webhook-port="+strconv.Itoa(port), "--webhook-registration=url"))
	} else {
		must.Do(a.makeAccount(ctx, podNamespace, "default")) // no program does
	}
	if way == policy {
		for _, object := range must.Get(manifests.Completion()) {
			must.Do(a.client.CoreV1().RESTClient().Patch(types.ApplyYAMLPatchType).AbsPath(object.Path()).Param("fieldManager", "bench").
				Body(object.YAML).Do(ctx).Error())
		}
	}
	// Nothing announces when kube-apiserver has learned of a registration, or of a policy.
	must.Do(await.Poll(ctx, func(ctx context.Context) error {
		if err := a.makePod(ctx, a.mutates); err != nil || way != policy {
			return err
		}
		metrics, err := a.APIServerMetrics(ctx)
		if err == nil && metrics.Sum("apiserver_mutating_admission_policy_check_total", nil) == 0 {
			err = errors.New("the policy does not act yet")
		}
		return err
	}))
}

// create has clients create Pods at once, so many times, each time in all worlds. The difference of two p99 is noise.
func (o *Options) create(ctx context.Context, variant string, clients, times int, all []*admission) {
	o.statusf("Pods, %s", variant)
	took := make([][]float64, len(all))
	for i := range times {
		for j := range all {
			way := (i + j) % len(all) // none always comes behind the same one
			batch := make([]float64, clients)
			must.Do(each(ctx, clients, clients, func(ctx context.Context, i int) error {
				begun := time.Now()
				err := all[way].makePod(ctx, all[way].mutates)
				batch[i] = float64(time.Since(begun)) / float64(time.Millisecond)
				return err
			}))
			if i > times/25 { // the first ones find nothing warm
				took[way] = append(took[way], batch...)
			}
		}
	}
	for _, way := range []int{webhook, policy} {
		scenario := "Pods, " + variant
		if way == policy {
			scenario += ", completion policy"
		}
		for _, i := range []int{inTree, way} {
			program := ours
			if i == inTree {
				program = kcm
			}
			o.add(scenario, "p50, ms", program, quantile(took[i], 0.5))
			o.add(scenario, "added to p50, ms", program, quantile(took[i], 0.5)-quantile(took[bare], 0.5))
			o.add(scenario, "p99, ms", program, quantile(took[i], 0.99))
		}
	}
}

// makePod creates a Pod. It is an error if it gets no account and no token volume, or does, other than wanted.
func (w *world) makePod(ctx context.Context, mutated bool) error {
	pod, err := w.client.CoreV1().Pods(podNamespace).Create(ctx, everyday(), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if got := slices.ContainsFunc(pod.Spec.Volumes, func(volume corev1.Volume) bool {
		return volume.Projected != nil && strings.HasPrefix(volume.Name, "kube-api-access-")
	}) && pod.Spec.ServiceAccountName == "default" && len(pod.Spec.Containers[0].VolumeMounts) == 2; got != mutated {
		return fmt.Errorf("pod %s has a token volume: %t", pod.Name, got)
	}
	return nil
}

// everyday is a Pod of everyday size.
func everyday() *corev1.Pod {
	probe := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/bin/true"}}}}
	container := corev1.Container{
		ReadinessProbe: probe, LivenessProbe: probe, Name: "app", Image: "registry.example/team/app:v1.2.3",
		Args: []string{"--listen=:8080", "--log-level=info"},
		Env: []corev1.EnvVar{{Name: "POD_NAME", Value: "x"}, {Name: "REGION", Value: "eu-west-1"},
			{Name: "LOG_FORMAT", Value: "json"}},
		Ports:        []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
		VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi"),
		}},
	}
	sidecar := container
	sidecar.Name, sidecar.Ports = "sidecar", nil
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: "app-", Labels: map[string]string{"app.kubernetes.io/name": "app", "app.kubernetes.io/part-of": "shop"},
		},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{container, sidecar},
			Volumes:    []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
		},
	}
}
