// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"slices"
	"strings"
	"testing"

	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/await"
)

// TestOnlySigner follows docs/signer.md: our process has its own permissions and no others, kube-controller-manager and the plugin
// go on, a rotation needs no restart, and both manifests come back byte for byte, also after the rest was taken over.
func TestOnlySigner(t *testing.T) {
	await.Long(t)
	t.Parallel()
	p := openRotationPage(t)
	n := p.node
	before := n.manifests(t)
	first := p.calls(t, "RS256")
	p.hold(t)
	blocks := pageCommands(t, "../../docs/signer.md", "## On a kubeadm node")
	takeOver, rotate, everything, handBack := blocks[0], blocks[1], blocks[2], blocks[3]

	p.run(t, "take over", takeOver)
	n.must(t, "status")
	n.onlySigns(t, before)
	key := p.calls(t, "RS256")
	testutil.Expect(t, key == first, "key %s signs after the takeover, want %s", key, first)
	started := n.apiServerStart(t)
	p.run(t, "rotate", rotate)
	second := p.calls(t, "RS256", first)
	p.run(t, "rotate", rotate)
	p.calls(t, "RS256", first, second)
	testutil.Expect(t, n.apiServerStart(t) == started, "kube-apiserver was restarted by a rotation")
	n.kubelet.reboot() // kube-apiserver starts only beside our process
	n.allAccepted(t, "after two rotations and a reboot", p.good)
	p.run(t, "hand back", handBack)
	testutil.Check(t, "manifests", before, n.manifests(t))
	n.allAccepted(t, "after the handback", p.good)
	weAreGone(t, n)

	const only = "sa-controller-manager kubeadm takeover --only=signer\n"
	p.run(t, "take over again", only)
	n.onlySigns(t, before)
	p.run(t, "take over everything", everything)
	weRun(t, n)
	p.calls(t, "RS256", first, second)
	want := "first run: kubeadm handback"
	if printed, err := n.shell(t, only).CombinedOutput(); err == nil || !strings.Contains(string(printed), want) {
		t.Errorf("the signer alone after all was taken over: %v, want %q:\n%s", err, want, printed)
	}
	p.run(t, "hand back", handBack)
	testutil.Check(t, "manifests", before, n.manifests(t))
	n.allAccepted(t, "after the second handback", p.good)
	weAreGone(t, n)
}

// onlySigns wants nothing of ours but what the signer needs, and everything else to be done by the others.
func (n *node) onlySigns(t *testing.T, before map[string]string) {
	t.Helper()
	var want []string
	for kind, names := range map[string][]string{
		"clusterroles": {"signer", "secure-serving"}, "clusterrolebindings": {"signer", "secure-serving"},
		"roles": {"signer", "secure-serving"}, "rolebindings": {"signer", "secure-serving"},
	} {
		for _, name := range names {
			want = append(want, kind+"/system:sa-controller-manager:"+name)
		}
	}
	want = append(want, "pods/sa-controller-manager-"+nodeName, "secrets/sa-controller-manager-key-ring")
	slices.Sort(want)
	testutil.Check(t, "what is ours", want, n.ours(t))
	now := n.manifests(t)
	testutil.Check(t, "kube-controller-manager", before["kube-controller-manager"], now["kube-controller-manager"])
	testutil.Expect(t, !strings.Contains(now["kube-apiserver"], "--disable-admission-plugins"), "kube-apiserver has lost a plugin:\n%s",
		now["kube-apiserver"])
	by := newcomer(t, n)
	testutil.Expect(t, by == "kube-controller-manager", "a token Secret was filled by %q", by)
}
