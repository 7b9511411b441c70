# Ponor: every target says what it is for with 'make help'.
GO      ?= go
BIN     ?= bin
GOLANGCI ?= $(shell $(GO) env GOPATH)/bin/golangci-lint
FUZZ    ?= 10s
SEEDS   ?= 50
SEED    ?= 1
CORE    ?= ./commitlog/... ./rpc/... ./metadata/... ./partition/... ./sharedlog/... ./locallog/... ./controller/... ./coordinator/... ./broker/...

.PHONY: help build run test race lint model fuzz powerloss outage bench bench-cluster bench-scale bench-failover bench-kafka bench-groups compare clients clients-s3 mutants proto sim jepsen jepsen-matrix jepsen-clients plants clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## Build bin/ponor
	$(GO) build -trimpath -o $(BIN)/ponor ./cmd/node

run: build ## Start a three-node demo cluster on this machine
	$(BIN)/ponor demo

test: ## Run all tests that need Go alone
	$(GO) test -timeout 20m ./...
	cd internal/s3test && $(GO) test -timeout 20m ./...

race: ## Run the core packages' tests under the race detector
	bash deploy/ci/race.sh $(CORE)

lint: ## Check format and lint rules (installs golangci-lint with 'make lint-install')
	$(GOLANGCI) run ./...

lint-install: ## Install the linter
	$(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

model: ## Explore the model of the shared log's rules in full, in about ten minutes and 3 GiB
	GOGC=50 GOMEMLIMIT=2500MiB $(GO) test -count=1 -v -timeout 120m ./metadata/model -model.full

fuzz: ## Fuzz every decoder for FUZZ (10s) each
	sh deploy/ci/fuzz.sh $(FUZZ)

bench: ## Run the Go benchmarks
	$(GO) test -run '^$$' -bench . -benchmem -benchtime 200ms -timeout 30m $(CORE) ./internal/crc32c ./cmd/node/process

bench-cluster: build ## Measure a cluster of three processes
	$(GO) run ./deploy/bench

bench-scale: build ## Measure idle clusters, fetch sessions, 100,000 partitions and store requests
	$(GO) run ./deploy/bench -scale

bench-failover: build ## Measure what clients see of deaths, moves and restarts (KAFKA=1: of Apache Kafka's, too)
	$(GO) run ./deploy/bench -failover $(if $(KAFKA),-kafka)

bench-kafka: build ## Measure it and Apache Kafka in turns (needs Java and deploy/kafka/kafka.sh fetch)
	$(GO) run ./deploy/bench -kafka -rounds 3

bench-groups: build ## Measure consumer groups of both (needs the same)
	$(GO) run ./deploy/bench -groups -kafka -rounds 3

compare: build ## Send the same requests of groups to it and to Apache Kafka and print where answers differ (needs the same)
	$(GO) run ./deploy/compare

clients: build ## Test with kcat, the Java tools and consumers, librdkafka, kafka-python and franz-go's own suite; groups under kills
	bash deploy/ci/clients.sh

clients-s3: build ## The same with the logs in an S3 server in memory
	STORE=s3 bash deploy/ci/clients.sh $(if $(CLIENTS),-run '$(CLIENTS)')

mutants: ## Break each rule of the shared log and see its test fail, in about 15 minutes; ONLY chooses some
	$(GO) run ./internal/mutants -only '$(ONLY)'

sim: ## Simulate a cluster under faults on virtual time: SEEDS (50) from SEED (1)
	$(GO) test -tags synctests ./jepsen/sim -run TestSeeds -v -timeout 0 -sim.seeds $(SEEDS) -sim.seed $(SEED)

jepsen: TIME = 20s
jepsen: RUNS = queue/none queue/kill queue/pause queue/move groups/kill
jepsen: build ## Hurt a cluster of processes and judge what its clients saw: RUNS (five) of TIME (20s)
	set -e; for run in $(RUNS); do echo "== $$run"; \
		$(BIN)/ponor jepsen run --time $(TIME) --workload $${run%/*} --nemesis $${run#*/} --out jepsen-runs/ci-$$(date +%s)-$${run%/*}-$${run#*/}; done

jepsen-clients: build ## The same with clients of librdkafka and Java: CLIENTS, RUNS of TIME (30s)
	bash deploy/ci/jepsen-clients.sh

jepsen-matrix: TIME = 1m
jepsen-matrix: HOURS = 4
jepsen-matrix: PARALLEL = 3
jepsen-matrix: SEED = 1
jepsen-matrix: build ## Run all workloads with all faults: HOURS (4) of runs of TIME (1m), PARALLEL (3) at a time, from SEED (1)
	$(GO) run ./deploy/matrix -time $(TIME) -hours $(HOURS) -parallel $(PARALLEL) -seed $(SEED)

plants: ## Plant one bug at a time and see the correctness tests find it, in about an hour; ONLY chooses some
	$(GO) build -trimpath -tags plant -o $(BIN)/ponor-plant ./cmd/node
	$(GO) run ./deploy/plants -only '$(ONLY)'

outage: ## Serve for DURATION (10m) without a metadata quorum, at RATE (10000) records of 1 KiB a second
	$(GO) test -count=1 -v -timeout 60m ./internal/systest -run TestServiceThroughAMetadataOutage -outage $(or $(DURATION),10m) -outage.rate $(or $(RATE),10000)

powerloss: SEEDS = 5000
powerloss: SHELL = bash
powerloss: .SHELLFLAGS = -o pipefail -c
powerloss: ## Cut the power under every store SEEDS (5000) times and more, from SEED (1)
	$(GO) test -count=1 -timeout 0 -v -run 'PowerLoss|PowerCuts' ./sharedlog/objstore/dir ./locallog ./controller \
		-powerloss.seeds $(SEEDS) -powerloss.seed $(SEED) | grep -v -e '^=== ' -e '^ *--- PASS'

proto: ## Regenerate the protobuf code (needs protoc and protoc-gen-go)
	protoc --go_out=. --go_opt=paths=source_relative metadata/metadatapb/*.proto controller/controllerpb/*.proto

clean: ## Remove what was built
	rm -rf $(BIN)
