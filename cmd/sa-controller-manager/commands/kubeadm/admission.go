// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/admission/podpolicy"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/internal/check"
	"sa-controller-manager/manifests/component"
	"sa-controller-manager/manifests/identity"
	"sa-controller-manager/manifests/staticpod"
)

// adminFlags lead commands to this cluster.
const adminFlags = " --kubeconfig=/etc/kubernetes/admin.conf"

// checkPlugin refuses to turn kube-apiserver's plugin off if our process, by the flags of our manifest, does
// not do all of its work. Flags that only another version knows do not matter. Otherwise it reports whether ours is
// ordinary.
func (c *Config) checkPlugin(own staticpod.Command) (ordinary bool, _ error) {
	o, err := ownOptions(own, "webhook-port", "webhook-failure-policy", "pod-token", "limit-secret-references")
	if err != nil {
		return false, err
	}
	var lacks string
	switch {
	case o.Webhook.Port == 0:
		lacks = "it serves no webhook (--webhook-port=0)"
	case o.Webhook.FailurePolicy != string(admissionregistrationv1.Fail):
		lacks = "Pods pass it by while it does not answer (--webhook-failure-policy=" + o.Webhook.FailurePolicy + ")"
	default:
		return o.Admission.Plugin().Ordinary(), nil
	}
	return false, fmt.Errorf("our process would not do the work of kube-apiserver's ServiceAccount plugin: %s; change that, "+
		"or give --steps without %s", lacks, StepAPIServer)
}

// restricted creates what is missing of the policies for Pods, Completion only if our plugin is ordinary, and
// refuses to go on if they are wrong. A kube-apiserver that restarts admits nothing before it knows them.
func (c *Config) restricted(ordinary bool) cli.Check {
	return func(ctx context.Context) error {
		wanted := []podpolicy.Policy{podpolicy.Refusal}
		if ordinary {
			wanted = append(wanted, podpolicy.Completion)
		}
		for _, policy := range wanted {
			_, problem, err := policy.Problem(ctx, c.Client)
			if err != nil {
				return err
			}
			if problem == "" {
				continue
			}
			objects, err := policy.Objects()
			if err != nil {
				return err
			}
			if _, err := identity.ApplyObjects(ctx, c.Client.CoreV1().RESTClient(), objects); err != nil {
				return err
			}
		}
		findings, err := podpolicy.Findings(ctx, c.Client, ordinary)
		return cmp.Or(err, cli.Permanent(check.Error(findings, adminFlags)))
	}
}

// unrestricted deletes the policies for Pods, unless a kube-apiserver has no plugin yet.
func (c *Config) unrestricted(ctx context.Context) error {
	servers, err := c.Client.CoreV1().Pods(metav1.NamespaceSystem).List(ctx,
		metav1.ListOptions{LabelSelector: "component=" + component.APIServer})
	if err != nil {
		return err
	}
	for i := range servers.Items {
		if component.PluginIsOff(staticpod.CommandOf(&servers.Items[i])) {
			return nil
		}
	}
	return errors.Join(podpolicy.Completion.Delete(ctx, c.Client), podpolicy.Refusal.Delete(ctx, c.Client))
}
