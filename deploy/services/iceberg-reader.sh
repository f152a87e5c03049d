#!/usr/bin/env bash
# The Java library of Apache Iceberg, which tests read tables with, deletes included. It
# is no server: start fetches it.
#   iceberg-reader.sh start|stop|status|env|clean
# Env: ICEBERG_VERSION (1.12.0).
. "$(dirname "${BASH_SOURCE[0]}")/_lib.sh"
init_service iceberg-reader
read_current() { :; }

ICEBERG_VERSION=${ICEBERG_VERSION:-1.12.0}
# Its Parquet reader needs classes of Hadoop's.
HADOOP_VERSION=3.5.0
DIST=$SERVICES_DOWNLOADS/iceberg-reader-$ICEBERG_VERSION

install_libs() {
  maven_libs "$1" "org.apache.iceberg:iceberg-core:$ICEBERG_VERSION" "org.apache.iceberg:iceberg-data:$ICEBERG_VERSION" \
    "org.apache.iceberg:iceberg-parquet:$ICEBERG_VERSION" "org.apache.hadoop:hadoop-client-api:$HADOOP_VERSION" \
    "org.apache.hadoop:hadoop-client-runtime:$HADOOP_VERSION" org.slf4j:slf4j-nop:2.0.17
}

start() {
  local t0=$SECONDS
  need java flock
  lock_service
  install_once "$DIST" install_libs
  say "ready after $((SECONDS - t0)) s"
}
status() {
  if [ -e "$DIST/.ok" ]; then echo "iceberg-reader: $DIST"; else echo "iceberg-reader: not made"; return 3; fi
}
print_env() { put_env ICEBERG_CLASSPATH "$DIST/lib/*"; }

case ${1:-} in
  start) start ;;
  stop) say "nothing runs" ;;
  status) status ;;
  env) print_env ;;
  clean) rm -rf "$DIST" "$DIST.lock" "$DIST.log"; say "removed" ;;
  *) sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
