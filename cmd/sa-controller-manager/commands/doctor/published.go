// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"

	"sa-controller-manager/cmd/sa-controller-manager/commands/keys"
	"sa-controller-manager/signing/published"
)

// checkPublished finds keys of kube-apiserver that relying parties do not have, and keys that only
// they have.
func checkPublished(ctx context.Context, c *cluster) (answer, error) {
	if len(c.PublishedIssuers) == 0 {
		return skipped("no --published-issuer"), nil
	}
	known, err := keys.OfCluster(ctx, c.Get)
	if err != nil {
		return answer{}, err
	}
	result := answer{Note: fmt.Sprintf("issuers read: %d", len(c.PublishedIssuers))}
	var unknown error
	for _, issuer := range c.PublishedIssuers {
		documents, err := c.ReadPublished(ctx, issuer)
		if err != nil {
			unknown = errors.Join(unknown, err)
			continue
		}
		for _, line := range keys.Compare(keys.Usable(known, ""), documents.Keys) {
			code, remedy := "published-key-wrong", "publish kube-apiserver's keys there (docs/federation.md)"
			switch line.Result {
			case published.Same:
				continue
			case published.Extra:
				code, remedy = "published-key-foreign", "find out whose it is, and take it away: its owner can sign tokens that relying parties accept"
			case published.Missing, published.Differs, published.Leaked:
			}
			result.Findings = append(result.Findings, found(code, fmt.Sprintf("%s: key %q: %s", issuer, line.ID, line.Detail), remedy))
		}
	}
	return result, unknown
}
