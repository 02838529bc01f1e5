# ForgeRun. "make" lists the targets.

GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

# Options for the programs that "demo", "dev" and "bench" start: make dev ARGS="..."
ARGS      ?=
# Options for "go test": make test TESTFLAGS="-v -run Relay"
TESTFLAGS ?=
# How long "fuzz" runs each target.
FUZZTIME  ?= 30s

# Every module of this repository.
MODULES = . tools docs/examples/webhooks/go internal/bench/peers

# The tests that hold the documentation against the code; none starts a server.
DOC_TESTS = ^(TestReliabilityPage|TestConformancePage|TestAPIPage|TestConfigurationPage|TestWebhooksPageQuotes|TestDocumentationNames|TestPageLists|TestExamplesOnThePage|TestSettingsAre)

GOLANGCI = $(GO) tool -modfile=tools/go.mod golangci-lint

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##### Run

.PHONY: demo
demo: ## Run a job of each kind and print the table; then break things under load and judge
	@scripts/setup.sh run
	@$(MAKE) --no-print-directory build
	@bin/simulator demo $(ARGS)
	@echo
	@bin/simulator run soak --duration 15s --workers 1..3 --chaos kill=3s,stop=8s,flush=5s,cut=2s --out .forgerun/demo-report

.PHONY: dev
dev: ## Start everything and stay up, with a ready client and API key
	@scripts/setup.sh dev
	@$(MAKE) --no-print-directory build
	@exec bin/forgerun dev $(ARGS)

.PHONY: build
build: ## Build bin/forgerun and bin/simulator
	@$(GO) build -buildvcs=false -ldflags "-X main.version=$(VERSION)" -o bin/ ./cmd/forgerun ./cmd/simulator

##### Test

# The tests of one package after the other: each keeps the machine busy by itself, with servers
# and processes that are killed, paused and timed. Where there is flock, the next package is built
# meanwhile (the lock is on the Makefile: go itself locks go.mod). The time limit counts from when a test was built, not from its turn.
ONE_AT_A_TIME = $(if $(shell command -v flock),-p 2 -exec "flock --close $(CURDIR)/Makefile",-p 1)

# Of the tests of one package so many run at once: most wait for processes, half of the time of two cores.
PARALLEL = $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$((n + (n + 1) / 2)))

.PHONY: test
test: ## Run all tests with the race detector, on real Postgres and Redis
	@scripts/setup.sh test
	CGO_ENABLED=1 $(GO) test -race $(ONE_AT_A_TIME) -parallel $(PARALLEL) -timeout 30m $(TESTFLAGS) ./...

# The packages whose tests start no Postgres, no Redis and no browser, below tasks with -short:
# there the embedded Redis serves those that need no real one. SLOW are tests that wait for more
# than a few seconds.
QUICK = ./webhook ./handlers/... ./app/... ./client ./internal/simulator/history ./internal/simulator/judge \
	./internal/simulator/load ./internal/simulator/receiver ./internal/simulator/scenario ./internal/telemetry \
	./internal/work ./job ./migrations ./tasks/...
SLOW = ^TestNoSpellingReachesTheCanary$$

.PHONY: test-quick
test-quick: ## Run the tests that need no servers, but for one slow one: under a minute once built
	$(GO) test -p 4 -short -skip '$(SLOW)' $(TESTFLAGS) $(QUICK)
	$(GO) test -run '^TestImport' $(TESTFLAGS) ./cmd/forgerun

.PHONY: test-faults
test-faults: ## Faults that need root or minutes, one after the other: full disks, partitions, maintenance, clock steps
	@scripts/setup.sh test
	$(GO) test -tags faults -run '^TestFault' -count=1 -p 1 -timeout 40m -v $(TESTFLAGS) ./cmd/forgerun ./internal/simulator/trial

.PHONY: test-testbed
test-testbed: ## The example clients under all profiles with 20 seeds, about 15 minutes; writes docs/testbed-report.md
	@scripts/setup.sh ci
	FORGERUN_TESTBED_SEEDS=20 FORGERUN_TESTBED_REPORT=$(CURDIR)/docs/testbed-report.md $(GO) test -count=1 -parallel 6 \
	  -timeout 60m -run '^TestExampleClientsAreRight$$' $(TESTFLAGS) ./cmd/forgerun

.PHONY: bench
bench: ## Measure each figure against its target, about 10 minutes; ARGS="-help" tells the options
	@scripts/setup.sh run
	$(GO) run ./internal/bench $(ARGS) standard

.PHONY: bench-quick
bench-quick: ## The figures of submission, the whole path and idle alone, about 1 minute
	@scripts/setup.sh run
	$(GO) run ./internal/bench $(ARGS) quick

.PHONY: bench-full
bench-full: ## All figures, those of large tables, webhooks, observing and the simulator too
	@scripts/setup.sh run
	$(GO) run ./internal/bench $(ARGS) full

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME (30s) each
	@GO="$(GO)" scripts/fuzz.sh "$(FUZZTIME)"

##### Check

.PHONY: verify
verify: fmt-check vet lint imports tidy-check generated migrations scripts ## All that is checked without running the service

.PHONY: fmt
fmt: ## Format the code
	@gofmt -w -s $$($(GO) list -f '{{.Dir}}' ./...)

.PHONY: fmt-check
fmt-check:
	@dirs="$$($(GO) list -f '{{.Dir}}' ./...)" && files="$$(gofmt -l -s $$dirs | sort -u)" && \
	if [ -n "$$files" ]; then echo "not formatted (make fmt):"; echo "$$files"; exit 1; fi

.PHONY: vet
vet:
	$(GO) vet ./...

.PHONY: lint
lint: ## golangci-lint, at the version that tools/go.mod pins (its first run builds it)
	$(GOLANGCI) run

.PHONY: imports
imports:
	$(GO) test -count=1 -run '^TestImport' ./cmd/forgerun

.PHONY: tidy-check
tidy-check: ## go.mod and go.sum of each module say what is used
	@for module in $(MODULES); do echo "go mod tidy -diff ($$module)"; (cd $$module && $(GO) mod tidy -diff) || exit 1; done

.PHONY: generated
generated: ## What follows from code is in step with it: generated files, the tables of the documentation
	@before=$$(git diff | cksum) && $(GO) generate ./... && [ "$$before" = "$$(git diff | cksum)" ] || \
		{ echo "go generate changed files (git diff shows them)"; exit 1; }
	$(GO) test -count=1 -run '$(DOC_TESTS)' ./cmd/forgerun ./internal/simulator/scenario

.PHONY: migrations
migrations: ## Migrations are numbered without gaps, and none was edited
	$(GO) test -count=1 ./migrations

.PHONY: scripts
scripts: ## shellcheck, where it is installed
	@if command -v shellcheck >/dev/null; then shellcheck .ci/run scripts/*.sh; else echo "shellcheck is not installed: skipped"; fi

.PHONY: clean
clean: ## Remove what was built (the data folder .forgerun stays)
	@rm -rf bin coverage.*
