// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokencontroller

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
)

// BenchmarkSyncSecret is what this program adds to a request: one sync of a Secret that
// lacks everything, with a P-256 key and a client that does nothing; and of one that
// lacks nothing, which is what most syncs are.
func BenchmarkSyncSecret(b *testing.B) {
	for name, changes := range map[string][]func(*corev1.Secret){"empty": nil, "filled": {filled(b)}} {
		b.Run(name, func(b *testing.B) {
			w := newWorld(b)
			w.Controller.Client = idle{}
			w.Cache(b, account(), tokenSecret("token", changes...))
			key := cache.NewObjectName(testNamespace, "token")
			b.ReportAllocs()
			for b.Loop() {
				w.written.reset() // or the second sync would wait for the watch
				if err := w.syncSecret(b.Context(), key); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// idle is a client that does nothing.
type idle struct{ kubernetes.Interface }

func (idle) CoreV1() corev1client.CoreV1Interface { return idleCore{} }

type idleCore struct{ corev1client.CoreV1Interface }

func (idleCore) Secrets(string) corev1client.SecretInterface { return idleSecrets{} }

// idleSecrets takes every patch and does nothing with it.
type idleSecrets struct{ corev1client.SecretInterface }

func (idleSecrets) Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (*corev1.Secret, error) {
	return &corev1.Secret{}, nil
}
