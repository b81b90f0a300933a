// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package preflight knows what the process has to be allowed to do, asks the API server
// whether it is, and says what is missing and what would grant it.
//
// The one table of that is in rules.go: what each part may have to do, and by which flags. The
// roles below manifests/permissions are generated from it ("make update-manifests"), so a
// request that is new is added there and nowhere else.
//
// Check asks once. Watch asks at the start and then, for as long as something is
// missing, again and again at growing intervals; when all is granted it asks no more,
// so that an idle process costs nothing. Permissions that are taken away later are told
// by the parts that need them.
//
// Each entry is asked by a SelfSubjectAccessReview. A SelfSubjectRulesReview would be one request,
// but is incomplete wherever authorization is more than RBAC.
//
// Nothing here stops the process: what a part may not do it tries again until it may.
package preflight
