// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/manifests/component"
	"sa-controller-manager/manifests/staticpod"
)

// await runs the checks in order. Each has the timeout of a step. A permanent error stays one.
func (c *Config) await(ctx context.Context, checks ...cli.Check) error {
	for _, check := range checks {
		if err := (cli.Await{Clock: clock.RealClock{}, Timeout: c.StepTimeout, Progress: c.Progress}).Until(ctx, check); err != nil {
			return err
		}
	}
	return nil
}

// mirror returns this node's mirror pod of a component.
func (c *Config) mirror(ctx context.Context, name string) (*corev1.Pod, error) {
	return c.Client.CoreV1().Pods(metav1.NamespaceSystem).Get(ctx, name+"-"+c.Node, metav1.GetOptions{})
}

// runs checks that the kubelet runs a component as a manifest has it. The kubelet replaces the mirror pod
// when the manifest changes, and the new one does not inherit the status of the old one.
func (c *Config) runs(name string, m *staticpod.Manifest) cli.Check {
	return func(ctx context.Context) error {
		pod, err := c.mirror(ctx, name)
		if err != nil {
			return err
		}
		const restarted = component.RestartAnnotation
		if !slices.Equal(staticpod.CommandOf(pod), m.Command()) || pod.Annotations[restarted] != m.Annotations()[restarted] {
			return fmt.Errorf("the kubelet still runs Pod %s of the previous manifest", pod.Name)
		}
		return awaitsReady(pod)
	}
}

// awaitsReady returns nil once the Pod is ready, and what the kubelet says of a container that waits: its back-off, which
// counts ends of the same manifest in the last ten minutes, takes up to five minutes.
func awaitsReady(pod *corev1.Pod) error {
	ready := func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue }
	if pod.DeletionTimestamp != nil || !slices.ContainsFunc(pod.Status.Conditions, ready) {
		return fmt.Errorf("the Pod %s is not ready yet%s", pod.Name, waiting(pod))
	}
	return nil
}

// waiting returns what the kubelet says of containers that do not run, such as how long it will not restart them.
func waiting(pod *corev1.Pod) (why string) {
	for _, one := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if one.State.Waiting == nil {
			continue
		}
		why += fmt.Sprintf(": %s: %s", one.State.Waiting.Reason, one.State.Waiting.Message)
		if last := one.LastTerminationState.Terminated; last != nil {
			why += fmt.Sprintf(" (exit code %d)", last.ExitCode)
		}
	}
	return why
}

// registrationCheck is the name of the check of /readyz that passes once kube-apiserver calls our webhook.
const registrationCheck = "webhook-registration"

// managerReady checks that our process is ready, and that it is not the one from before a rewrite. With a
// query that excludes checks the Pod may be not ready.
func (c *Config) managerReady(d *desired, query string) cli.Check {
	return func(ctx context.Context) error {
		pod, err := c.mirror(ctx, manager)
		if err == nil && !isOf(pod, d.manifest) {
			return fmt.Errorf("the kubelet still runs Pod %s of the previous manifest", pod.Name)
		}
		if unhealthy := healthy(ctx, ownPort(d.own), query); unhealthy != nil && err == nil {
			return fmt.Errorf("%w%s", unhealthy, waiting(pod))
		} else if unhealthy != nil {
			return unhealthy
		}
		if err != nil || query != "" {
			return err
		}
		return awaitsReady(pod)
	}
}

// isOf reports whether a mirror pod belongs to a manifest. It compares what a takeover sets, because the kubelet's own hash
// depends on the kubelet's version.
func isOf(pod *corev1.Pod, manifest []byte) bool {
	var wanted corev1.Pod
	return yaml.Unmarshal(manifest, &wanted) == nil && slices.Equal(staticpod.CommandOf(pod), staticpod.CommandOf(&wanted)) &&
		slices.EqualFunc(pod.Spec.Containers, wanted.Spec.Containers, func(a, b corev1.Container) bool { return a.Image == b.Image }) &&
		equality.Semantic.DeepDerivative(wanted.Spec.Volumes, pod.Spec.Volumes)
}

// healthy asks /readyz of our process. Its certificate is self-signed, and the answer is not secret.
func healthy(ctx context.Context, port, query string) error {
	url := fmt.Sprintf("https://127.0.0.1:%s/readyz%s", port, query)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true} //nolint:gosec // see above
	answer, err := (&http.Client{Transport: transport, Timeout: 5 * time.Second}).Do(request)
	if err != nil {
		return err // it names the URL
	}
	defer answer.Body.Close()
	if answer.StatusCode == http.StatusOK {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, 4096))
	if err != nil {
		return err
	}
	return fmt.Errorf("%s: %s: %s", url, answer.Status, failing(string(body)))
}

// failing returns the checks of a health answer that fail.
func failing(body string) string {
	passes := func(line string) bool { return !strings.HasPrefix(line, "[-]") }
	return strings.Join(slices.DeleteFunc(strings.Split(body, "\n"), passes), "; ")
}

// managerGone checks that our process has ended on this node. The mirror pod may go before the process
// does.
func (c *Config) managerGone(o *observed) cli.Check {
	address := net.JoinHostPort("127.0.0.1", ownPort(o.own))
	return func(ctx context.Context) error {
		if _, err := c.mirror(ctx, manager); err == nil {
			return errors.New("the kubelet has not stopped sa-controller-manager yet")
		} else if !apierrors.IsNotFound(err) {
			return err
		}
		if o.manager == nil {
			return nil
		}
		connection, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", address)
		if err == nil {
			return errors.Join(fmt.Errorf("something still listens on %s", address), connection.Close())
		}
		return nil
	}
}
