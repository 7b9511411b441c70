#!/usr/bin/env bash
# Apache Kafka from its published jars, to compare with and to take its tools
# from. Needs Java 17 and, for fetch, Maven.
#
#   kafka.sh fetch                    download the jars once
#   kafka.sh tool CLASS [ARG...]      run one of its command-line tools
#   kafka.sh start DIR [KEY=VALUE...] start KAFKA_NODES combined nodes in DIR, and
#                                     print where they can be reached when they can
#   kafka.sh launch DIR NODE          start one of them again
#   kafka.sh kill DIR NODE            kill -9 one of them
#   kafka.sh pause DIR NODE           SIGSTOP it, and
#   kafka.sh resume DIR NODE          let it go on
#   kafka.sh state DIR NODE           print what its process is
#   kafka.sh stop DIR [NODE]          stop all, or one of them, in order
#
# Environment: KAFKA_VERSION (4.4.0), KAFKA_LIBS (where the jars are), KAFKA_NODES (3),
# KAFKA_PORT (first port, 29092; a node takes two), KAFKA_HEAP (-Xms1g -Xmx1g).
set -euo pipefail
version=${KAFKA_VERSION:-4.4.0}
libs=${KAFKA_LIBS:-${XDG_CACHE_HOME:-$HOME/.cache}/apache-kafka/$version}
port=${KAFKA_PORT:-29092}
nodes=${KAFKA_NODES:-3}

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

client_port() { echo $((port + 2 * $1 - 2)); } # NODE

properties() { # DIR NODE VOTERS KEY=VALUE...
  local dir=$1 i=$2 voters=$3
  shift 3
  cat <<EOF
process.roles=broker,controller
node.id=$i
controller.quorum.voters=$voters
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:$(client_port "$i"),CONTROLLER://127.0.0.1:$((port + 2 * i - 1))
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
  local dir=$1 voters="" addrs="" i
  shift
  mkdir -p "$dir"
  quiet_logging "$dir/log4j2.properties"
  for i in $(seq "$nodes"); do
    if served "$i"; then
      echo "kafka.sh: port $(client_port "$i") is taken; KAFKA_PORT is the first of those to use" >&2
      return 1
    fi
    voters+="${voters:+,}$i@127.0.0.1:$((port + 2 * i - 1))"
    addrs+="${addrs:+,}127.0.0.1:$(client_port "$i")"
  done
  for i in $(seq "$nodes"); do
    properties "$dir" "$i" "$voters" "$@" >"$dir/node$i.properties"
    if [ ! -d "$dir/data$i" ]; then
      java -Dlog4j2.configurationFile="$dir/log4j2.properties" -cp "$libs/*" kafka.tools.StorageTool \
        format -t AAAAAAAAQACAAAAAAAAAAQ -c "$dir/node$i.properties" >/dev/null
    fi
    launch "$dir" "$i"
  done
  for i in $(seq "$nodes"); do
    await_served "$dir" "$i" || { stop "$dir"; return 1; }
  done
  echo "$addrs"
}

served() { (: <>"/dev/tcp/127.0.0.1/$(client_port "$1")") 2>/dev/null; } # NODE

await_served() { # DIR NODE
  until served "$2"; do
    if gone "$(pid_of "$1" "$2")"; then
      echo "kafka.sh: node $2 of Kafka has ended: $(tail -n 3 "$1/node$2.log")" >&2
      return 1
    fi
    sleep 0.05
  done
}

gone() { # PID
  case $(ps -o stat= -p "${1:-0}" 2>/dev/null) in '' | Z*) ;; *) return 1 ;; esac
}

pid_of() { cat "$1/node$2.pid" 2>/dev/null || true; } # DIR NODE

state() { # DIR NODE
  local pid
  pid=$(pid_of "$1" "$2")
  if gone "$pid"; then echo "pid $pid is gone"; else echo "pid $pid state $(ps -o stat= -p "$pid")"; fi
}

signal() { # SIGNAL DIR NODE
  local pid
  pid=$(pid_of "$2" "$3")
  gone "$pid" || kill "-$1" "$pid"
}

await_gone() { # DIR NODE
  until gone "$(pid_of "$1" "$2")"; do sleep 0.05; done
}

kill_node() { signal KILL "$@" && await_gone "$@"; }
pause() { signal STOP "$@"; }
resume() { signal CONT "$@"; }

stop() { # DIR [NODE]
  local i list=${2:-$(seq $nodes)}
  for i in $list; do signal TERM "$1" "$i" && signal CONT "$1" "$i"; done
  for i in $list; do await_gone "$1" "$i"; done
}

tool() { # CLASS ARG...
  local conf
  conf=${TMPDIR:-/tmp}/kafka-tool-log4j2.properties
  [ -e "$conf" ] || quiet_logging "$conf"
  exec java -Xmx512m -Dlog4j2.configurationFile="$conf" -cp "$libs/*" "$@"
}

case ${1:-} in
  fetch | start | launch | pause | resume | state | stop | tool) "$@" ;;
  kill) kill_node "${@:2}" ;;
  *) sed -n '2,19s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
