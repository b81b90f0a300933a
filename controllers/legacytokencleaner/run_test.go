// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package legacytokencleaner

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"sa-controller-manager/controllers/controllertest"
	"sa-controller-manager/internal/testutil"
)

const (
	listPods = "list pods"
	marked   = "patch secrets app-token [uid-app-token 20] kubernetes.io/legacy-token-invalid-since=2023-05-10"
	deleted  = "delete secrets app-token [uid-app-token 20]"
)

func dryRun(config *Config) { config.DryRun = true }
func auto(config *Config)   { config.Auto = true }

// replaced is an account with a Secret that was re-issued, as changes have it, and with
// its successor.
func replaced(changes ...func(*corev1.Secret)) []runtime.Object {
	return []runtime.Object{
		account(func(a *corev1.ServiceAccount) {
			a.Secrets = append([]corev1.ObjectReference{{Name: "new"}}, a.Secrets...)
		}),
		tokenSecret(append([]func(*corev1.Secret){autoCreated}, changes...)...),
		tokenSecret(renamed("new"), autoCreated, replacing("app-token")),
	}
}

func TestRun(t *testing.T) {
	t.Parallel()
	removed := []string{listPods, "get secrets app-token", "get serviceaccounts app", deleted}
	type (
		objects = []runtime.Object
		counts  = map[string]float64
	)
	marks, deletes := []string{"Normal LegacyTokenMarkedInvalid"}, []string{"Normal LegacyTokenDeleted"}
	tried, readsLive := []string{"Warning InvalidLegacyTokenTried"}, removed[:3]
	for name, tc := range map[string]struct {
		reason  string
		change  func(*Config)
		objects objects
		// live replaces objects that the caches have in an older state.
		live                    objects
		gone                    []string // Secrets that only the cache has
		wantActions, wantEvents []string
		note                    string // of the only Event, if it is given
		want                    counts
	}{
		"Mark": {
			objects: objects{account(), tokenSecret(usedOn("2023-01-05"))}, wantActions: []string{listPods, marked}, wantEvents: marks,
			want: counts{"mark": 1},
			note: `app-token: Normal LegacyTokenMarkedInvalid: the token of ServiceAccount "app" was not used for 720h0m0s (last use: ` +
				`2023-01-05), and no Pod uses the Secret: kube-apiserver refuses the token from now on, and the Secret is deleted after ` +
				`another 720h0m0s; removing the label kubernetes.io/legacy-token-invalid-since brings the token back; the annotation ` +
				`sa-controller-manager/keep=true keeps the Secret`,
		},
		"Delete": {
			reason: "one live read of each of the two it depends on", objects: objects{account(), tokenSecret(invalidSince(longAgo))},
			wantActions: removed, wantEvents: deletes, want: counts{"delete": 1},
		},
		"Mounted": {
			objects: objects{account(), tokenSecret(), mounting("app-token")}, wantActions: []string{listPods}, want: counts{"mounted": 1},
		},
		"NoCandidate": {reason: "no Pod is looked at in vain", objects: objects{account(), tokenSecret(usedOn(today))}, want: counts{"used": 1}},
		"Tried": {
			reason: "somebody will call: tell who", objects: objects{account(), tokenSecret(usedOn(today), invalidSince(longAgo))},
			wantEvents: tried, want: counts{"tried-while-invalid": 1},
			note: `app-token: Warning InvalidLegacyTokenTried: a client still uses the token of ServiceAccount "app", which has been ` +
				`invalid since 2022-12-27, and was refused on 2023-05-10: give it another token, or remove the label ` +
				`kubernetes.io/legacy-token-invalid-since; the annotation sa-controller-manager/keep=true keeps the Secret`,
		},
		"DryRunMark": {
			change: dryRun, objects: objects{account(), tokenSecret()}, wantActions: []string{listPods},
			wantEvents: []string{"Normal LegacyTokenWouldBeMarked"}, want: counts{"mark": 1},
		},
		"DryRunDelete": {
			change: dryRun, objects: objects{account(), tokenSecret(invalidSince(longAgo))}, wantActions: readsLive,
			wantEvents: []string{"Normal LegacyTokenWouldBeDeleted"}, want: counts{"delete": 1},
			note: `app-token: Normal LegacyTokenWouldBeDeleted: the token of ServiceAccount "app" has been invalid since 2022-12-27 (last ` +
				`use: none): the Secret would be deleted, but for the dry run; the annotation sa-controller-manager/keep=true keeps the ` +
				`Secret`,
		},
		"AutoKeepsOne": {
			reason: "or Auto would create another one each time", change: auto, objects: objects{account(), tokenSecret()}, want: counts{"own": 1},
		},
		"GoneMeanwhile": {
			objects: objects{account(), tokenSecret(invalidSince(longAgo))}, gone: []string{"app-token"}, wantActions: removed[:2],
			want: counts{"changed": 1},
		},
		"TriedMeanwhile": {
			reason: "the cache lags behind a use of the last seconds", objects: objects{account(), tokenSecret(invalidSince(longAgo))},
			live: objects{tokenSecret(invalidSince(longAgo), usedOn(today))}, wantActions: readsLive, wantEvents: tried,
			want: counts{"tried-while-invalid": 1},
		},
		"MarkTakenOffMeanwhile": {
			objects: objects{account(), tokenSecret(invalidSince(longAgo))}, live: objects{tokenSecret()}, wantActions: readsLive,
			want: counts{"changed": 1},
		},
		"MadeAnewMeanwhile": {
			objects: objects{account(), tokenSecret(invalidSince(longAgo))},
			live:    objects{tokenSecret(invalidSince(longAgo), func(s *corev1.Secret) { s.UID = "uid-new" })}, wantActions: removed[:2],
			want: counts{"changed": 1},
		},
		"DereferencedMeanwhile": {
			reason: "a person has made it a Secret of their own", objects: objects{account(), tokenSecret(invalidSince(longAgo))},
			live: objects{account(unreferencing)}, wantActions: readsLive, want: counts{"not-referenced": 1},
		},
		"ChangedWithoutMeaning": {
			reason: "the deletion is of what was read live", objects: objects{account(), tokenSecret(invalidSince(longAgo))},
			live:        objects{tokenSecret(invalidSince(longAgo), controllertest.AtVersion("21"))},
			wantActions: append(readsLive[:3:3], "delete secrets app-token [uid-app-token 21]"), wantEvents: deletes, want: counts{"delete": 1},
		},

		// What was re-issued needs no reference, and its successor stays.
		"ReplacedMark": {
			objects: replaced(usedOn(longAgo)), wantActions: []string{listPods, marked}, wantEvents: marks, want: counts{"mark": 1, "successor": 1},
		},
		"ReplacedAuto": {
			reason: "the successor is the account's own", change: auto, objects: replaced(usedOn(longAgo)), wantActions: []string{listPods, marked},
			wantEvents: marks, want: counts{"mark": 1, "own": 1},
		},
		"ReplacedDelete": {
			reason: "the successor is read live, too", objects: replaced(invalidSince(longAgo)),
			wantActions: append(readsLive[:3:3], "get secrets new", deleted), wantEvents: deletes, want: counts{"delete": 1, "successor": 1},
		},
		"SuccessorGoneMeanwhile": {
			objects: replaced(invalidSince(longAgo)), gone: []string{"new"}, wantActions: append(readsLive[:3:3], "get secrets new"),
			want: counts{"changed": 1, "successor": 1},
		},
		"SuccessorMarkedMeanwhile": {
			objects:     replaced(invalidSince(longAgo)),
			live:        objects{tokenSecret(renamed("new"), autoCreated, replacing("app-token"), invalidSince(today))},
			wantActions: append(readsLive[:3:3], "get secrets new"), want: counts{"changed": 1, "successor": 1},
		},
		"WithoutReissue": {
			reason: "nothing says that it was replaced", change: func(config *Config) { config.Replacements = nil },
			objects: append(replaced(usedOn(longAgo))[1:], account(unreferencing, referencing("new"))),
			want:    counts{"not-referenced": 1, "successor": 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tc.change, append(tc.objects, tracking(longAgo))...)
			w.Live(t, tc.live...)
			for _, name := range tc.gone {
				w.Delete(t, tokenSecret(renamed(name)))
			}
			w.runOnce(t)
			testutil.Check(t, tc.reason+": actions", tc.wantActions, w.actions(t))
			testutil.Check(t, tc.reason+": events", tc.wantEvents, w.Events())
			testutil.Check(t, tc.reason+": decisions", tc.want, w.decisions(t))
			if tc.note != "" {
				testutil.Check(t, tc.reason+": note", []string{tc.note}, w.Recorded.Lines())
			}
			done := map[string]float64{}
			for _, action := range tc.wantActions {
				switch verb, _, _ := strings.Cut(action, " "); verb {
				case "patch":
					done["marked"] = 1
				case "delete":
					done["deleted"] = 1
				}
			}
			testutil.Check(t, tc.reason+": done", done, w.Series(t, "sacm_legacy_token_cleanups_total"))
			testutil.Check(t, "the last run", float64(noon().Unix()), w.Series(t, "sacm_legacy_token_cleaner_last_run_timestamp_seconds")[""])
		})
	}
}

func orNone(values map[string]float64) map[string]float64 {
	if values == nil {
		return map[string]float64{}
	}
	return values
}
