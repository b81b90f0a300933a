// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sa-controller-manager/test/faults/checker"
	"sa-controller-manager/test/faults/workload"

	"sa-controller-manager/test/simulation/model"
)

// acting is how long a replica may go on with what it has begun before a watch has told it better: a request that is
// under way, and one that a paused process sends late.
const acting = 5 * time.Second

// writes judges each write of a replica when it happens, by what there is, and by what the watches of that replica have shown.
type writes struct {
	// seen is what watches have told each process of accounts and Secrets, asked what live reads have of accounts.
	seen, asked map[string]sight
	own         map[string]replaced  // the last write of a process into a Secret, as far as it knows
	shed        map[string]time.Time // when a process was asked to come later
	made        map[types.UID]maker  // who has created a Secret
	listed      map[types.UID]bool   // Secrets that a replica has referenced
	gone        map[string]time.Time // when a Secret was deleted, by namespace, name and UID of the account
	released    map[string]time.Time // when a process has begun to give its Lease away
	deleted     map[types.UID]deletion
	holder      string    // who has written the Lease last
	renewed     time.Time // when the last request began by which its holder knows to have it
	terms       map[string]int
	times       map[string][]time.Time // when a process has made Secrets for an account
	dead        map[types.UID]bool     // accounts that were deleted
	others      map[types.UID]bool     // Secrets that neither users nor replicas have deleted
}

// sight is what a process knows of an account or a Secret: the UID of the account, "" if there is none.
type sight struct {
	uid         types.UID
	terminating bool
	refs        map[string]bool
	at          time.Time
}

// before reports whether a process has known that for so long that a request of it has no excuse.
func (s sight) before(request *model.Request) bool {
	return s.uid != "" && request.Began.Sub(s.at) > acting
}

// replaced is the version that a write has replaced.
type replaced struct {
	version string
	at      time.Time
	term    int
}

type maker struct {
	client string
	term   int
}

// deletion is one that has to be recorded by an Event.
type deletion struct {
	by     *model.Request
	secret string
}

func newWrites() writes {
	return writes{
		seen: map[string]sight{}, asked: map[string]sight{}, own: map[string]replaced{}, shed: map[string]time.Time{},
		made: map[types.UID]maker{}, listed: map[types.UID]bool{}, gone: map[string]time.Time{}, released: map[string]time.Time{},
		deleted: map[types.UID]deletion{}, terms: map[string]int{}, times: map[string][]time.Time{}, dead: map[types.UID]bool{},
		others: map[types.UID]bool{}}
}

func isReplica(client string) bool { return strings.HasPrefix(client, "replica-") }

func of(client, namespace, account string) string { return client + " " + namespace + "/" + account }

func ofSecret(client, namespace, name string) string {
	return client + " secrets " + namespace + "/" + name
}

// holding is whose token it is.
type holding struct{ secret, account types.UID }

// told notes what a watch shows a process.
func (w *world) told(client, _ string, event model.Event) {
	var now sight
	var key string
	switch object := event.Object().(type) {
	case *corev1.ServiceAccount:
		key = of(client, object.Namespace, object.Name)
		now = sight{object.UID, object.DeletionTimestamp != nil, names(object), time.Now()}
	case *corev1.Secret:
		key = ofSecret(client, object.Namespace, object.Name)
		if now = w.writes.seen[key]; now.uid == "" || now.uid != workload.Owner(object) {
			now = sight{uid: workload.Owner(object), at: time.Now()}
		}
	default:
		return
	}
	if event.What == watch.Deleted {
		now.uid = ""
	}
	w.writes.seen[key] = now
}

// looked notes what a live read shows a process.
func (w *world) looked(c *call) {
	r := c.request
	if r.Verb == "list" && r.Namespace == "" { // in place of a watch's first events
		maps.DeleteFunc(w.writes.seen, func(name string, _ sight) bool {
			return strings.HasPrefix(name, r.Client+" ") && (r.Resource == "secrets") == strings.HasPrefix(name, r.Client+" secrets ")
		})
	}
	if r.Verb != "get" || r.Resource != "serviceaccounts" {
		return
	}
	now := sight{at: time.Now()}
	if account := w.server.Get(r.Resource, r.Namespace, r.Name); account != nil {
		now.uid, now.terminating = account.GetUID(), account.GetDeletionTimestamp() != nil
	}
	w.writes.asked[of(r.Client, r.Namespace, r.Name)] = now
}

// knows wants no write of a Secret that says a version which this process has replaced itself, not long ago.
func (w *world) knows(c *call, made model.Answer) {
	r := c.request
	if r.Resource != "secrets" || r.Verb != "patch" && r.Verb != "update" || bytes.Contains(r.Body, []byte(invalidSince)) {
		return // the cleaner has no part in what the token controller knows
	}
	key := ofSecret(r.Client, r.Namespace, r.Name)
	if made.Code == http.StatusTooManyRequests { // client-go sends it again, whatever comes meanwhile
		w.writes.shed[key] = time.Now()
	}
	if time.Since(w.writes.shed[key]) < 2*time.Second || r.Version == "" {
		return
	}
	if last, ok := w.writes.own[key]; ok && last.version == r.Version && last.term == w.writes.terms[r.Client] &&
		r.Began.After(last.at) && r.Began.Sub(last.at) < time.Minute/2 {
		w.violated(10, "%s comes again, %v after it has had an answer", c.name, r.Began.Sub(last.at))
	}
	if secret := w.server.Get(r.Resource, r.Namespace, r.Name); made.Code/100 == 2 && !r.Unanswered && secret != nil &&
		secret.GetResourceVersion() != r.Version { // a policy may have stripped all of it
		w.writes.own[key] = replaced{r.Version, time.Now(), w.writes.terms[r.Client]}
	}
}

// committed sees each change.
func (w *world) committed(by *model.Request, resource string, before, after model.Object) {
	if secret, ok := after.(*corev1.Secret); ok {
		w.hold(secret, by != nil && isReplica(by.Client))
	}
	if secret, ok := before.(*corev1.Secret); ok && after == nil {
		w.writes.gone[goneKey(secret)] = time.Now()
		w.writes.others[secret.UID] = by == nil || !isReplica(by.Client) && !strings.HasPrefix(by.Client, "user-")
	}
	if account, ok := before.(*corev1.ServiceAccount); ok && after == nil {
		w.writes.dead[account.UID] = true
	}
	w.commits++
	if namespace, ok := after.(*corev1.Namespace); ok && namespace.DeletionTimestamp != nil && before.GetDeletionTimestamp() == nil {
		w.empty(namespace.Name, time.Second<<w.network.draw("slow "+namespace.Name).IntN(4))
	}
	if revision := w.server.Revision(); resource != "events" {
		w.network.revisions = append(w.network.revisions, revised{time.Now(), revision - 1})
	}
	if by != nil && by.Resource == "leases" {
		w.leased(by.Client, after)
	}
	if by == nil || !isReplica(by.Client) || by.Resource != resource || w.plan.upstream {
		w.price.changed(before, after)
		return
	}
	w.judgeWrite(by, resource, before, after)
}

func goneKey(secret *corev1.Secret) string {
	return fmt.Sprint(secret.Namespace, "/", secret.Name, " ", workload.Owner(secret))
}

func goneOf(account *corev1.ServiceAccount, secret string) string {
	return fmt.Sprint(account.Namespace, "/", secret, " ", account.UID)
}

func (w *world) hold(secret *corev1.Secret, ours bool) {
	token := string(secret.Data[corev1.ServiceAccountTokenKey])
	if token == "" || secret.Type != corev1.SecretTypeServiceAccountToken {
		return
	}
	if _, known := w.held[token]; !known && ours && w.unproven && !w.plan.upstream { // which does not ask
		w.violated(4, "token Secret %s/%s was filled before kube-apiserver had accepted the key", secret.Namespace, secret.Name)
	}
	w.held[token] = holding{secret.UID, checker.ClaimedUID(token)}
}

// leased notes whether a process has given its Lease away.
func (w *world) leased(client string, after model.Object) {
	lease, ok := after.(*coordinationv1.Lease)
	if !ok || lease.Name != workload.LeaseName {
		return
	}
	if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		w.writes.released[client], w.writes.holder = time.Now(), ""
		return
	}
	// Who could not renew it in time, as far as it knows, has stopped, and begins again.
	if delete(w.writes.released, client); w.writes.holder != client || time.Since(w.writes.renewed) > renewDeadline {
		w.writes.terms[client]++
	}
	w.writes.holder = client
}

// judgeWrite judges one change by a replica.
func (w *world) judgeWrite(by *model.Request, resource string, before, after model.Object) {
	switch resource {
	case "secrets", "serviceaccounts", "configmaps", "clustertrustbundles":
	default:
		return
	}
	what := fmt.Sprintf("%s of %s %s/%s by %s", by.Verb, resource, by.Namespace, by.Name, by.Client)
	// What it has begun before, and no longer waits for, may still come: its precondition is all that helps.
	if at, released := w.writes.released[by.Client]; released && (by.Began.After(at) || !by.Unanswered) {
		w.violated(9, "%s after it had given its Lease away", what)
	}
	if by.Verb != "create" && !by.Preconditioned {
		w.violated(2, "%s without UID and version as precondition", what)
	}
	if by.Name == stateOfRootCA {
		w.caKnown = true
		return
	}
	if by.Verb == "delete" {
		after = nil // a finalizer may keep it for a while
	}
	switch after := after.(type) {
	case *corev1.Secret:
		if was, ok := before.(*corev1.Secret); ok {
			w.judgeFilled(what, by, was, after)
		} else {
			w.writes.made[after.UID] = maker{by.Client, w.writes.terms[by.Client]}
			if after.Annotations[workload.ReplacesLabel] == "" {
				w.judgeUndone(what, by, after)
			}
			w.judgeMade(what, by, after)
		}
	case *corev1.ServiceAccount:
		if was, ok := before.(*corev1.ServiceAccount); ok {
			w.judgeReferences(what, by, was, after)
		} else if after.Name != workload.DefaultAccount || after.Labels["team"] != "ours" {
			w.violated(1, "%s, which no user has asked for, or not as the template has it", what)
		}
	case *corev1.ConfigMap:
		if before == nil && w.undoes != nil {
			w.undoes(after)
		}
		if before != nil {
			w.judgeCA(what, after.Data["ca.crt"])
		}
		if after.Name != workload.RootCAConfigMap {
			w.violated(1, "%s, which is not the product's", what)
		}
	case nil:
		if secret, ok := before.(*corev1.Secret); ok {
			w.judgeDeleted(what, by, secret)
		} else if resource != "clustertrustbundles" {
			w.violated(1, "%s, which is not the product's", what)
		}
	}
}

// judgeReferences judges a change of an account by a replica.
func (w *world) judgeReferences(what string, by *model.Request, before, after *corev1.ServiceAccount) {
	was, is := names(before), names(after)
	for name := range was {
		secret, _ := w.server.Get("secrets", after.Namespace, name).(*corev1.Secret)
		ours, gone := checker.WrittenByTokenControllers(before, name), !w.writes.gone[goneOf(after, name)].IsZero()
		switch {
		case is[name], ours && gone, gone && secret != nil && time.Since(secret.CreationTimestamp.Time) < acting:
			// Perhaps there is another one of the name already.
		case secret != nil && workload.Owner(secret) == after.UID && secret.Type == corev1.SecretTypeServiceAccountToken:
			w.violated(3, "%s: it has removed the reference to %s, which is there", what, name)
		case !ours && !gone:
			w.violated(3, "%s: it has removed the reference to %s, which a user has written", what, name)
		}
	}
	for name := range is {
		secret, _ := w.server.Get("secrets", after.Namespace, name).(*corev1.Secret)
		switch {
		case was[name]:
		case secret != nil && workload.Owner(secret) == after.UID:
			w.writes.listed[secret.UID] = true
			if own := w.ownOf(by, after.UID, was); own != "" && secret.Annotations[workload.ReplacesLabel] == "" {
				w.violated(3, "%s: it has referenced %s besides %s, which it knows", what, name, own)
			}
		case w.writes.gone[goneOf(after, name)].IsZero():
			w.violated(3, "%s: it has referenced %s, which is no Secret of the account", what, name)
		}
	}
	kept := func(of *corev1.ServiceAccount) *corev1.ServiceAccount {
		of = of.DeepCopy()
		of.ResourceVersion, of.ManagedFields, of.TypeMeta = "", nil, metav1.TypeMeta{}
		of.Secrets = slices.DeleteFunc(of.Secrets, func(ref corev1.ObjectReference) bool {
			return !was[ref.Name] || !is[ref.Name] || workload.IsOwnName(of.Name, ref.Name) // re-issue puts one first
		})
		return of
	}
	if !equality.Semantic.DeepEqual(kept(before), kept(after)) {
		w.violated(1, "%s: it has changed what is the user's", what)
	}
}

func names(account *corev1.ServiceAccount) map[string]bool {
	all := map[string]bool{}
	for _, ref := range account.Secrets {
		all[ref.Name] = true
	}
	return all
}

// judgeDeleted wants a reason for each deletion of a Secret.
func (w *world) judgeDeleted(what string, by *model.Request, secret *corev1.Secret) {
	client := by.Client
	name, owner := secret.Annotations[corev1.ServiceAccountNameKey], workload.Owner(secret)
	account, _ := w.server.Get("serviceaccounts", secret.Namespace, name).(*corev1.ServiceAccount)
	listed := account != nil && names(account)[secret.Name]
	_, used := secret.Labels[workload.LastUsedLabel]
	replaces := secret.Annotations[workload.ReplacesLabel] != ""
	asked, ok := w.writes.asked[of(client, secret.Namespace, name)]
	switch {
	case secret.Type != corev1.SecretTypeServiceAccountToken || name == "":
		w.violated(1, "%s, which is no token Secret", what)
	case ok && time.Since(asked.at) < time.Minute && (asked.uid == "" || owner != "" && asked.uid != owner):
		// The account is gone, and that was asked for.
	case w.writes.made[secret.UID].client == client && !used && !listed:
		// It was made for nothing.
	case replaces && !used && !listed && secret.Labels[workload.AutoCreatedLabel] != "":
		// A successor whose predecessor is gone, or has a successor already.
	case w.cleanable(secret, account):
	default:
		w.violated(1, "%s: its account lives (%v), or it was not asked for", what, account != nil)
	}
	if !w.writes.dead[owner] {
		w.writes.deleted[secret.UID] = deletion{by, secret.Namespace + "/" + secret.Name}
	}
}

// cleanable is the rule of the legacy token cleaner, by days.
func (w *world) cleanable(secret *corev1.Secret, account *corev1.ServiceAccount) bool {
	since, err := time.Parse(time.DateOnly, secret.Labels[invalidSince])
	return err == nil && account != nil && time.Since(since) > 24*time.Hour+cleanerPeriod &&
		secret.Labels[workload.LastUsedLabel] <= since.Format(time.DateOnly) && secret.Annotations["sa-controller-manager/keep"] == ""
}

const cleanerPeriod = 24 * time.Hour

// judgeEvents wants an Event for each deletion but those that a user has asked for by deleting the account, of processes
// all of whose Events were taken.
func (w *world) judgeEvents() {
	recorded := map[types.UID]bool{}
	for _, object := range w.server.Objects("events") {
		recorded[object.(*corev1.Event).InvolvedObject.UID] = true
	}
	for uid, deletion := range w.writes.deleted {
		p := w.past[slices.IndexFunc(w.past, func(p *process) bool { return p.client.name == deletion.by.Client })]
		if !recorded[uid] && !p.down && !deletion.by.Unanswered && !w.price.lostEvents[deletion.by.Client] {
			w.violated(1, "the deletion of %s by %s has no Event", deletion.secret, deletion.by.Client)
		}
	}
}
