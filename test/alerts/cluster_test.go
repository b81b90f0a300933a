// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package alerts

import (
	"slices"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
)

// TestClusterIsKept: one Prometheus may watch several clusters. Each aggregation and each matching keeps the label that
// tells them apart, or one cluster in order would hide another one that is not.
func TestClusterIsKept(t *testing.T) {
	t.Parallel()
	for name, rule := range rules(t) {
		expr, err := parser.NewParser(parser.Options{}).ParseExpr(rule.Expr)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
			switch node := node.(type) {
			case *parser.AggregateExpr:
				if node.Without == slices.Contains(node.Grouping, "cluster") {
					t.Errorf("%s: %s drops the label cluster", name, node)
				}
			case *parser.BinaryExpr:
				if m := node.VectorMatching; m != nil && m.On != slices.Contains(m.MatchingLabels, "cluster") {
					t.Errorf("%s: %s does not match by the label cluster", name, node)
				}
			}
			return nil
		})
	}
}
