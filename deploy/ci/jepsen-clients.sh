#!/usr/bin/env bash
# Hurt a cluster under the load of clients in other languages. Arguments go to
# 'ponor jepsen run'. Environment: CLIENTS (librdkafka java), RUNS (queue/kill
# queue/move) and TIME (30s). Needs Java and Maven, and Python 3.
set -euo pipefail
cd "$(dirname "$0")/../.."
. deploy/ci/client-libs.sh
for client in ${CLIENTS:-librdkafka java}; do
  for run in ${RUNS:-queue/kill queue/move}; do
    echo "== $client $run"
    bin/ponor jepsen run --client "$client" --time "${TIME:-30s}" --workload "${run%/*}" --nemesis "${run#*/}" \
      --out "jepsen-runs/clients-$(date +%s)-$client-${run%/*}-${run#*/}" "$@"
  done
done
