// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package relying is what relying parties outside of the cluster read of a key ring: the OpenID Connect
// discovery document and the JWKS of the issuer, with the content and the paths of kube-apiserver's own.
//
// A Publisher writes them into directories. A web server serves those, or another program copies them to
// where relying parties read. It replaces the documents of another issuer only if Documents.Replace is set.
// A Reader reads them back as a relying party does, and Compare holds what is published against the ring.
//
// A Reader sends no credentials and bounds redirects, time and size, because it does not trust the documents.
// What must never happen: anything of a document but key IDs and algorithms in an error, and a request
// without https.
package relying
