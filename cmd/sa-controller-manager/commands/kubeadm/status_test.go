// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes/fake"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli/clitest"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/manifests/component"
	"sa-controller-manager/manifests/staticpod"
)

// TestStatus is about what the files of a node say.
func TestStatus(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		steps    int // of a takeover that are done
		signer   bool
		only     bool // the signer
		upgraded bool // without patches
		damaged  bool // our manifest
		want     string
		kcm, api statusComponent
	}{
		"Stock":     {want: notTakenOver},
		"FirstStep": {steps: 1, want: partly},
		"Signer": {
			steps: all, signer: true, want: takenOver, kcm: statusComponent{"", true, true, true},
			api: statusComponent{"", true, true, true},
		},
		"OnlySigner": {steps: all, only: true, want: takenOver, api: statusComponent{"", true, true, true}},
		"Damaged": {
			steps: all, damaged: true, want: partly, kcm: statusComponent{"", true, true, true}, api: statusComponent{"", true, true, true},
		},
		"Upgraded": {
			steps: all, upgraded: true, want: partly, kcm: statusComponent{"", true, true, true},
			api: statusComponent{"", false, true, true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newControlPlane(t, "v1.37")
			p.config.ExternalSigner = tc.signer
			if tc.only {
				p.onlySigner()
			}
			p.config.Given = []string{"--token-secrets=auto"}
			p.writeSteps(t, takeover, tc.steps)
			if tc.upgraded {
				p.write(t, apiServerFile, stock(t, "v1.37", component.APIServer))
			}
			p.config.ExternalSigner = false
			own := staticpod.CommandIn([]byte(p.files(t)[ownFile]))
			if tc.damaged {
				own = nil
				p.write(t, ownFile, []byte("kind: ["))
			}
			got := testutil.Get(p.config.status())(t)
			tc.kcm.Name, tc.api.Name = component.ControllerManager, component.APIServer
			testutil.Check(t, "components", []statusComponent{tc.kcm, tc.api}, got.Components)
			flags := "--token-secrets=auto"
			if tc.steps == 0 {
				flags = ""
			}
			testutil.Expect(t, got.State == tc.want && slices.Equal(got.Command, own) && strings.Join(got.Flags, " ") == flags,
				"%+v, want %s, %q, %q", got, tc.want, own, flags)
		})
	}
}

// TestStatusCommand: the files are enough.
func TestStatusCommand(t *testing.T) {
	t.Parallel()
	p := newControlPlane(t, "v1.37")
	args := append([]string{"status"}, p.nodeFlags(t)...)
	if got := clitest.Run(t, NewCommand(), args...); got.Code != 0 ||
		!strings.HasPrefix(got.Stdout, "Node:  n\nState: not taken over\n") {
		t.Errorf("%+v", got)
	}
	got := clitest.Run(t, NewCommand(), append(args, "-o", "json")...)
	var document map[string]any
	testutil.Must(t, json.Unmarshal([]byte(got.Stdout), &document))
	testutil.Expect(t, document["kind"] == "TakeoverStatus" && document["state"] == notTakenOver, "%v", document)
}

// TestConfirmation: a no leaves everything as it is, and nothing is asked if nothing is to change.
func TestConfirmation(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		way   func(context.Context, Config) error
		steps []string
		asks  bool
	}{
		"Takeover":            {Takeover, nil, true},
		"HandbackHasNoChange": {Handback, []string{StepControllerManager}, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := newControlPlane(t, "v1.37")
			before, asked := p.files(t), false
			p.config.DryRun, p.config.Steps, p.config.Client = false, tc.steps, fake.NewClientset()
			p.config.Confirm = func(context.Context, string) bool {
				asked = true
				return false
			}
			err := tc.way(t.Context(), p.config)
			testutil.Expect(t, asked == tc.asks && (!tc.asks || err != nil && err.Error() == "nothing was changed"), "asked: %v, %v", asked,
				err)
			testutil.Check(t, "files", before, p.files(t))
		})
	}
}
