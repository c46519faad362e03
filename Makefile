# Everything that is done with this repository goes through these targets; CI
# runs the same ones. `make help` lists them.

include scripts/versions

CLANG      ?= clang-$(CLANG_MAJOR)
LLVM_STRIP ?= llvm-strip-$(CLANG_MAJOR)
VERSION    ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
export CLANG LLVM_STRIP

# sudo's PATH leaves /usr/local out on some systems.
export PATH := $(PATH):/usr/local/go/bin
GO       = CGO_ENABLED=0 go
GOFLAGS_ = -trimpath -ldflags "-s -w -X main.version=$(VERSION)"

.PHONY: help setup build generate check-generated test test-unit test-vm demo lint clean
.DEFAULT_GOAL := build

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

setup: ## install what build and tests need (Debian, as root)
	scripts/setup

build: bin/planfence ## build bin/planfence, a static binary

.PHONY: bin/planfence
bin/planfence:
	$(GO) build $(GOFLAGS_) -o $@ ./cmd/planfence

generate: setup ## compile the BPF programs and generate their Go side
	go generate ./bpf

check-generated: generate ## fail if what is committed is not what the sources give
	git diff --exit-code -- bpf

test: setup test-unit build ## unit tests here, and the enforcement matrix on every kernel line
	RUN='^TestVM' scripts/vm-tests $(KERNELS)

.PHONY: test-all test-suites
test-all: test test-suites test-attach test-deb test-arm64 ## every test there is

test-suites: setup build ## bypasses, agents, scopes, real tools, the companion, in virtual machines
	RUN='^Test(Bypass|Agent|ScopeKernel)' scripts/vm-tests $(KERNELS)
	RUN='^Test(Where|Companion)' scripts/vm-tests 6.12 7.2

test-unit: ## unit tests, on this machine, without root
	$(GO) test ./...

KERNEL  ?= 6.12
KERNELS ?= 6.1 6.12 6.18 7.2
RUN     ?= ^Test(VM|Bypass|Agent|ScopeKernel|Where|Companion)

.PHONY: bench bench-compare test-bypass test-vm-all test-scripts-vm
test-vm: setup build ## tests of enforcement on one kernel: KERNEL=6.12, RUN=pattern
	RUN='$(RUN)' scripts/vm-tests $(KERNEL)

test-bypass: setup build ## the bypass suite of SECURITY.md on one kernel: KERNEL=6.12
	RUN='^TestBypass' scripts/vm-tests $(KERNEL)

test-vm-all: setup build ## tests of enforcement on every kernel line
	RUN='$(RUN)' scripts/vm-tests $(KERNELS)

.PHONY: test-attach
NO_BPF = lsm=landlock,lockdown,yama,apparmor
test-attach: setup build ## which attach mode is taken or refused, by boot parameters
	RUN='^TestWhereAttach$$' scripts/vm-tests 6.12
	APPEND='$(NO_BPF)' RUN='^TestWhereAttach$$' scripts/vm-tests 6.1 6.12 6.18 7.2
	APPEND='$(NO_BPF) preempt=full' RUN='^TestWhereAttach$$' scripts/vm-tests 6.1 6.12
	APPEND='preempt=full' RUN='^TestWhereAttach$$' scripts/vm-tests 6.1 6.12
	APPEND='lockdown=confidentiality' RUN='^TestWhereAttach$$' scripts/vm-tests 6.12

test-scripts-vm: build ## tests of scripts/vm itself
	scripts/vm_test.sh

bench: setup build ## count what the fence costs and keep it: KERNEL=6.12, some 20 minutes
	scripts/bench/run --kernel $(KERNEL) --keep

bench-compare: setup build ## count it again, fail if a row is 3 % worse than what is kept
	scripts/bench/run --kernel $(KERNEL) --sets rows,scopes --compare

demo: setup build ## play a plan being enforced, here or in a virtual machine
	scripts/demo

# Release binaries for the architectures of ARCHES, the package for ARCH.
DIST   = dist
ARCHES = amd64 arm64
ARCH  ?= $(shell go env GOARCH)
# A package's version begins with a digit: a build without a tag counts as 0.
DEB_VERSION = $(subst -,+,$(patsubst v%,%,$(if $(filter v%,$(VERSION)),$(VERSION),0~git.$(VERSION))))
.PHONY: release deb docs
release: $(ARCHES:%=$(DIST)/planfence-linux-%) ## dist/: static binaries for amd64 and arm64, with checksums
	cd $(DIST) && sha256sum $(ARCHES:%=planfence-linux-%) >SHA256SUMS

.PHONY: FORCE
$(DIST)/planfence-linux-%: FORCE
	GOARCH=$* $(GO) build $(GOFLAGS_) -o $@ ./cmd/planfence

docs: ## dist/docs: manual pages and shell completions
	rm -rf $(DIST)/docs
	$(GO) run -tags gendocs ./cmd/planfence $(DIST)/docs

deb: docs $(DIST)/planfence-linux-$(ARCH) ## dist/: the Debian package for ARCH
	rm -f $(DIST)/*_$(ARCH).deb
	DIST=$(DIST) ARCH=$(ARCH) VERSION=$(DEB_VERSION) \
		go tool -modfile=packaging/go.mod nfpm package -f packaging/nfpm.yaml -p deb -t $(DIST)

.PHONY: setup-arm64 test-arm64
setup-arm64:
	scripts/setup --arm64

test-arm64: setup-arm64 $(DIST)/planfence-linux-arm64 ## the core of the enforcement matrix on Debian's arm64 kernel 6.12
	scripts/vm-arm64-tests

.PHONY: test-deb
test-deb: build deb ## install the package in a virtual machine and use it
	scripts/deb-test

lint: ## gofmt and go vet
	test -z "$$(gofmt -l bpf cmd loader plan scripts)" || { gofmt -l bpf cmd loader plan scripts; exit 1; }
	go vet ./...

clean: ## remove what was built
	rm -rf bin dist
