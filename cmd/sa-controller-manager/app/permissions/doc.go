// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package permissions is the home of one rule: what RBAC the product needs. It asks the API server
// which permissions are missing, and builds the roles that grant these.
//
// The one table is in rules.go: what each part may have to do, and by which flags. The
// roles below manifests/permissions are generated from it ("make update-manifests"), so a
// request that is new is added there and nowhere else.
//
// Check asks once. A Watcher asks at the start and then, while permissions are missing, at growing
// intervals. When all are granted it stops, so that an idle process costs nothing. If a permission
// is removed later, the part that needs it logs that.
//
// Nothing here stops the process: a part without a permission retries until it is granted.
package permissions
