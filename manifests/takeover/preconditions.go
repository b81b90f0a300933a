// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"sa-controller-manager/admission/registration"
	"sa-controller-manager/controllers/keyprobe"
	"sa-controller-manager/controllers/rootca"
	"sa-controller-manager/internal/await"
	"sa-controller-manager/internal/check"
	"sa-controller-manager/manifests"
	"sa-controller-manager/manifests/component"
	"sa-controller-manager/manifests/identity"
	"sa-controller-manager/manifests/nodefile"
	"sa-controller-manager/manifests/staticpod"
)

// isNode checks that the kubelet shows the kube-apiserver of this node under its name, which every step waits
// for. The address tells clusters apart whose nodes have the same names; a load balancer may be between.
func (c *Config) isNode(o *observed) await.Check {
	const address = "advertise-address"
	return func(ctx context.Context) error {
		pod, err := c.mirror(ctx, component.APIServer)
		if apierrors.IsNotFound(err) {
			return fmt.Errorf("%w: is --node-name %q the name of this node's Node object?", err, c.Node)
		} else if err != nil {
			return err
		}
		here, there := o.apiServer().Command().Last(address), staticpod.CommandOf(pod).Last(address)
		if here != there {
			return await.Permanent(fmt.Errorf("--node-name %q is not this node, or the kubeconfig is of another cluster: "+
				"Pod %s there has --%s=%s, and %s has --%s=%s",
				c.Node, pod.Name, address, there, c.manifest(component.APIServer), address, here))
		}
		return nil
	}
}

// ensureIdentity creates the identity of our process and applies its permissions before it starts, with
// the administrator's rights. Our Pod does so too, but cannot without the key of the CA. With an
// external CA the error says what the operator has to do.
func (c *Config) ensureIdentity(d *desired) await.Check {
	return func(ctx context.Context) error {
		i := identity.NewConfig()
		i.CertDir, i.Dir, i.From = c.onNode(cmp.Or(d.pod.CertDir, i.CertDir)), c.onNode(i.Dir), c.onNode(i.From)
		i.Say = c.Out
		if err := identity.Ensure(ctx, i); err != nil {
			return await.Permanent(fmt.Errorf("the identity of our process: %w", err))
		}
		_, err := identity.Apply(ctx, c.Client.CoreV1().RESTClient(), d.pod.CreateSecrets, c.OnlySigner)
		return err
	}
}

// checkBinary refuses a binary that a reboot may remove or that another user than root may replace, as it
// runs as root and without it Pods are refused, and one that does not run in our Pod.
func (c *Config) checkBinary(ctx context.Context) error {
	if c.Pod.Image != "" {
		return nil
	}
	binary, file := c.Pod.Binary, c.onNode(c.Pod.Binary)
	why, err := nodefile.UnsafePlace(c.onNode("/"), file)
	if err != nil {
		return fmt.Errorf("--binary: %w", err)
	}
	if why != "" {
		return fmt.Errorf("--binary %s: %s; it must survive a reboot and be writable by root only: "+
			"install -m 755 %s /usr/local/bin/%s, then --binary=/usr/local/bin/%s", binary, why, binary, manager, manager)
	}
	if printed, err := c.Pod.Version(ctx, file); err != nil {
		return fmt.Errorf("--binary %s: \"%s version\": %w", binary, file, err)
	} else if !strings.HasPrefix(printed, manager+" ") {
		return fmt.Errorf("--binary %s: \"%s version\" prints no version of %s", binary, file, manager)
	}
	return nil
}

// VersionOf returns what a program prints as its version.
func VersionOf(ctx context.Context, file string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	printed, err := exec.CommandContext(ctx, file, "version").Output()
	return string(printed), err
}

// checkStrayManifests refuses further manifests of the three components. The kubelet takes every file
// for a manifest whose name does not begin with a dot, and would run both.
func (c *Config) checkStrayManifests() error {
	entries, err := os.ReadDir(c.ManifestsDir)
	if err != nil {
		return err // it names the path
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), ".") {
			continue
		}
		file := filepath.Join(c.ManifestsDir, entry.Name())
		if info, err := os.Stat(file); err != nil {
			return fmt.Errorf("%w; if it is a link that leads nowhere, remove it", err)
		} else if !info.Mode().IsRegular() {
			continue // as the kubelet does
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var pod corev1.Pod
		if yaml.Unmarshal(data, &pod) != nil {
			continue // the kubelet does not run that
		}
		for _, name := range []string{manager, component.ControllerManager, component.APIServer} {
			if runs(&pod, name) && entry.Name() != name+".yaml" {
				return fmt.Errorf("%s is a manifest of %s too, and the kubelet runs copies as well; move it out of %s",
					file, name, c.ManifestsDir)
			}
		}
	}
	return nil
}

// runs reports whether a Pod is a component.
func runs(pod *corev1.Pod, name string) bool {
	return pod.Name == name || slices.ContainsFunc(pod.Spec.Containers, func(container corev1.Container) bool {
		return len(container.Command) > 0 && path.Base(container.Command[0]) == name
	})
}

// keyAccepted proves that kube-apiserver accepts a token signed with the key file of our new manifest.
// That is kube-controller-manager's, unless this call names another.
func (c *Config) keyAccepted(d *desired) await.Check {
	file := d.own.Last(component.KeyFlag)
	return func(ctx context.Context) error {
		if d.key == nil {
			return nil // the commands that change a key ring ask kube-apiserver
		}
		account, err := c.Client.CoreV1().ServiceAccounts(metav1.NamespaceSystem).Get(ctx, "default", metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("get an account to prove the key with: %w", err)
		}
		if err = keyprobe.Prove(ctx, c.Client, "", account, d.key); keyprobe.IsRefusal(err) {
			return await.Permanent(fmt.Errorf("%w; openssl pkey -pubout -in %s prints the public half", check.Error([]check.Finding{
				keyprobe.Refusal("kube-apiserver", "in "+file, err.Error())}, adminFlags), file))
		}
		return err
	}
}

// rootCAPublished refuses a root CA file with other certificates than the published ones: every
// namespace would get them at once, and clients that need the others would break.
func (c *Config) rootCAPublished(d *desired) await.Check {
	return func(ctx context.Context) error {
		if d.rootCA == nil {
			return nil
		}
		published, err := rootca.ReadPublished(ctx, c.Client, d.rootCA)
		if err != nil {
			return err
		}
		found := published.Findings([]string{metav1.NamespaceSystem})
		if len(found) > 0 && found[0].Code != rootca.NoRootCA { // a cluster that has just been made has none yet
			return await.Permanent(fmt.Errorf("%w; the certificates of every namespace would change: make file and ConfigMap agree first, "+
				"or disable %s in --%s of kube-controller-manager, if something else publishes it", check.Error(found, adminFlags),
				component.RootCAPublisher, component.ControllersFlag))
		}
		return nil
	}
}

// switchedOff refuses to rely on files that an administrator has switched off: our process keeps them
// away and is ready.
func (c *Config) switchedOff(context.Context) error {
	off := c.onNode(registration.StaticOffPath(manifests.StaticDirectory))
	if _, err := os.Stat(off); err == nil {
		return await.Permanent(fmt.Errorf("%s switches the webhook off; %s webhook register --%s=%s lets it in again",
			off, manager, StaticDirFlag, manifests.StaticDirectory))
	}
	return nil
}
