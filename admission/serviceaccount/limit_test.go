// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"sa-controller-manager/admission"
	"sa-controller-manager/internal/testutil"
)

// TestEveryCVEPath tries every way in which a Secret was once reachable past the limit:
// CVE-2023-2728 (ephemeral containers) and CVE-2024-3177 (envFrom).
func TestEveryCVEPath(t *testing.T) {
	t.Parallel()
	fields := map[string]string{
		"env":     `"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": %q, "key": "k"}}}]`,
		"envFrom": `"envFrom": [{"configMapRef": {"name": "c"}}, {"secretRef": {"name": %q}}]`,
	}
	words := map[string]string{"env": " with envVar A referencing ", "envFrom": " with envFrom referencing "}
	lists := map[string]string{"containers": "container", "initContainers": "init container", "ephemeralContainers": "ephemeral container"}
	for list, role := range lists {
		for field, member := range fields {
			t.Run(list+"/"+field, func(t *testing.T) {
				pod := func(secret string) string {
					return fmt.Sprintf(`{"metadata": {"name": "web"}, "spec": {"serviceAccountName": "default", %q: [{"name": "c", %s}]}}`,
						list, fmt.Sprintf(member, secret))
				}
				want := role + " c" + words[field] +
					`secret.secretName="theirs" is not allowed because service account default does not reference that secret`
				checkLimit(t, list == "ephemeralContainers", pod("theirs"), pod("mine"), want)
			})
		}
	}
	t.Run("volume", func(t *testing.T) {
		t.Parallel()
		pod := func(secret string) string {
			return fmt.Sprintf(`{"metadata": {"name": "web"}, "spec": {"serviceAccountName": "default", "volumes": [{"name": "v", "secret": `+
				`{"secretName": %q}}]}}`, secret)
		}
		checkLimit(t, false, pod("theirs"), pod("mine"),
			`volume with secret.secretName="theirs" is not allowed because service account default does not reference that secret`)
	})
}

// checkLimit refuses one Pod and allows the other, limited by the account's annotation
// and by the configuration, in Admit and in Validate.
func checkLimit(t *testing.T, ephemeral bool, refused, allowed, want string) {
	t.Helper()
	annotated := account(testNamespace, defaultAccount)
	annotated.Secrets = []corev1.ObjectReference{{Name: "mine"}}
	plain := annotated.DeepCopy()
	annotated.Annotations = map[string]string{enforceAnnotation: "true"}
	everywhere := DefaultConfig()
	everywhere.LimitSecretReferences = true
	plugins := map[string]*Plugin{
		"annotation":    newWorld(annotated).plugin(DefaultConfig()),
		"configuration": newWorld(plain).plugin(everywhere),
	}
	request := creation
	if ephemeral {
		request = ephemeralUpdate
	}
	for name, plugin := range plugins {
		for call, decide := range plugin.calls() {
			if ephemeral && call == "Admit" {
				continue
			}
			code, message := codeAndMessage(decide(t.Context(), request([]byte(refused)), &admission.Response{}))
			testutil.Expect(t, code == 403 && strings.HasSuffix(message, ": "+want), "%s, %s: got %d %q, want 403 %q", name, call, code, message,
				want)
			err := decide(t.Context(), request([]byte(allowed)), &admission.Response{})
			testutil.CheckError(t, name+", "+call+": a listed Secret", "", err)
		}
	}
}

// TestVisitorKnowsEverySecretReference walks the type PodSpec and fails when a field
// that names a Secret comes into the API and the visitor does not see it. If it fails
// after an update of k8s.io/api, teach the visitor the new field.
func TestVisitorKnowsEverySecretReference(t *testing.T) {
	t.Parallel()
	paths := secretPaths(reflect.TypeFor[corev1.PodSpec](), nil)
	// Far more than zero: the walk itself works. 3 kinds of containers have 2 each.
	want := 1 + 3*2 + 11
	testutil.Require(t, len(paths) >= want, "the walk found %d references, there are %d or more: %v", len(paths), want, paths)
	for _, path := range paths {
		t.Run(strings.Join(path, "."), func(t *testing.T) {
			spec := reflect.New(reflect.TypeFor[corev1.PodSpec]())
			setString(t, spec.Elem(), path, "the-secret")
			object := testutil.Get(json.Marshal(corev1.Pod{Spec: *spec.Interface().(*corev1.PodSpec)}))(t)
			pod := testutil.Get(decodePod(&admission.Request{Object: object}))(t)
			references := pod.Spec.secretReferences()
			testutil.Expect(t, len(references) == 1 && references[0].secret == "the-secret", "the visitor sees %+v in %s", references, object)
		})
	}
}

// secretPaths lists the Go fields that hold the name of a Secret, below type of.
func secretPaths(of reflect.Type, path []string) [][]string {
	switch of.Kind() {
	case reflect.Pointer, reflect.Slice:
		return secretPaths(of.Elem(), path)
	case reflect.Struct:
	case reflect.String:
		if isSecretName(path) {
			return [][]string{slices.Clone(path)}
		}
		return nil
	default:
		return nil
	}
	var found [][]string
	for field := range of.Fields() {
		found = append(found, secretPaths(field.Type, append(slices.Clone(path), field.Name))...)
	}
	return found
}

// isSecretName reports whether the string at the end of path is the name of a Secret: it
// is called so, or it is called Name below something that is.
func isSecretName(path []string) bool {
	last, above := path[len(path)-1], path[:len(path)-1]
	switch {
	case last == "SecretFile": // of cephfs, a file on the node
		return false
	case last == "Name":
		return slices.ContainsFunc(above, func(field string) bool { return strings.Contains(field, "Secret") })
	default:
		return strings.Contains(last, "Secret")
	}
}

// setString makes what path leads through and sets the string at its end.
func setString(t *testing.T, v reflect.Value, path []string, value string) {
	t.Helper()
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		setString(t, v.Elem(), path, value)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		setString(t, v.Index(0), path, value)
	case reflect.Struct:
		setString(t, v.FieldByName(path[0]), path[1:], value)
	case reflect.String:
		v.SetString(value)
	default:
		t.Fatalf("a %s leads to a Secret", v.Kind())
	}
}

func TestContainers(t *testing.T) {
	t.Parallel()
	plugin := newWorld(account(testNamespace, defaultAccount)).plugin(DefaultConfig())
	const one = `{"name":"a"}`
	pod := func(containers, inits int) []byte {
		list := func(n int) string { return strings.TrimSuffix(strings.Repeat(one+",", n), ",") }
		return fmt.Appendf(nil, `{"spec":{"serviceAccountName":"default","containers":[%s],"initContainers":[%s]}}`,
			list(containers), list(inits))
	}
	for name, tc := range map[string]struct {
		containers, inits int
		want              int32
	}{"Most": {600, 400, 0}, "OneMore": {600, 401, 413}} {
		for call, decide := range plugin.calls() {
			code, message := codeAndMessage(decide(t.Context(), creation(pod(tc.containers, tc.inits)), &admission.Response{}))
			testutil.Check(t, name+" "+call+": "+message, tc.want, code)
		}
	}
}

// TestLimitIsLinear: a user may list as many Secrets in an account as he refers to.
func TestLimitIsLinear(t *testing.T) {
	t.Parallel()
	const many = 40_000
	limited := account(testNamespace, defaultAccount)
	limited.Annotations = map[string]string{enforceAnnotation: "true"}
	var env strings.Builder
	for i := range many {
		limited.Secrets = append(limited.Secrets, corev1.ObjectReference{Name: fmt.Sprint("s", i)})
		fmt.Fprintf(&env, `,{"secretRef":{"name":"s%d"}}`, i)
	}
	object := []byte(`{"spec":{"serviceAccountName":"default","containers":[{"name":"a","envFrom":[` + env.String()[1:] + `]}]}}`)
	plugin := newWorld(limited).plugin(DefaultConfig())
	start := time.Now()
	testutil.Must(t, plugin.Validate(t.Context(), creation(object), &admission.Response{}))
	t.Logf("%d references to as many Secrets: %s", many, time.Since(start))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	testutil.CheckError(t, "nobody waits any more", "context canceled", plugin.Validate(ctx, creation(object), &admission.Response{}))
}
