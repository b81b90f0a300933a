// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sa-controller-manager/admission"
	"sa-controller-manager/admission/certs"
	"sa-controller-manager/admission/registration"

	"sa-controller-manager/test/await"
)

func TestRegistration(t *testing.T) {
	client := connect(t)
	r := start(t, client, true, newCounter(podCreation()), func(*registration.Spec) {})
	awaitState(t, r, registration.Registered)

	// The apiserver learns of what is registered a moment later.
	eventually(t, func() error {
		if err := tryPod(client, "plain", nil); err != nil {
			return err
		}
		if mutated, validated := r.counter.saw("pods/plain"); !mutated || !validated {
			return fmt.Errorf("mutated %t, validated %t; want both", mutated, validated)
		}
		return nil
	})
	if err := tryPod(client, "mirror", map[string]string{corev1.MirrorPodAnnotationKey: "x"}); err != nil {
		t.Fatal(err)
	}
	if mutated, validated := r.counter.saw("pods/mirror"); mutated || !validated {
		t.Errorf("a mirror pod: mutated %t, validated %t; want validated only", mutated, validated)
	}
	wantQuiet(t, client)
}

// wantQuiet fails if a configuration is written in the next three seconds.
func wantQuiet(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	before := versions(t, client)
	<-time.After(3 * time.Second)
	if after := versions(t, client); after != before {
		t.Errorf("the configurations were written again: versions %s, then %s", before, after)
	}
}

// versions changes with every write of a configuration.
func versions(t *testing.T, client kubernetes.Interface) string {
	t.Helper()
	m, err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(t.Context(), registration.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	v, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(t.Context(), registration.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return m.ResourceVersion + " " + v.ResourceVersion
}

func TestNothingBindsUnreached(t *testing.T) {
	client := connect(t)
	r := start(t, client, false, newCounter(podCreation()), func(*registration.Spec) {})
	eventually(t, func() error {
		err := r.registrar.Check()
		if err == nil || !strings.Contains(err.Error(), "https://127.0.0.1:") || !strings.Contains(err.Error(), "connection refused") {
			return fmt.Errorf("Check = %v, want the URL and the reason", err)
		}
		return nil
	})
	if err := tryPod(client, "free", nil); err != nil {
		t.Errorf("a Pod is stopped by a webhook that nobody can reach: %v", err)
	}
	_, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(t.Context(), registration.Name, metav1.GetOptions{})
	if err == nil {
		t.Error("the validating configuration is there")
	}
	if err := registration.Unregister(t.Context(), client); err != nil {
		t.Fatal(err)
	}
}

// Rules that match everything leave out our own objects, and conditions evaluate for
// every kind of request.
func TestBroadRules(t *testing.T) {
	client := connect(t)
	everything := admission.Rule{Group: "*", Resource: "*", SubResource: "*", Operations: []admission.Operation{admission.Any}}
	r := start(t, client, true, newCounter(everything), func(s *registration.Spec) { s.AllowBroadRules = true })
	awaitState(t, r, registration.Registered)
	ctx := t.Context()
	for _, name := range []string{"ours", "theirs"} {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}
		eventually(t, func() error {
			_, err := client.CoordinationV1().Leases("kube-system").Create(ctx, lease, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if _, validated := r.counter.saw("leases/theirs"); name == "theirs" && !validated {
				return errors.Join(err, errors.New("a foreign Lease is not validated"))
			}
			return err
		})
	}
	_, err := client.CoreV1().Secrets("kube-system").Patch(ctx, certs.DefaultSecretName, types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
	if err != nil {
		t.Error(err)
	}
	_, err = client.CoreV1().Namespaces().Patch(ctx, "kube-system", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
	if err != nil {
		t.Error(err)
	}
	for _, own := range []string{"leases/ours", "secrets/" + certs.DefaultSecretName, "namespaces/kube-system"} {
		if mutated, validated := r.counter.saw(own); mutated || validated {
			t.Errorf("the webhook decides on %s", own)
		}
	}
	// Without a name, and without an object.
	if err := client.CoreV1().ConfigMaps("default").DeleteCollection(ctx, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}, metav1.ListOptions{}); err != nil {
		t.Errorf("deletecollection: %v", err)
	}
	if err := tryPod(client, "broad", nil); err != nil {
		t.Error(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "generated-"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	if _, err := client.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Error(err)
	}
}

// What a person does with kubectl is done within a second and stays done.
func TestBreakGlass(t *testing.T) {
	client := connect(t)
	r := start(t, client, true, newCounter(podCreation()), func(*registration.Spec) {})
	awaitState(t, r, registration.Registered)
	off := []byte(`{"metadata":{"annotations":{"` + registration.Annotation + `":"off"}},"webhooks":[]}`)
	configurations := client.AdmissionregistrationV1()
	if _, err := configurations.MutatingWebhookConfigurations().Patch(t.Context(), registration.Name, types.MergePatchType, off, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := configurations.ValidatingWebhookConfigurations().Patch(t.Context(), registration.Name, types.MergePatchType, off, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitState(t, r, registration.Off)
	wantQuiet(t, client)
	if err := registration.Register(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	awaitState(t, r, registration.Registered)
}

// While Pods come at 20 a second, the Secret is deleted and damaged, and the CA rolls
// over because of that. No Pod is refused.
func TestNoRefusedCall(t *testing.T) {
	await.Long(t)
	client := connect(t)
	r := start(t, client, true, newCounter(podCreation()), func(*registration.Spec) {})
	awaitState(t, r, registration.Registered)
	secrets := client.CoreV1().Secrets(certs.DefaultSecretNamespace)
	issuer := func() string {
		pair, err := r.certs.GetCertificate(nil)
		if err != nil {
			t.Fatal(err)
		}
		return pair.Leaf.Issuer.CommonName
	}
	first := issuer()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	var made, refused int
	go func() {
		defer close(ended)
		ticker := time.NewTicker(50 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			made++
			if err := tryPod(client, "steady", nil); err != nil {
				refused++
				t.Log(err)
			}
		}
	}()
	if err := secrets.Delete(ctx, certs.DefaultSecretName, metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	eventually(t, func() error {
		_, err := secrets.Patch(ctx, certs.DefaultSecretName, types.MergePatchType, []byte(`{"data":{"ca.key":"cnViYmlzaA=="}}`), metav1.PatchOptions{})
		return err
	})
	eventually(t, func() error {
		if issuer() == first {
			return errors.New("the CA has not rolled over")
		}
		return nil
	})
	<-time.After(2 * time.Second) // more Pods come
	cancel()
	<-ended
	t.Logf("%d Pods, %d refused; leaves were of %s and then of %s", made, refused, first, issuer())
	if refused > 0 || made < 100 {
		t.Errorf("%d of %d Pods were refused", refused, made)
	}
}

// A caBundle that is edited by hand is repaired within two seconds.
func TestEditedCABundle(t *testing.T) {
	client := connect(t)
	r := start(t, client, true, newCounter(podCreation()), func(*registration.Spec) {})
	awaitState(t, r, registration.Registered)
	m, err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(t.Context(), registration.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	right := string(m.Webhooks[0].ClientConfig.CABundle)
	other := strings.Replace(right, "\n", "\n\n", 1)
	m.Webhooks[0].ClientConfig.CABundle = []byte(other)
	if _, err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().Update(t.Context(), m, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	edited := time.Now()
	eventually(t, func() error {
		m, err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(t.Context(), registration.Name, metav1.GetOptions{})
		if err == nil && string(m.Webhooks[0].ClientConfig.CABundle) != right {
			err = errors.New("the caBundle is not repaired")
		}
		return err
	})
	await.Within(t, "the repair", time.Since(edited), 2*time.Second)
}
