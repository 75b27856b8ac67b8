# What a change goes through, locally and in CI alike (.ci/run calls these targets).

.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:

# Every module but tools/. By find, not by git: a module that is not committed yet is tested too.
MODULES := $(sort $(patsubst %/go.mod,%,$(shell find . -name go.mod -not -path './.*/*' -not -path '*/testdata/*' -not -path './tools/*')))

# The modules that users build with: their go.mod must be tidy.
LIBRARIES := . adapter/kafkagoidem adapter/kgoidem adapter/watermillidem cmd/idem codec/cloudevents codec/jsonv2 codec/schemaregistry dedup/dynamostore dedup/sqlstore examples outbox/sqloutbox

# Those that users import: they are released together, in one version.
RELEASED := $(filter-out examples,$(LIBRARIES))

# A go.work of one's own would hide a go.mod that is not tidy.
export GOWORK := off

SERVICES := test/services/services.sh

# Three modules at a time, and two packages of each: they share one Kafka, one Postgres and one Redis, and tests with
# deadlines need a share of the machine.
TEST_MODULES ?= 3
TEST_PACKAGES ?= 2
# Many tests wait for a broker or for a lease: more of them go on at once than there are processors.
TEST_PARALLEL ?= 4
TEST_TIMEOUT ?= 20m
# For one's own flags: make test TESTFLAGS='-run TestClaim -v'
TESTFLAGS ?=

# $(call in-modules,MODULES,COMMAND): runs COMMAND in modules, adds to `failed`, and prints the time of each.
define in-modules
	for module in $(1); do \
		printf '== %s\n' "$$module"; \
		TIMEFORMAT="== $$module: %0R s, of them %0U + %0S s on a CPU"; \
		time (cd "$$module" && $(2)) || failed+=("$$module"); \
	done
endef

none-failed = if (( $${\#failed[@]} > 0 )); then printf 'FAILED in: %s\n' "$${failed[*]}"; exit 1; fi

note-failed = if (( $${\#failed[@]} > 0 )); then printf '%s\n' "$${failed[@]}" >>"$${FAILED:-/dev/stderr}"; exit 1; fi

# $(call each-module,COMMAND): runs COMMAND in every module, all of them even if one fails.
each-module = failed=(); $(call in-modules,$(MODULES),$(1)); $(none-failed)

.PHONY: help api licences licence-texts sbom goreleaser-check snapshot release-check release-prepare release release-notes release-archives vulnerabilities docs demo demo-ops command-docs browser-deps screenshots pictures cells test test-modules test-short race lint fmt tidy bench bench-quick soak long-tests long-modules mutants drill up down example-orderstatus demo-chain

help: ## Print this message
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "%-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The file that remembers the events of the demonstration. Remove it to begin anew.
DEMO_FILE ?= $(CURDIR)/demo.db

demo: ## Run the notifier example: it needs only Go, Kafka is in the process; a second run finds duplicates
	@go -C examples run ./notifier -store 'sqlite:$(DEMO_FILE)'

demo-ops: ## The ops page on a demonstration that feeds itself until Ctrl-C; it needs only Go
	@go -C examples run ./notifier -ops 127.0.0.1:8080

demo-chain: ## Run three examples as one chain on real services, kill each process once, and measure what came of it
	@$(SERVICES) run go -C examples run ./chain

test: ## All tests of every module, with -race, against real services (those that are not up are started and stopped)
	@IDEM_REQUIRE_SERVICES=1 IDEM_SERVICES_DIR="$${IDEM_SERVICES_DIR:-$$($(SERVICES) memory)}" \
		$(SERVICES) run $(MAKE) --no-print-directory test-modules

# The tests of test/chaos run in four parts, each within the time of one test program: payments, the outbox, the rest, and
# those that measure time, which run alone. With a -run or -skip of one's own there is one part.
PARTS := $(if $(findstring run,$(TESTFLAGS))$(findstring skip,$(TESTFLAGS)),,yes)
CHAOS := ./test/chaos
MEASURING := ^(TestOutages|TestDeferredKeysLeaveTheOthersTheirRate)$$
payments := -run '^Test(Killed|Deferred|Same)' -skip '$(MEASURING)'
outbox := -run '^TestOutbox'
measuring := -run '$(MEASURING)'
others := -skip '^Test(Killed|Deferred|Same|Outbox)|$(MEASURING)'
# SQLite and its libc are C, translated to Go: with -race and its checks of pointers they use four times the CPU, and
# find nothing. The driver above them keeps both.
# Tests of pages and of the shape of the code parse all of it, and each text of an error is searched for secrets, with
# packages of Go that have tests of their own and change no memory of ours.
WITHOUT_RACE := modernc.org/sqlite/lib modernc.org/libc go/types go/parser go/ast go/scanner go/token go/constant regexp regexp/syntax unicode unicode/utf8
RACE := -race $(WITHOUT_RACE:%=-gcflags=%=-race=false)
# `make lint` runs vet. Without the tables for debuggers (-s -w) each of the hundred test programs links in 0.6 of the time.
# Tests that run make do not run it as a part of this one (MAKEFLAGS).
TEST = MAKEFLAGS= $(NICE) go test $(RACE) -vet=off -ldflags='-s -w' -count=1 -timeout $(TEST_TIMEOUT) -p $(TEST_PACKAGES) -parallel $(TEST_PARALLEL) $(TESTFLAGS)

# The modules whose tests take longest begin first, so that all end together.
LONGEST := . $(addprefix ./,dedup/sqlstore examples cmd/idem dedup/dynamostore test/browser test/auth test/drills test/release)
WAITING := $(addprefix ./,adapter/kgoidem adapter/kafkagoidem test/watermill)
TESTED := $(patsubst %,test-in-%,$(LONGEST) $(filter-out $(LONGEST) $(CHAOS) $(WAITING),$(MODULES)))
ROOT := $(firstword $(TESTED))
BESIDE := $(if $(PARTS),part-payments part-others $(ROOT) part-outbox,test-in-$(CHAOS) $(ROOT)) $(filter-out $(ROOT),$(TESTED))
# Beside the part that measures time run two modules at a time that mostly wait.
LAST := $(if $(PARTS),part-measuring) $(patsubst %,test-in-%,$(WAITING))

# FAILED has a line for each module that fails.
test-modules:
	@list=$$(mktemp); status=0; \
	FAILED="$$list" $(MAKE) --no-print-directory --keep-going --jobs=$(TEST_MODULES) $(BESIDE) || status=1; \
	FAILED="$$list" $(MAKE) --no-print-directory --keep-going --jobs=3 $(LAST) || status=1; \
	failed=($$(cat "$$list")); rm "$$list"; $(none-failed); exit $$status

# Workers that are killed must get their work done in time: the processors are theirs first.
NICE :=
RULES := $(BESIDE) $(LAST)
$(filter-out test-in-$(CHAOS),$(filter test-in-%,$(RULES))): NICE := nice -n 5
.PHONY: $(RULES)
$(filter test-in-%,$(RULES)): test-in-%:
	@failed=(); $(call in-modules,$*,$(TEST) ./...); $(note-failed)

$(filter part-%,$(RULES)): part-%:
	@echo "== $(CHAOS), $*"; failed=(); $(call in-modules,$(CHAOS),$(TEST) $($*) ./...); failed=("$${failed[@]/%/:$*}"); $(note-failed)

# What test/browser needs beside chromium, which the system's packages have. The lock file says which version, and its checksum.
browser-deps: test/browser/node_modules/.package-lock.json ## Install axe-core for the browser tests (once; needs npm)

test/browser/node_modules/.package-lock.json: test/browser/package-lock.json
	@cd test/browser && npm ci --ignore-scripts --no-audit --no-fund
	@touch $@

screenshots: browser-deps ## Take the pictures of docs/ops.md anew: docs/images/ops-*.png (needs chromium)
	@IDEM_REQUIRE_SERVICES=1 IDEM_REQUIRE_BROWSER=1 $(SERVICES) run go -C test/browser test -tags screenshots -count=1 -timeout 10m -run TestScreenshots .

PICTURES ?= $(CURDIR)/.pictures

pictures: browser-deps ## Keep a picture of each page that axe judges, light and dark, wide and narrow, in PICTURES
	@mkdir -p "$(PICTURES)"
	@IDEM_PICTURES="$(abspath $(PICTURES))" IDEM_REQUIRE_SERVICES=1 IDEM_REQUIRE_BROWSER=1 \
		$(SERVICES) run go -C test/browser test -count=1 -timeout 10m .

# On servers of its own, which it restarts: nothing else may use them meanwhile.
cells: ## Run every cell of the crash matrix, and write docs/proof.md (minutes)
	@IDEM_CELLS=all IDEM_CELLS_RESTART=1 IDEM_REQUIRE_SERVICES=1 $(SERVICES) run go -C test/cells test -count=1 -timeout 30m .

test-short: ## Unit tests of every module, no services needed
	@$(call each-module,go test -short -timeout $(TEST_TIMEOUT) $(TESTFLAGS) ./...)

# The workers of test/soak are the test binary: with the race detector, three million events would take hours. A seed is given back
# by IDEM_SEED.
soak: ## Three million events, 800 kills and 1,500 COMMITs that are cut, on all stores and clients; writes docs/proof.md (a quarter of an hour)
	@status=0; IDEM_SOAK=1 IDEM_REQUIRE_SERVICES=1 $(SERVICES) run go -C test/soak test -count=1 -timeout 240m -v . 2>&1 | \
		tee soak.log | grep --line-buffered -E 'soak: |SEED=|^ *--- FAIL|^(ok|FAIL|panic)' || status=1; \
	go -C test/soak run ./report ../../soak.log ../../docs/proof.md "$$(git rev-parse --short HEAD)"; exit $$status

# What each long test was made of and what came out is a line that begins with "soak:"; the rest is in long.log. A seed is given back
# by IDEM_SEED, and by IDEM_CHAOS_SEED in test/chaos. Tests that mostly wait run beside the others.
long-tests: ## The long forms of all other tests, against real services, with seeds, sizes, kills, cuts and what came out (hours)
	@IDEM_SOAK=1 NOTIFIER_SOAK=1 IDEM_REQUIRE_SERVICES=1 $(SERVICES) run $(MAKE) --no-print-directory long-modules 2>&1 | \
		tee long.log | grep --line-buffered -E 'soak: |drill: |SEED=|^ *--- FAIL|^(ok|FAIL|panic)'

LONG := test $(RACE) -count=1 -timeout 240m -p 1 -v

long-modules:
	@beside=$$(mktemp); \
	(failed=0; \
		go -C test/chaos $(LONG) -skip '$(MEASURING)' ./... || failed=1; \
		go -C examples $(LONG) ./... || failed=1; \
		IDEM_REQUIRE_DRILLS=1 go -C test/drills $(LONG) ./... || failed=1; \
		exit $$failed) >"$$beside" 2>&1 & \
	failed=0; \
	go $(LONG) . ./consumer/... ./runner ./lane ./dedup/... ./httpidem/... ./outbox/... || failed=1; \
	go -C cmd/idem $(LONG) ./... || failed=1; \
	wait $$! || failed=1; \
	cat "$$beside"; rm "$$beside"; \
	go -C test/chaos $(LONG) -run '$(MEASURING)' ./... || failed=1; \
	exit $$failed

# For one's own flags: make mutants MUTANTFLAGS='-only lane-watermark-off-by-one'; -list names the rows.
MUTANTFLAGS ?=

mutants: ## Plant faults in the safety-critical code, one at a time: a test must fail for each (half an hour)
	@$(SERVICES) run go run ./test/mutants $(MUTANTFLAGS)

# The drills start servers of their own: Postgres, Redis, PgBouncer and Kafka must be installed (make up, apt-get install pgbouncer).
drill: ## Fail servers over while workers handle events, and print what was lost and doubled (minutes); the rest is in drill.log
	@IDEM_SOAK=1 IDEM_REQUIRE_DRILLS=1 go -C test/drills test -race -count=1 -timeout 60m -v ./... 2>&1 | \
		tee drill.log | grep --line-buffered -E 'drill: |^ *--- FAIL|^(ok|FAIL|panic)'

race: ## Unit tests of every module with the race detector, no services needed
	@$(call each-module,go test -race -short -timeout $(TEST_TIMEOUT) $(TESTFLAGS) ./...)

# One linter checks all modules, in a workspace, so that it checks their common dependencies once. What the root module
# compiles has the versions of the root module. With others, and without -race, most packages would compile a second time
# for `make test`. The first run needs the network, for the go.mod files of dependencies.
LINT_WORK := $(CURDIR)/.bin/lint/go.work
LINT := GOWORK='$(LINT_WORK)' GOFLAGS='$(RACE)' .bin/golangci-lint run

lint: .bin/golangci-lint ## gofmt, golangci-lint (go vet is one of its linters), and shellcheck where it is installed
	@unformatted=$$(find . -name '*.go' -not -path './.*/*' -exec gofmt -l {} +); \
	if [[ -n $$unformatted ]]; then printf 'not gofmted (make fmt):\n%s\n' "$$unformatted"; exit 1; fi
	@mkdir -p .bin/lint; rm -f .bin/lint/go.work; GOWORK='$(LINT_WORK)' go work init $(MODULES)
	@GOWORK=off go list -deps -test -f '{{with .Module}}{{if not .Main}}{{.Path}}@{{.Version}}{{end}}{{end}}' ./... | \
		awk -F@ 'NF && !seen[$$1]++ { print "-replace=" $$1 "=" $$0 }' | GOWORK='$(LINT_WORK)' xargs go work edit
	@TIMEFORMAT='== golangci-lint: %0R s, of them %0U + %0S s on a CPU'; time $(LINT) $(MODULES:%=%/...)
	@for module in $(LIBRARIES); do go -C "$$module" mod tidy -diff || { echo "$$module/go.mod is not tidy (make tidy)"; exit 1; }; done
	@if command -v shellcheck >/dev/null; then shellcheck $(SERVICES) .ci/run; else echo 'shellcheck is not installed: the scripts were not checked'; fi

fmt: ## gofmt every file
	@find . -name '*.go' -not -path './.*/*' -exec gofmt -l -w {} +

tidy: ## go mod tidy in every module
	@$(call each-module,go mod tidy)
	@cd tools && go mod tidy

# The folder of the site.
SITE ?= $(CURDIR)/.site

# Versions and checksums are in tools/docs/requirements.txt. The first time needs PyPI. With --quiet, mkdocs would not count
# warnings, and dead links would pass.
docs: .bin/docs/installed ## Build docs/ as a site, .site/index.html; a dead link or anchor fails (needs Python 3 with venv)
	@NO_MKDOCS_2_WARNING=1 .bin/docs/bin/mkdocs build --config-file tools/docs/mkdocs.yml --site-dir '$(SITE)' 2>&1 | { grep -v '^INFO ' || true; }

.bin/docs/installed: tools/docs/requirements.txt
	@python3 -m venv --clear .bin/docs
	@.bin/docs/bin/pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

command-docs: ## Write the table of verbs in docs/command.md from the command itself
	@IDEM_WRITE_VERBS=1 go -C cmd/idem test -count=1 -run '^TestVerbTableInTheDocumentation$$' .

# For one's own flags: make bench BENCHFLAGS='-rows naive-postgres,idem-ontx -rounds 1'; -list names the rows.
BENCHFLAGS ?=

RELEASE = go -C test/release run . -root $(CURDIR) -modules '$(RELEASED)'

api: ## Write what changed in the API since the last release: api/next.txt
	@$(RELEASE) api

licences: ## Write THIRD_PARTY.md: the licences of what the released modules link
	@$(RELEASE) licences

licence-texts: ## Write the texts of the licences that the command's archive has: .release/LICENCES.txt
	@$(RELEASE) texts cmd/idem $(CURDIR)/.release/LICENCES.txt

# The versions of these tools are those of the workflows and of .goreleaser.yaml; a test compares them.
GORELEASER := go run github.com/goreleaser/goreleaser/v2@v2.15.2
CYCLONEDX := go run github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0

sbom: ## Write the list of modules in the command as CycloneDX: .release/idem.cdx.json
	@mkdir -p .release
	@CGO_ENABLED=0 go -C cmd/idem build -trimpath -o $(CURDIR)/.release/idem .
	@$(CYCLONEDX) bin -json -std -output .release/idem.cdx.json .release/idem

goreleaser-check: ## Check .goreleaser.yaml with goreleaser itself (the first time builds it, in many minutes)
	@$(GORELEASER) check

snapshot: ## Build the archives, checksums and SBOMs of a release in dist/, without a tag; nothing is published
	@$(GORELEASER) release --snapshot --clean

release-check: ## Check that the modules can be released: API and changelog, replace lines, tidy go.mods, code in pages, a build as users get it
	@$(RELEASE) check

# VERSION is that of the release, such as 0.1.0. REMOTE gets the tags. PUSH=1 makes and pushes them.
VERSION ?=
REMOTE ?= origin
PUSH ?=

release-prepare: ## Date the changelog's section Unreleased as VERSION, and take the API of now as released
	@$(RELEASE) -version '$(VERSION)' prepare

release: ## Check each step of the release VERSION, a dry run; PUSH=1 makes the tags of all modules and pushes them
	@$(RELEASE) -version '$(VERSION)' -remote '$(REMOTE)' $(if $(filter 1,$(PUSH)),-push) publish

release-notes: ## Write the changelog's section of VERSION to .release/NOTES.md
	@$(RELEASE) -version '$(VERSION)' notes $(CURDIR)/.release/NOTES.md

# The tag of the root module names the release; other modules have tags at the same commit.
release-archives: ## Build the archives of VERSION and write them into a draft (the workflow release does)
	@GORELEASER_CURRENT_TAG=v$(patsubst v%,%,$(VERSION)) $(GORELEASER) release --clean --release-notes .release/NOTES.md

GOVULNCHECK := go run golang.org/x/vuln/cmd/govulncheck@v1.9.0

vulnerabilities: ## Look for published faults that the code of released modules and examples can reach (needs vuln.go.dev)
	@failed=(); $(call in-modules,$(LIBRARIES),$(GOVULNCHECK) ./...); $(none-failed)

bench: ## Measure Idem against others and against the SQL alone: bench.md, bench.svg, bench.json (on a machine that does nothing else)
	@$(SERVICES) run go -C test/bench run . -json $(CURDIR)/bench.json -markdown $(CURDIR)/bench.md -svg $(CURDIR)/bench.svg $(BENCHFLAGS)

bench-quick: ## The core rows once, in less than three minutes; fails if a ratio is far below the wanted one
	@$(MAKE) --no-print-directory bench BENCHFLAGS='-quick $(BENCHFLAGS)'

up: ## Start Kafka, Postgres, MariaDB, Redis and DynamoDB Local and wait until they are healthy
	@$(SERVICES) up
	@$(SERVICES) status
	@$(SERVICES) env

down: ## Stop them and remove their data
	@$(SERVICES) down

example-orderstatus: ## Run the orderstatus example in the foreground, against real services
	@$(SERVICES) run bash -euo pipefail -c '\
		$(SERVICES) kafka topics --create --if-not-exists --topic payments --partitions 6; \
		echo "To send payments from another terminal, see examples/orderstatus/README.md; by hand, one a line:"; \
		echo "  $(SERVICES) kafka console-producer --topic payments"; \
		exec go -C examples run ./orderstatus -brokers "$$KAFKA_BROKERS" -postgres "$$POSTGRES_URL" \
			-migrate -seed 100 -topic payments -group orderstatus'

# Built once, and again when tools/ names another version.
.bin/golangci-lint: tools/go.mod tools/go.sum
	@echo 'building golangci-lint (once; a few minutes)'
	@mkdir -p .bin
	@cd tools && go build -ldflags '-s -w' -o ../$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint
