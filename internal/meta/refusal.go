// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package meta

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

var (
	// denied is where kube-apiserver has named the policy and its binding, or the webhook, and what their authors say begins.
	denied = regexp.MustCompile(`denied (the )?request`)
	// others are named in refusals that a user of the namespace may want to know of, besides those.
	others = regexp.MustCompile(denied.String() + `|quota|webhook`)
)

// Refused reports whether a policy, a webhook or a quota has refused a write or taken it out, and not, for example, a missing
// permission.
func Refused(err error) bool {
	answer := apierrors.APIStatus(nil)
	return errors.Is(err, ErrUnchanged) || apierrors.IsInvalid(err) || errors.As(err, &answer) &&
		others.MatchString(answer.Status().Message)
}

// SecretError returns an error that may be logged, for the error of a write of a Secret. Names of policies, webhooks and quotas
// stay in its text. What the author of a policy or webhook says may quote the Secret: it stays if held is given, which must be
// all data that the Secret has and was to have, and no part of that is in it. errors.As still finds the original error.
func SecretError(err error, held ...map[string][]byte) error {
	answer := apierrors.APIStatus(nil)
	if !errors.As(err, &answer) {
		return err
	}
	const elsewhere = "; its audit log has the %s, which may quote the Secret"
	status := answer.Status()
	text := strings.ToValidUTF8(status.Message[:min(len(status.Message), longestText)], "")
	said := denied.FindStringIndex(text)
	switch {
	case said != nil && (len(held) == 0 || quotes(text, held)):
		text = ": " + text[:said[1]] + fmt.Sprintf(elsewhere, "rest")
	case said == nil && (len(held) == 0 && !apierrors.IsForbidden(err) || quotes(text, held)):
		text = fmt.Sprintf(elsewhere, "text")
	default:
		text = ": " + text
	}
	return &secretError{fmt.Sprintf("kube-apiserver answered %d %s%s", status.Code, status.Reason, text), err}
}

const (
	// longestText is how much is kept of kube-apiserver's text, in bytes.
	longestText = 1024
	// longestPart is how many characters in a row a text may have in common with data.
	longestPart = 12
)

// quotes reports whether text has a part of data: as it is, in hexadecimal digits, or in base64, also of data with something before
// it.
func quotes(text string, held []map[string][]byte) bool {
	text = strings.ToLower(text)
	parts := map[string]bool{}
	for i := range max(0, len(text)-longestPart+1) {
		parts[text[i:i+longestPart]] = true
	}
	quoted := func(form string) bool {
		form = strings.ToLower(form)
		if len(form) <= longestPart {
			return form != "" && strings.Contains(text, form)
		}
		for i := range len(form) - longestPart + 1 {
			if parts[form[i:i+longestPart]] {
				return true
			}
		}
		return false
	}
	for _, data := range held {
		for key, value := range data {
			if key == corev1.ServiceAccountNamespaceKey {
				continue // every text has it
			}
			if quoted(string(value)) || quoted(hex.EncodeToString(value)) {
				return true
			}
			for skip := range min(3, len(value)) {
				if quoted(base64.StdEncoding.EncodeToString(value[skip:])) {
					return true
				}
			}
		}
	}
	return false
}

type secretError struct {
	text string
	err  error
}

func (e *secretError) Error() string { return e.text }

func (e *secretError) Unwrap() error { return e.err }
