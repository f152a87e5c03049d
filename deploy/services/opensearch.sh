#!/usr/bin/env bash
# A real OpenSearch node on loopback, from its jars, without plugins and security.
#   opensearch.sh start|stop|status|env|clean
#   opensearch.sh kill | restart | pause | resume
#   opensearch.sh log
# Env: OPENSEARCH_PORT (19820), OPENSEARCH_TRANSPORT_PORT (19821), OPENSEARCH_HEAP (512m).
. "$(dirname "${BASH_SOURCE[0]}")/_lib.sh"
init_service opensearch

OPENSEARCH_VERSION=2.19.6
LOG4J_VERSION=2.25.4
MAIN=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/opensearch/EmbeddedNode.java
DIST=$SERVICES_DOWNLOADS/opensearch-$OPENSEARCH_VERSION
read_current() {
  if [ -s "$STATE/current" ]; then read -r CUR_PORT <"$STATE/current"; else CUR_PORT=; fi
}
read_current
PORT=${OPENSEARCH_PORT:-${CUR_PORT:-19820}}
TRANSPORT=${OPENSEARCH_TRANSPORT_PORT:-$((PORT + 1))}
PIDFILE=$STATE/pid
LOG=$STATE/opensearch.log

install_opensearch() {
  maven_libs "$1" "org.opensearch:opensearch:$OPENSEARCH_VERSION" \
    "org.opensearch.plugin:transport-netty4-client:$OPENSEARCH_VERSION" \
    "org.apache.logging.log4j:log4j-core:$LOG4J_VERSION" || return 1
  mkdir -p "$1/classes"
  javac -d "$1/classes" -cp "$1/lib/*" "$MAIN" || return 1
  cat >"$1/classes/log4j2.properties" <<'EOF'
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c %m%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
EOF
}

answers() { curl -sf -m 3 "http://$SERVICE_HOST:$PORT/_cluster/health?wait_for_status=yellow&timeout=1s" -o /dev/null; }
launch() {
  require_free_port "$PORT"
  mkdir -p "$STATE/home/config" "$STATE/data"
  spawn "$PIDFILE" "$LOG" java "-Xms${OPENSEARCH_HEAP:-512m}" "-Xmx${OPENSEARCH_HEAP:-512m}" \
    -cp "$DIST/classes:$DIST/lib/*" EmbeddedNode "path.home=$STATE/home" "path.data=$STATE/data" \
    cluster.name=etl node.name=node-1 discovery.type=single-node "network.host=$SERVICE_HOST" "http.port=$PORT" \
    "transport.port=$TRANSPORT" cluster.routing.allocation.disk.threshold_enabled=false
  wait_until "$PIDFILE" "$LOG" "OpenSearch" answers
}
start() {
  local t0=$SECONDS
  need flock setsid java javac curl
  lock_service
  if alive "$PIDFILE"; then
    [ "$CUR_PORT" = "$PORT" ] || die "already runs with OPENSEARCH_PORT=$CUR_PORT: stop it first"
    wait_until "$PIDFILE" "$LOG" "OpenSearch" answers
  else
    install_once "$DIST" install_opensearch
    echo "$PORT" >"$STATE/current"
    launch
  fi
  say "answers on $SERVICE_HOST:$PORT after $((SECONDS - t0)) s"
}
stop() { lock_service; stop_pid "$PIDFILE"; rm -f "$STATE/current"; say stopped; }
status() {
  local p
  if p=$(pid_of "$PIDFILE"); then
    if answers; then s=answers; else s='does not answer'; fi
    echo "opensearch: pid $p, $SERVICE_HOST:$PORT $s, RSS $(rss_mib "$PIDFILE") MiB"
    [ "$s" = answers ] || return 1
  else
    echo "opensearch: not running"; return 3
  fi
}
must_run() { p=$(pid_of "$PIDFILE") || die "not running"; }

case ${1:-} in
  start) start ;;
  stop) stop ;;
  status) status ;;
  env) put_env OPENSEARCH_URL "http://$SERVICE_HOST:$PORT" ;;
  clean) stop; rm -rf "$STATE/data" "$STATE/home"; say "data removed" ;;
  kill) lock_service; must_run; stop_pid "$PIDFILE" KILL; say killed ;;
  restart) lock_service; stop_pid "$PIDFILE"; echo "$PORT" >"$STATE/current"; launch; say "answers again" ;;
  pause) must_run; kill -s STOP "$p"; say paused ;;
  resume) must_run; kill -s CONT "$p"; say resumed ;;
  log) echo "$LOG" ;;
  *) sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
