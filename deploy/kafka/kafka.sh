#!/usr/bin/env bash
# Apache Kafka from its published jars, to compare with and to take its tools
# from. Needs Java 17 and, for fetch, Maven.
#
#   kafka.sh fetch                    download the jars once
#   kafka.sh tool CLASS [ARG...]      run one of its command-line tools
#   kafka.sh start DIR [KEY=VALUE...] start three combined nodes in DIR
#   kafka.sh launch DIR NODE          start one of them again
#   kafka.sh stop DIR                 stop them
#
# Environment: KAFKA_VERSION (4.4.0), KAFKA_LIBS (where the jars are),
# KAFKA_PORT (first port, 29092; a node takes two), KAFKA_HEAP (-Xms1g -Xmx1g).
set -euo pipefail
version=${KAFKA_VERSION:-4.4.0}
libs=${KAFKA_LIBS:-${XDG_CACHE_HOME:-$HOME/.cache}/apache-kafka/$version}
port=${KAFKA_PORT:-29092}
nodes=3

fetch() {
  [ -e "$libs/.complete" ] && return
  local pom
  pom=$(mktemp -d)
  {
    echo '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
    echo '<groupId>ponor</groupId><artifactId>kafka-tools</artifactId><version>1</version><dependencies>'
    for dep in org.apache.kafka:kafka_2.13:$version org.apache.kafka:kafka-tools:$version org.apache.logging.log4j:log4j-slf4j-impl:2.25.4; do
      IFS=: read -r group artifact v <<<"$dep"
      echo "<dependency><groupId>$group</groupId><artifactId>$artifact</artifactId><version>$v</version></dependency>"
    done
    echo '</dependencies></project>'
  } >"$pom/pom.xml"
  mkdir -p "$libs"
  mvn -q -B -f "$pom/pom.xml" dependency:copy-dependencies -DoutputDirectory="$libs" >&2
  rm -rf "$pom"
  touch "$libs/.complete"
}

quiet_logging() { # FILE
  printf 'status=error\nrootLogger.level=error\nrootLogger.appenderRef.err.ref=ERR\nappender.err.type=Console\nappender.err.name=ERR\nappender.err.target=SYSTEM_ERR\nappender.err.layout.type=PatternLayout\nappender.err.layout.pattern=%%p %%m%%n\n' >"$1"
}

properties() { # DIR NODE VOTERS KEY=VALUE...
  local dir=$1 i=$2 voters=$3
  shift 3
  cat <<EOF
process.roles=broker,controller
node.id=$i
controller.quorum.voters=$voters
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:$((port + 2 * i - 2)),CONTROLLER://127.0.0.1:$((port + 2 * i - 1))
log.dirs=$dir/data$i
default.replication.factor=3
min.insync.replicas=2
offsets.topic.replication.factor=3
transaction.state.log.replication.factor=3
EOF
  printf '%s\n' "$@"
}

launch() { # DIR NODE
  # shellcheck disable=SC2086
  setsid java ${KAFKA_HEAP:--Xms1g -Xmx1g} -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -Dlog4j2.configurationFile="$1/log4j2.properties" \
    -cp "$libs/*" kafka.Kafka "$1/node$2.properties" >>"$1/node$2.log" 2>&1 </dev/null &
  echo $! >"$1/node$2.pid"
}

start() { # DIR KEY=VALUE...
  local dir=$1 voters="" i
  shift
  mkdir -p "$dir"
  quiet_logging "$dir/log4j2.properties"
  for i in $(seq $nodes); do voters+="${voters:+,}$i@127.0.0.1:$((port + 2 * i - 1))"; done
  for i in $(seq $nodes); do
    properties "$dir" "$i" "$voters" "$@" >"$dir/node$i.properties"
    if [ ! -d "$dir/data$i" ]; then
      java -Dlog4j2.configurationFile="$dir/log4j2.properties" -cp "$libs/*" kafka.tools.StorageTool \
        format -t AAAAAAAAQACAAAAAAAAAAQ -c "$dir/node$i.properties" >/dev/null
    fi
    launch "$dir" "$i"
  done
  echo "127.0.0.1:$port,127.0.0.1:$((port + 2)),127.0.0.1:$((port + 4))"
}

stop() { # DIR
  local f
  for f in "$1"/node*.pid; do kill "$(cat "$f")" 2>/dev/null || true; done
  for f in "$1"/node*.pid; do while kill -0 "$(cat "$f")" 2>/dev/null; do sleep 0.1; done; done
}

tool() { # CLASS ARG...
  local conf
  conf=${TMPDIR:-/tmp}/kafka-tool-log4j2.properties
  [ -e "$conf" ] || quiet_logging "$conf"
  exec java -Xmx512m -Dlog4j2.configurationFile="$conf" -cp "$libs/*" "$@"
}

case ${1:-} in
  fetch | start | launch | stop | tool) "$@" ;;
  *) sed -n '2,13s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
