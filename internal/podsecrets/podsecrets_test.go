// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package podsecrets

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"sa-controller-manager/internal/testutil"
)

// TestVisitorKnowsEverySecretReference fails when a field that names a Secret comes into the API.
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
			spec.Interface().(*corev1.PodSpec).NodeName = "no UTF-8: \xff"
			names := testutil.Get(Names(spec.Interface().(*corev1.PodSpec)))(t)
			testutil.Check(t, "names", []string{"the-secret"}, names)
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
