# Copyright The sa-controller-manager Authors.
# SPDX-License-Identifier: Apache-2.0

# Needs Linux, Go, git and make. What else is needed is built from Go modules
# pinned in test/peers/go.mod (the control plane), test/tools/go.mod (linters), and
# test/chart/go.mod (Helm) or, for the race detector, installed by the target deps.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules --no-print-directory

product := sa-controller-manager

# One way to compile everything but the race-enabled builds, so that build, vet, lint and test
# share the build cache. Without the tag, gRPC links html/template, and with it the methods of all types.
export CGO_ENABLED := 0
export GOFLAGS += -trimpath -tags=grpcnotrace

# The directory of etcd and kube-apiserver, unless the caller sets KUBEBUILDER_ASSETS.
ifeq ($(KUBEBUILDER_ASSETS),)
control_plane := bin/control-plane
endif

# The version comes from the newest tag v*. Without tags, or if git refuses to read the clone, it
# has the form v0.0.0-* that k8s.io/component-base requires. Only targets that build evaluate it.
version = $(shell git describe --tags --match 'v[0-9]*' --abbrev=12 --dirty 2>/dev/null || \
	echo "v0.0.0-$$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)")
commit = $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
tree_state = $(shell test -z "$$(git status --porcelain 2>&1)" && echo clean || echo dirty)
# The date of the commit and not of the build, so that equal sources give equal
# binaries.
date = $(shell TZ=UTC0 git log -1 --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ 2>/dev/null || echo 1970-01-01T00:00:00Z)
numbers = $(subst ., ,$(patsubst v%,%,$(version)))
values = gitVersion=$(version) gitCommit=$(commit) gitTreeState=$(tree_state) buildDate=$(date) \
	gitMajor=$(word 1,$(numbers)) gitMinor=$(word 2,$(numbers))
stamps = $(foreach package,k8s.io/component-base/version k8s.io/client-go/pkg/version,$(foreach value,$(values),-X $(package).$(value)))
# The stamps say what Go's own stamping would, which fails where git refuses to
# read a clone of another owner.
go_build = go build -buildvcs=false

##@ Build

.PHONY: build
build: ## Build the binary into bin/, static and with its version stamped.
	@echo "building bin/$(product) $(version)"
	@test/build.sh ./cmd/$(product) bin/$(product) -buildvcs=false -ldflags '-s -w $(stamps)'

.PHONY: build-plugin
build-plugin: ## Build bin/kubectl-sa_tokens, the kubectl plugin, for this machine.
	@echo "building bin/kubectl-sa_tokens $(version)"
	@test/build.sh ./cmd/kubectl-sa_tokens bin/kubectl-sa_tokens -buildvcs=false -ldflags '-s -w $(stamps)'

.PHONY: image
image: build ## Write the container image to bin/, for "docker load"; needs no engine and no registry.
	@go -C test run -buildvcs=false ./cmd/release image -out=$(CURDIR)/bin/$(product)-image.tar \
		-version='$(version)' -commit='$(commit)' -date='$(date)' $(CURDIR)/bin/$(product)

# The same commit and the same Go give the same bytes: no file has a path, time, owner or setting of
# the machine.
.PHONY: release
release: export GOFLAGS := -trimpath -tags=grpcnotrace
release: export GOWORK := off
release: export GOAMD64 := v1
release: export GOARM64 := v8.0
release: export GOFIPS140 := off
release: ## Write the release into bin/release/: archives, image, manifests, SPDX documents, provenance, checksums.
	@changed=$$(git status --porcelain) && test -z "$$changed" || { \
		echo "a release is built from a commit: commit or stash the changes that \"git status\" lists" >&2; exit 1; }
	@rm -rf bin/release bin/parts && mkdir -p bin/release
	@go -C test build -buildvcs=false -o ../bin/release-parts ./cmd/release
	@for arch in amd64 arm64; do \
		parts=bin/parts/$$arch; \
		name=bin/release/$(product)_$(version)_linux_$$arch; \
		echo "building $$name.tar.gz"; \
		GOOS=linux GOARCH=$$arch $(go_build) -ldflags '-s -w $(stamps)' -o $$parts/$(product) ./cmd/$(product); \
		cp LICENSE README.md $$parts/; \
		GOOS=linux GOARCH=$$arch test/release/licences.sh ./cmd/$(product) $$parts/LICENSES; \
		bin/release-parts archive -dir=$$parts -out=$$name.tar.gz -date='$(date)'; \
		bin/release-parts sbom -out=$$name.spdx.json -version='$(version)' -date='$(date)' $$parts/$(product); \
	done
	@bin/release-parts image -out=bin/parts/image -version='$(version)' -commit='$(commit)' -date='$(date)' \
		bin/parts/{amd64,arm64}/$(product)
	@bin/release-parts archive -dir=bin/parts/image -out=bin/release/$(product)_$(version)_image.tar -date='$(date)'
	@git ls-files -z manifests ':!*.go' ':!*/testdata/*' | \
		xargs -0 bin/release-parts archive -out=bin/release/manifests.tar.gz -date='$(date)'
	@test/release/chart.sh bin/release '$(date)'
	@$(MAKE) plugin-release
	@bin/release-parts provenance -dir=bin/release -out=bin/release/provenance.json \
		-version='$(version)' -commit='$(commit)' bin/parts/amd64/$(product)
	@cd bin/release && LC_ALL=C sha256sum -- * >SHA256SUMS && cat SHA256SUMS

.PHONY: sign
sign: ## Sign bin/release/SHA256SUMS with the SSH key KEY, the chart with an OpenPGP key of CHART_KEYRING, chart and image with COSIGN_KEY.
	@test -n "$(KEY)" || { echo "KEY=FILE says with which SSH key to sign; the file of a public key takes it from ssh-agent" >&2; exit 1; }
	@cd bin/release && sha256sum --check --quiet SHA256SUMS && rm -f SHA256SUMS.sig
	@ssh-keygen -Y sign -n file -f "$(KEY)" bin/release/SHA256SUMS
	@test -z "$(CHART_KEYRING)" || go -C test/chart run -buildvcs=false ./cmd/prov "$(abspath $(CHART_KEYRING))" \
		$(CURDIR)/bin/release/$(product)-*.tgz
	@test -z "$(COSIGN_KEY)" || test/release/cosign.sh bin/release "$(COSIGN_KEY)"

.PHONY: tag
tag: ## Tag the commit as VERSION, if changelog, manifests and chart name it; otherwise say what to do.
	@test/release/tag.sh "$(VERSION)"

.PHONY: plugin-release
plugin-release: ## Write the kubectl plugin for all platforms and its krew manifest into bin/release/.
	@test/release/plugin.sh '$(version)' '$(date)' '-s -w $(stamps)'

.PHONY: test-krew
test-krew: plugin-release ## Install the plugin with krew from bin/release/, for all platforms.
	@go -C test/tools build -buildvcs=false -o $(CURDIR)/bin/tools/krew sigs.k8s.io/krew/cmd/krew
	@test/release/krew.sh

# It compiles 1,800 packages first.
.PHONY: test-cosign
test-cosign: ## Have cosign verify signatures of a chart and of an image in a registry; not in CI, where Go's library does.
	GOBIN=$(CURDIR)/bin/tools go install github.com/sigstore/cosign/v3/cmd/cosign@v3.1.3
	COSIGN=$(CURDIR)/bin/tools/cosign go -C test test -count=1 -run=TestCosign ./cmd/release

.PHONY: build-kms-signer
build-kms-signer: deps ## Build bin/sa-kms-signer, which signs with keys of an HSM or a key management service; needs a C compiler.
	CGO_ENABLED=1 go -C cmd/sa-kms-signer build -buildvcs=false -o ../../bin/sa-kms-signer .

.PHONY: build-race
build-race: deps ## Build the binary with the race detector into bin/race/, for the faults and the long tests.
	@echo "building bin/race/$(product) $(version)"
	@CGO_ENABLED=1 $(go_build) -race -ldflags '$(stamps)' -o bin/race/$(product) ./cmd/$(product)

.PHONY: deps
deps: ## Install missing Debian packages: gcc and libc6-dev for the race detector, git, openssl, curl, jq.
	@test/deps.sh

.PHONY: control-plane
control-plane: ## Build etcd, kube-apiserver and kube-controller-manager, unless they exist.
ifneq ($(control_plane),)
	@test/peers/build.sh $(control_plane)
endif

.PHONY: kube-apiserver
kube-apiserver: ## Build etcd and kube-apiserver alone.
ifneq ($(control_plane),)
	@test/peers/build.sh $(control_plane) etcd kube-apiserver
endif

.PHONY: kubectl
kubectl: ## Build kubectl beside the control plane.
ifneq ($(control_plane),)
	@test/peers/build.sh $(control_plane) kubectl
endif

##@ Try

.PHONY: demo
demo: kube-apiserver build ## Show and verify what the binary does beside a real kube-apiserver, then clean up.
	@cd test && ./build.sh ./cmd/demo ../bin/demo -buildvcs=false
	@SACM_BINARY=$(CURDIR)/bin/$(product) bin/demo

.PHONY: demo-rotation
demo-rotation: kube-apiserver build ## Rotate the keys of a real kube-apiserver under load, back and forth: no request may fail.
	@cd test && ./build.sh ./cmd/demo ../bin/demo -buildvcs=false
	@SACM_BINARY=$(CURDIR)/bin/$(product) bin/demo rotation

.PHONY: demo-signer
demo-signer: control-plane build ## Rotate keys beside a stock kube-controller-manager: leaks, and the signer killed.
	@cd test && ./build.sh ./cmd/demo ../bin/demo -buildvcs=false
	@SACM_BINARY=$(CURDIR)/bin/$(product) bin/demo signer

.PHONY: demo-hsm
demo-hsm: kube-apiserver build build-kms-signer ## Move keys to SoftHSM, a transit engine, a foreign signer and back; needs Debian packages.
	@test/deps.sh backends
	@go -C test/backends build -buildvcs=false -o ../../bin/transit ./cmd/transit
	@cd test && ./build.sh ./cmd/demo ../bin/demo -buildvcs=false
	@SACM_BINARY=$(CURDIR)/bin/$(product) SACM_KMS_SIGNER=$(CURDIR)/bin/sa-kms-signer SACM_TRANSIT=$(CURDIR)/bin/transit bin/demo hsm

.PHONY: demo-federation
demo-federation: kube-apiserver build ## Publish keys by HTTPS, and rotate them while a second kube-apiserver verifies with those.
	@cd test && ./build.sh ./cmd/demo ../bin/demo -buildvcs=false
	@SACM_BINARY=$(CURDIR)/bin/$(product) bin/demo federation

.PHONY: run
run: kube-apiserver kubectl build ## Run a control plane and the binary until Ctrl-C; flags for the binary in FLAGS.
	@cd test && ./build.sh ./cmd/run ../bin/run -buildvcs=false
	@SACM_BINARY=$(CURDIR)/bin/$(product) bin/run $(FLAGS)

##@ Test

.PHONY: test
test: ## Run the unit tests, the differential tests, then the integration tests.
	@test/stage.sh "unit tests" $(MAKE) test-unit
	@test/stage.sh "differential tests" $(MAKE) test-differential
	@test/stage.sh "integration tests" $(MAKE) test-integration

.PHONY: test-unit
test-unit: deps ## Run the unit tests with the race detector. Vetting is another stage.
	CGO_ENABLED=1 go test -race -vet=off -timeout=10m ./...

.PHONY: test-differential
test-differential: ## Compare the ServiceAccount plugin with kube-apiserver's own, on 30000 random Pods.
	go -C test/differential test -count=1 -timeout=20m . -args -questions=30000

SEEDS ?= 500
.PHONY: test-simulation
test-simulation: ## Run SEEDS worlds with a simulated API server, of which SEED is the first, and plant bugs in some.
	go -C test/simulation test -count=1 -vet=off -timeout=30m ./... -args -seeds=$(SEEDS) $(if $(filter-out 0,$(SEED)),-seed=$(SEED))

# A module of its own: it needs some 190 packages of Prometheus.
.PHONY: test-alerts
test-alerts: ## Test the alert rules and the dashboard's queries with Prometheus' own engine.
	go -C test/alerts test -count=1 ./...

# Without the race detector, which doubles CPU time: faults and test-long have it.
.PHONY: test-integration
test-integration: deps control-plane kubectl build ## Run the integration tests on a real control plane, without the long ones.
	@SACM_BINARY=$(CURDIR)/bin/$(product) test/integration.sh

.PHONY: test-long
test-long: control-plane kubectl build build-race ## Run all integration tests with a race-enabled binary; some need the whole machine.
	@test/deps.sh release
	SACM_BINARY=$(CURDIR)/bin/race/$(product) go -C test test -count=1 -p=1 -timeout=40m \
		$$(go -C test list ./... | grep -vE '/(kubeadm|faults)$$')
	SACM_BINARY=$(CURDIR)/bin/$(product) go -C test test -count=1 ./kubeadm

# A seed of 0 draws one, which is printed. Faults of the registration come after -for, and take a
# quarter as long.
SEED ?= 0
FAULTS ?= short
.PHONY: faults
faults: control-plane build-race ## Try to break what docs/reliability.md promises; FAULTS=long, SEED=n, BUSY=1.
	SACM_BINARY=$(CURDIR)/bin/race/$(product) go -C test test -count=1 -v $(if $(BUSY),-short) -timeout=2h ./faults \
		-args -seed=$(SEED) $(if $(filter long,$(FAULTS)),-for=44m)

# Compiling two more kube-apiservers takes too long for continuous integration.
.PHONY: test-skew
test-skew: control-plane build ## Run the demonstration, a rotation and the registration on v1.35, v1.36 and v1.37; not in CI.
	@cd test && ./build.sh ./cmd/demo ../bin/demo -buildvcs=false
	@SACM_BINARY=$(CURDIR)/bin/$(product) test/skew.sh $(or $(control_plane),$(KUBEBUILDER_ASSETS))

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME (5s) each; those whose line "package target" matches FUZZ.
	@test/fuzz.sh

# Its database is not reachable everywhere.
.PHONY: vuln
vuln: ## Search for known vulnerabilities with govulncheck; not in continuous integration.
	@test/vuln.sh

# A module of its own: it brings half of Vault, which nothing else needs.
.PHONY: test-backends
test-backends: control-plane build ## Test sa-kms-signer with SoftHSM and the real transit engine; needs Debian packages.
	@test/deps.sh backends
	SACM_BINARY=$(CURDIR)/bin/$(product) go -C test/backends test -count=1 -vet=off -timeout=15m .

# The browser has 300 MB, which continuous integration must not install.
.PHONY: test-browser
test-browser: ## Open the page of "tokens audit -o html" in Chromium, a Debian package; SCREENSHOT=file takes its picture.
	@test/deps.sh browser
	$(if $(SCREENSHOT),SACM_SCREENSHOT=$(abspath $(SCREENSHOT))) go -C test test -tags=browser -count=1 -timeout=15m ./browser

##@ Measure

.PHONY: bench
bench: ## Measure the hot paths.
	@test/bench/run.sh

.PHONY: bench-peer
bench-peer: control-plane build ## Compare with kube-controller-manager in half an hour (FLAGS=-quick: 6 minutes), into bin/bench/peer.json.
	@go -C test build -buildvcs=false -o ../bin/benchpeer ./cmd/benchpeer
	@SACM_BINARY=$(CURDIR)/bin/$(product) bin/benchpeer $(FLAGS)

.PHONY: bench-page
bench-page: RESULTS ?= bin/bench/peer.json
bench-page: ## Fill the table of docs/benchmarks.md from the results in RESULTS.
	@go -C test run -buildvcs=false ./cmd/benchpeer -page=$(CURDIR)/docs/benchmarks.md $(abspath $(RESULTS))

##@ kind

# The kind CLI on the PATH, or one built from its pinned module.
KIND ?= $(or $(shell command -v kind),$(CURDIR)/bin/tools/kind)
KIND_CLUSTER ?= sa-controller-manager
export KIND

.PHONY: kind
kind: ## Build the kind CLI, unless there is one on the PATH.
ifeq ($(KIND),$(CURDIR)/bin/tools/kind)
	@go -C test/tools build -buildvcs=false -o $(KIND) sigs.k8s.io/kind
endif

.PHONY: kind-up
kind-up: build kind ## Create a kind cluster with the binary as its ServiceAccount manager; needs a Docker engine.
	@test/kind/up.sh $(KIND_CLUSTER)

.PHONY: kind-down
kind-down: kind ## Delete that cluster.
	@$(KIND) delete cluster --name $(KIND_CLUSTER)
	@rm -rf bin/kind/$(KIND_CLUSTER)

.PHONY: e2e-kind
e2e-kind: build image kind ## Run the end-to-end tests on kind clusters; arguments for go test in ARGS.
	@go -C test build -buildvcs=false -ldflags '-s -w' -o ../bin/node/apicheck ./kind/apicheck
	@go -C test/chart build -buildvcs=false -o ../../bin/tools/helm helm.sh/helm/v4/cmd/helm
	@cp bin/$(product) bin/node/
	SACM_HELM=$(CURDIR)/bin/tools/helm SACM_NODE_BINARIES=$(CURDIR)/bin/node SACM_IMAGE=$(CURDIR)/bin/$(product)-image.tar \
		go -C test test -tags=kind -count=1 -timeout=150m -v ./kind $(ARGS)

.PHONY: test-release
test-release: test-long e2e-kind test-cosign ## Run what a release needs and continuous integration has no time for.

##@ Conformance

SPECS ?= specs.txt

.PHONY: conformance
conformance: control-plane build ## Run upstream's specs for ServiceAccounts, or SPECS; CONFORMANCE_KUBECONFIG names a cluster.
	SACM_BINARY=$(CURDIR)/bin/$(product) go -C test/conformance test -count=1 -timeout=30m . -args \
		-specs=$(SPECS) -kubeconfig=$(CONFORMANCE_KUBECONFIG)

##@ Verify

checks := format vet lint imports licence words size binaries modules flags links scripts manifests

.PHONY: verify
verify: ## Run every verify-* target and print which failed.
	@test/verify/all.sh $(addprefix verify-,$(checks))

.PHONY: verify-format
verify-format: ## Check the format with gofmt.
	@test/verify/format.sh

.PHONY: verify-vet
verify-vet: ## Check the types of the kubectl plugin for the systems that golangci-lint does not see.
	@test/verify/vet.sh

.PHONY: verify-lint
verify-lint: ## Check the code with golangci-lint, which is built first.
	@test/verify/lint.sh

.PHONY: verify-imports
verify-imports: ## Check that imports between the packages flow one way.
	@test/verify/imports.sh

.PHONY: verify-licence
verify-licence: ## Check that source files carry the licence lines.
	@test/verify/licence.sh

.PHONY: verify-modules
verify-modules: ## Check that go.mod and go.sum of all modules but test/alerts, test/backends and test/peers/v* are tidy.
	@test/verify/modules.sh

.PHONY: verify-flags
verify-flags: ## Check that docs/flags.md matches the flags.
	@test/verify/flags.sh

.PHONY: verify-links
verify-links: ## Check the links between the documents.
	@test/verify/links.sh

.PHONY: verify-words
verify-words: ## Check that private words stay out: test/verify/words.txt has what to write instead.
	@test/verify/words.sh

.PHONY: verify-size
verify-size: ## Check that folders and tests have no more code lines than test/verify/size.txt allows, nor folders far fewer.
	@test/verify/size.sh

.PHONY: verify-binaries
verify-binaries: build build-plugin ## Check that the linker leaves out of manager and plugin what they do not need.
	@test/verify/binaries.sh

.PHONY: verify-scripts
verify-scripts: ## Check that shell scripts parse and stop at errors.
	@test/verify/scripts.sh

.PHONY: verify-manifests
verify-manifests: kubectl ## Check that manifests are generated, rendered and typed, and use existing flags.
	@test/verify/manifests.sh

##@ Update

.PHONY: update
update: update-format update-modules update-flags update-manifests update-lint update-size ## Fix what a machine can fix.

.PHONY: update-format
update-format: ## Format the code with gofmt.
	gofmt -w $$(git ls-files --cached --others --exclude-standard --deduplicate '*.go')

.PHONY: update-lint
update-lint: ## Fix what golangci-lint can fix by itself.
	@test/verify/lint.sh --fix

.PHONY: update-modules
update-modules: ## Tidy go.mod and go.sum of all modules but test/alerts and test/backends.
	for module in . cmd/sa-kms-signer test test/{chart,differential,simulation,conformance,tools,peers{,/v1.35,/v1.36}}; do \
		go -C $$module mod tidy; done

.PHONY: update-flags
update-flags: ## Write docs/flags.md from the flags.
	go -C test run ./cmd/docs flags >docs/flags.md.new
	mv docs/flags.md.new docs/flags.md

.PHONY: update-size
update-size: ## Lower the folders' numbers of test/verify/size.txt to what is there; none is raised.
	@test/verify/size.sh update

.PHONY: update-manifests
update-manifests: kubectl ## Generate the roles of manifests/permissions and the rendered overlays.
	@test/verify/manifests.sh update

##@ Other

.PHONY: clean
clean: ## Remove bin/, including the control plane, which takes long to build.
	rm -rf bin

.PHONY: help
help: ## Print this list.
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z0-9-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
