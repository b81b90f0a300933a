// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"
)

// describe renders a Secret as kubectl describe does, with the token as a byte
// count like the rest of the data: kubectl would print it.
func describe(secret *corev1.Secret) string {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 8, 2, ' ', 0)
	fmt.Fprintf(table, "Name:\t%s\n", secret.Name)
	fmt.Fprintf(table, "Namespace:\t%s\n", secret.Namespace)
	fmt.Fprintf(table, "Labels:\t%s\n", column(secret.Labels, "="))
	fmt.Fprintf(table, "Annotations:\t%s\n", column(secret.Annotations, ": "))
	table.Flush()

	fmt.Fprintf(&text, "\nType:  %s\n\nData\n====\n", secret.Type)
	for _, key := range slices.Sorted(maps.Keys(secret.Data)) {
		fmt.Fprintf(table, "%s:\t%d bytes\n", key, len(secret.Data[key]))
	}
	table.Flush()
	return strings.TrimSuffix(text.String(), "\n")
}

// column renders a map one entry a line, all in the second column of a table.
func column(entries map[string]string, separator string) string {
	if len(entries) == 0 {
		return "<none>"
	}
	lines := make([]string, 0, len(entries))
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		lines = append(lines, key+separator+entries[key])
	}
	return strings.Join(lines, "\n\t")
}
