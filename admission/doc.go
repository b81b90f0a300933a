// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package admission is a framework for admission plugins outside of kube-apiserver, and the webhook
// that they are served by.
//
// What happens to a call, in order:
//
//  1. Server accepts it over TLS, as far as its connections are within their limit (connlimit).
//     GET /readyz is answered here; if the caller has to show a certificate, here is where it
//     counts.
//  2. Webhook checks method, content type, number of calls and size, and reads the AdmissionReview.
//     Objects stay bytes.
//  3. The time to decide is the timeout in the URL less 1.5 s: the apiserver rounds it up and would
//     otherwise give up first.
//  4. A CREATE or UPDATE without an object is allowed untouched.
//  5. Chain calls the plugins whose Rules match, in order: Mutators for /mutate, Validators for
//     /validate. Each has to be ready first. A mutator sees the object as those before it patched
//     it. The first refusal ends it.
//  6. The answer carries the uid, in the version of the question: yes, perhaps with a JSON patch,
//     or no, with a status.
//
// What a plugin owes:
//
//  1. Rules are constant. Exactly those are registered with the apiserver, so a plugin that
//     matches less is called less.
//  2. A plugin is called from many goroutines. It does not change the Request, and keeps none of it
//     after it has returned.
//  3. It honors the context, which ends when nobody would hear the answer any more.
//  4. Admit changes nothing by itself: it adds operations to Response.Patch, relative to
//     Request.Object. They append to lists and never rewrite one that others write too. Applied
//     twice is applied once, because the apiserver calls again.
//  5. A request with DryRun leaves nothing behind.
//  6. An error refuses. Forbidden, TooManyRequests and Internal make the usual ones; what the client sees of them is decided in one place, statusOf.
//
// Plugins are built by name from a Registry, which is an explicit list, with the
// Selection that the flags make and the Configuration from kube-apiserver's own
// AdmissionConfiguration file.
//
// The names of kube-apiserver (k8s.io/apiserver/pkg/admission) and what they are here:
//
//	Attributes                            Request
//	Interface, MutationInterface,         Plugin, Mutator,
//	ValidationInterface                   Validator
//	Handler: Handles                      Plugin.Rules
//	Handler: SetReadyFunc, WaitForReady   Handler: SetReadyChannels, which waits without
//	                                      polling, and Ready
//	Plugins: Register                     Registry, a map
//	Factory, ConfigProvider               Factory, Configuration
//	NewFromPlugins, chainAdmissionHandler Registry.Build, Chain
//	NewForbidden                          Forbidden
//	AddAnnotation, warning.AddWarning     Response.AuditAnnotations, Response.Warnings
//	PluginInitializer                     none: factories are closures over what they need
//
// What must never happen: a request that gets through because something here broke; an answer
// without the uid that was asked with; an object, or a part of it, in a log.
package admission
