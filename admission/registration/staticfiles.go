// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"fmt"
	"os"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission/plugin/manifest"
	"sigs.k8s.io/yaml"

	"sa-controller-manager/internal/atomicfile"
)

// StaticName is the name of both configurations in files; kube-apiserver requires the suffix.
const StaticName = "sa-controller-manager" + manifest.StaticConfigSuffix

// staticFile is the name of the file of each configuration.
const staticFile = "sa-controller-manager.yaml"

// StaticDirs returns the directories below dir that kube-apiserver reads: staticManifestsDir of
// MutatingAdmissionWebhook and of ValidatingAdmissionWebhook. The two plugins must not share one,
// because each refuses the other's kind.
func StaticDirs(dir string) []string {
	return []string{mutating.staticDir(dir), validating.staticDir(dir)}
}

func (k kind) staticDir(dir string) string {
	if k == mutating {
		return filepath.Join(dir, "mutating")
	}
	return filepath.Join(dir, "validating")
}

func (k kind) staticPath(dir string) string { return filepath.Join(k.staticDir(dir), staticFile) }

// StaticPaths returns the files below dir.
func StaticPaths(dir string) []string {
	return []string{mutating.staticPath(dir), validating.staticPath(dir)}
}

// plugin returns the admission plugin of kube-apiserver that calls webhooks of this kind.
func (k kind) plugin() string {
	if k == mutating {
		return "MutatingAdmissionWebhook"
	}
	return "ValidatingAdmissionWebhook"
}

// WriteStatic writes both configurations below dir, which must exist, and returns the paths of the
// files. kube-apiserver must accept the caBundle: while it is wrong, every Pod is refused.
func (s Spec) WriteStatic(dir string, caBundle []byte) ([]string, error) {
	contents, err := s.staticContents(caBundle)
	if err != nil {
		return nil, err
	}
	for k, content := range contents {
		if err := kind(k).writeStatic(dir, content); err != nil {
			return nil, err
		}
	}
	return StaticPaths(dir), nil
}

// writeStatic replaces the file atomically: kube-apiserver loads what is there at any time.
func (k kind) writeStatic(dir string, content []byte) error {
	//nolint:gosec // it holds nothing secret, and kube-apiserver may run as another user
	if err := os.Mkdir(k.staticDir(dir), 0o755); err != nil && !os.IsExist(err) {
		return err // it names the path
	}
	return atomicfile.Write(k.staticPath(dir), content, 0o644)
}

// staticContents returns the files of both configurations. One without rules has no webhooks.
func (s Spec) staticContents(caBundle []byte) (contents [kinds][]byte, err error) {
	var entries [kinds][]entry
	entries[mutating], entries[validating] = s.entries(caBundle)
	for k := range kinds {
		o := object{meta: metav1.ObjectMeta{Name: StaticName}, entries: entries[k]}
		if contents[k], err = k.marshal(&o); err != nil {
			return contents, fmt.Errorf("encode the %s %s: %w", k, StaticName, err)
		}
	}
	return contents, nil
}

func (k kind) marshal(o *object) ([]byte, error) {
	typed := metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: k.String()}
	if k == mutating {
		c := o.mutating()
		c.TypeMeta = typed
		return yaml.Marshal(c)
	}
	c := o.validating()
	c.TypeMeta = typed
	return yaml.Marshal(c)
}
