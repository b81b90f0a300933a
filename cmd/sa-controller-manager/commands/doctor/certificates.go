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

// lastPart of a certificate's life is when its successor should long be there: a CA of
// ours is followed at two thirds, and a twelfth before its end whatever happens.
const lastPart = 12

const (
	servingCA = certs.DefaultSecretNamespace + "/" + certs.DefaultSecretName

	fixServingCA = "look into the log of the manager for what keeps it from writing the Secret " + servingCA + "; a replica has to run"
	fixCABundle  = "the leader repairs it within seconds, if it runs with --webhook-registration=url or service and nobody undoes it: look into its log. " +
		"If the webhook serves from --webhook-tls-cert-file, the Secret " + servingCA + " is a leftover: delete it"
)

// checkCertificates looks at the serving CA and at what kube-apiserver trusts. The leaves
// are in the memory of replicas; that kube-apiserver accepts one is for checkWebhook.
func checkCertificates(ctx context.Context, c *cluster) (answer, error) {
	registered, err := registration.Inspect(ctx, c.Client)
	if err != nil {
		return answer{}, err
	}
	now := c.Clock.Now()
	secret, err := c.Client.CoreV1().Secrets(certs.DefaultSecretNamespace).Get(ctx, certs.DefaultSecretName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return answer{Findings: badBundles(registered, nil, now), Note: "no serving CA in " + servingCA + ": the webhook is off, or serves from files"}, nil
	}
	if err != nil {
		return answer{}, fmt.Errorf("read the Secret %s: %w", servingCA, err)
	}
	active, err := certs.Active(secret)
	if err != nil {
		return answer{Findings: []finding{found("serving-ca-unreadable", "the serving CA in the Secret "+servingCA+" cannot be read", fixServingCA)}}, nil //nolint:nilerr // the finding says it
	}
	var findings []finding
	if problem := ending(active, now, lastPart); problem != "" {
		findings = append(findings, found("serving-ca-ends", "the serving CA in the Secret "+servingCA+" "+problem, fixServingCA))
	}
	note := "the serving CA ends " + active.NotAfter.UTC().Format(time.RFC3339)
	return answer{Findings: append(findings, badBundles(registered, active, now)...), Note: note}, nil
}

// ending says that a certificate has ended or is in the last part of its life, "" if neither.
func ending(certificate *x509.Certificate, now time.Time, part time.Duration) string {
	end := certificate.NotAfter.UTC().Format(time.RFC3339)
	life := certificate.NotAfter.Sub(certificate.NotBefore)
	switch left := certificate.NotAfter.Sub(now); {
	case left <= 0:
		return "has expired at " + end
	case left < life/part:
		return "expires at " + end
	}
	return ""
}

// badBundles wants the active CA in each caBundle. Without one of ours, a certificate in
// it has to be good for a while.
func badBundles(registered []registration.Inspected, active *x509.Certificate, now time.Time) []finding {
	var findings []finding
	for _, one := range registered {
		for _, bundle := range one.CABundles {
			if problem := badBundle(bundle, active, now); problem != "" {
				findings = append(findings, found("ca-bundle-wrong", fmt.Sprintf("a caBundle of the %s %s %s", one.Kind, registration.Name, problem), fixCABundle))
				break
			}
		}
	}
	return findings
}

func badBundle(text []byte, active *x509.Certificate, now time.Time) string {
	if len(bytes.TrimSpace(text)) == 0 && active == nil {
		return "" // kube-apiserver's own roots count
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
