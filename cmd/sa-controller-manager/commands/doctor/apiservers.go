// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sa-controller-manager/controllers/keyring/consistency"
	"sa-controller-manager/controllers/keyring/operator"
	"sa-controller-manager/internal/apiservers"
	facts "sa-controller-manager/internal/check"
	"sa-controller-manager/signing/ring"
)

const fixAPIServerKeys = "on that node: sa-controller-manager keys import with a copy of the newest key ring, and kube-apiserver " +
	"with the external signer or with the public keys in --service-account-key-file, as on the other nodes " +
	"(docs/rotation.md, several control-plane nodes)"

// checkAPIServers finds a kube-apiserver that does not know a key which another one or a replica
// signs with, such as the kube-apiserver of a node that joined after a rotation.
func checkAPIServers(ctx context.Context, c *cluster) (answer, error) {
	servers := &operator.Cluster{Client: c.Client, Dial: c.Dial, Namespace: c.Namespace, Account: c.Account}
	rings, err := consistency.Refresh(ctx, c.Client, false)
	if err != nil {
		return answer{}, err
	}
	var result answer
	if err := servers.Find(ctx, rings.APIServers()); err != nil {
		const fix = "run doctor where the addresses behind the Service default/kubernetes can be reached; keys forget NAME if a host is " +
			"gone for good"
		reason := err.Error()
		if refusal, ok := errors.AsType[*ring.Refusal](err); ok {
			reason = refusal.Reason // its remedy is for "keys"
		}
		result.Findings = []finding{found(facts.APIServerNotAsked, reason, fix)}
	}
	for _, fact := range servers.Accepting(ctx, rings.Removed, false) {
		result.Findings = append(result.Findings, finding{Finding: fact.Finding})
	}
	if len(result.Findings) > 0 {
		return result, nil
	}
	if len(servers.Others) == 0 {
		return skipped("one kube-apiserver"), nil
	}
	signers, err := signersByKey(ctx, rings, servers)
	if err != nil {
		return answer{}, err
	}
	result.Note = fmt.Sprintf("kube-apiservers asked: %d", len(servers.Others))
	var unknown error
	for _, server := range servers.Others {
		ids, err := publishedIDs(ctx, apiservers.Getter(server.Client))
		if err != nil {
			unknown = errors.Join(unknown, fmt.Errorf("%s: %w", server.URL, err))
			continue
		}
		for _, id := range slices.Sorted(maps.Keys(signers)) {
			if !ids.Has(id) {
				result.Findings = append(result.Findings, found("key-not-accepted",
					fmt.Sprintf("the kube-apiserver at %s does not know key %s, with which %s signs: it refuses those tokens",
						server.URL, id, signers[id]), fixAPIServerKeys))
			}
		}
	}
	return result, unknown
}

// signersByKey names, for each key in use, a kube-apiserver or a replica that signs with it.
func signersByKey(ctx context.Context, rings consistency.Published, servers *operator.Cluster) (map[string]string, error) {
	ids, err := servers.SigningKeyIDs(ctx)
	if err != nil {
		return nil, err
	}
	signers := map[string]string{}
	for _, entry := range rings.Entries {
		if !rings.RevokedID(entry.SignsWith) {
			signers[entry.SignsWith] = "the process on host " + entry.Host
		}
	}
	for id, url := range ids {
		if strings.Contains(url, "://") { // otherwise it is one of the others
			signers[id] = "the kube-apiserver at " + url
		}
	}
	delete(signers, "")
	return signers, nil
}

// checkKeyRings finds hosts whose key ring lacks a key of the newest one, or was restored.
func checkKeyRings(ctx context.Context, c *cluster) (answer, error) {
	rings, err := consistency.Refresh(ctx, c.Client, false)
	if err != nil {
		return answer{}, err
	}
	if len(rings.Entries) == 0 {
		return skipped("no key ring"), nil
	}
	result := answer{Note: fmt.Sprintf("key rings: %d", len(rings.Entries))}
	for _, finding := range consistency.Stand(consistency.File{}, rings).Findings(c.Clock.Now()) {
		result.Findings = append(result.Findings, found(finding.Code, finding.Message, finding.Remedy))
	}
	return result, nil
}
