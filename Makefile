# What developers type. The checks themselves are steps of .ci/run, so that they
# are the same here and there.

.DEFAULT_GOAL := all
.PHONY: all build test steady race lint fuzz bench cross loadgen deploy-golden screenshots dashboard-picture headline-picture dashboard-load simulate hunt compat e2e kafka-e2e ci ci-all clean help

all: build test lint ## build, test and lint

build: ## the programs, into bin/
	go build -o bin/ ./cmd/...

test: ## all tests without a build tag
	go test ./...

steady: ## both runs of the tests, seven times each, beside processes that keep the processors busy; an hour
	.ci/steady -short
	.ci/steady

race: ## the tests under the race detector
	go test -race ./...

lint: ## the pinned linter, built on first use
	.ci/run lint

fuzz: ## every fuzz target, FUZZTIME each (default 30000x: so many inputs)
	.ci/run fuzz

bench: ## Quotient beside other limiters, and whether fleets keep a limit; a quarter of an hour; writes docs/proof/bench.md, its charts and bench/RESULTS.txt
	go run -C bench ./results

cross: ## compile for other systems
	.ci/run cross

loadgen: ## a short run with an embedded etcd; its verdict is the status
	go run ./cmd/loadgen --duration 5s

compat: ## the tests of coordinator against older etcd servers, as processes
	.ci/run compat

e2e: ## real processes and faults, each host in a network namespace; as root; E2E chooses scenarios; writes docs/proof/reliability.md
	E2E_TABLE=$(CURDIR)/docs/proof/reliability.md go test -tags e2e -count=1 -timeout 45m -v ./test/faults
	E2E_PROVIDERS=100,1000 go test -tags e2e -count=1 -timeout 10m -run WholeFleet -v ./test/processes

kafka-e2e: ## the Kafka consumer on a real Kafka; says what is missing
	cd test/kafka && go test -count=1 -tags e2e -v .

deploy-golden: ## the manifests of the chart anew, under deploy/check/testdata
	UPDATE=1 .ci/run deploy

screenshots: ## the dashboard and loadgen's page as their tests see them, into SHOTS (default bin/screenshots); needs chromium
	mkdir -p $(or $(SHOTS),bin/screenshots)
	cd test/browser && SCREENSHOTS=$(abspath $(or $(SHOTS),bin/screenshots)) go test -count=1 -tags e2e -timeout 10m .

dashboard-picture: ## docs/img/dashboard.png, in five minutes of a quiet machine; needs chromium
	cd test/browser && SCREENSHOTS=$(CURDIR)/docs/img DASHBOARD_PICTURE=45s go test -count=1 -tags e2e -timeout 15m -run TestTheTutorialsStory .
	mv docs/img/story.png docs/img/dashboard.png

headline-picture: ## docs/img/headline.png, the first chart of loadgen's page, in two minutes of a quiet machine; needs chromium
	mkdir -p bin/screenshots
	cd test/browser && SCREENSHOTS=$(CURDIR)/bin/screenshots REPORT_RUN="--instances 96 --processes 4 --limit 9600/s --demand 1.2 \
		--duration 36s --crash 6s --change 18s=6400/s --change 26s=9600/s" go test -count=1 -tags e2e -run TestTheReportOfAChurnRun .
	mv bin/screenshots/report-chart.png docs/img/headline.png

dashboard-load: ## what 20 providers and 1,000 instances cost the dashboard; needs chromium
	cd test/browser && DASHBOARD_LOAD=$(or $(DASHBOARD_LOAD),30s) go test -count=1 -tags e2e -timeout 10m -run TestLoad -v .

hunt: ## the tests of the core against each of their mutants; some minutes; HUNT and SUITES choose by name
	go test ./test/mutant -run '^TestMutantsAreCaught$$' -mutants '$(or $(HUNT),.)' -suites '$(or $(SUITES),.)' -timeout 0 -v

simulate: ## random histories of faults of the code that ships, for SIMULATE_FOR (default 10m)
	go test ./test/histories -exact -run '^TestForLong$$' -v -timeout 0 -for $(or $(SIMULATE_FOR),10m)

ci: ## what must hold before a change is merged
	.ci/run

ci-all: ## the long run too; up to an hour
	.ci/run --all

clean: ## remove what was built here
	rm -rf bin

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
