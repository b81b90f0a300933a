// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"sa-controller-manager/internal/atomicfile"
	"sa-controller-manager/internal/await"
	"sa-controller-manager/manifests/component"
	"sa-controller-manager/manifests/nodefile"
	"sa-controller-manager/manifests/staticpod"
)

// step is one change and the waits before and after it.
type step struct {
	name string
	// notes are for the user, before the step runs.
	notes []string
	// summary says what the step does, and advice what to do when it times out.
	summary, advice string
	// proofs and then guards must succeed, in order, before anything is written. proofs only read, and do not
	// depend on earlier steps: a dry run asks them too.
	proofs, guards []await.Check
	writes         []nodefile.Write
	// waits must succeed after the writes; otherwise rollback is written, and undone is the outcome.
	waits    []await.Check
	rollback []nodefile.Write
	undone   string
}

// again begins most advice.
const again = "Running the same command again continues from here"

// logOf says where the log of a component is.
func logOf(name string) string {
	return "Look at the log of " + name + " (crictl ps -a; crictl logs) and of the kubelet."
}

// run prints the plan and runs its steps.
func (c *Config) run(ctx context.Context, steps []step) error {
	c.print(steps)
	act, changes := c.step, func(s step) bool { return len(s.writes) > 0 }
	switch {
	case c.DryRun && c.Client == nil:
		if c.Silent != nil {
			fmt.Fprintf(c.Out, "Not checked, because kube-apiserver did not answer (%v): what the steps ask it first.\n", c.Silent)
		}
		return nil
	case c.DryRun:
		act = ask
	case c.Confirm != nil && slices.ContainsFunc(steps, changes) && !c.Confirm(ctx, "Go on?"):
		return errors.New("nothing was changed")
	default:
		if err := c.removeLeftovers(); err != nil {
			return err
		}
	}
	for i, s := range steps {
		begun := time.Now()
		if err := act(ctx, s); err != nil {
			err = fmt.Errorf("step %d, %s: %w", i+1, s.name, err)
			if !c.DryRun && !await.IsPermanent(err) { // a refusal says what to do
				err = fmt.Errorf("%w\n%s", err, cmp.Or(s.advice, again+"."))
			}
			return err
		}
		if !c.DryRun {
			fmt.Fprintf(c.Out, "Step %d, %s: done (%s).\n", i+1, s.name, time.Since(begun).Round(100*time.Millisecond))
		}
	}
	return nil
}

// removeLeftovers removes what killed commands have left beside the files.
func (c *Config) removeLeftovers() error {
	files := []string{c.RecordFile(), c.onNode(component.AdmissionConfigFile)}
	for _, name := range []string{manager, component.ControllerManager, component.APIServer} {
		files = append(files, c.manifest(name), c.backup(name), c.patch(name))
	}
	var all []error
	for _, file := range files {
		all = append(all, atomicfile.RemoveLeftovers(file))
	}
	return errors.Join(all...)
}

// ask asks the proofs of a step once.
func ask(ctx context.Context, s step) error {
	for _, proof := range s.proofs {
		if err := proof(ctx); err != nil {
			return err
		}
	}
	return nil
}

// step runs the guards, the writes and the waits of a step.
func (c *Config) step(ctx context.Context, s step) error {
	if err := c.await(ctx, slices.Concat(s.proofs, s.guards)...); err != nil {
		return err
	}
	for _, w := range s.writes {
		if err := w.Do(); err != nil {
			return await.Permanent(fmt.Errorf("%w. %s", err, again))
		}
	}
	err := c.await(ctx, s.waits...)
	if await.IsPermanent(err) { // but files have changed
		err = errors.New(err.Error())
	}
	if err == nil || len(s.rollback) == 0 {
		return err
	}
	for _, w := range s.rollback {
		if failed := w.Do(); failed != nil {
			return fmt.Errorf("%w; the previous %s could not be put back from %s: %w", err, w.Path, filepath.Dir(c.RecordFile()), failed)
		}
	}
	return fmt.Errorf("%w; %s", err, s.undone)
}

// print prints every step with the changes to its files.
func (c *Config) print(steps []step) {
	if c.Cluster != "" {
		fmt.Fprintf(c.Out, "Cluster: %s\n", c.Cluster)
	}
	for i, s := range steps {
		fmt.Fprintf(c.Out, "%d. %s: %s.\n", i+1, s.name, s.summary)
		for _, note := range s.notes {
			fmt.Fprintln(c.Out, note)
		}
		for _, w := range s.writes {
			if w.Path == c.RecordFile() {
				continue // only a handback reads it
			}
			if w.Path == c.backup(s.name) || w.Path == c.backup(manager) {
				fmt.Fprintf(c.Out, "The manifest without our changes is kept in %s.\n", w.Path)
				continue
			}
			fmt.Fprint(c.Out, w.Diff())
		}
	}
}

// await runs the checks in order. Each has the timeout of a step. A permanent error stays one.
func (c *Config) await(ctx context.Context, checks ...await.Check) error {
	for _, check := range checks {
		if err := (await.Poll{Timeout: c.StepTimeout, Progress: c.Progress}).Until(ctx, check); err != nil {
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
func (c *Config) runs(name string, m *staticpod.Manifest) await.Check {
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

// managerReady checks that our process is ready, and that it is not the one from before a rewrite. If query
// excludes checks, the Pod itself need not be ready.
func (c *Config) managerReady(d *desired, query string) await.Check {
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
	direct := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true} //nolint:gosec // see above
	answer, err := (&http.Client{Transport: direct, Timeout: 5 * time.Second}).Do(request)
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
func (c *Config) managerGone(o *observed) await.Check {
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
