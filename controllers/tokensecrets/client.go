// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecrets

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// onlyMetadata is the Accept header of package k8s.io/client-go/metadata.
const onlyMetadata = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1," +
	"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"

// WithoutAnswers returns a client to which kube-apiserver does not send the data of a Secret that it
// has patched, and whose Patch returns a nil Secret. It takes a fifth less processor time for a
// patch.
func WithoutAnswers(client kubernetes.Interface) kubernetes.Interface { return withoutAnswers{client} }

type withoutAnswers struct{ kubernetes.Interface }

func (c withoutAnswers) CoreV1() corev1client.CoreV1Interface {
	return coreWithoutAnswers{c.Interface.CoreV1()}
}

type coreWithoutAnswers struct{ corev1client.CoreV1Interface }

func (c coreWithoutAnswers) Secrets(namespace string) corev1client.SecretInterface {
	return secretsWithoutAnswers{c.CoreV1Interface.Secrets(namespace), c, namespace}
}

type secretsWithoutAnswers struct {
	corev1client.SecretInterface

	core      corev1client.CoreV1Interface
	namespace string
}

func (s secretsWithoutAnswers) Patch(
	ctx context.Context, name string, kind types.PatchType, body []byte, options metav1.PatchOptions, subresources ...string,
) (*corev1.Secret, error) {
	return nil, s.core.RESTClient().Patch(kind).Namespace(s.namespace).Resource("secrets").Name(name).SubResource(subresources...).
		VersionedParams(&options, scheme.ParameterCodec).SetHeader("Accept", onlyMetadata).Body(body).Do(ctx).Error()
}
