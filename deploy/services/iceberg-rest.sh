#!/usr/bin/env bash
# The REST catalog server of Apache Iceberg's own tests on loopback, with its tables
# listed in SQLite and their files in a local folder.
#   iceberg-rest.sh start|stop|status|env|clean
#   iceberg-rest.sh kill | restart | pause | resume
#   iceberg-rest.sh log
# Env: ICEBERG_REST_PORT (19181), ICEBERG_REST_HEAP (256m).
. "$(dirname "${BASH_SOURCE[0]}")/_lib.sh"
init_service iceberg-rest
. "$(dirname "${BASH_SOURCE[0]}")/_process.sh"

# The server is published with this release only.
RELEASE=1.10.0
DIST=$SERVICES_DOWNLOADS/iceberg-rest-$RELEASE
PORT=${ICEBERG_REST_PORT:-${CUR:-19181}}
SHAPE=$PORT TITLE="the Iceberg REST catalog" NEEDS=(java curl)
URL=http://$SERVICE_HOST:$PORT
WAREHOUSE=$STATE/data/warehouse

fetch() {
  maven_libs "$1" "org.apache.iceberg:iceberg-open-api:$RELEASE:test-fixtures" \
    "org.apache.iceberg:iceberg-core:$RELEASE" "org.apache.iceberg:iceberg-core:$RELEASE:tests" \
    org.eclipse.jetty:jetty-servlet:11.0.26 org.xerial:sqlite-jdbc:3.50.3.0 org.slf4j:slf4j-simple:2.0.17 \
    org.apache.hadoop:hadoop-client-api:3.5.0 org.apache.hadoop:hadoop-client-runtime:3.5.0
}

answers() { http_ok "$URL/v1/config"; }
run() {
  mkdir -p "$WAREHOUSE"
  # Its own name for the catalog is rest_backend; what follows CATALOG_ is a property.
  spawn "$PIDFILE" "$LOG" env REST_PORT="$PORT" CATALOG_REST_PORT="$PORT" CATALOG_WAREHOUSE="file://$WAREHOUSE" \
    CATALOG_URI="jdbc:sqlite:$STATE/data/catalog.db" CATALOG_CLIENTS=1 \
    java -Xmx"${ICEBERG_REST_HEAP:-256m}" -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "$DIST/lib/*" org.apache.iceberg.rest.RESTCatalogServer
}
print_env() { put_env ICEBERG_REST_URL "$URL"; }

serve "$@"
