// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
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
