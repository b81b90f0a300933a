// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	_ "embed"
	"strings"
)

// The controllers of this binary, under their names in KCM.
const (
	ServiceAccountController         = "serviceaccount-controller"
	ServiceAccountTokenController    = "serviceaccount-token-controller"
	RootCACertificatePublisher       = "root-ca-certificate-publisher-controller"
	LegacyServiceAccountTokenCleaner = "legacy-serviceaccount-token-cleaner-controller"
	ClusterTrustBundlePublisher      = "kube-apiserver-serving-clustertrustbundle-publisher-controller"
)

// knownController is a controller that KCM accepts in --controllers, with its alias, an older name.
// No controller has more than one alias.
type knownController struct {
	name, alias string
	here        bool // in this binary, not in KCM
}

// knownControllers returns every controller of KCM v1.37.2 and v1.36.3, so that a --controllers value for
// either works here. Source of the names: cmd/kube-controller-manager/names and, for the three of the
// cloud, k8s.io/cloud-provider/names of v1.36; of the aliases: the descriptors in
// cmd/kube-controller-manager/app.
func knownControllers() []knownController {
	known := []knownController{
		{ServiceAccountController, "serviceaccount", true},
		{ServiceAccountTokenController, "serviceaccount-token", true},
		{RootCACertificatePublisher, "root-ca-cert-publisher", true},
		{LegacyServiceAccountTokenCleaner, "legacy-service-account-token-cleaner", true},
		{ClusterTrustBundlePublisher, "", true},
	}
	for line := range strings.Lines(kcmControllers) {
		if name, alias, _ := strings.Cut(strings.TrimSpace(line), "="); name != "" && name[0] != '#' {
			known = append(known, knownController{name: name, alias: alias})
		}
	}
	return known
}

//go:embed controllernames.txt
var kcmControllers string
