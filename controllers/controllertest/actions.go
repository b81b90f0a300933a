// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package controllertest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/meta"
	"sa-controller-manager/internal/testutil"
)

// Actions returns the requests since the last call, a line each, with every precondition. It leaves
// out those for the resources in without, watches, and the lists of informers.
func (w *World) Actions(t testing.TB, without ...string) []string {
	t.Helper()
	var lines []string
	for _, action := range w.Client.Actions() {
		verb, resource := action.GetVerb(), action.GetResource().Resource
		if verb == "watch" || verb == "list" && w.started || slices.Contains(without, resource) {
			continue
		}
		lines = append(lines, strings.TrimSpace(verb+" "+resource+" "+describe(t, action)))
	}
	w.Client.ClearActions()
	return lines
}

func describe(t testing.TB, action clienttesting.Action) string {
	t.Helper()
	named := func(name string) string {
		if namespace := action.GetNamespace(); namespace != "" && namespace != Namespace {
			return namespace + "/" + name
		}
		return name
	}
	switch action := action.(type) {
	case clienttesting.ListActionImpl:
		return action.ListOptions.ResourceVersion
	case clienttesting.GetActionImpl:
		return named(action.Name)
	case clienttesting.DeleteActionImpl:
		only := action.DeleteOptions.Preconditions
		return fmt.Sprintf("%s [%s %s]", named(action.Name), *only.UID, *only.ResourceVersion)
	case clienttesting.PatchActionImpl:
		checkManager(t, action.PatchOptions.FieldManager)
		return named(action.Name) + describePatch(t, action.Patch)
	case clienttesting.CreateActionImpl:
		checkManager(t, action.CreateOptions.FieldManager)
		if secret, ok := action.Object.(*corev1.Secret); ok && secret.Type == corev1.SecretTypeServiceAccountToken {
			return named(secret.Name) + describeSecret(secret)
		}
		return named(action.Object.(metav1.Object).GetName())
	case clienttesting.UpdateActionImpl:
		checkManager(t, action.UpdateOptions.FieldManager)
		object := action.Object.(metav1.Object)
		return fmt.Sprintf("%s [%s]", named(object.GetName()), object.GetResourceVersion())
	}
	t.Fatalf("unexpected action %#v", action)
	return ""
}

// checkManager: managedFields tell our writes from those of others.
func checkManager(t testing.TB, manager string) {
	t.Helper()
	testutil.Expect(t, manager == meta.FieldManager, "written as field manager %q", manager)
}

func describeSecret(secret *corev1.Secret) string {
	line := " for " + secret.Annotations[corev1.ServiceAccountNameKey] + "/" + secret.Annotations[corev1.ServiceAccountUIDKey]
	if replaces := secret.Annotations[tokensecrets.ReplacesAnnotation]; replaces != "" {
		line += " replaces " + replaces
	}
	return line + " labels " + strings.Join(sortedKeys(secret.Labels), " ") + " data " + strings.Join(sortedKeys(secret.Data), " ")
}

// describePatch fails the test if the patch has fields that no controller may write.
func describePatch(t testing.TB, body []byte) string {
	t.Helper()
	var patch struct {
		Metadata meta.PatchMetadata        `json:"metadata"`
		Data     map[string]*string        `json:"data"`
		Secrets  *[]corev1.ObjectReference `json:"secrets"`
	}
	decoder := json.NewDecoder(strings.NewReader(string(body)))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&patch)
	testutil.Require(t, err == nil, "patch %s: %v", body, err)
	var line strings.Builder
	fmt.Fprintf(&line, " [%s %s]", patch.Metadata.UID, patch.Metadata.ResourceVersion)
	annotations := patch.Metadata.Annotations
	if uid, ok := annotations[corev1.ServiceAccountUIDKey]; ok && uid == nil {
		line.WriteString(" for nobody")
	} else if ok {
		line.WriteString(" for " + *annotations[corev1.ServiceAccountNameKey] + "/" + *uid)
	}
	for _, label := range sortedKeys(patch.Metadata.Labels) {
		line.WriteString(" " + label + "=" + *patch.Metadata.Labels[label])
	}
	for _, key := range sortedKeys(patch.Data) {
		if patch.Data[key] == nil {
			key = "without " + key
		}
		line.WriteString(" " + key)
	}
	if patch.Secrets != nil {
		line.WriteString(" references")
		for _, ref := range *patch.Secrets {
			line.WriteString(" " + ref.Name)
		}
	}
	return line.String()
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
