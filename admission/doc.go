// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package admission is the webhook server that calls the ServiceAccount plugin outside kube-apiserver.
//
// What happens to a call, in order:
//
//  1. Server accepts it over TLS, within the limit on connections (connlimit). It answers
//     GET /readyz itself; all other calls need a client certificate if one is configured.
//  2. Webhook checks method, content type, number of calls and size, and reads the AdmissionReview.
//     Objects stay bytes.
//  3. The deadline is the timeout in the URL less 1.5 s: the apiserver rounds that timeout up and
//     would otherwise give up first.
//  4. A CREATE or UPDATE without an object is allowed untouched.
//  5. A probe that proves that kube-apiserver reaches this process gets its answer. Then the plugin, once it is
//     ready, decides: Admit for /mutate, Validate for /validate.
//  6. The response carries the uid, in the version of the request: allowed, perhaps with a JSON
//     patch, or refused, with a status.
//
// The contract of the plugin:
//
//  1. It is safe for concurrent use. It neither changes a Request nor retains any part of it.
//  2. It honors the context, which ends when the caller no longer waits for the answer.
//  3. Admit does not change the object: it adds operations to Response.Patch, relative to
//     Request.Object. They append to lists and never rewrite a list that others write too. They
//     are idempotent, because the apiserver may call again.
//  4. A request with DryRun has no side effects.
//  5. An error refuses the request. Forbidden, TooManyRequests and Internal return the usual ones;
//     statusOf alone decides what the client sees of them.
//
// Names of kube-apiserver (k8s.io/apiserver/pkg/admission) and their counterparts here:
//
//	Attributes                            Request
//	MutationInterface,                    Plugin
//	ValidationInterface
//	Handler: SetReadyFunc, WaitForReady   Handler: SetReadyChannels, which waits without
//	                                      polling, and Ready
//	NewForbidden                          Forbidden
//	AddAnnotation, warning.AddWarning     Response.AuditAnnotations, Response.Warnings
//
// What must never happen: a failure here lets a request through; a response lacks the uid of its
// request; an object, or a part of it, reaches a log.
package admission
