// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package byhand

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/await"
)

// publish makes a release of the commit as its maintainers do. A key of its own signs it.
const publish = `set -eux
git clone --quiet "$root" "$repository"
git -C "$repository" -c tag.gpgSign=false tag v0.0.1
make -C "$repository" release
ssh-keygen -q -t ed25519 -N "" -C "" -f "$repository.key"
make -C "$repository" sign KEY="$repository.key"
cp "$repository"/bin/release/* .
echo "release@sa-controller-manager namespaces=\"file\" $(cat "$repository.key.pub")" >allowed_signers
set +eux`

// TestVerify follows the page with a release of this commit, without what is not committed. The page
// builds it again, here with other settings and in another directory. Both builds share Go's cache:
// that the same compiler writes the same bytes is Go's promise.
func TestVerify(t *testing.T) {
	await.Long(t)
	t.Parallel()
	root, err := filepath.Abs("../..")
	testutil.Must(t, err)
	reader := shell{dir: t.TempDir(), timeout: 35 * time.Minute, environment: append(os.Environ(),
		"root="+root, "repository="+filepath.Join(t.TempDir(), "repository"), "MAKEFLAGS=", "MAKELEVEL=")}
	var page []string
	for _, step := range readPage(t, "../../docs/verify.md") {
		page = append(page, step.commands)
	}
	blocks := append([]string{publish, `umask 077; export TZ=Asia/Tokyo LC_ALL=C.UTF-8 GOFLAGS=-v GOAMD64=v3`}, page...)
	for i, got := range reader.run(t, blocks...) {
		if got.code != "0" {
			t.Fatalf("exit code %q of\n%s\nit printed:\n%s", got.code, blocks[i], got.printed)
		}
	}
	testutil.Must(t, os.RemoveAll(filepath.Join(reader.dir, "source")))
	for name, test := range map[string]struct{ change, refusedBy string }{
		"signed by another key": {`rm SHA256SUMS.sig; ssh-keygen -q -t ed25519 -N "" -f other; ssh-keygen -Y sign -n file -f other SHA256SUMS`,
			"ssh-keygen"},
		"another manifest": {`echo >>manifests.tar.gz`, "sha256sum"},
		"another commit":   {`sed -i 's/"gitCommit": "./&0/' provenance.json`, "git clone"},
	} {
		changed := reader
		changed.dir = t.TempDir()
		testutil.Must(t, os.CopyFS(changed.dir, os.DirFS(reader.dir)))
		refusal := slices.IndexFunc(page, func(block string) bool { return strings.HasPrefix(block, test.refusedBy) })
		results := changed.run(t, append([]string{test.change}, page[:refusal+1]...)...)
		if got := results[refusal+1]; got.code != "1" && got.code != "255" {
			t.Errorf("%s: exit code %q of\n%s\nit printed:\n%s", name, got.code, page[refusal], got.printed)
		}
	}
}
