// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package consistency

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"sa-controller-manager/internal/stateobject"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/ring"
)

const (
	// SecretName is the Secret in kube-system in which each replica publishes its key ring, without the
	// keys. It is a Secret and no ConfigMap because its content decides which replica may sign, and more
	// users may write ConfigMaps. In manifests/permissions, too.
	SecretName = "sa-controller-manager-key-ring"

	// ringPrefix is the prefix of a replica's key in the Secret.
	ringPrefix = "replica."

	ringSecret = "secret " + metav1.NamespaceSystem + "/" + SecretName
)

// PublishedRing describes the key ring of a replica. It contains no key.
type PublishedRing struct {
	// Replica is the name of the line.
	Replica    string `json:"-"`
	Host       string `json:"host"`
	Generation int64  `json:"generation"`
	Version    string `json:"version"`
	// Keys are the states of the keys by key ID.
	Keys      map[string]signing.Role `json:"keys"`
	Pruned    []string                `json:"pruned,omitempty"`
	Withdrawn []string                `json:"withdrawn,omitempty"`
	// Signer is set if the replica signs the tokens of kube-apiserver on that host.
	Signer bool `json:"signer,omitempty"`
	// Stopped is when each retired key last signed, as far as the replica knows.
	Stopped map[string]time.Time `json:"stopped,omitempty"`
}

// Active returns the ID of the key that the replica signs with.
func (p PublishedRing) Active() string {
	for id, role := range p.Keys {
		if role == signing.Active {
			return id
		}
	}
	return ""
}

// LastSigned returns the latest time at which a replica signed with a key that none uses any more, or
// zero if it is unknown.
func LastSigned(rings []PublishedRing, id string) time.Time {
	var last time.Time
	for _, ring := range rings {
		if at := ring.Stopped[id]; at.After(last) {
			last = at
		}
	}
	return last
}

// published returns the description of a ring.
func published(own ring.State) PublishedRing {
	p := PublishedRing{
		Generation: own.Generation, Version: own.Version(), Keys: map[string]signing.Role{}, Pruned: own.Pruned, Withdrawn: own.Withdrawn,
	}
	for _, key := range own.Keys {
		p.Keys[key.ID] = key.Role
	}
	return p
}

// PublishedRings decodes the published rings of all replicas. The Secret may be nil.
func PublishedRings(secret *corev1.Secret) ([]PublishedRing, error) {
	if secret == nil || len(secret.Data) == 0 {
		return nil, nil
	}
	fields, err := stateobject.Read(secret.Data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ringSecret, err)
	}
	var rings []PublishedRing
	for _, replica := range fields.Between(ringPrefix, "") {
		ring := PublishedRing{Replica: replica}
		if err := json.Unmarshal(fields.Get(ringPrefix+replica), &ring); err != nil || ring.Version == "" {
			ring = PublishedRing{Replica: replica}
			fields.Damaged(ringPrefix+replica, errors.New("it is no published key ring"))
		}
		rings = append(rings, ring)
	}
	if damage := fields.Damage(); damage != "" {
		return rings, fmt.Errorf("%s: %s", ringSecret, damage)
	}
	return rings, nil
}

// LivePublishedRings reads them from kube-apiserver.
func LivePublishedRings(ctx context.Context, client kubernetes.Interface) ([]PublishedRing, error) {
	live, err := client.CoreV1().Secrets(metav1.NamespaceSystem).Get(ctx, SecretName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look up the published key rings, in %s: %w", ringSecret, err)
	}
	return PublishedRings(live)
}

// drift is the relation of the ring of this process to a published one.
type drift string

const (
	// inSync: they are the same, or the published one is older.
	inSync drift = "agreed"
	// unpublished: the ring of this process is not published.
	unpublished drift = "unpublished"
	// behind: the ring of this process is older.
	behind drift = "behind"
	// unreadable: the published entry is not one that this program writes.
	unreadable drift = "unreadable"
	// forked: neither has come from the other.
	forked drift = "forked"
	// lost: the published one is newer and does not have the active key of this process: it was pruned
	// or withdrawn, or the rings are forked.
	lost drift = "lost"
)

// drifts lists them all, the worst last.
func drifts() []drift {
	return []drift{inSync, unpublished, behind, unreadable, forked, lost}
}

func (d drift) worse(than drift) bool {
	return slices.Index(drifts(), d) > slices.Index(drifts(), than)
}

// compare compares the ring of this process with a published one. The history of a ring shows whether
// it has come from the other one. The older of the two lacks that history: there a key that is gone
// without a record shows a fork.
func compare(own ring.State, theirs PublishedRing) drift {
	switch {
	case own.Knows(theirs.Version):
		return inSync
	case theirs.Version == "":
		return unreadable
	case theirs.Generation <= own.Generation:
		return forked
	case theirs.Keys[own.Active().ID] == "":
		return lost
	}
	for _, key := range own.Retired() {
		if theirs.Keys[key.ID] == "" && !slices.Contains(theirs.Pruned, key.ID) {
			return forked
		}
	}
	return behind
}

// standing is the relation of the ring of this process to all published ones.
type standing struct {
	drift drift
	// other is what drift is about.
	other PublishedRing
	// active is the active key of the newest ring, if that is newer than this one.
	active string
}

func judge(own ring.State, rings []PublishedRing) standing {
	s := standing{drift: inSync}
	isPublished, newest := false, own.Generation
	for _, ring := range rings {
		isPublished = isPublished || ring.Version == own.Version()
		found := compare(own, ring)
		if found.worse(s.drift) {
			s.drift, s.other = found, ring
		}
		if ring.Generation > newest && found.worse(unpublished) {
			newest, s.active = ring.Generation, ring.Active()
		}
	}
	if !isPublished && unpublished.worse(s.drift) {
		s.drift = unpublished
	}
	return s
}

// Difference describes how own differs from the published rings. It is "" if own is published and no
// other one is newer or forked.
func Difference(own ring.State, rings []PublishedRing) string {
	if found := judge(own, rings); found.drift != inSync {
		return found.describe(own)
	}
	return ""
}

// describe returns what was found, and remedy what to do about it.
func (s standing) describe(own ring.State) string {
	mine := fmt.Sprintf("the key ring of this process (generation %d, version %s)", own.Generation, own.Version())
	theirs := fmt.Sprintf("that of host %s (generation %d, version %s)", s.other.Host, s.other.Generation, s.other.Version)
	switch s.drift {
	case inSync:
		return mine + " is the one that is published, and no other replica has another one that is newer"
	case unpublished:
		return mine + " is not published in " + ringSecret
	case behind:
		return mine + " is older than " + theirs
	case unreadable:
		return "the line " + ringPrefix + s.other.Replica + " of " + ringSecret + " cannot be read"
	case lost:
		return mine + " signs with key " + own.Active().ID + ", and " + theirs + ", which is newer, does not have that key"
	case forked:
	}
	return mine + " and " + theirs + " are forked: neither has come from the other"
}

func (s standing) remedy() string {
	gone := "; if that replica is gone for good, remove its line: kubectl -n " + metav1.NamespaceSystem + " patch secret " + SecretName +
		` --type=json -p '[{"op":"remove","path":"/data/` + strings.ReplaceAll(ringPrefix+s.other.Replica, "/", "~1") + `"}]'`
	switch s.drift {
	case behind:
		return ": bring the newer one here (keys import)" + gone
	case forked:
		return ": keys import --join-fork" + gone
	case lost:
		return ": nothing is signed with it; bring the newer one here (keys import, or keys import --join-fork if that is refused)" + gone
	case unreadable:
		return ": another release wrote it" + gone
	case unpublished:
		return ": apply manifests/permissions"
	case inSync:
	}
	return ""
}
