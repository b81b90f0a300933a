// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/manifests"
	"sa-controller-manager/manifests/component"
	"sa-controller-manager/manifests/staticpod"
)

// onlySigner is what --only=signer asks for.
func (p *controlPlane) onlySigner() {
	p.config.OnlySigner, p.config.ExternalSigner, p.config.KeepPlugin, p.config.Rewrite = true, true, true, true
	p.config.Steps = []string{StepManager, StepAPIServer}
}

// TestOnlySigner: kube-apiserver leaves its tokens to our process, kube-controller-manager is not touched, and a handback gives
// all files back, though our process runs none of what may have been off before.
func TestOnlySigner(t *testing.T) {
	t.Parallel()
	for name, sample := range map[string]string{"ReadsFiles": "v1.37", "ReadsNone": "v1.36"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newControlPlane(t, sample)
			p.Change(t, StepControllerManager, "tokencleaner\n", "tokencleaner,-legacy-serviceaccount-token-cleaner-controller\n")
			before, command := p.Files(t), p.command(t)
			p.onlySigner()
			p.writeSteps(t, takeover, all)
			after := p.Files(t)
			testutil.Check(t, "kube-controller-manager", before[kcmFile], after[kcmFile])
			files := slices.DeleteFunc(command, func(flag string) bool {
				return strings.HasPrefix(flag, "--service-account-key-file=") ||
					strings.HasPrefix(flag, "--service-account-signing-key-file=")
			})
			testutil.Check(t, "kube-apiserver", append(files, "--"+endpointFlag+"="+manifests.SignerSocket), p.command(t))
			own := staticpod.CommandIn([]byte(after[ownFile]))
			testutil.Check(t, "our command", []string{"/usr/local/bin/sa-controller-manager", "signer"}, []string(own[:2]))
			ofManager := regexp.MustCompile(`--(controllers|token-secrets|root-ca-file|webhook-|service-account-private)\S*`)
			extra := ofManager.FindAllString(strings.Join(own, " "), -1)
			testutil.Expect(t, extra == nil, "our process has %q", extra)

			p.config.Rewrite = false
			p.writeSteps(t, takeover, all)
			testutil.Check(t, "after one more takeover", after, p.Files(t))
			wantError(t, "our process may stop", p.config.unused(t.Context()), "first run: kubeadm handback --steps=kube-apiserver")
			p.config.Steps = nil
			p.writeSteps(t, handback, all)
			wantError(t, "our process may stop", p.config.unused(t.Context()), "")
			testutil.Check(t, "after the handback", before, p.withoutBackups(t))
		})
	}
}

// TestSignerAndEverything: from the one to the other it is another takeover, and back only by a handback.
func TestSignerAndEverything(t *testing.T) {
	t.Parallel()
	for name, sample := range map[string]string{"ReadsFiles": "v1.37", "ReadsNone": "v1.36"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newControlPlane(t, sample)
			before := p.Files(t)
			p.onlySigner()
			p.writeSteps(t, takeover, all)
			p.config.OnlySigner, p.config.ExternalSigner, p.config.KeepPlugin, p.config.Steps = false, false, false, nil
			p.refuses(t, "it would sign with a key file", Run, "and the rewrite would drop it; to keep it add")
			p.config.Pod.ExtraArgs = append(p.config.Pod.ExtraArgs, "--"+component.KeyFlag+"=",
				"--"+component.KeyRingFlag+"="+manifests.KeyRing)
			p.writeSteps(t, takeover, all)
			status := testutil.Get(p.config.Status())(t)
			testutil.Check(t, "status", TakenOver, status.State)
			if slices.Contains(status.Command, manifests.SignerCommand) ||
				!slices.Contains(status.Command, "--external-signer-socket="+manifests.SignerSocket) {
				t.Errorf("our command is %q, want that of the manager, which signs, too", status.Command)
			}
			p.onlySigner()
			p.refuses(t, "back", Run, "; first run: kubeadm handback")
			p.config.Steps, p.config.Rewrite = nil, false
			p.writeSteps(t, handback, all)
			testutil.Check(t, "after the handback", before, p.withoutBackups(t))
		})
	}
}

// TestTakeoverWithoutItsRecord: the backup, which is the only copy of the key flags then, is not written over.
func TestTakeoverWithoutItsRecord(t *testing.T) {
	t.Parallel()
	p := newControlPlane(t, "v1.37")
	p.onlySigner()
	p.writeSteps(t, takeover, all)
	p.Remove(t, "sa-controller-manager-backup/record.json", apiServerPatch)
	p.refuses(t, "again", Run, "there is --"+endpointFlag+"="+manifests.SignerSocket+", but no record of what a takeover has changed")
}
