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

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
)

const (
	// podNamespace has the Pods.
	podNamespace = "bench-pods"
	webhooks     = "MutatingAdmissionWebhook,ValidatingAdmissionWebhook"
)

// pods are created without admission, through kube-apiserver's own plugin, and through our webhook, in turn. Each has a
// control plane of its own, because the plugin is on or off in a whole kube-apiserver.
func (o *Options) pods(ctx context.Context) error {
	without := func(plugins string) devcluster.Options {
		return devcluster.Options{APIServerFlags: map[string][]string{"disable-admission-plugins": {plugins}}}
	}
	return onFresh(ctx, without("ServiceAccount,"+webhooks), func(ctx context.Context, bare *world) error {
		return onFresh(ctx, without(webhooks), func(ctx context.Context, inTree *world) error {
			return onFresh(ctx, devcluster.Options{}, func(ctx context.Context, webhook *world) error {
				if err := o.admit(ctx, bare, inTree, webhook); err != nil {
					return err
				}
				for range o.Sizes.Repetitions {
					// A hundred clients take long, and many Pods at once; one client needs more Pods for its p99.
					if err := errors.Join(
						o.create(ctx, "one client", 1, o.Sizes.Pods, bare, inTree, webhook),
						o.create(ctx, "100 clients", 100, max(1, o.Sizes.Pods/50), bare, inTree, webhook),
					); err != nil {
						return err
					}
				}
				return nil
			})
		})
	})
}

// admit starts ours, and returns once each world admits Pods as it has to.
func (o *Options) admit(ctx context.Context, bare, inTree, webhook *world) error {
	ctx, cancel := context.WithTimeoutCause(ctx, waitTimeout, errors.New("no Pod is admitted as it has to be"))
	defer cancel()
	port, err := devcluster.FreePort()
	if err != nil {
		return err
	}
	if _, err := o.start(ctx, webhook, ours, "--webhook-port="+strconv.Itoa(port), "--webhook-registration=url"); err != nil {
		return err
	}
	for _, w := range []*world{bare, inTree, webhook} {
		if err := w.makeNamespace(ctx, podNamespace); err != nil {
			return err
		}
		if w != webhook { // where no program runs
			if err := w.makeAccount(ctx, podNamespace, "default"); err != nil {
				return err
			}
		}
		// Nothing announces when kube-apiserver has learned of a registration.
		if err := await.Poll(ctx, func(ctx context.Context) error { return w.makePod(ctx, w != bare) }); err != nil {
			return err
		}
	}
	return nil
}

// create has clients create Pods at once, so many times, each time in all worlds. The difference of two p99 is noise.
func (o *Options) create(ctx context.Context, variant string, clients, times int, bare, inTree, webhook *world) error {
	o.statusf("Pods, %s", variant)
	worlds, took := []*world{bare, inTree, webhook}, map[*world][]float64{}
	for i := range times {
		for j := range worlds {
			w := worlds[(i+j)%len(worlds)] // none always comes behind the same one
			batch := make([]float64, clients)
			if err := each(ctx, clients, clients, func(ctx context.Context, i int) error {
				begun := time.Now()
				err := w.makePod(ctx, w != bare)
				batch[i] = float64(time.Since(begun)) / float64(time.Millisecond)
				return err
			}); err != nil {
				return err
			}
			if i > times/25 { // the first ones find nothing warm
				took[w] = append(took[w], batch...)
			}
		}
	}
	for w, program := range map[*world]string{inTree: kcm, webhook: ours} {
		o.add("Pods, "+variant, "p50, ms", program, quantile(took[w], 0.5))
		o.add("Pods, "+variant, "added to p50, ms", program, quantile(took[w], 0.5)-quantile(took[bare], 0.5))
		o.add("Pods, "+variant, "p99, ms", program, quantile(took[w], 0.99))
	}
	return nil
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
		Name: "app", Image: "registry.example/team/app:v1.2.3", Args: []string{"--listen=:8080", "--log-level=info"},
		Env: []corev1.EnvVar{
			{Name: "POD_NAME", Value: "x"}, {Name: "REGION", Value: "eu-west-1"}, {Name: "LOG_FORMAT", Value: "json"},
		},
		Ports:          []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
		VolumeMounts:   []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
		ReadinessProbe: probe, LivenessProbe: probe,
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
