// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecrets

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"sa-controller-manager/internal/events"
	"sa-controller-manager/internal/testutil"
)

// TestEveryDeletionIsSaid: with the default verbosity a line of the log and an Event say what was
// deleted and why, and nothing is said of what was not.
func TestEveryDeletionIsSaid(t *testing.T) {
	t.Parallel()
	errBoom := errors.New("boom")
	cases := map[string]struct {
		answer  error
		deleted bool
		wantErr error
	}{
		"Deleted": {deleted: true},
		"Changed": {answer: apierrors.NewConflict(schema.GroupResource{Resource: "secrets"}, "robot-token", errBoom)},
		"Gone":    {answer: apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, "robot-token")},
		"Refused": {answer: errBoom, wantErr: errBoom},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			secret := tokenSecret()
			client := fake.NewClientset(secret)
			if tc.answer != nil {
				client.PrependReactor("delete", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, tc.answer })
			}
			var log bytes.Buffer
			ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log), textlogger.Verbosity(0))))
			recorded := record.NewFakeRecorder(10)
			deleted, err := Delete(ctx, client, events.NewRecorderTo(recorded), Observe(secret), "Tidied", "nobody needs it")
			if deleted != tc.deleted || !errors.Is(err, tc.wantErr) {
				t.Fatalf("got %v and %v, want %v and %v", deleted, err, tc.deleted, tc.wantErr)
			}
			said := strings.Contains(log.String(),
				`"Deleted token secret" secret="shop/robot-token" uid="`+string(secret.UID)+`" reason="Tidied" why="nobody needs it"`)
			if said != tc.deleted {
				t.Errorf("the log says %q", log.String())
			}
			close(recorded.Events)
			var got, want []string
			for event := range recorded.Events {
				got = append(got, event)
			}
			if tc.deleted {
				want = []string{"Normal Tidied deleted: nobody needs it"}
			}
			testutil.Check(t, "Events", want, got)
		})
	}
}
