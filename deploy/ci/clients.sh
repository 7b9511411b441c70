#!/usr/bin/env bash
# Install the clients in other languages and run the tests that drive them.
# Needs Java and Maven, Python 3, and either kcat or the right to install it.
# STORE=s3 keeps the clusters' logs in an S3 server in memory instead of
# directories. Arguments go to 'go test': -run chooses tests.
set -euo pipefail
cd "$(dirname "$0")/../.."
if ! command -v kcat >/dev/null; then
  apt-get update -qq && apt-get install -y -qq kcat
fi
. deploy/ci/client-libs.sh
export SYSTEST_BINARY=$PWD/bin/ponor
case ${STORE:-dir} in
dir) ;;
s3)
  export AWS_ACCESS_KEY_ID=id AWS_SECRET_ACCESS_KEY=secret AWS_REGION=us-east-1 AWS_EC2_METADATA_DISABLED=true
  export AWS_CONFIG_FILE=/dev/null AWS_SHARED_CREDENTIALS_FILE=/dev/null
  (cd internal/s3test && go build -o ../../bin/s3serve ./serve)
  coproc S3 { exec bin/s3serve; } # ends with this script, whose end it reads from
  read -r SYSTEST_STORE <&"${S3[0]}"
  export SYSTEST_STORE
  echo "clusters keep their logs in $SYSTEST_STORE"
  ;;
*)
  echo "STORE=$STORE: dir or s3" >&2
  exit 2
  ;;
esac
go test -tags clients -count=1 -timeout 40m -run 'Client' "$@" ./internal/systest
