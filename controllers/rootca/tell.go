// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
)

// What a person is told of the overlap. Certificates are named by the beginning of
// their SHA-256 fingerprint.

// shownFingerprints bounds how many are named in one note.
const shownFingerprints = 8

func (k *Keeper) tell(ctx context.Context, decided decision) {
	logger := klog.FromContext(ctx)
	if began := fingerprints(decided.began); began != "" {
		until := lastEnd(decided).Format(time.RFC3339)
		logger.Info("The root CA has changed, the former one is published beside it", "former", began, "until", until)
		k.Recorder.Normal(k.Process, "RootCAOverlapBegan", "Publish",
			fmt.Sprintf("the root CA has changed; what it was before (%s) is published beside it until %s", began, until))
	}
	if ended := fingerprints(decided.ended); ended != "" {
		logger.Info("A former root CA is not published any more", "former", ended)
		k.Recorder.Normal(k.Process, "RootCAOverlapEnded", "Publish",
			fmt.Sprintf("a former root CA (%s) is not published any more", ended))
	}
	if crowded := fingerprints(decided.crowded); crowded != "" {
		err := fmt.Errorf("all root CAs in overlap have more than %d bytes together", maxUnion)
		logger.Error(err, "Former root CAs are dropped before their time", "former", crowded)
		k.Recorder.Warn(k.Process, "RootCAOverlapTooLarge", "Publish",
			fmt.Sprintf("%v; those that would end first (%s) are not published any more", err, crowded))
	}
}

// lastEnd is when those that begin now end.
func lastEnd(decided decision) time.Time { return decided.state.formers[0].until }

// complain tells of what does not go away by itself; the loop logs everything.
func (k *Keeper) complain(err error) {
	if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) && !errors.As(err, new(foreignError)) {
		return
	}
	k.Recorder.Warn(k.Process, "RootCAStateUnavailable", "Publish",
		fmt.Sprintf("%v; until that is mended a restart may end the overlap of a former root CA before its time", err))
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
