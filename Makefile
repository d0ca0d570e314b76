# The project's commands. On a bare Debian: apt-get install make ca-certificates.
GO ?= go
RIG = $(GO) run ./tests/rig/cmd/rig
RELEASE = $(GO) run ./internal/release/cmd/release

.PHONY: build test demo faults bench bench-fleet bench-map bench-rebuild tofu deps dist dist-verify notes docs fmt lint fuzz

build: ## the program, in bin/
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-X github.com/deploy-ssh/deploy-ssh/internal/cli.Version=$$($(RELEASE) version)" -o bin/deploy-ssh ./cmd/deploy-ssh

# Without Go's test cache, which doesn't see the sources of what tests build with `go build`.
test: deps ## everything: format, vet, unit tests, real hosts
	@out=$$(gofmt -l .); [ -z "$$out" ] || { echo "not gofmt-ed: $$out"; exit 1; }
	$(GO) vet ./...
	RIG=required $(GO) test -race -count=1 -parallel 6 -timeout 40m ./...

demo: deps ## two real hosts, deployed to, and left running to look at
	$(RIG) demo

faults: deps ## the fault matrix: what goes wrong × the verdict, with the time to it
	@RIG=required $(GO) test -timeout 40m -count=1 -v -run 'TestFaults|TestBootLoaders|TestGoals|TestElevation|TestContainer|TestRollbackAndStatus' ./tests/scenario | grep -v -e '^=== ' -e '^ *rig '

bench: deps ## copies by deploy-ssh and by Nix over three links; an hour, on a machine that does nothing else; goes on where it was stopped
	$(GO) run ./tests/bench
	$(GO) run ./tests/bench -paths 3000 -mib 600 -cases full
	$(GO) run ./tests/bench -paths 1 -mib 500 -cases full -links loopback

HOSTS ?= 20
bench-fleet: deps ## runs over many hosts (HOSTS=100): time, CPU, memory and processes; on a machine that does nothing else
	$(GO) run ./tests/bench/fleet -hosts $(HOSTS)
	$(GO) run ./tests/bench/fleet -hosts $(HOSTS) -rtt 50ms -loop

# The module has a go.mod of its own, which follows the project's by itself.
tofu: deps ## the OpenTofu module with the real tofu, whose build takes minutes the first time
	cd tests/tofu && CGO_ENABLED=0 $(GO) build -mod=mod -trimpath -o ../../bin/tofu github.com/opentofu/opentofu/cmd/tofu
	cd tests/tofu && TOFU=../../bin/tofu RIG=required $(GO) test -mod=mod -count=1 -timeout 30m -v .

bench-rebuild: deps ## a deploy beside the remote commands of nixos-rebuild, over three links; ten minutes, on a machine that does nothing else
	$(GO) run ./tests/bench/rebuild

bench-map: ## a map of a thousand nodes, and the second run of an unchanged flake
	$(GO) test -run '^$$' -bench 'ThousandNodes|UnchangedFlake' -benchtime 5x ./internal/cli

deps: ## what this machine lacks, and the hosts' root file system
	$(RIG) deps

dist: ## archives for Linux and (untried) Darwin, with manual, completions and sums, in dist/
	$(RELEASE) dist

dist-verify: ## the archives twice, from two folders and with two caches: both must be the same bytes
	$(RELEASE) verify

notes: ## what CHANGELOG.md says of VERSION, in dist/notes.md
	@mkdir -p dist
	$(RELEASE) notes "$(VERSION)" >dist/notes.md

docs: ## man pages, the reference and the tables of the guides, from the program
	$(GO) run ./internal/docs/cmd/docs

fmt:
	gofmt -w .

lint: ## linters that are no part of the test run, since they need the network
	$(GO) run honnef.co/go/tools/cmd/staticcheck@latest ./...
	$(GO) run golang.org/x/vuln/cmd/govulncheck@latest ./...

fuzz: ## each fuzz test for half a minute
	@for p in $$($(GO) list ./...); do \
	  for f in $$($(GO) test -list '^Fuzz' $$p | grep '^Fuzz'); do \
	    echo "$$p $$f"; $(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime 30s $$p || exit 1; \
	  done; done
