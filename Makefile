# make run    builds everything and starts a server on 127.0.0.1:8080 with its data in ./data
# make test   installs what the tests need, saying what, and runs all of them
# make race   runs those of concurrent code with the race detector
# make lint   builds the pinned linters and runs them
# make help   lists the rest

RELEASE ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X sovereign/internal/app.release=$(RELEASE)
TOOLS   := $(CURDIR)/.tools

# All that is compiled here is compiled alike, and so once: without debugging information, which saves a twelfth of the
# compiler's time, and the official clients, of which the tests ask little, without inlining, which saves a third.
COMPILED := -gcflags=all=-dwarf=false -gcflags=github.com/openai/...=-l -gcflags=github.com/anthropics/...=-l
export GOFLAGS := $(filter-out $(COMPILED),$(shell go env GOFLAGS 2>/dev/null)) $(COMPILED)
# The race detector instruments our own code. SQLite, which is translated from C, starts no goroutines, and would be ten
# times slower with it.
RACED   := -race -gcflags=modernc.org/...=-race=false

.DEFAULT_GOAL := help
.PHONY: help run build test unit race peers s3 kubernetes fuzz lint vuln faults transports browser screenshots bench dashboard-bench bench-peers bench-packages chart recall statistics trainers engines catalog sbom release setup clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: setup-go ## build bin/sovereign
	@CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/sovereign ./cmd/sovereign

run: build ## build and start, with embedded storage in ./data
	@exec bin/sovereign serve --bootstrap $(ARGS)

test: setup web-test unit peers ## all tests; with `make race` and `make lint`, everything that must pass before a change lands

unit: ## all tests in Go, on both storages
	@scripts/with-tmp scripts/unit

race: setup ## the tests of concurrent code once more, with the race detector
	@FLAGS="$(RACED)" scripts/with-tmp scripts/unit race

web: setup-go ## build the dashboard's page from web/ into internal/dash/page/dist; needs Node 20 or newer
	@scripts/web build

.PHONY: web web-test
web-test: ## the page's own tests, and that the committed page is what web/ builds
	@scripts/web test

fuzz: setup-go ## every fuzz target for a minute (FUZZTIME=1m, ARGS=./internal/text/...); keeps inputs in testdata/fuzz
	@scripts/fuzz $(ARGS)

# The linters read the packages as the tests compile them, so that each is compiled once. What could not be checked is
# said last.
lint: $(TOOLS)/golangci-lint $(TOOLS)/govulncheck ## formatting, static checks and known vulnerabilities
	@CGO_ENABLED=0 GOFLAGS="$(GOFLAGS) -trimpath" $(TOOLS)/golangci-lint run ./...
	@scripts/vuln $(TOOLS)/govulncheck

vuln: $(TOOLS)/govulncheck ## known vulnerabilities; says "not checked" without the database, and fails then with REQUIRED=1
	@scripts/vuln $(TOOLS)/govulncheck

faults: setup ## the slow drills: many kill -9, outages, restarts under load, and the promises that name a time
	@SOVEREIGN_DRILLS=full scripts/with-tmp go test -count 1 -p 1 -parallel 1 -timeout 150m -v -run 'Drill' ./e2e/... ./internal/app ./internal/domain/calibration ./internal/domain/wallet

transports: setup ## the end-to-end tests with net/http's client and server in place of our own
	@SOVEREIGN_TEST_TRANSPORT=standard SOVEREIGN_FAST_LANE=false scripts/with-tmp go test -count 1 -timeout 60m ./e2e

browser: setup ## the part of `make test` in which a real browser walks the dashboard, by itself
	@scripts/with-tmp go test -count 1 -timeout 60m -v -run TestABrowserWalksTheDashboard ./e2e

screenshots: setup build ## photograph every page of the dashboard, of a demo, for docs/dashboard.md (KEEP=FOLDER: whole pages as PNG)
	@scripts/with-tmp node scripts/screenshots/screenshots.mjs $(ARGS)

bench: build ## what a request costs, beside nginx and a bare proxy; fails when a mark is missed (ARGS="-only chat")
	@scripts/setup bench && go build -o bin/bench ./bench && bin/bench $(ARGS)

bench-peers: build ## the same beside other gateways, which it installs into .tools/peers
	@scripts/setup bench && go build -o bin/bench ./bench && bin/bench peers $(ARGS)

dashboard-bench: setup ## the Logs page with a million rows, in a real browser, on both storages; fails when a mark is missed (ROWS=1000000, STORAGE=sqlite)
	@SOVEREIGN_DASHBOARD_ROWS=$(or $(ROWS),1000000) scripts/with-tmp go test -count 1 -timeout 60m -v -run 'TestBenchDashboard/$(STORAGE)' ./e2e

bench-packages: ## benchmarks of the packages
	@go test -run '^$$' -bench . -benchmem ./internal/...

peers: setup-go ## test payments, webhooks and e-mail with Stripe's mock, the verifier of Standard Webhooks and a mail server
	@CGO_ENABLED=0 go test -C tools/peers -trimpath -count 1 .

s3: setup-go ## test the files of training with a real S3 server, which it builds (three minutes of a CPU, once)
	@go test -C tools/s3 -count 1 -timeout 60m .

kubernetes: setup-go ## test engines and training on Kubernetes with a real API server, which it builds (twelve minutes of a CPU, once)
	@scripts/with-tmp scripts/kubernetes $(ARGS)

chart: setup-go ## test the Helm chart and the Compose file with helm and a real API server, which it builds (fifteen minutes of a CPU, once)
	@scripts/with-tmp scripts/chart $(ARGS)

recall: setup-go ## compare redaction with gitleaks' rules
	@go test -C tools/recall -count 1 -v .

statistics: setup-go ## measure what intervals and gates keep of their promises, and write docs/statistics.md anew (some minutes; ARGS='-only EXPR': some tables)
	@go run ./scripts/statistics $(ARGS)

trainers: build ## real trainers against the server: TRL, verl, OpenRLHF, in .tools/trainers (ARGS=worker: our worker with TRL alone; ARGS=demo: the demonstration of docs/rewards.md)
	@scripts/trainers $(ARGS)

engines: ## real engines (llama-server) with models that were trained; brings 20 MB of Debian's packages once, and needs make trainers
	@scripts/engines

catalog: ## write the built-in models and prices anew, from what the npm registry has today (MADE=YYYY-MM-DD)
	@cd scripts/catalog && npm ci --ignore-scripts && node catalog.mjs $(MADE)

sbom: build ## what is linked into bin/sovereign, as CycloneDX JSON: bin/sovereign.cdx.json
	@go run ./scripts/sbom bin/sovereign >bin/sovereign.cdx.json

release: setup-go ## reproducible binaries for linux amd64 and arm64 in dist, with checksums (SIGN_KEY=FILE signs them)
	@scripts/with-tmp scripts/release

setup: setup-go ## install what the tests need
	@scripts/setup test

.PHONY: setup-go
setup-go:
	@scripts/setup build

# The pinned tools are built once per version, from tools/go.mod. Only the linters need them; the tests do not.
$(TOOLS)/golangci-lint $(TOOLS)/govulncheck: tools/go.mod tools/go.sum
	@echo "building the pinned tools of tools/go.mod (some minutes, once)"
	@mkdir -p $(TOOLS) && go build -C tools -o $(TOOLS)/ tool && touch $(TOOLS)/golangci-lint $(TOOLS)/govulncheck

clean: ## delete what was built
	@rm -rf bin dist .tools
