// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package legacytokencleaner

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
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
	if diff := cmp.Diff(want, slices.Compact(found)); diff != "" {
		t.Errorf("Secrets (-want +got):\n%s", diff)
	}
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

func TestPodsAreListedInPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	var asked []metav1.ListOptions
	w.Client.PrependReactor("list", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		options := action.(clienttesting.ListActionImpl).ListOptions
		asked = append(asked, options)
		page := len(asked)
		list := &corev1.PodList{Items: []corev1.Pod{*mounting(fmt.Sprintf("secret-%d", page))}}
		if page < 3 {
			list.Continue = fmt.Sprintf("page-%d", page+1)
		}
		return true, list, nil
	})
	mounted, err := w.mountedSecrets(t.Context(), "ns")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sets.New("secret-1", "secret-2", "secret-3"), mounted); diff != "" {
		t.Errorf("mounted (-want +got):\n%s", diff)
	}
	// No resourceVersion: the first page is of the newest one, the others of the same.
	want := []metav1.ListOptions{{Limit: 500}, {Limit: 500, Continue: "page-2"}, {Limit: 500, Continue: "page-3"}}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Errorf("lists (-want +got):\n%s", diff)
	}
}

// TestALatePageFailsTheList: half a list must not pass for a whole one.
func TestALatePageFailsTheList(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	answer := failSecondPage(w.Client)
	if _, err := w.mountedSecrets(t.Context(), "ns"); !apierrors.IsResourceExpired(err) {
		t.Errorf("got %v, want that the list has expired", err)
	}
	if *answer != 2 {
		t.Errorf("%d pages were asked for, want 2", *answer)
	}
}

// failSecondPage has every second list of Pods fail. It counts them.
func failSecondPage(client *fake.Clientset) *int {
	pages := new(int)
	client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		*pages++
		if *pages%2 == 0 {
			return true, nil, apierrors.NewResourceExpired("too old")
		}
		return true, &corev1.PodList{ListMeta: metav1.ListMeta{Continue: "more"}}, nil
	})
	return pages
}
