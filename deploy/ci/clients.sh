#!/usr/bin/env bash
# Install the clients in other languages and run the tests that drive them.
# Needs Java and Maven, Python 3, and either kcat or the right to install it.
set -euo pipefail
cd "$(dirname "$0")/../.."
if ! command -v kcat >/dev/null; then
  apt-get update -qq && apt-get install -y -qq kcat
fi
export KAFKA_LIBS=${KAFKA_LIBS:-$PWD/.cache/apache-kafka}
bash deploy/kafka/kafka.sh fetch
venv=$PWD/.cache/python-clients
if [ ! -x "$venv/bin/python" ]; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install -q kafka-python==3.0.12 confluent-kafka==2.16.1
fi
export PYTHON_CLIENTS=$venv/bin/python PONOR_BINARY=$PWD/bin/ponor
go test -tags clients -count=1 -timeout 15m -run 'Client' "$@" ./internal/systest
