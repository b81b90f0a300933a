// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"testing"

	"sa-controller-manager/admission"
)

var (
	// scalars may get another value, lists may get longer at their end. Nothing else is the
	// plugin's.
	scalars = regexp.MustCompile(`^/spec/serviceAccount(Name)?$`)
	lists   = regexp.MustCompile(`^/spec/(volumes|imagePullSecrets|(containers|initContainers)/[0-9]+/volumeMounts)$`)
	paths   = regexp.MustCompile(`^/spec(/serviceAccount(Name)?|/(volumes|imagePullSecrets|(containers|initContainers)/[0-9]+/volumeMounts)(/-)?)?$`)
)

// checkOnlyAdds holds a patch to the invariant that everything that was there stays as it was, in
// its place.
func checkOnlyAdds(t *testing.T, object, patched []byte, operations []admission.PatchOperation) {
	t.Helper()
	for _, operation := range operations {
		if operation.Op != "add" || !paths.MatchString(operation.Path) {
			t.Errorf("the patch does %q at %s", operation.Op, operation.Path)
		}
	}
	if diff := changed("", decoded(t, object), decoded(t, patched)); diff != "" {
		t.Errorf("%s\nbefore: %s\nafter:  %s", diff, object, patched)
	}
}

// decoded keeps numbers as they are written.
func decoded(t *testing.T, object []byte) any {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(object))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		t.Fatal(err)
	}
	return value
}

// changed says what of before is not in after, or is in after and nobody's business; "" if nothing
// is.
func changed(path string, before, after any) string {
	switch {
	case scalars.MatchString(path):
		return ""
	case before == nil && after != nil && (path == "/spec" || lists.MatchString(path)):
		before = reflect.Zero(reflect.TypeOf(after)).Interface()
	}
	switch was := before.(type) {
	case map[string]any:
		is, ok := after.(map[string]any)
		if !ok {
			return path + " is no object any more"
		}
		return changedMembers(path, was, is)
	case []any:
		is, ok := after.([]any)
		if !ok || len(is) < len(was) || len(is) > len(was) && !lists.MatchString(path) {
			return fmt.Sprintf("%s had %d elements and is now %v", path, len(was), after)
		}
		for i := range was {
			if diff := changed(fmt.Sprintf("%s/%d", path, i), was[i], is[i]); diff != "" {
				return diff
			}
		}
		return ""
	default:
		if before != after {
			return fmt.Sprintf("%s was %v and is %v", path, before, after)
		}
		return ""
	}
}

func changedMembers(path string, was, is map[string]any) string {
	for name, value := range is {
		at := path + "/" + name
		old, there := was[name]
		if !there && at != "/spec" && !scalars.MatchString(at) && !lists.MatchString(at) {
			return at + " was added"
		}
		if diff := changed(at, old, value); there && diff != "" {
			return diff
		}
	}
	for name := range was {
		if _, there := is[name]; !there {
			return path + "/" + name + " is gone"
		}
	}
	return ""
}

// TestOnlyAddsNotices shows what the check is worth.
func TestOnlyAddsNotices(t *testing.T) {
	t.Parallel()
	const pod = `{"metadata":{"name":"a","x":1.0},"spec":{"containers":[{"name":"c","volumeMounts":[{"name":"v"}]}],"volumes":[{"name":"v"}]}}`
	for name, tc := range map[string]struct {
		after   string
		noticed bool
	}{
		"Same":          {after: pod},
		"Appended":      {after: `{"metadata":{"name":"a","x":1.0},"spec":{"serviceAccountName":"d","containers":[{"name":"c","volumeMounts":[{"name":"v"},{"name":"w"}]}],"volumes":[{"name":"v"},{"name":"w"}]}}`},
		"Prepended":     {after: `{"metadata":{"name":"a","x":1.0},"spec":{"containers":[{"name":"c","volumeMounts":[{"name":"v"}]}],"volumes":[{"name":"w"},{"name":"v"}]}}`, noticed: true},
		"Rewritten":     {after: `{"metadata":{"name":"a","x":1.0},"spec":{"containers":[{"name":"c","volumeMounts":[{"name":"w"}]}],"volumes":[{"name":"v"}]}}`, noticed: true},
		"Dropped":       {after: `{"metadata":{"name":"a"},"spec":{"containers":[{"name":"c","volumeMounts":[{"name":"v"}]}],"volumes":[{"name":"v"}]}}`, noticed: true},
		"Other number":  {after: `{"metadata":{"name":"a","x":1},"spec":{"containers":[{"name":"c","volumeMounts":[{"name":"v"}]}],"volumes":[{"name":"v"}]}}`, noticed: true},
		"New member":    {after: `{"metadata":{"name":"a","x":1.0},"spec":{"hostPID":true,"containers":[{"name":"c","volumeMounts":[{"name":"v"}]}],"volumes":[{"name":"v"}]}}`, noticed: true},
		"New container": {after: `{"metadata":{"name":"a","x":1.0},"spec":{"containers":[{"name":"c","volumeMounts":[{"name":"v"}]},{}],"volumes":[{"name":"v"}]}}`, noticed: true},
	} {
		if diff := changed("", decoded(t, []byte(pod)), decoded(t, []byte(tc.after))); (diff != "") != tc.noticed {
			t.Errorf("%s: %q", name, diff)
		}
	}
}
