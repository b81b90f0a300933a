// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"sa-controller-manager/test/devcluster"
)

const (
	nodeName = "control-plane"

	// syncInterval is much shorter than the kubelet's, so that the tests wait less.
	syncInterval = 200 * time.Millisecond

	// gracePeriod is half of the kubelet's default, for kube-apiserver takes all of it to
	// stop. It has to be longer than the 10 s after which a leader gives up, or the tests
	// would not see that our process loses its lease in a takeover and goes on.
	gracePeriod = 15 * time.Second
)

// kubelet runs the static pods of one node.
type kubelet struct {
	t        *testing.T
	root     string
	programs map[string]string // by the base name of a command
	client   kubernetes.Interface
	// node creates mirror pods, as a kubelet does, so that what is for nodes alone is for it.
	node kubernetes.Interface
	// broken: our binary ends at once.
	broken atomic.Bool

	mu   sync.Mutex
	pods map[string]*staticPod // by file name
}

// staticPod is one manifest and what runs of it.
type staticPod struct {
	pod  corev1.Pod
	hash string
	stop context.CancelFunc
	done chan struct{} // closed when nothing of it runs any more
}

// start runs until the test ends.
func (k *kubelet) start() {
	ctx, cancel := context.WithCancel(context.Background())
	k.pods = map[string]*staticPod{}
	var running sync.WaitGroup
	running.Go(func() { every(ctx, syncInterval, k.sync) })
	running.Go(func() { every(ctx, syncInterval, k.report) })
	running.Go(func() { every(ctx, 5*time.Second, k.renew) })
	k.t.Cleanup(func() {
		cancel()
		running.Wait()
		for _, one := range k.pods {
			one.stop()
		}
		for _, one := range k.pods {
			<-one.done
		}
	})
}

func every(ctx context.Context, interval time.Duration, do func(context.Context)) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		do(ctx)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// sync makes what runs be what the files say.
func (k *kubelet) sync(context.Context) {
	k.mu.Lock()
	defer k.mu.Unlock()
	dir := filepath.Join(k.root, "etc", "kubernetes", "manifests")
	entries, err := os.ReadDir(dir)
	if err != nil {
		k.t.Errorf("the kubelet cannot read its manifests: %v", err)
		return
	}
	found := map[string]bool{}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), ".") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			continue // removed meanwhile
		}
		found[entry.Name()] = true
		k.syncFile(entry.Name(), data)
	}
	for name, one := range k.pods {
		if !found[name] {
			one.stop()
			<-one.done
			delete(k.pods, name)
		}
	}
}

func (k *kubelet) syncFile(name string, data []byte) {
	sum := sha256.Sum256(data)
	hash := hex.EncodeToString(sum[:16])
	before := k.pods[name]
	if before != nil && before.hash == hash {
		return
	}
	one := &staticPod{hash: hash, done: make(chan struct{})}
	if err := yaml.UnmarshalStrict(data, &one.pod); err != nil || one.pod.Name == "" {
		// A kubelet would run what it understands. Here nobody may write such a file.
		k.t.Errorf("the kubelet reads %s, which is no manifest: %v\n%s", name, err, data)
		return
	}
	if before != nil {
		before.stop()
		<-before.done
	}
	ctx, cancel := context.WithCancel(context.Background())
	one.stop = cancel
	k.pods[name] = one
	go func() {
		defer close(one.done)
		k.run(ctx, one)
	}()
}

// reboot ends all processes and starts again with an empty /run.
func (k *kubelet) reboot() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, one := range k.pods {
		one.stop()
	}
	for name, one := range k.pods {
		<-one.done
		delete(k.pods, name)
	}
	if err := os.RemoveAll(filepath.Join(k.root, "run")); err != nil {
		k.t.Error(err)
	}
}

// breakManager has our process end, and each one after it.
func (k *kubelet) breakManager() {
	k.broken.Store(true)
	k.mu.Lock()
	defer k.mu.Unlock()
	if one := k.pods["sa-controller-manager.yaml"]; one != nil {
		one.stop()
		<-one.done
		delete(k.pods, "sa-controller-manager.yaml") // what is read next starts it again
	}
}

// run runs a Pod's containers, again and again.
func (k *kubelet) run(ctx context.Context, one *staticPod) {
	for _, volume := range one.pod.Spec.Volumes {
		if host := volume.HostPath; host != nil && host.Type != nil && *host.Type == corev1.HostPathDirectoryOrCreate {
			if err := os.MkdirAll(filepath.Join(k.root, host.Path), 0o700); err != nil {
				k.t.Error(err)
			}
		}
	}
	var beside sync.WaitGroup
	defer beside.Wait()
	for _, container := range one.pod.Spec.InitContainers {
		if container.RestartPolicy != nil && *container.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			beside.Go(func() {
				for ctx.Err() == nil {
					k.runOnce(ctx, one, container, false)
					wait(ctx, time.Second)
				}
			})
			continue
		}
		for !k.runOnce(ctx, one, container, true) {
			if !wait(ctx, time.Second) {
				return
			}
		}
	}
	for ctx.Err() == nil {
		k.runOnce(ctx, one, one.pod.Spec.Containers[0], false)
		wait(ctx, time.Second)
	}
}

func wait(ctx context.Context, pause time.Duration) bool {
	select {
	case <-time.After(pause):
		return true
	case <-ctx.Done():
		return false
	}
}

// runOnce runs a container until it or ctx ends, and reports whether it succeeded.
func (k *kubelet) runOnce(ctx context.Context, one *staticPod, container corev1.Container, initial bool) bool {
	command := withDefaults(slices.Concat(container.Command, container.Args))
	for i, arg := range command {
		command[i] = k.onHost(one.pod.Spec.Volumes, container.VolumeMounts, arg)
		if file, ok := strings.CutPrefix(command[i], "--admission-control-config-file="); ok {
			command[i] = "--admission-control-config-file=" + k.mapped(file)
		}
	}
	program := k.programs[filepath.Base(container.Command[0])]
	if program == k.programs["sa-controller-manager"] && k.broken.Load() {
		program = "/bin/false"
	}
	child, err := devcluster.StartChild(container.Name, program, k.root, command[1:])
	if err != nil {
		k.t.Errorf("the kubelet cannot start %s: %v", container.Name, err)
		return false
	}
	select {
	case <-child.Done():
		if code := child.Code(); code != 0 || !initial {
			// The two others may end when kube-apiserver does, or before it is there.
			if filepath.Base(container.Command[0]) == "sa-controller-manager" {
				k.t.Logf("container %s has ended with code %d:\n%s", container.Name, code, child.LogTail(10))
			}
			return false
		}
		return true
	case <-ctx.Done():
		// kube-controller-manager ends with 1 on SIGTERM, and kube-apiserver
		// may take longer than the kubelet has waitTimeout.
		exit, err := child.Stop(gracePeriod)
		if err != nil || exit.Code != 0 && filepath.Base(container.Command[0]) == "sa-controller-manager" {
			k.t.Errorf("container %s: exit code %d, %v:\n%s", container.Name, exit.Code, err, child.LogTail(400))
		}
		return false
	}
}

// mapped is a copy of a file of kube-apiserver's, with the paths in it as onHost has them.
func (k *kubelet) mapped(file string) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return file // kube-apiserver says it
	}
	copied := file + ".mapped" // beside it, because paths may be relative
	if err := os.WriteFile(copied, bytes.ReplaceAll(data, []byte(" /etc/kubernetes/"), []byte(" "+k.root+"/etc/kubernetes/")),
		0o600); err != nil {
		k.t.Error(err)
	}
	return copied
}

// withDefaults spells the paths out that the program has by default, because only
// arguments can be mapped.
func withDefaults(command []string) []string {
	if !slices.Contains(command, "kubeadm") {
		return command
	}
	for flag, value := range map[string]string{
		"--cert-dir": "/etc/kubernetes/pki", "--out-dir": "/etc/kubernetes/sa-controller-manager",
		"--from": "/etc/kubernetes/controller-manager.conf",
	} {
		if !slices.ContainsFunc(command, func(arg string) bool { return strings.HasPrefix(arg, flag+"=") }) {
			command = append(command, flag+"="+value)
		}
	}
	return command
}

// onHost replaces a path in a container by the path in the directory that is the node.
func (k *kubelet) onHost(volumes []corev1.Volume, mounts []corev1.VolumeMount, arg string) string {
	prefix, path := "", arg
	if name, value, isFlag := strings.Cut(arg, "="); isFlag {
		prefix, path = name+"=", value
	}
	best := ""
	result := arg
	for _, mount := range mounts {
		under := path == mount.MountPath || strings.HasPrefix(path, mount.MountPath+"/")
		if !under || len(mount.MountPath) < len(best) {
			continue
		}
		for _, volume := range volumes {
			if volume.Name == mount.Name && volume.HostPath != nil {
				best = mount.MountPath
				result = prefix + filepath.Join(k.root, volume.HostPath.Path, mount.SubPath, strings.TrimPrefix(path, mount.MountPath))
			}
		}
	}
	return result
}

// report makes the mirror pods be what runs.
func (k *kubelet) report(ctx context.Context) {
	k.mu.Lock()
	wanted := map[string]*staticPod{}
	for _, one := range k.pods {
		wanted[one.pod.Name+"-"+nodeName] = one
	}
	k.mu.Unlock()
	for _, one := range wanted {
		// An API server that is away is what this is about.
		_ = k.mirror(ctx, one)
	}
	pods, err := k.client.CoreV1().Pods("kube-system").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + nodeName})
	if err != nil {
		return
	}
	for _, pod := range pods.Items {
		if one := wanted[pod.Name]; one == nil || pod.Annotations[corev1.MirrorPodAnnotationKey] != one.hash {
			_ = k.client.CoreV1().Pods("kube-system").Delete(ctx, pod.Name,
				metav1.DeleteOptions{GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: &pod.UID}})
		}
	}
}

// mirror creates or updates one mirror pod.
func (k *kubelet) mirror(ctx context.Context, one *staticPod) error {
	pods := k.client.CoreV1().Pods("kube-system")
	pod, err := pods.Get(ctx, one.pod.Name+"-"+nodeName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		pod = one.pod.DeepCopy()
		pod.Name += "-" + nodeName
		pod.Namespace = "kube-system"
		pod.Spec.NodeName = nodeName
		pod.Annotations = maps.Clone(one.pod.Annotations)
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		maps.Copy(pod.Annotations, map[string]string{corev1.MirrorPodAnnotationKey: one.hash, "kubernetes.io/config.hash": one.hash,
			"kubernetes.io/config.source": "file"})
		node, getErr := k.client.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
		if getErr != nil {
			return getErr
		}
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: nodeName, UID: node.UID,
			Controller: new(true)}}
		pod, err = k.node.CoreV1().Pods("kube-system").Create(ctx, pod, metav1.CreateOptions{})
		if err != nil && strings.Contains(err.Error(), "sa-controller-manager") {
			k.t.Errorf("the mirror pod is refused: %v", err)
		}
	}
	if err != nil {
		return err
	}
	status := corev1.ConditionFalse
	if pod.Annotations[corev1.MirrorPodAnnotationKey] == one.hash && healthy(ctx, one.pod.Spec.Containers[0]) == nil {
		status = corev1.ConditionTrue
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady && condition.Status == status {
			return nil
		}
	}
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}}
	_, err = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return err
}

// healthy asks a component where its command says that it serves.
func healthy(ctx context.Context, container corev1.Container) error {
	program := filepath.Base(container.Command[0])
	path := "/readyz"
	port := map[string]string{"kube-apiserver": "6443", "kube-controller-manager": "10257", "sa-controller-manager": "10261"}[program]
	if program == "kube-controller-manager" {
		path = "/healthz"
	}
	for _, arg := range slices.Concat(container.Command, container.Args) {
		if value, ok := strings.CutPrefix(arg, "--secure-port="); ok {
			port = value
		}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://127.0.0.1:"+port+path, nil)
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	return nil
}

// renew keeps the Node from being taken for dead, with its Pods.
func (k *kubelet) renew(ctx context.Context) {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
	if created, err := k.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err == nil {
		created.Status = node.Status
		_, _ = k.client.CoreV1().Nodes().UpdateStatus(ctx, created, metav1.UpdateOptions{})
	}
	leases := k.client.CoordinationV1().Leases("kube-node-lease")
	now := metav1.NowMicro()
	lease, err := leases.Get(ctx, nodeName, metav1.GetOptions{})
	if err != nil {
		_, _ = leases.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: nodeName},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: new(nodeName), RenewTime: &now, LeaseDurationSeconds: new(int32(40))},
		}, metav1.CreateOptions{})
		return
	}
	lease.Spec.RenewTime = &now
	_, _ = leases.Update(ctx, lease, metav1.UpdateOptions{})
}

// String says what runs, for a test that fails.
func (k *kubelet) String() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var names []string
	for name, one := range k.pods {
		names = append(names, fmt.Sprintf("%s (%s): %v", name, one.hash, healthy(context.Background(), one.pod.Spec.Containers[0])))
	}
	slices.Sort(names)
	return strings.Join(names, "\n")
}
