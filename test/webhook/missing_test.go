// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sa-controller-manager/test/devcluster"
)

// ownControlPlane is one that no other test has left Pods in.
func ownControlPlane(t *testing.T) *cluster {
	t.Helper()
	started, err := devcluster.Start(context.Background(), devcluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{Cluster: started}
	t.Cleanup(func() {
		if c.idle != nil {
			c.idle()
		}
		if err := started.Stop(); err != nil {
			t.Error(err)
		}
	})
	c.connect(t)
	return c
}

// missedPods is what "webhook missed -o json" prints.
type missedPods struct {
	Missed, Uncertain []missedPod
}

type missedPod struct {
	Namespace, Name string
	UID             types.UID
	Owner           *struct{ Kind, Name string }
	Missing         []string
	Command         string
}

// missing is what each Pod lacks, by name.
func (m missedPods) missing() map[string]string {
	byName := map[string]string{}
	for _, pod := range m.Missed {
		byName[pod.Name] = strings.Join(pod.Missing, " ")
	}
	return byName
}

// missed runs the command, which has to end with that code.
func (c *cluster) missed(t *testing.T, code int, flags ...string) missedPods {
	t.Helper()
	binary, err := shared.binary()
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	command := exec.CommandContext(t.Context(), binary.Path, append([]string{"webhook", "missed", "-o=json", "--kubeconfig=" + c.Kubeconfig()}, flags...)...)
	command.Stdout, command.Stderr = &stdout, &stderr
	exit := (*exec.ExitError)(nil)
	if err := command.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if got := command.ProcessState.ExitCode(); got != code {
		t.Errorf("webhook missed %v: exit code %d, want %d\n%s%s", flags, got, code, &stdout, &stderr)
	}
	t.Logf("webhook missed %v: %s", flags, &stderr)
	var found missedPods
	if err := json.Unmarshal(stdout.Bytes(), &found); err != nil {
		t.Fatalf("webhook missed %v: %v:\n%s%s", flags, err, &stdout, &stderr)
	}
	return found
}

// kubectl runs a command line as a shell does in which there is kubectl.
func kubectl(t *testing.T, line string) {
	t.Helper()
	program, err := devcluster.ControlPlaneBinary("kubectl")
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), "sh", "-c", line)
	command.Env = append(os.Environ(), "PATH="+filepath.Dir(program)+":"+os.Getenv("PATH"))
	out, err := command.CombinedOutput()
	t.Logf("%s: %s", line, out)
	if err != nil {
		t.Fatal(err)
	}
}

// awaitScan returns once a scan has ended later than that.
func (m *manager) awaitScan(t *testing.T, after float64) {
	t.Helper()
	poll(t, "await a scan", func(ctx context.Context) error {
		metrics, err := m.Metrics(ctx)
		if err == nil && metrics.Sum("sacm_webhook_missed_scan_timestamp_seconds", nil) <= after {
			err = errors.New("there was none")
		}
		return err
	})
}

// awaitScanEvents returns once the Events about missed Pods are those of want.
func (c *cluster) awaitScanEvents(t *testing.T, namespace string, want map[string]string) {
	t.Helper()
	poll(t, "await the Events of the scan", func(ctx context.Context) error {
		events, err := c.client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=AdmittedWithoutWebhook"})
		if err != nil {
			return err
		}
		told := map[string]string{}
		for _, event := range events.Items {
			_, lacks, _ := strings.Cut(event.Message, "lacks: ")
			lacks, _, _ = strings.Cut(lacks, ". Only a new Pod")
			told[event.InvolvedObject.Name] = strings.ReplaceAll(lacks, ",", "")
		}
		if diff := cmp.Diff(want, told); diff != "" {
			return fmt.Errorf("events (-want +got):\n%s", diff)
		}
		return nil
	})
}

// deleteBoth takes both configurations away, without saying so first. With one of them
// left no Pod is missed: it is completed, or refused.
func (c *cluster) deleteBoth(t *testing.T) {
	t.Helper()
	for _, err := range []error{
		c.validating().Delete(t.Context(), configurationName, metav1.DeleteOptions{}),
		c.mutating().Delete(t.Context(), configurationName, metav1.DeleteOptions{}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// awaitMissedPod creates a Pod as soon as kube-apiserver does not ask the webhook.
func (c *cluster) awaitMissedPod(t *testing.T, namespace string) {
	t.Helper()
	poll(t, "await a Pod that is missed", func(ctx context.Context) error {
		pod, err := c.client.CoreV1().Pods(namespace).Create(ctx, newPod(), metav1.CreateOptions{})
		if err == nil && pod.Spec.ServiceAccountName != "" {
			err = errors.New("the webhook is still called")
		}
		return err
	})
}

// awaitPods returns the Pods of the two workloads once there are that many.
func (c *cluster) awaitPods(t *testing.T, namespace string, n int) (pods []corev1.Pod) {
	t.Helper()
	poll(t, fmt.Sprintf("await %d Pods", n), func(context.Context) error {
		if pods = c.pods(t, namespace, "app=web"); len(pods) != n {
			return fmt.Errorf("there are %d", len(pods))
		}
		return nil
	})
	return pods
}

// awaitSuccessors returns what is in the place of those Pods once none of them is left.
func (c *cluster) awaitSuccessors(t *testing.T, namespace string, of []corev1.Pod) (pods []corev1.Pod) {
	t.Helper()
	poll(t, "await that the Pods are replaced", func(context.Context) error {
		pods = c.pods(t, namespace, "app=web")
		for _, pod := range pods {
			if slices.ContainsFunc(of, func(old corev1.Pod) bool { return old.UID == pod.UID }) {
				return fmt.Errorf("%s is still there", pod.Name)
			}
		}
		if len(pods) != len(of) {
			return fmt.Errorf("there are %d", len(pods))
		}
		return nil
	})
	return pods
}

func (c *cluster) pods(t *testing.T, namespace, selector string) []corev1.Pod {
	t.Helper()
	list, err := c.client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// identities change with every change of a Pod.
func identities(pods []corev1.Pod) map[string]string {
	byName := map[string]string{}
	for _, pod := range pods {
		byName[pod.Name] = string(pod.UID) + " " + pod.ResourceVersion
	}
	return byName
}
