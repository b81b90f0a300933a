// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission/plugin/manifest"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"

	"sa-controller-manager/internal/atomicfile"
	"sa-controller-manager/manifests"
)

// StaticName is the name of both configurations in files; kube-apiserver requires the suffix, and calls
// those of a directory in the order of their names.
const StaticName = Name + manifest.StaticConfigSuffix

const (
	// staticFile is the name of the file of each configuration.
	staticFile = "sa-controller-manager.yaml"

	// staticOffFile keeps the process of a host from writing the files.
	staticOffFile = "off"
)

func (k kind) staticPath(dir string) string {
	return filepath.Join(manifests.StaticDirs(dir)[k], staticFile)
}

func staticPolicyPath(dir string) string {
	return filepath.Join(manifests.StaticDirs(dir)[kinds], staticFile)
}

// StaticPaths returns the files below dir, that of the policy first.
func StaticPaths(dir string) []string {
	return []string{staticPolicyPath(dir), mutating.staticPath(dir), validating.staticPath(dir)}
}

// plugin returns the admission plugin of kube-apiserver that calls webhooks of this kind.
func (k kind) plugin() string {
	return [kinds]string{"MutatingAdmissionWebhook", "ValidatingAdmissionWebhook"}[k]
}

// WriteStatic writes both configurations and the policy below dir, which must exist, and returns the paths
// of the files. kube-apiserver must accept the caBundle: while it is wrong, every Pod is refused.
func (s Spec) WriteStatic(dir string, caBundle []byte) ([]string, error) {
	contents, err := s.staticContents(caBundle)
	if err != nil {
		return nil, err
	}
	for k, content := range contents {
		if err := writeStatic(kind(k).staticPath(dir), content); err != nil {
			return nil, err
		}
	}
	return StaticPaths(dir), s.keepPolicy(dir, true)
}

// writeStatic replaces the file atomically: kube-apiserver loads what is there at any time.
func writeStatic(path string, content []byte) error {
	//nolint:gosec // it holds nothing secret, and kube-apiserver may run as another user
	if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil && !os.IsExist(err) {
		return err // it names the path
	}
	return atomicfile.Write(path, content, 0o644)
}

// keepPolicy writes the policy that names the account of Pods, or removes it. It is there only while Pods
// that it has named are completed or refused.
func (s Spec) keepPolicy(dir string, bound bool) error {
	path := staticPolicyPath(dir)
	if !bound || !s.Ordinary || s.FailurePolicy != admissionregistrationv1.Fail {
		return atomicfile.Remove(path)
	}
	if found, err := os.ReadFile(path); err == nil && bytes.Equal(found, manifests.StaticPolicy) {
		return nil
	}
	return writeStatic(path, manifests.StaticPolicy)
}

// staticContents returns the files with the real rules. The entry of the probe stays beside them, so that
// the proof can be repeated with any rules.
func (s Spec) staticContents(caBundle []byte) ([kinds][]byte, error) {
	var entries [kinds][]entry
	entries[mutating], entries[validating] = s.entries(caBundle)
	entries[mutating] = append(entries[mutating], s.probeEntry(caBundle))
	return encodeStatic(entries)
}

// stagedContents returns the files for the proof: what is bound by those that are found stays, and it reports
// whether anything is. What kube-apiserver would not load binds nothing.
func (s Spec) stagedContents(ctx context.Context, found [kinds][]byte, caBundle []byte) (_ [kinds][]byte, bound bool, _ error) {
	var entries [kinds][]entry
	for k, content := range found {
		o, err := kind(k).decodeStatic(content)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Replacing a file that kube-apiserver does not load", "file", kind(k).String())
		}
		entries[k] = staged(o.webhooks())
		bound = bound || binds(entries[k])
	}
	entries[mutating] = append(entries[mutating], s.probeEntry(caBundle))
	contents, err := encodeStatic(entries)
	return contents, bound, err
}

// encodeStatic returns the files.
func encodeStatic(entries [kinds][]entry) (contents [kinds][]byte, err error) {
	for k := range kinds {
		o := object{meta: metav1.ObjectMeta{Name: StaticName}, entries: entries[k]}
		if contents[k], err = yaml.Marshal(k.typed(&o)); err != nil {
			return contents, fmt.Errorf("encode the %s %s: %w", k, StaticName, err)
		}
	}
	return contents, nil
}

// decodeStatic decodes a file as strictly as kube-apiserver, and returns nil for an empty one: a file that it refuses
// is ignored while it runs, but stops it at its next start.
func (k kind) decodeStatic(content []byte) (*object, error) {
	if len(content) == 0 {
		return nil, nil
	}
	c := k.typed(&object{})
	if err := yaml.UnmarshalStrict(content, c); err != nil {
		return nil, err
	}
	o := asObject(c)
	found, want := c.GetObjectKind().GroupVersionKind(), k.typed(&object{}).GetObjectKind().GroupVersionKind()
	if found != want || o.meta.Name != StaticName {
		return nil, fmt.Errorf("found the %s %q, expected the %s %s", found, o.meta.Name, want, StaticName)
	}
	names := sets.New[string]()
	for _, one := range o.entries {
		config := one.ClientConfig
		// The errors of the library quote the certificates.
		if names.Has(one.Name) || config.Service != nil || config.URL == nil || len(webhook.ValidateCABundle(nil, config.CABundle)) > 0 ||
			len(webhook.ValidateWebhookURL(nil, *config.URL, true)) > 0 {
			return nil, fmt.Errorf("the webhook %q is there twice, or its URL or caBundle is invalid", one.Name)
		}
		names.Insert(one.Name)
	}
	return o, nil
}

// StaticOffPath returns the file by which UnregisterStatic keeps the process of this host from writing.
func StaticOffPath(dir string) string { return filepath.Join(dir, staticOffFile) }

// UnregisterStatic removes the files of this host, and keeps them away until RegisterStatic. It needs no
// API, and no process.
func UnregisterStatic(dir string) error {
	// On a full disk there is room for an empty file.
	return errors.Join(atomicfile.Write(StaticOffPath(dir), nil, 0o644), RemoveStatic(dir))
}

// RegisterStatic lets the process of this host write the files again.
func RegisterStatic(dir string) error { return atomicfile.Remove(StaticOffPath(dir)) }

// RemoveStatic removes the files of this host. The process of the host writes them again.
func RemoveStatic(dir string) error {
	var errs []error
	for _, path := range StaticPaths(dir) {
		errs = append(errs, atomicfile.Remove(path))
	}
	return errors.Join(errs...)
}
