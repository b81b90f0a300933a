// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"sa-controller-manager/controllers/keyring/ring"
	"sa-controller-manager/internal/meta"
	"sa-controller-manager/internal/stateobject"
	"sa-controller-manager/signing"
)

const (
	// SecretName is the Secret in kube-system in which each replica publishes its key ring, without the
	// keys. It is a Secret and no ConfigMap because its content decides which replica may sign, and more
	// users may write ConfigMaps. In manifests/permissions, too.
	SecretName = "sa-controller-manager-key-ring"

	// entryPrefix is the prefix of a host's key in the Secret. The other keys are those of Published.
	entryPrefix = "host."

	// maxHosts is how many hosts a cluster may have: each of them costs requests, and is compared with each other one. All entries
	// are dropped beyond it, as if the Secret had been deleted; those of hosts that live are back within seconds.
	maxHosts = 256

	ringSecret = "secret " + metav1.NamespaceSystem + "/" + SecretName
)

// Published is what the hosts and the commands know of all key rings of a cluster. It contains no key.
type Published struct { //nolint:recvcheck // what changes it has a pointer
	// Entries are those of all hosts that have ever published one, until they are forgotten. One without a
	// History cannot be read.
	Entries []Entry
	// Removed are the keys that some ring has revoked. It only grows.
	Removed ring.Revocations
	// Hosts are what else is known of hosts, by name.
	Hosts map[string]Host
	// Followed is since when no host and no kube-apiserver signs with a retired key, by key ID.
	Followed map[string]time.Time
	// Claim keeps two hosts from changing the ring at the same time.
	Claim Claim
}

// parts are the fields besides the entries, by their keys in the Secret.
func (p *Published) parts() map[string]any {
	return map[string]any{"removed": &p.Removed, "hosts": &p.Hosts, "followed": &p.Followed, "claim": &p.Claim}
}

// Host is what is known of a host besides its entry.
type Host struct {
	// APIServer means that a kube-apiserver was seen there.
	APIServer bool `json:"apiServer,omitempty"`
	// Node means that a Node of that name was seen. When that is gone, the host is.
	Node bool `json:"node,omitempty"`
	// Forgotten is when the identity Lease of a kube-apiserver that was forgotten had been renewed: it lives on
	// for an hour. One that is renewed is back.
	Forgotten string `json:"forgotten,omitempty"`
}

// Entry describes the key ring of a host. No decision rests on a time in it.
type Entry struct {
	Host string `json:"-"`
	// Writer is the process that writes the entry, and Renewed changes while it lives.
	Writer  string    `json:"writer"`
	Renewed time.Time `json:"renewed"`
	// Generation, History, with the version of the ring at the end, and Keys are of the newest ring that the
	// host has used.
	Generation int64                   `json:"generation"`
	History    []string                `json:"history"`
	Keys       map[string]signing.Role `json:"keys"`
	// Digests are those of the keys whose signer has chosen their ID.
	Digests map[string]string `json:"digests"`
	// File is the version of the file if that ring is not in it, or "none".
	File string `json:"file,omitempty"`
	// Changed is when its active or its next key was replaced last, and ByRevocation since when the active key signs
	// because another one was revoked, zero if it does not.
	Changed      time.Time `json:"changed"`
	ByRevocation time.Time `json:"byRevocation,omitzero"`
	// Signs are the keys that the host can sign with, and SignsWith the one that it signs with now.
	Signs     []string `json:"signs"`
	SignsWith string   `json:"signsWith"`
	// Away are the active and the next key that the host cannot sign with.
	Away map[string]Away `json:"away"`
	// ShowsNext is set while the host shows the next key wherever it publishes keys, and NextSeconds for how long
	// it has, by the process's own clock.
	ShowsNext   bool  `json:"showsNext,omitempty"`
	NextSeconds int64 `json:"nextSeconds,omitempty"`
	// Signer is set if the process signs the tokens of kube-apiserver on that host.
	Signer bool `json:"signer,omitempty"`
}

// Away is why a host cannot sign with a key, and for how many minutes, by the process's own clock.
type Away struct {
	Reason  string `json:"reason"`
	Minutes int64  `json:"minutes"`
}

// Claim names the host that is about to make a generation. It lasts until a ring of that generation is
// published there.
type Claim struct {
	Generation int64  `json:"generation"`
	Host       string `json:"host"`
}

// EntryOf describes a ring.
func EntryOf(state ring.State) Entry {
	entry := Entry{Generation: state.Generation, History: state.History, Keys: map[string]signing.Role{}, Digests: map[string]string{}}
	if active := state.Active(); active.ByRevocation {
		entry.ByRevocation = active.ActivatedAt
	}
	for _, key := range state.Keys {
		entry.Keys[key.ID] = key.Role
		if key.Foreign() {
			entry.Digests[key.ID] = key.Digest()
		}
		for _, at := range []time.Time{key.PublishedAt, key.ActivatedAt} {
			if key.Role != signing.Retired && at.After(entry.Changed) {
				entry.Changed = at
			}
		}
	}
	return entry
}

// key returns the ID of the key with a role, "" if there is none.
func (e Entry) key(role signing.Role) string {
	for id, is := range e.Keys {
		if is == role {
			return id
		}
	}
	return ""
}

// active returns the key that signs with the ring, which is the next one if the active one is revoked, or "".
func (e Entry) active(p Published) string {
	for _, role := range []signing.Role{signing.Active, signing.Next} {
		if id := e.key(role); id != "" && !p.RevokedID(id) {
			return id
		}
	}
	return ""
}

// signs reports whether it is of a ring that has a key to sign with, as every ring of this program has.
func (e Entry) signs() bool { return e.version() != "" && e.key(signing.Active) != "" }

// renewAfter is when the entry is renewed: early while the next key is new, so that a command with a short --cache-age
// need not wait for a minute.
func (e Entry) renewAfter() time.Duration {
	if !e.ShowsNext {
		return renewal
	}
	return min(renewal, max(time.Second, time.Duration(e.NextSeconds)*time.Second))
}

// version is that of the ring.
func (e Entry) version() string {
	if len(e.History) == 0 {
		return ""
	}
	return e.History[len(e.History)-1]
}

// Entry returns the readable entry of a host.
func (p Published) Entry(host string) (Entry, bool) {
	i := slices.IndexFunc(p.Entries, func(entry Entry) bool { return entry.Host == host && entry.version() != "" })
	if i < 0 {
		return Entry{}, false
	}
	return p.Entries[i], true
}

// APIServers returns the hosts on which a kube-apiserver was seen, sorted.
func (p Published) APIServers() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(p.Hosts)), func(name string) bool { return !p.Hosts[name].APIServer })
}

// Desired is what a host applies to its ring. A host counts until it is forgotten: what it has active every host
// had.
func (p Published) Desired(own ring.State) ring.Desired {
	desired, newest := ring.Desired{Revoked: p.Removed}, own.Generation
	for _, entry := range p.Entries {
		if relate(own, entry) == newer && entry.Generation > newest {
			newest, desired.Active = entry.Generation, entry.active(p)
		}
	}
	return desired
}

// Read decodes the Secret, which may be nil. What cannot be read besides entries is in the error, and the rest is
// returned.
func Read(secret *corev1.Secret) (Published, error) {
	var p Published
	if secret == nil || len(secret.Data) == 0 {
		return p, nil
	}
	fields, err := stateobject.Read(secret.Data)
	if err != nil {
		return p, fmt.Errorf("%s: %w", ringSecret, err)
	}
	for _, host := range fields.After(entryPrefix) {
		p.Entries = append(p.Entries, readEntry(host, fields.Get(entryPrefix+host)))
	}
	for key, part := range p.parts() {
		if data := fields.Get(key); len(data) > 0 && json.Unmarshal(data, part) != nil {
			fields.Damaged(key, errors.New("it is not as this program writes it"))
		}
	}
	read := len(p.Removed)
	if p.Removed = slices.DeleteFunc(p.Removed, func(gone ring.Removed) bool { return !gone.Revokes() }); len(p.Removed) < read {
		fields.Damaged("removed", fmt.Errorf("%d records are of no revocation", read-len(p.Removed)))
	}
	if max(len(p.Entries), len(p.Hosts)) > maxHosts {
		fields.Damaged("hosts", fmt.Errorf("there are more than %d", maxHosts))
		if p.Entries = nil; len(p.Hosts) > maxHosts {
			p.Hosts = nil
		}
	}
	if damage := fields.Damage(); damage != "" {
		return p, fmt.Errorf("%s: %s: it is written again within a minute", ringSecret, damage)
	}
	return p, nil
}

// readEntry decodes the entry of a host.
func readEntry(host string, data []byte) (entry Entry) {
	if json.Unmarshal(data, &entry) != nil || entry.version() == "" || len(entry.History) > ring.MaxHistory {
		entry = Entry{} // another release wrote it
	}
	entry.Host = host
	return entry
}

// Fetch reads what is published from kube-apiserver.
func Fetch(ctx context.Context, client kubernetes.Interface) (Published, error) {
	live, err := client.CoreV1().Secrets(metav1.NamespaceSystem).Get(ctx, SecretName, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return Published{}, fmt.Errorf("look up the published key rings, in %s: %w", ringSecret, err)
	}
	return Read(live)
}

// Edit changes what is published, and does so again if another write came between. The Secret comes with
// the manifests; with more permissions it is created.
func Edit(ctx context.Context, client kubernetes.Interface, change func(*Published) error) error {
	secrets := client.CoreV1().Secrets(metav1.NamespaceSystem)
	again := func(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }
	err := retry.OnError(retry.DefaultRetry, again, func() error {
		secret, err := secrets.Get(ctx, SecretName, metav1.GetOptions{})
		missing := apierrors.IsNotFound(err)
		if missing {
			secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: SecretName}}
		} else if err != nil {
			return err
		}
		p, err := Read(secret)
		if _, unknown := errors.AsType[*stateobject.UnknownVersionError](err); unknown {
			return err
		}
		if err := change(&p); err != nil {
			return err
		}
		before := secret.Data
		if secret.Data, err = p.data(before); err != nil || maps.EqualFunc(before, secret.Data, bytes.Equal) {
			return err
		}
		if missing {
			_, err = secrets.Create(ctx, secret, metav1.CreateOptions{FieldManager: meta.FieldManager})
		} else {
			_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{FieldManager: meta.FieldManager})
		}
		return err
	})
	if _, refused := errors.AsType[*ring.Refusal](err); err == nil || refused {
		return err
	}
	return fmt.Errorf("publish in %s, which comes with manifests/permissions: %w", ringSecret, err)
}

// data returns the data of the Secret. What else was there stays, but for entries that are gone. An entry that has not
// changed keeps its bytes: the Secret must not grow by what another program has written into it.
func (p *Published) data(before map[string][]byte) (map[string][]byte, error) {
	data := map[string][]byte{}
	maps.Copy(data, before)
	maps.DeleteFunc(data, func(key string, _ []byte) bool { return strings.HasPrefix(key, entryPrefix) })
	for _, entry := range p.Entries {
		encoded := before[entryPrefix+entry.Host]
		if !reflect.DeepEqual(entry, readEntry(entry.Host, encoded)) {
			var err error
			if encoded, err = json.Marshal(entry); err != nil {
				return nil, err
			}
		}
		data[entryPrefix+entry.Host] = encoded
	}
	for key, part := range p.parts() {
		encoded, err := json.Marshal(part)
		if err != nil {
			return nil, err
		}
		data[key] = encoded
	}
	return stateobject.Stamp(data), nil
}

// Revoke adds keys that are revoked, and reports whether one was not published yet.
func (p *Published) Revoke(revoked ring.Revocations) (added bool) {
	before := len(p.Removed)
	p.Removed = ring.Union(p.Removed, revoked)
	return len(p.Removed) > before
}

// RevokedID reports whether some host has revoked a key of which only the ID is known.
func (p *Published) RevokedID(id string) bool {
	return slices.ContainsFunc(p.Removed, func(gone ring.Removed) bool { return gone.ID == id || gone.Digest == id })
}

// Revocation is the record to revoke a key with, of own, of a published ring, or of one that has left them. ok is false
// for another one.
func (p *Published) Revocation(id string, own ring.State) (gone ring.Removed, ok bool) {
	for _, entry := range slices.Concat([]Entry{EntryOf(own)}, p.Entries) {
		if entry.Keys[id] != "" {
			return ring.Removed{ID: id, Digest: cmp.Or(entry.Digests[id], id), Reason: ring.Revoked}, true
		}
	}
	for _, left := range slices.Concat(own.Removed, own.Revoked, p.Removed) {
		if left.ID == id {
			return ring.Removed{ID: id, Digest: left.Digest, Reason: ring.Revoked}, true
		}
	}
	return ring.Removed{}, false
}

// ClaimRing keeps other hosts from making the generation that follows on a ring. A claim of another host lasts until
// its ring is published, or the host is in without.
func (p *Published) ClaimRing(own ring.State, host string, without []string) error {
	next := own.Generation + 1
	if c := p.Claim; c.Generation >= next && c.Host != host && !slices.Contains(without, c.Host) {
		return &ring.Refusal{
			Reason: fmt.Sprintf("host %s is making generation %d of the ring", c.Host, c.Generation),
			Remedy: fmt.Sprintf("bring its ring here (keys import); if it has not changed, make the change there; if that host is gone "+
				"for good, give --without-host=%s or keys forget %s", c.Host, c.Host), Later: true,
		}
	}
	p.Claim = Claim{Generation: next, Host: host}
	return nil
}
