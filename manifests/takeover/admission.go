// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"sigs.k8s.io/yaml"

	"sa-controller-manager/admission/configfile"
	"sa-controller-manager/admission/podpolicy"
	"sa-controller-manager/internal/await"
	"sa-controller-manager/internal/check"
	"sa-controller-manager/manifests"
	"sa-controller-manager/manifests/component"
	"sa-controller-manager/manifests/identity"
	"sa-controller-manager/manifests/staticpod"
)

const (
	// adminFlags lead commands to this cluster.
	adminFlags = " --kubeconfig=/etc/kubernetes/admin.conf"

	copyHead = "# Written by sa-controller-manager kubeadm takeover, for kube-apiserver.\n"

	// policyPlugin reads the policy that names the account of Pods.
	policyPlugin       = "MutatingAdmissionPolicy"
	staticManifestsDir = "staticManifestsDir"
)

// checkPlugin refuses to disable kube-apiserver's plugin if our process, by the flags of our manifest, does
// not do all of its work. Otherwise it reports whether ours is ordinary.
func (c *Config) checkPlugin(own staticpod.Command) (ordinary bool, _ error) {
	ordinary, lacks, err := c.Pod.Flags.Webhook(own)
	if lacks != "" {
		err = fmt.Errorf("our process would not do the work of kube-apiserver's ServiceAccount plugin: %s; change that, "+
			"or give --steps without %s", lacks, StepAPIServer)
	}
	return ordinary, err
}

// restricted creates what is missing of the policies for Pods, Completion only if our plugin is ordinary, and
// fails if they are wrong. A kube-apiserver that restarts admits nothing before it knows them.
func (c *Config) restricted(ordinary bool) await.Check {
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
		return cmp.Or(err, await.Permanent(check.Error(findings, adminFlags)))
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

// source reads one of the operator's files as kube-apiserver sees them, and adds it to the head of the copy.
func (c *Config) source(m *staticpod.Manifest, file string, head *string) ([]byte, error) {
	host, err := m.HostPath(file)
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(c.onNode(host)) // its error names the path
	*head += configfile.Source(host, content)
	return content, err
}

// copyOf returns what kube-apiserver is to read: the operator's --admission-control-config-file, or an empty one, with
// our directories. What it does not change means the same in the copy. A kube-apiserver that reads an older copy keeps it.
func (c *Config) copyOf(o *observed, m *staticpod.Manifest) ([]byte, error) {
	reads := o.apiServer().ReadsFiles() && o.copied != nil
	if reads && !bytes.HasPrefix(o.copied, []byte(copyHead)) {
		return o.copied, nil // of a cluster that was created with our process
	}
	content, err := c.admissionConfig(m)
	if err != nil {
		return nil, fmt.Errorf("--%s of %s: %w", component.AdmissionConfigFlag, component.APIServer, err)
	}
	if reads && !bytes.Equal(o.copied, content) {
		return nil, fmt.Errorf("%s is not what a takeover makes of %s now, and kube-apiserver reads it only when it starts; "+
			"first run: kubeadm handback --steps=%s", component.AdmissionConfigFile, cmp.Or(m.Command().Last(component.AdmissionConfigFlag),
			"no file of yours"), StepAPIServer)
	}
	return content, nil
}

func (c *Config) admissionConfig(m *staticpod.Manifest) ([]byte, error) {
	if err := m.Understands(component.AdmissionConfigFlag); err != nil {
		return nil, err
	}
	head := copyHead
	var config apiserverv1.AdmissionConfiguration // earlier versions have the same fields
	file := m.Command().Last(component.AdmissionConfigFlag)
	if file != "" {
		data, err := c.source(m, file, &head)
		if err == nil {
			err = yaml.UnmarshalStrict(data, &config)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if config.Kind != "AdmissionConfiguration" {
			return nil, fmt.Errorf("%s: it is a %q, want an AdmissionConfiguration", file, config.Kind)
		}
	}
	config.SetGroupVersionKind(apiserverv1.SchemeGroupVersion.WithKind("AdmissionConfiguration"))
	for i := range config.Plugins {
		if p := &config.Plugins[i].Path; *p != "" && !path.IsAbs(*p) {
			*p = path.Join(path.Dir(file), *p)
		}
	}
	directories := manifests.StaticDirs(manifests.StaticDirectory)
	for i, name := range append(component.WebhookPlugins(), policyPlugin) {
		if err := c.extend(m, &config, name, directories[i], &head); err != nil {
			return nil, fmt.Errorf("%s: plugin %s: %w", file, name, err)
		}
	}
	content, err := yaml.Marshal(config)
	return append([]byte(head), content...), err
}

// extend gives a plugin our directory. kube-apiserver reads the first entry of a plugin.
func (c *Config) extend(m *staticpod.Manifest, config *apiserverv1.AdmissionConfiguration, name, directory string, head *string) error {
	i := slices.IndexFunc(config.Plugins, func(p apiserverv1.AdmissionPluginConfiguration) bool { return p.Name == name })
	if i < 0 {
		i = len(config.Plugins)
		config.Plugins = append(config.Plugins, apiserverv1.AdmissionPluginConfiguration{Name: name})
	}
	plugin := &config.Plugins[i]
	var own []byte
	if plugin.Configuration != nil {
		own = plugin.Configuration.Raw
	} else if plugin.Path != "" {
		var err error
		if own, err = c.source(m, plugin.Path, head); err != nil {
			return err
		}
	}
	var has map[string]any
	if err := yaml.Unmarshal(own, &has); err != nil {
		return err
	}
	if other := has[staticManifestsDir]; other != nil && other != "" {
		return fmt.Errorf("it has %s: %v already, and kube-apiserver reads one; docs/static-registration.md has what to do by hand; "+
			"--extra-arg=--webhook-registration=none uses none, and leaves kube-apiserver its plugin", staticManifestsDir, other)
	}
	settings := map[string]any{"apiVersion": apiserverv1.SchemeGroupVersion.String(), "kind": "WebhookAdmissionConfiguration"}
	if name == policyPlugin {
		settings["kind"] = policyPlugin + "Configuration"
	}
	maps.Copy(settings, has)
	settings[staticManifestsDir] = directory
	raw, err := json.Marshal(settings)
	plugin.Path, plugin.Configuration = "", &runtime.Unknown{Raw: raw, ContentType: runtime.ContentTypeJSON}
	return err
}
