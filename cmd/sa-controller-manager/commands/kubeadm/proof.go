// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"cmp"
	"context"
	"fmt"
	"net"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/controllers/informers"
	"sa-controller-manager/controllers/keyprobe"
	"sa-controller-manager/controllers/rootca"
	"sa-controller-manager/signing"
)

// keyAccepted proves that every kube-apiserver accepts a token signed with the key file of our new
// manifest. That is kube-controller-manager's, unless this call names another.
func (c *Config) keyAccepted(o *observed) cli.Look {
	file := ownFlag(o.rendered, keyFlag)
	return func(ctx context.Context) error {
		if file == "" {
			return nil // the commands that change a key ring ask kube-apiserver
		}
		key, err := cli.ReadFile(keyFlag, c.onNode(file), signing.ParsePrivateKey)
		if err != nil {
			return cli.Permanent(fmt.Errorf("our %w", err))
		}
		account, err := c.Client.CoreV1().ServiceAccounts(metav1.NamespaceSystem).Get(ctx, "default", metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("get an account to prove the key with: %w", err)
		}
		servers, err := c.mirrors(ctx, apiServer)
		if err != nil {
			return err
		}
		for node, pod := range servers {
			if err := c.accepts(ctx, pod, account, key); keyprobe.IsRefusal(err) {
				return cli.Permanent(fmt.Errorf("kube-apiserver on %s does not accept the key of %s (%w); give it the public half with one more --%s: openssl pkey -pubout -in %s prints it",
					node, file, err, verifyKeyFlag, file))
			} else if err != nil {
				return fmt.Errorf("kube-apiserver on %s: %w", node, err)
			}
		}
		return nil
	}
}

// accepts asks one kube-apiserver directly, without the load balancer.
func (c *Config) accepts(ctx context.Context, server *corev1.Pod, account *corev1.ServiceAccount, key *signing.PrivateKey) error {
	command := podCommand(server)
	client, err := c.ClientAt("https://" + net.JoinHostPort(
		cmp.Or(last(flagsIn(command, "advertise-address")), server.Status.HostIP), cmp.Or(last(flagsIn(command, "secure-port")), "6443")))
	if err != nil {
		return err
	}
	return keyprobe.Prove(ctx, client, "", account, key)
}

// rootCAPublished refuses a root CA file with other certificates than the published ones: every
// namespace would get them at once, and clients that need the others would break.
func (c *Config) rootCAPublished(o *observed) cli.Look {
	file := ownFlag(o.rendered, rootCAFlag)
	return func(ctx context.Context) error {
		here, err := runsIn(o.rendered)
		if err != nil || file == "" || !here.Enabled(options.RootCACertificatePublisher) {
			return cli.Permanent(err)
		}
		wanted, err := cli.ReadFile(rootCAFlag, c.onNode(file), rootca.ParseBundle)
		if err != nil {
			return cli.Permanent(fmt.Errorf("our %w", err))
		}
		object, err := c.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, informers.RootCAName, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		} else if err != nil {
			return err
		}
		published, err := rootca.ParseBundle([]byte(object.Data[informers.RootCAKey]))
		if err != nil {
			return cli.Permanent(fmt.Errorf("ConfigMap %s/%s %w", object.Namespace, object.Name, err))
		}
		state, err := c.Client.CoreV1().Secrets(rootca.StateNamespace).Get(ctx, rootca.StateName, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		adds, drops, err := rootca.Replaces(wanted, published, state, c.Clock.Now())
		if err != nil {
			return cli.Permanent(err)
		}
		if adds == "" && drops == "" {
			return nil
		}
		return cli.Permanent(fmt.Errorf("our process would change ConfigMap %s of every namespace to the certificates in %s (added: %s; removed: %s); first make the file and the ConfigMap agree, or turn %s off in --%s of kube-controller-manager, if something else publishes it",
			object.Name, file, cmp.Or(adds, "none"), cmp.Or(drops, "none"), options.RootCACertificatePublisher, controllersFlag))
	}
}
