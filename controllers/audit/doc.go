// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package audit lists the long-lived tokens of a cluster, those in token Secrets, and lists the
// findings of each.
//
// Auditor.Run walks the Secrets page by page. For the namespaces of a page it reads the accounts
// and what Pods use, and it has kube-apiserver say how far each account reaches
// (SubjectAccessReview), all with bounded concurrency. Out of that a pure function makes a Row. A
// row is small and kept until the end; Secrets, with their tokens, live no longer than their page.
//
// An expired continue token resumes with an inconsistent list.
//
// What must never happen: a token, or a part of one, in a row, an error or a line of output.
// Nothing is written to the cluster but reviews, which are not stored.
package audit
