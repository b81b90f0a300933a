// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	policyconfigv1 "k8s.io/apiserver/pkg/admission/plugin/policy/config/apis/policyconfig/v1"
	webhookconfig "k8s.io/apiserver/pkg/admission/plugin/webhook/config"
	webhookadmissionv1 "k8s.io/apiserver/pkg/admission/plugin/webhook/config/apis/webhookadmission/v1"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"sigs.k8s.io/yaml"

	"sa-controller-manager/admission/registration"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/component"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/staticpod"
	"sa-controller-manager/manifests"
)

const copyHead = "# Written by sa-controller-manager kubeadm takeover, for kube-apiserver.\n"

// source reads one of the operator's files as kube-apiserver sees them.
func (c *Config) source(m *staticpod.Manifest, file string) ([]byte, error) {
	host, err := m.HostPath(file)
	if err != nil {
		return nil, err
	}
	return os.ReadFile(c.onNode(host)) // its error names the path
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
	file := m.Command().Last(component.AdmissionConfigFlag)
	var plugins []plugin
	if file != "" {
		data, err := c.source(m, file)
		if err != nil {
			return nil, err
		}
		if plugins, err = pluginsOf(data); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	for i := range plugins {
		if p := &plugins[i].Path; *p != "" && !path.IsAbs(*p) {
			*p = path.Join(path.Dir(file), *p)
		}
	}
	directories := registration.StaticDirs(manifests.StaticDirectory)
	for i, name := range append(component.WebhookPlugins(), policyPlugin) {
		var err error
		if plugins, err = c.extend(m, plugins, name, directories[i]); err != nil {
			return nil, fmt.Errorf("%s: plugin %s: %w", file, name, err)
		}
	}
	made := apiserverv1.AdmissionConfiguration{}
	made.SetGroupVersionKind(apiserverv1.SchemeGroupVersion.WithKind("AdmissionConfiguration"))
	for _, one := range plugins {
		made.Plugins = append(made.Plugins, apiserverv1.AdmissionPluginConfiguration(one))
	}
	content, err := yaml.Marshal(made)
	if err != nil {
		return nil, fmt.Errorf("encode the copy: %w", err)
	}
	return append([]byte(copyHead), content...), nil
}

// pluginsOf reads a file as kube-apiserver does, which refuses unknown fields.
func pluginsOf(data []byte) ([]plugin, error) {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	decoded, err := runtime.Decode(serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder(), data)
	if err != nil {
		return nil, err
	}
	config, ok := decoded.(*apiserver.AdmissionConfiguration)
	if !ok {
		return nil, fmt.Errorf("it is a %T, want an AdmissionConfiguration", decoded)
	}
	return config.Plugins, nil
}

type plugin = apiserver.AdmissionPluginConfiguration

// policyPlugin reads the policy that names the account of Pods.
const policyPlugin = "MutatingAdmissionPolicy"

// extend gives a plugin our directory. kube-apiserver reads the first entry of a plugin.
func (c *Config) extend(m *staticpod.Manifest, plugins []plugin, name, directory string) ([]plugin, error) {
	i := slices.IndexFunc(plugins, func(p plugin) bool { return p.Name == name })
	if i < 0 {
		i = len(plugins)
		plugins = append(plugins, plugin{Name: name})
	}
	var own []byte
	var err error
	if plugins[i].Configuration != nil {
		own = plugins[i].Configuration.Raw
	} else if plugins[i].Path != "" {
		if own, err = c.source(m, plugins[i].Path); err != nil {
			return nil, err
		}
	}
	made := webhookadmissionv1.WebhookAdmission{StaticManifestsDir: directory}
	made.SetGroupVersionKind(webhookadmissionv1.SchemeGroupVersion.WithKind("WebhookAdmissionConfiguration"))
	if len(own) > 0 {
		var has webhookadmissionv1.WebhookAdmission
		if err := yaml.Unmarshal(own, &has); err != nil {
			return nil, err
		}
		if has.StaticManifestsDir != "" {
			return nil, fmt.Errorf("it has staticManifestsDir: %s already, and kube-apiserver reads one; docs/static-registration.md has "+
				"what to do by hand; --extra-arg=--webhook-registration=url uses none", has.StaticManifestsDir)
		}
	}
	if len(own) > 0 && name != policyPlugin {
		loaded, err := webhookconfig.LoadConfig(bytes.NewReader(own))
		if err != nil {
			return nil, err
		}
		made.KubeConfigFile = loaded.KubeConfigFile
	}
	raw, err := json.Marshal(made)
	if name == policyPlugin { // which knows that field alone
		policies := policyconfigv1.MutatingAdmissionPolicyConfiguration{StaticManifestsDir: directory}
		policies.SetGroupVersionKind(policyconfigv1.SchemeGroupVersion.WithKind(policyPlugin + "Configuration"))
		raw, err = json.Marshal(policies)
	}
	if err != nil {
		return nil, fmt.Errorf("encode its configuration: %w", err)
	}
	plugins[i].Path, plugins[i].Configuration = "", &runtime.Unknown{Raw: raw, ContentType: runtime.ContentTypeJSON}
	return plugins, nil
}
