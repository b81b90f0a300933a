// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"sa-controller-manager/internal/stateobject"
)

// What the log and Events say of the overlap. Certificates are named by the beginning of
// their SHA-256 fingerprint.

// shownFingerprints bounds how many are named in one note.
const shownFingerprints = 8

// report logs and records which overlaps begin and end with a decision.
func (c *BundleController) report(ctx context.Context, decided decision) {
	logger := klog.FromContext(ctx)
	if began := fingerprints(decided.began); began != "" {
		until := decided.state.previous[0].until.Format(time.RFC3339) // all that begin now end last
		logger.Info("The root CA has changed, the previous one is published beside it", "previous", began, "until", until)
		c.Recorder.Normal(c.Process, "RootCAOverlapBegan", "Publish",
			fmt.Sprintf("the root CA has changed; the previous one (%s) is published beside it until %s", began, until))
	}
	if returned := fingerprints(decided.returned); returned != "" {
		logger.Info("The root CA file is an earlier one", "again", returned)
		c.Recorder.Warn(c.Process, "RootCAFileIsOlder", "Publish", fmt.Sprintf(
			"the root CA file of this process holds %s, which another file has replaced: unless that was taken back, copy the newer --root-ca-file here "+
				"before the overlap ends and its root CA is not published any more", returned))
	}
	if ended := fingerprints(decided.ended); ended != "" {
		logger.Info("A previous root CA is not published any more", "previous", ended)
		c.Recorder.Normal(c.Process, "RootCAOverlapEnded", "Publish",
			fmt.Sprintf("a previous root CA (%s) is not published any more", ended))
	}
	if evicted := fingerprints(decided.evicted); evicted != "" {
		err := fmt.Errorf("all root CAs in overlap have more than %d bytes together", maxUnion)
		logger.Error(err, "Previous root CAs are dropped before their time", "previous", evicted)
		c.Recorder.Warn(c.Process, "RootCAOverlapTooLarge", "Publish",
			fmt.Sprintf("%v; those that would end first (%s) are not published any more", err, evicted))
	}
}

// warn records what does not go away by itself; the queue logs every error.
func (c *BundleController) warn(err error) {
	if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) && !apierrors.IsNotFound(err) && !errors.As(err, new(*stateobject.UnknownVersionError)) {
		return
	}
	c.Recorder.Warn(c.Process, "RootCAStateUnavailable", "Publish",
		fmt.Sprintf("%v; until that is fixed a restart may end the overlap of a previous root CA before its time", err))
}

func fingerprints(certificates []*x509.Certificate) string {
	var all []string
	for i, certificate := range certificates {
		if i == shownFingerprints {
			all = append(all, fmt.Sprintf("and %d more", len(certificates)-i))
			break
		}
		all = append(all, fingerprint(certificate))
	}
	return strings.Join(all, ", ")
}

// Replaces says which certificates a process with this file would add to a published bundle, and
// which it would take out beside those that the state has in overlap. state may be nil or empty.
func Replaces(file, published *Bundle, object *corev1.Secret, now time.Time) (adds, drops string, err error) {
	var known state
	if object != nil && len(object.Data) > 0 {
		if known, _, err = decode(object, now, 0); err != nil {
			return "", "", err
		}
	}
	adds = fingerprints(slices.DeleteFunc(slices.Clone(file.certificates), func(c *x509.Certificate) bool { return contains(published.certificates, c) }))
	drops = fingerprints(slices.DeleteFunc(slices.Clone(published.certificates), func(c *x509.Certificate) bool {
		return contains(file.certificates, c) || known.overlaps(c)
	}))
	return adds, drops, nil
}
