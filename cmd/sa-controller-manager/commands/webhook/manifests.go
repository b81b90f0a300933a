// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/client-go/util/cert"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/internal/flagfile"
)

const manifestsDescription = `Write both webhook configurations, and a policy that names the account of Pods, once, as
files for kube-apiserver's static registration (KEP-5793): below --out-dir, in the
directories mutating, validating and policies, which are for staticManifestsDir of the
plugins MutatingAdmissionWebhook, ValidatingAdmissionWebhook and
MutatingAdmissionPolicy. Nobody can delete such a configuration through the API.
The files do not follow the serving CA: when it changes, write them again, first.`

const manifestsExample = `  sa-controller-manager webhook manifests --out-dir=/etc/kubernetes/sa-controller-manager/static \
    --ca-bundle-file=/etc/kubernetes/pki/webhook-ca.crt`

// WriteManifestsFunc writes the configurations for a manager with these options below dir, and
// returns the paths.
type WriteManifestsFunc func(o *options.Options, dir string, caBundle []byte) ([]string, error)

func newManifestsCommand(write WriteManifestsFunc) *cobra.Command {
	o := options.New()
	var dir, caFile string
	cmd := &cobra.Command{
		Use:     "manifests",
		Short:   "Write the webhook configurations as files for kube-apiserver",
		Long:    manifestsDescription,
		Example: manifestsExample,
		RunE: cli.WhenValid(func() []error {
			return append(o.Webhook.Validate(), o.Admission.Validate()...)
		}, func(cmd *cobra.Command, _ []string) error {
			return writeManifests(cmd, write, o, dir, caFile)
		}),
	}
	cmd.Flags().StringVar(&dir, "out-dir", "", "Existing `directory` for the files.")
	cmd.Flags().StringVar(&caFile, "ca-bundle-file", "", "PEM `file` with the CAs by which kube-apiserver verifies the webhook.")
	for _, name := range []string{"out-dir", "ca-bundle-file"} {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err) // there is no such flag
		}
	}
	options.AddSome(cmd.Flags(), map[string]string{
		"webhook-port": options.AsManager, "webhook-url-host": options.AsManager, "webhook-timeout": options.AsManager,
		"webhook-failure-policy": options.AsManager,
	}, &o.Webhook, &o.Admission)
	return cmd
}

func writeManifests(cmd *cobra.Command, write WriteManifestsFunc, o *options.Options, dir, caFile string) error {
	caBundle, err := flagfile.Read("ca-bundle-file", caFile, func(data []byte) ([]byte, error) {
		if _, err := cert.ParseCertsPEM(data); err != nil {
			return nil, errors.New("expected certificates in PEM")
		}
		return data, nil
	})
	if err != nil {
		return err
	}
	paths, err := write(o, dir, caBundle)
	for _, path := range paths {
		fmt.Fprintln(cmd.OutOrStdout(), path)
	}
	return err
}
