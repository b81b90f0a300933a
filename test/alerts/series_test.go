// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package alerts

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// sample is one measured value.
type sample struct {
	at    int64
	value float64
}

func (sample) ST() int64                     { return 0 }
func (s sample) T() int64                    { return s.at }
func (s sample) F() float64                  { return s.value }
func (sample) H() *histogram.Histogram       { return nil }
func (sample) FH() *histogram.FloatHistogram { return nil }
func (sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample         { return s }

// parse reads series in promtool's notation, one sample a minute from the time start on.
func parse(t *testing.T, start time.Time, lines map[string]string) memory {
	t.Helper()
	var found memory
	for name, values := range lines {
		set, sequence, err := newParser().ParseSeriesDesc(name + " " + values)
		if err != nil {
			t.Fatalf("series %s %s: %v", name, values, err)
		}
		var samples []chunks.Sample
		for i, value := range sequence {
			if !value.Omitted {
				samples = append(samples, sample{start.Add(time.Duration(i) * time.Minute).UnixMilli(), value.Value})
			}
		}
		found = append(found, storage.NewListSeries(set, samples))
	}
	slices.SortFunc(found, func(a, b storage.Series) int { return labels.Compare(a.Labels(), b.Labels()) })
	return found
}

func newParser() parser.Parser { return parser.NewParser(parser.Options{}) }

// memory holds series, sorted by their labels.
type memory []storage.Series

func (m memory) Querier(int64, int64) (storage.Querier, error) { return querier{m}, nil }

type querier struct{ memory }

func (q querier) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	var found memory
	for _, one := range q.memory {
		set := one.Labels()
		if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(set.Get(m.Name)) }) {
			found = append(found, one)
		}
	}
	return &cursor{rest: found}
}

func (querier) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

func (querier) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

func (querier) Close() error { return nil }

type cursor struct {
	rest    memory
	current storage.Series
}

func (c *cursor) Next() bool {
	if len(c.rest) == 0 {
		return false
	}
	c.current, c.rest = c.rest[0], c.rest[1:]
	return true
}

func (c *cursor) At() storage.Series              { return c.current }
func (*cursor) Err() error                        { return nil }
func (*cursor) Warnings() annotations.Annotations { return nil }
