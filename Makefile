# What a person or a machine does with a checkout; `make` alone lists it.
SHELL   := bash
TOOLS   := .ci/tools/go.mod
TOOL    := go tool -modfile=$(TOOLS)
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
BUILD   := -trimpath -buildvcs=false -ldflags '-s -w -X main.version=$(VERSION)'

# The command that runs tests, and the race detector where a C compiler makes it possible.
GOTEST ?= go test
RACE   := $(if $(filter 1,$(shell go env CGO_ENABLED)),-race)
# Packages with tests that need services.
NEED_SERVICES = $(shell grep -rlE --include='*_test.go' '^//go:build .*\bintegration\b' . | xargs -r -n1 dirname | sort -u)

.PHONY: help build dashboard demo test test-dashboard integration deploy soak bench lint fmt clean

# The pages of the daemon, built where npm is; a binary without them serves one that says so.
DASHBOARD := cmd/etl/internal/dashboard
PAGES     := $(if $(shell command -v npm),$(DASHBOARD)/dist/index.html)

help: ## lists the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 16

build: dashboard ## the program, one static binary: bin/etl, with the dashboard where npm is
	CGO_ENABLED=0 go build $(BUILD) -o bin/etl ./cmd/etl

dashboard: $(PAGES)

$(DASHBOARD)/node_modules/.package-lock.json: $(DASHBOARD)/package-lock.json
	cd $(DASHBOARD) && npm ci --no-audit --no-fund
	@touch $@

$(DASHBOARD)/dist/index.html: $(DASHBOARD)/node_modules/.package-lock.json $(shell find $(DASHBOARD)/src $(DASHBOARD)/public $(DASHBOARD)/*.html $(DASHBOARD)/*.ts -type f)
	cd $(DASHBOARD) && npm run build
	@touch $@

demo: build ## the whole story within a minute, without any service: a crash on view, and exact counts after it
	bin/etl demo --once

test: ## all tests that need no services
	$(GOTEST) $(RACE) -timeout 10m ./...

test-dashboard: $(DASHBOARD)/node_modules/.package-lock.json ## types and tests of the dashboard; needs Node 20.19 or newer
	cd $(DASHBOARD) && npm test

integration: ## starts real services, runs the tests that need them, stops them
	deploy/services/with.sh kafka postgres mysql redis s3 hdfs opensearch clickhouse mongodb schema-registry python iceberg-reader iceberg-rest chromium -- $(GOTEST) -tags integration -timeout 40m $(NEED_SERVICES)

deploy: ## tests what is in deploy/ with the tools that read it; deploy/check/tools.sh installs those that are missing
	deploy/check/tools.sh >/dev/null
	cd deploy/check && $(GOTEST) -timeout 10m ./...

soak: ## a million records, many kills, outages: exactly once, by an independent reader; all Nexmark queries at all settings
	deploy/services/with.sh kafka s3 hdfs postgres mysql clickhouse python -- go test -tags 'integration soak' -timeout 90m -count 1 -v -run 'Soak' ./cmd/etl/internal/soak
	go test $(RACE) -timeout 30m -count 1 ./pipelines/nexmark -every

bench: build ## cost per record on a real broker, as a ratio to bare client loops (COUNT=5000000 MARKDOWN=file)
	go build -o bin/bench ./bench
	deploy/services/with.sh kafka s3 hdfs postgres mysql opensearch redis mongodb -- bin/bench -etl bin/etl $(if $(COUNT),-count $(COUNT)) $(if $(MARKDOWN),-markdown $(MARKDOWN))

lint: ## static checks, the import table among them
	$(TOOL) golangci-lint run
	go mod tidy -diff
	go mod verify

fmt: ## formats the Go code
	$(TOOL) golangci-lint fmt

clean: ## removes what was built
	rm -rf bin dist .ci/out
