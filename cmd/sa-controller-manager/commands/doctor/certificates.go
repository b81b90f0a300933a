// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"

	"sa-controller-manager/admission/certs"
	"sa-controller-manager/admission/registration"
)

// lastPart is the last part of a certificate's life, as a divisor. By then its successor should
// exist: a serving CA is rolled over after two thirds, and a twelfth before its end in any case.
const lastPart = 12

const (
	servingCA = certs.SecretNamespace + "/" + certs.SecretName

	fixServingCA = "start a replica; if one runs, its log says why it does not write the Secret " + servingCA
	fixCABundle  = "start the leader with --webhook-registration=url or service: it repairs the caBundle within seconds, " +
		"and its log says why it cannot. If the webhook serves from --webhook-tls-cert-file, delete the Secret " + servingCA +
		": it is a leftover"
)

// checkCertificates checks the serving CA and the caBundles. The serving certificates are in the
// memory of the replicas: checkWebhook finds out whether kube-apiserver accepts them.
func checkCertificates(ctx context.Context, c *cluster) (answer, error) {
	registered, err := registration.Inspect(ctx, c.Client)
	if err != nil {
		return answer{}, err
	}
	now := c.Clock.Now()
	secret, err := c.Client.CoreV1().Secrets(certs.SecretNamespace).Get(ctx, certs.SecretName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		if !slices.ContainsFunc(registered, func(one registration.Inspected) bool { return one.Exists }) {
			return skipped("no serving CA in " + servingCA + ", and no registration"), nil
		}
		return answer{Findings: badBundles(registered, nil, now), Note: "no serving CA in " + servingCA + ": the webhook serves from files"}, nil
	}
	if err != nil {
		return answer{}, fmt.Errorf("read the Secret %s: %w", servingCA, err)
	}
	active, err := certs.Active(secret)
	if err != nil {
		//nolint:nilerr // the finding reports it
		return answer{Findings: []finding{found("serving-ca-unreadable", "the serving CA in the Secret "+servingCA+" cannot be read",
			fixServingCA)}}, nil
	}
	var findings []finding
	if problem := ending(active, now, lastPart); problem != "" {
		findings = append(findings, found("serving-ca-ends", "the serving CA in the Secret "+servingCA+" "+problem, fixServingCA))
	}
	note := "the serving CA expires at " + active.NotAfter.UTC().Format(time.RFC3339)
	return answer{Findings: append(findings, badBundles(registered, active, now)...), Note: note}, nil
}

// ending describes a certificate that has expired or is in the last part of its life; it returns
// "" for any other.
func ending(certificate *x509.Certificate, now time.Time, part time.Duration) string {
	end := certificate.NotAfter.UTC().Format(time.RFC3339)
	life := certificate.NotAfter.Sub(certificate.NotBefore)
	switch left := certificate.NotAfter.Sub(now); {
	case left <= 0:
		return "expired at " + end
	case left < life/part:
		return "expires at " + end
	}
	return ""
}

// badBundles wants the active serving CA in each caBundle. Without a serving CA, the certificate
// in the caBundle with the longest life must not be about to expire.
func badBundles(registered []registration.Inspected, active *x509.Certificate, now time.Time) []finding {
	var findings []finding
	for _, one := range registered {
		for _, bundle := range one.CABundles {
			if problem := badBundle(bundle, active, now); problem != "" {
				findings = append(findings, found("ca-bundle-wrong", fmt.Sprintf("a caBundle of the %s %s %s", one.Kind, registration.Name, problem),
					fixCABundle))
				break
			}
		}
	}
	return findings
}

func badBundle(text []byte, active *x509.Certificate, now time.Time) string {
	if len(bytes.TrimSpace(text)) == 0 && active == nil {
		return "" // kube-apiserver uses its own roots
	}
	certificates, err := cert.ParseCertsPEM(text)
	if err != nil {
		return "holds no certificate that can be read"
	}
	if active != nil {
		if !slices.ContainsFunc(certificates, active.Equal) {
			return "lacks the active serving CA: kube-apiserver cannot call the webhook"
		}
		return ""
	}
	longest := slices.MaxFunc(certificates, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) })
	return ending(longest, now, lastPart)
}
