# ForgeRun. "make" lists the targets.

GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
COMMIT  ?= $(shell git rev-parse HEAD 2>/dev/null)
DATE    ?= $(shell TZ=UTC git log -1 --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd 2>/dev/null)

BUILD   = github.com/forgerun/forgerun/internal/version
LDFLAGS = -s -w -X $(BUILD).number=$(VERSION) -X $(BUILD).commit=$(COMMIT) -X $(BUILD).date=$(DATE)

# Options for the programs that "demo", "dev" and "bench" start: make dev ARGS="..."
ARGS      ?=
# Options for "go test": make test TESTFLAGS="-v -run Relay"
TESTFLAGS ?=
# How long "make fuzz" runs each target.
FUZZTIME  ?= 30s

# Every module of this repository.
MODULES = . tools tools/oasdiff tools/dockerfile tools/chart docs/examples/webhooks/go internal/bench/peers examples/other-apis/go examples/testcontainers

# The tests that compare the documentation with the code. "make generated" runs them, "make test" does not.
DOC_TESTS = ^(TestReliabilityPage|TestAPIPage|TestConfigurationPage|TestWebhooksPageQuotes|TestDocumentationNames|TestDocumentationTypes|TestDocumentationLinks|TestPageLists|TestExamplesOnThePage|TestSettingsMatchService)

# The tests of pages in a browser, and of the packages for Python and npm. "make pages" runs them, "make test" does not.
PAGE_TESTS = ^(TestConsole|TestDocsPage|TestPageInABrowser|TestPackages)
PAGE_PACKAGES = ./cmd/forgerun ./internal/simulator/report

GOLANGCI = $(GO) tool -modfile=tools/go.mod golangci-lint

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##### Run

.PHONY: demo
demo: ## Run a job of each kind and print the table; then break things under load and judge
	@scripts/setup.sh run
	@$(MAKE) --no-print-directory build
	@bin/forgerun demo $(ARGS)
	@echo
	@bin/forgerun simulate run soak --duration 15s --workers 1..3 --chaos kill=3s,stop=8s,flush=5s,cut=2s --out .forgerun/demo-report

.PHONY: dev
dev: ## Start everything and stay up, with a ready client and API key
	@scripts/setup.sh dev
	@if [ -t 1 ]; then printf '\r\033[KBuilding ...'; fi
	@$(MAKE) --no-print-directory build
	@exec bin/forgerun dev $(ARGS)

.PHONY: build
build: ## Build bin/forgerun
	@$(GO) build -buildvcs=false -ldflags "$(LDFLAGS)" -o bin/ ./cmd/forgerun

.PHONY: man
man: build ## Write the man pages into build/man
	@bin/forgerun man build/man

# The path at which the site is served: make site SITE_BASE=/forgerun
SITE_BASE ?= /
SITE = cd tools/site && SITE_BASE=$(SITE_BASE) node_modules/.bin/vitepress

.PHONY: site
site: ## Build docs as a site into build/site; a dead link fails (Node; installs the packages of tools/site)
	@scripts/setup.sh site
	@$(SITE) build

.PHONY: site-dev
site-dev: ## Serve docs as a site on loopback, and show changes as they are made
	@scripts/setup.sh site
	@$(SITE) dev --host 127.0.0.1

##### Test

.PHONY: test
test: ## Run what a change must not break, on real Postgres and Redis: about 5 minutes on two cores
	@scripts/setup.sh test
	@GO="$(GO)" scripts/test.sh -skip '$(DOC_TESTS)|$(PAGE_TESTS)' $(TESTFLAGS)

.PHONY: pages
pages: ## Test the pages in a browser, and install the packages for Python and npm
	@scripts/setup.sh ci
	@GO="$(GO)" FORGERUN_TEST_PACKAGES="$(PAGE_PACKAGES)" scripts/test.sh -run '$(PAGE_TESTS)' $(TESTFLAGS)

.PHONY: test-all
test-all: ## All of "test", the programs with the race detector, and what lasts: full disks, partitions, soaks, clients under all profiles
	@scripts/setup.sh ci
	@GO="$(GO)" FORGERUN_TEST_RACE=1 scripts/test.sh -tags slow $(TESTFLAGS)

# The packages whose tests start no Postgres, no Redis and no browser. Below tasks this needs -short:
# it selects the tests that can use the embedded Redis.
QUICK = ./webhook ./handlers/... ./app/... ./client ./internal/simulator/history ./internal/simulator/judge \
	./internal/simulator/load ./internal/simulator/receiver ./internal/simulator/scenario ./internal/telemetry \
	./internal/work ./job ./migrations ./tasks/...

.PHONY: test-quick
test-quick: ## Run the tests that need no servers: under a minute once built
	$(GO) test -p 4 -short $(TESTFLAGS) $(QUICK)
	$(GO) test -run '^TestImport' $(TESTFLAGS) ./cmd/forgerun

.PHONY: bench
bench: ## Measure throughput, idle latency, deliveries, the floor with River and asynq, a large table: about 20 minutes; ARGS="-help" tells the options
	@scripts/setup.sh run
	$(GO) run ./internal/bench $(ARGS)

.PHONY: bench-quick
bench-quick: ## Submission, the whole path and idle alone, about 1 minute; ARGS="-against PROGRAM -rounds 5" compares two builds in turns
	@scripts/setup.sh run
	$(GO) run ./internal/bench -duration 4s -rounds 1 $(ARGS) throughput idle

.PHONY: picture
picture: ## Play the scenes of docs/images/survives.svg and draw it, about 1 minute; needs asciinema
	@scripts/setup.sh run
	@$(MAKE) --no-print-directory build
	@scripts/picture.sh

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME (30s) each
	@GO="$(GO)" scripts/fuzz.sh "$(FUZZTIME)"

##### Check

.PHONY: verify
verify: generated checks ## All that is checked without running the service

# None of these targets writes files that another one reads, so "make -j2 checks" works.
.PHONY: checks
checks: pages fmt-check lint tidy-check api-diff dockerfile chart examples scripts site

.PHONY: fmt
fmt: ## Format the code
	@gofmt -w -s $$($(GO) list -f '{{.Dir}}' ./...)

.PHONY: fmt-check
fmt-check:
	@dirs="$$($(GO) list -f '{{.Dir}}' ./...)" && files="$$(gofmt -l -s $$dirs | sort -u)" && \
	if [ -n "$$files" ]; then echo "not formatted (make fmt):"; echo "$$files"; exit 1; fi

.PHONY: lint
lint: ## golangci-lint, go vet included, at the version that tools/go.mod pins (its first run builds it)
	$(GOLANGCI) run

.PHONY: tidy-check
tidy-check: ## go.mod and go.sum of each module say what is used
	@for module in $(MODULES); do echo "go mod tidy -diff ($$module)"; (cd $$module && $(GO) mod tidy -diff) || exit 1; done

.PHONY: generated
generated: ## What follows from code is in step with it: generated files, the tables of the documentation
	@before=$$(git diff | cksum) && $(GO) generate ./handlers/docs ./... && [ "$$before" = "$$(git diff | cksum)" ] || \
		{ echo "go generate changed files (git diff shows them)"; exit 1; }
	$(GO) test -count=1 -vet=off -run '$(DOC_TESTS)' ./cmd/forgerun ./internal/simulator/scenario

.PHONY: api-diff
api-diff: ## Compare the API document with the last release tag, and check that breaking changes are noticed
	@GO="$(GO)" scripts/api-diff.sh
	@GO="$(GO)" scripts/api-diff.sh --prove

.PHONY: dockerfile
dockerfile: ## The Dockerfile passes BuildKit's checks (its first run builds them), and a bad one does not
	cd tools/dockerfile && $(GO) test .

.PHONY: chart
chart: ## The Helm chart: lint, and what it renders to, read as the types of Kubernetes (the first run builds helm's library)
	cd tools/chart && $(GO) test -vet=off -count=1 ./... # vet would read the hundreds of packages that it imports

.PHONY: examples
examples: ## The example with Testcontainers compiles; it runs where Docker is
	cd examples/testcontainers && $(GO) vet .

.PHONY: scripts
scripts: ## shellcheck, where it is installed
	@if command -v shellcheck >/dev/null; then shellcheck .ci/run scripts/*.sh packaging/scripts/*.sh deploy/compose/*.sh; else echo "shellcheck is not installed: skipped"; fi

##### Release

# The versions of the release tools. They are not in tools/go.mod, since nothing else needs their hundreds of
# modules. sum.golang.org has the checksums of these versions.
GORELEASER    = github.com/goreleaser/goreleaser/v2@v2.15.4
CYCLONEDX     = github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0
RELEASE_TOOLS = $(CURDIR)/bin/release

.PHONY: release-tools
release-tools:
	@GOBIN=$(RELEASE_TOOLS) $(GO) install $(GORELEASER)
	@GOBIN=$(RELEASE_TOOLS) $(GO) install $(CYCLONEDX)

.PHONY: snapshot
snapshot: release-tools ## Build into dist all that a release has, and publish nothing (the first time builds the tools: minutes)
	@PATH="$(RELEASE_TOOLS):$$PATH" goreleaser release --snapshot --clean $(ARGS)

# The release workflow runs this target for the tag that is checked out.
.PHONY: release
release: release-tools
	@PATH="$(RELEASE_TOOLS):$$PATH" goreleaser release --clean $(ARGS)

.PHONY: release-check
release-check: ## Check the changelog of the last version
	@scripts/release-check.sh

.PHONY: release-trial
release-trial: ## Install and run what "snapshot" built: bare chroot, package; root on Debian, about 2 minutes
	@scripts/release-trial.sh dist

.PHONY: image-trial
image-trial: ## Build the root file systems of both images by the Dockerfile's steps, and run them; root on Debian, minutes
	@scripts/image-trial.sh $(ARGS)

.PHONY: ha-trial
ha-trial: build ## Run the profile ha of docker-compose.yml without Docker, and kill one of each; root on Debian, a minute
	@scripts/ha-trial.sh bin/forgerun

.PHONY: clean
clean: ## Remove what was built (the data folder .forgerun stays)
	@rm -rf bin build dist coverage.*
