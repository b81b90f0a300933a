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
	"time"

	"sa-controller-manager/controllers/keyring/consistency"
	"sa-controller-manager/controllers/keyring/operator"
	"sa-controller-manager/internal/apiservers"
	"sa-controller-manager/signing/ring"
)

const fixAPIServerKeys = "on that node: sa-controller-manager keys import with a copy of the newest key ring, and kube-apiserver " +
	"with the external signer or with the public keys in --service-account-key-file, as on the other nodes " +
	"(docs/rotation.md, several control-plane nodes)"

// checkAPIServers finds a kube-apiserver that does not know a key which another one or a replica
// signs with, such as the kube-apiserver of a node that joined after a rotation.
func checkAPIServers(ctx context.Context, c *cluster) (answer, error) {
	servers := &operator.Cluster{Client: c.Client, Dial: c.Dial, Namespace: c.Namespace, Account: c.Account}
	if err := servers.Find(ctx); err != nil {
		const fix = "run doctor where the addresses behind the Service default/kubernetes can be reached"
		reason := err.Error()
		if refusal, ok := errors.AsType[*ring.Refusal](err); ok {
			reason = refusal.Reason // its remedy is for "keys"
		}
		return answer{Findings: []finding{found("apiserver-not-asked", reason, fix)}}, nil
	}
	if len(servers.Others) == 0 {
		return skipped("one kube-apiserver"), nil
	}
	signers, err := signersByKey(ctx, c, servers)
	if err != nil {
		return answer{}, err
	}
	result := answer{Note: fmt.Sprintf("kube-apiservers asked: %d", len(servers.Others))}
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
func signersByKey(ctx context.Context, c *cluster, servers *operator.Cluster) (map[string]string, error) {
	ids, err := servers.SigningKeyIDs(ctx)
	if err != nil {
		return nil, err
	}
	rings, err := consistency.Fetch(ctx, c.Client)
	if err != nil {
		return nil, err
	}
	signers := map[string]string{}
	for _, line := range rings.Live(time.Now()) {
		signers[line.SignsWith] = "the replica on host " + line.Host
	}
	for id, url := range ids {
		if strings.Contains(url, "://") { // otherwise it is one of the others
			signers[id] = "the kube-apiserver at " + url
		}
	}
	delete(signers, "")
	return signers, nil
}

// checkKeyRings finds hosts whose key ring lacks a key of the newest one.
func checkKeyRings(ctx context.Context, c *cluster) (answer, error) {
	rings, err := consistency.Fetch(ctx, c.Client)
	if err != nil {
		return answer{}, err
	}
	live := rings.Live(time.Now())
	if len(live) == 0 {
		return skipped("no key ring"), nil
	}
	result := answer{Note: fmt.Sprintf("live key rings: %d", len(live))}
	for _, problem := range rings.Problems(time.Now()) {
		result.Findings = append(result.Findings, found(problem.Code, problem.Message, problem.Remedy))
	}
	return result, nil
}
