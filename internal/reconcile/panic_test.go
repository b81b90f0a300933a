// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// quotingError is an error whose text has data of an object.
type quotingError struct{ secret *corev1.Secret }

func (e quotingError) Error() string { return fmt.Sprintf("cannot use %q", e.secret.Data) }

// panics are what a sync may come to grief with. hunter2 stands for what no log may hold.
func panics() map[string]func(secret *corev1.Secret) {
	return map[string]func(secret *corev1.Secret){
		"Text":    func(secret *corev1.Secret) { panic(string(secret.Data["token"])) },
		"Wrapped": func(secret *corev1.Secret) { panic(errors.Join(errBoom, quotingError{secret})) },
		"Again": func(secret *corev1.Secret) {
			defer func() { panic(recover()) }()
			panic(string(secret.Data["token"]))
		},
		"Index": func(secret *corev1.Secret) { _ = secret.Data["token"][len(secret.Data["token"])+len(secret.Name)] },
	}
}

// TestAPanicEndsTheProcess: it is restarted then, while a worker that has died in silence is
// not. What is printed says where, and what only if that cannot be anybody's secret.
func TestAPanicEndsTheProcess(t *testing.T) {
	t.Parallel()
	const inChild = "LOOP_TEST_PANICS"
	if which := os.Getenv(inChild); which != "" {
		secret := &corev1.Secret{Data: map[string][]byte{"token": []byte("hunter2")}}
		r := run(t.Context(), Config[string]{Name: "q", Sync: func(context.Context, string) error {
			panics()[which](secret)
			return nil
		}})
		r.Add("ns/a")
		<-r.ended
		return
	}
	want := map[string]string{
		"Text":    "a value of type string",
		"Wrapped": "a value of type *errors.joinError",
		"Again":   "a value of type string",
		"Index":   "runtime error: index out of range [7] with length 7",
	}
	for name := range panics() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAPanicEndsTheProcess$", "-test.timeout=30s")
			child.Env = append(os.Environ(), inChild+"="+name)
			output, err := child.CombinedOutput()
			got := string(output)
			if line := `panic: sync of ns/a in queue "q": ` + want[name]; err == nil || !strings.Contains(got, line) {
				t.Errorf("the process ended with %v, want it to end with the line %q. Its output:\n%s", err, line, got)
			}
			if strings.Contains(got, "hunter2") || strings.Contains(got, fmt.Sprint([]byte("hunter2"))) {
				t.Errorf("it tells the value of the panic:\n%s", got)
			}
			if where := "reconcile/panic_test.go:"; !strings.Contains(got, where) {
				t.Errorf("it does not say where, want %q:\n%s", where, got)
			}
		})
	}
}
