# SPDX-License-Identifier: Apache-2.0
# `make` or `make help` is the index. Logic lives in Go; targets are one or two lines.

GO      ?= go
WORKERS := dav github
DAEMONS := authd sentinel egress cells cellnet approvals page
B       := build
VERSION := $(or $(shell git describe --always --dirty 2>/dev/null),devel)
RELEASE := 0.1.0
# The package's version has the time of the last commit, so that apt knows a newer build from an older one.
STAMP   := $(shell date -u -d @$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct 2>/dev/null)} +%Y%m%d%H%M%S 2>/dev/null)
DEB     := $(RELEASE)$(addprefix +,$(STAMP))
CLI     := github.com/doorward/doorward/cli
GOBUILD := CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -ldflags="-s -w -buildid= \
	-X $(CLI).release=$(RELEASE)-$(VERSION) -X $(CLI)/operator.release=$(RELEASE)-$(VERSION)"

# Go asks git for the state of the tree, which git refuses to root in another user's clone; git describe may be refused.
export GOFLAGS := $(GOFLAGS) -buildvcs=false

ifeq ($(filter help clean,$(or $(MAKECMDGOALS),help)),)
ifeq ($(shell command -v $(GO)),)
$(error there is no "$(GO)" here: install Go (Debian and Ubuntu: apt-get install golang-go), or name it by GO=/path/to/go)
endif
endif

ARCH    ?= $(shell $(GO) env GOARCH)
NFPM    := $(GO) run github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.43.4

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 18

build: ## binaries and descriptions into build/, laid out as an installation
	@mkdir -p $(B)/bin $(B)/libexec/doorward $(B)/share/doorward
	@$(GOBUILD) -o $(B)/bin/ ./cmd/connector ./cmd/doorward
	@$(GOBUILD) -o $(B)/libexec/doorward/ $(DAEMONS:%=./cmd/%) $(WORKERS:%=./cmd/worker-%)
	@for w in $(WORKERS); do $(B)/libexec/doorward/worker-$$w describe > $(B)/share/doorward/$$w.desc.new && \
		mv $(B)/share/doorward/$$w.desc.new $(B)/share/doorward/$$w.desc || exit 1; done

demo: build ## the main job, as a script of assertions (needs root and cgroup v2)
	@$(GO) build -o $(B)/test/demo ./test/demo && exec $(B)/test/demo -prefix $(B)

test: specs build ## everything this machine can run; the last lines say which grounds were skipped
	@$(GO) run ./test/run

deb: build ## one Debian package into build/; ARCH is amd64 or arm64
	@rm -rf $(B)/deb $(B)/doorward_*_$(ARCH).deb && mkdir -p $(B)/deb/bin $(B)/deb/libexec && GOARCH=$(ARCH) $(GOBUILD) -o $(B)/deb/bin/ ./cmd/connector ./cmd/doorward
	@GOARCH=$(ARCH) $(GOBUILD) -o $(B)/deb/libexec/ $(DAEMONS:%=./cmd/%) $(WORKERS:%=./cmd/worker-%)
	@$(GO) run ./package/docs $(B)/deb/share $(B)/bin $(DEB)
	@ARCH=$(ARCH) VERSION=$(DEB) SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)} $(NFPM) package -f package/nfpm.yaml -p deb -t $(B)/

vm-test vm-test-full vm-shell: ARCH = amd64
vm-test: deb ## a Debian 13 with systemd under QEMU (no KVM): the units, tried for real, some 14 minutes on two CPUs (needs root)
	@$(GO) run ./test/vm -deb $(B)/doorward_$(DEB)_$(ARCH).deb $(VM)

vm-test-full: deb ## the same with every scenario and test, and what of the daemons ran: an hour or more
	@$(GO) run ./test/vm -deb $(B)/doorward_$(DEB)_$(ARCH).deb -full -cover -timeout=3h $(VM)

vm-shell: deb ## the same machine with a root shell in it
	@$(GO) run ./test/vm -deb $(B)/doorward_$(DEB)_$(ARCH).deb -shell

specs: ## the vendors' own descriptions, for the tests that hold requests to them
	@$(GO) run ./specs/fetch

fuzz: ## every fuzz target for FUZZTIME (5m)
	@$(GO) run ./test/run -fuzz $(or $(FUZZTIME),5m)

bench: build ## the speed table of docs/performance.md, and build/bench.json
	@$(GO) run ./test/bench

generate: ## the programs in bpf/, compiled again (clang 14, see bpf/bpf.go)
	@$(GO) generate ./bpf

generate-check: ## that the committed ones are what their sources make
	@clang --version | grep -q 'version 14\.' || { echo "generate-check needs clang 14, see bpf/bpf.go" >&2; exit 1; }
	@$(GO) test -count=1 -run '^TestTheObjectsAreWhatTheSourcesMake$$' ./bpf

race: ## every test under the race detector
	@$(GO) test -race ./...

check: ## what needs no privilege: format, vet, plain tests
	@test -z "$$(gofmt -l .)" || { gofmt -l .; exit 1; }
	@$(GO) vet ./... && $(GO) test ./internal/... ./cli/...

repro: ## builds binaries and both packages twice, in other folders, and compares the bytes
	@$(GO) run ./package/repro

clean: ## removes build/
	@rm -rf $(B)

.PHONY: help build demo test deb vm-test vm-test-full vm-shell specs fuzz bench generate generate-check race check repro clean
.DEFAULT_GOAL := help
