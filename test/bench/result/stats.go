// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package result

import (
	"math"
	"slices"
)

// Median is the middle value, or the mean of the two in the middle. Of none it is NaN.
func Median(values []float64) float64 {
	return Quantile(values, 0.5)
}

// Quantile interpolates between the two nearest values; q is from 0 to 1. Of no value it
// is NaN.
func Quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	place := q * float64(len(sorted)-1)
	below := int(place)
	above := min(below+1, len(sorted)-1)
	return Significant(sorted[below] + (place-float64(below))*(sorted[above]-sorted[below]))
}

// Slope is the factor by which the cost of one object grows between two sizes: 1 where
// ten times as many objects cost ten times as much.
func Slope(cost1, size1, cost2, size2 float64) float64 {
	return Significant((cost2 / size2) / (cost1 / size1))
}

// Significant keeps four digits, which is more than any of the measurements is good for.
func Significant(value float64) float64 {
	if value == 0 || math.IsNaN(value) || math.IsInf(value, 0) {
		return value
	}
	scale := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(value))))
	if math.IsInf(scale, 0) {
		return value
	}
	return math.Round(value*scale) / scale
}
