// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package legacytokencleaner

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"sa-controller-manager/internal/testutil"
)

// TestEverySecretOfAPodIsVisited fills every field of a PodSpec, whatever Kubernetes
// adds to it, and takes for the name of a Secret what lies under a field that is
// called after Secrets. Volumes are looked at one by one, as only one source is
// allowed.
func TestEverySecretOfAPodIsVisited(t *testing.T) {
	t.Parallel()
	pod := corev1.PodSpec{}
	var want []string
	fillSecrets(reflect.ValueOf(&pod).Elem(), "", &want)
	source := reflect.TypeFor[corev1.VolumeSource]()
	for i := range source.NumField() {
		volume := corev1.Volume{Name: "v"}
		fillSecrets(reflect.ValueOf(&volume.VolumeSource).Elem().Field(i), source.Field(i).Name, &want)
		pod.Volumes = append(pod.Volumes, volume)
	}
	found := []string{}
	VisitSecrets(&pod, func(name string) { found = append(found, name) })
	slices.Sort(found)
	slices.Sort(want)
	testutil.Check(t, "Secrets", want, slices.Compact(found))
	const fields = 18 // pull secrets, two for each of three kinds of container, eleven kinds of volume
	if len(want) != fields {
		t.Errorf("filled %d fields, want %d: %q", len(want), fields, want)
	}
}

// fillSecrets gives every field below value that names a Secret a name of its own.
func fillSecrets(value reflect.Value, path string, names *[]string) {
	if !value.CanSet() {
		return // unexported
	}
	switch value.Kind() {
	case reflect.Pointer:
		value.Set(reflect.New(value.Type().Elem()))
		fillSecrets(value.Elem(), path, names)
	case reflect.Slice:
		if strings.HasSuffix(path, ".Volumes") || value.Type().Elem().Kind() == reflect.Uint8 {
			return
		}
		value.Set(reflect.MakeSlice(value.Type(), 1, 1))
		fillSecrets(value.Index(0), path, names)
	case reflect.Struct:
		for i := range value.NumField() {
			name := "." + value.Type().Field(i).Name
			if value.Type().Field(i).Anonymous {
				name = "" // embedded: its fields are those of the outer one
			}
			fillSecrets(value.Field(i), path+name, names)
		}
	case reflect.String:
		if namesSecret(path) {
			value.SetString(path)
			*names = append(*names, path)
		}
	default: // numbers and maps name nothing
	}
}

func namesSecret(path string) bool {
	fields := strings.Split(path, ".")
	last, owner := fields[len(fields)-1], fields[max(0, len(fields)-2)]
	return last == "SecretName" || last == "Name" && strings.Contains(owner, "Secret")
}
