#!/usr/bin/env bash
# A real OpenSearch node on loopback, from its jars, without plugins and security.
#   opensearch.sh start|stop|status|env|clean
#   opensearch.sh kill | restart | pause | resume
#   opensearch.sh log
# Env: OPENSEARCH_PORT (19820), OPENSEARCH_TRANSPORT_PORT (19821), OPENSEARCH_HEAP (512m).
. "$(dirname "${BASH_SOURCE[0]}")/_lib.sh"
init_service opensearch
. "$(dirname "${BASH_SOURCE[0]}")/_process.sh"

OPENSEARCH_VERSION=2.19.6
LOG4J_VERSION=2.25.4
MAIN=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/opensearch/EmbeddedNode.java
DIST=$SERVICES_DOWNLOADS/opensearch-$OPENSEARCH_VERSION
PORT=${OPENSEARCH_PORT:-${CUR:-19820}}
SHAPE=$PORT TITLE=OpenSearch NEEDS=(java javac curl)
TRANSPORT=${OPENSEARCH_TRANSPORT_PORT:-$((PORT + 1))}

fetch() {
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
run() {
  spawn "$PIDFILE" "$LOG" java "-Xms${OPENSEARCH_HEAP:-512m}" "-Xmx${OPENSEARCH_HEAP:-512m}" \
    -cp "$DIST/classes:$DIST/lib/*" EmbeddedNode "path.home=$STATE/home" "path.data=$STATE/data" \
    cluster.name=etl node.name=node-1 discovery.type=single-node "network.host=$SERVICE_HOST" "http.port=$PORT" \
    "transport.port=$TRANSPORT" cluster.routing.allocation.disk.threshold_enabled=false
}
arrange() { mkdir -p "$STATE/home/config" "$STATE/data"; }
remove_data() { rm -rf "$STATE/data" "$STATE/home"; }
print_env() { put_env OPENSEARCH_URL "http://$SERVICE_HOST:$PORT"; }

serve "$@"
