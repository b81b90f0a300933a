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

	"sa-controller-manager/internal/stateobject"
)

// The log and Events name certificates by the beginning of their SHA-256 fingerprint.

// shownFingerprints bounds how many certificates one note names.
const shownFingerprints = 8

// report logs and records as Events which overlaps begin and end with a decision.
func (c *BundleController) report(ctx context.Context, decided *decision) {
	logger := klog.FromContext(ctx)
	if len(decided.began) > 0 {
		previous := fingerprints(decided.state.previous) // all of them, because the end of earlier ones has moved
		until := decided.state.until.Format(time.RFC3339)
		logger.Info("Root CA changed, publishing the previous one beside it", "previous", previous, "until", until)
		c.Recorder.Normal(c.Process, "RootCAOverlapBegan",
			fmt.Sprintf("the root CA has changed; the previous one (%s) is published beside it until %s", previous, until))
	}
	if returned := fingerprints(decided.returned); returned != "" {
		logger.Info("Root CA file is an earlier one", "certificates", returned)
		c.Recorder.Warn(c.Process, "RootCAFileIsOlder", fmt.Sprintf(
			"the root CA file of this process holds %s, which another file has replaced: unless that was taken back, "+
				"copy the newer root CA file here before the overlap ends and its root CA is not published any more", returned))
	}
	if ended := fingerprints(decided.ended); ended != "" {
		logger.Info("Stopped publishing a previous root CA", "previous", ended)
		c.Recorder.Normal(c.Process, "RootCAOverlapEnded", fmt.Sprintf("a previous root CA (%s) is not published any more", ended))
	}
}

// warn records an Event for errors that a retry does not fix; the queue logs errors.
func (c *BundleController) warn(err error) {
	consequence := "until that is fixed a restart may end the overlap of a previous root CA before its time"
	if c.known == nil {
		consequence = "until that is fixed new namespaces get the root CA file alone, what is published stays, and no token Secret " +
			"is filled"
	}
	switch {
	case errors.Is(err, errTooLarge):
		c.Recorder.Warn(c.Process, "RootCAOverlapTooLarge", err.Error())
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsNotFound(err),
		errors.As(err, new(*stateobject.UnknownVersionError)):
		c.Recorder.Warn(c.Process, "RootCAStateUnavailable", fmt.Sprintf("%v; %s", err, consequence))
	}
}

func fingerprints(certificates []*x509.Certificate) string {
	var all []string
	for _, certificate := range certificates[:min(len(certificates), shownFingerprints)] {
		all = append(all, fingerprint(certificate))
	}
	if more := len(certificates) - len(all); more > 0 {
		all = append(all, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(all, ", ")
}
