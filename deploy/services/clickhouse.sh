#!/usr/bin/env bash
# ClickHouse's engine on loopback (chdb, which is the engine as a library), behind a
# stand-in for the server's HTTP interface, clickhouse/front.py.
#   clickhouse.sh start|stop|status|env|clean
#   clickhouse.sh kill | restart | pause | resume
#   clickhouse.sh log
# Env: CLICKHOUSE_HTTP_PORT (19823), CLICKHOUSE_USER (etl), CLICKHOUSE_PASSWORD (etl-secret),
#      PYTHON_BASE (python3: what its environment is made with).
. "$(dirname "${BASH_SOURCE[0]}")/_lib.sh"
init_service clickhouse

CHDB_VERSION=4.4.0
FRONT=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/clickhouse/front.py
DIST=$SERVICES_DOWNLOADS/chdb-$CHDB_VERSION
read_current() {
  if [ -s "$STATE/current" ]; then read -r CUR_PORT <"$STATE/current"; else CUR_PORT=; fi
}
read_current
PORT=${CLICKHOUSE_HTTP_PORT:-${CUR_PORT:-19823}}
export CLICKHOUSE_USER=${CLICKHOUSE_USER:-etl} CLICKHOUSE_PASSWORD=${CLICKHOUSE_PASSWORD:-etl-secret}
PYTHON_BASE=${PYTHON_BASE:-python3}
PIDFILE=$STATE/pid
LOG=$STATE/clickhouse.log

install_chdb() {
  need "$PYTHON_BASE"
  "$PYTHON_BASE" -m venv "$1"
  "$1/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir "chdb==$CHDB_VERSION"
}

answers() { [ "$(curl -fsS -m 5 -u "$CLICKHOUSE_USER:$CLICKHOUSE_PASSWORD" "http://$SERVICE_HOST:$PORT/?query=SELECT+1")" = 1 ]; }
launch() {
  require_free_port "$PORT"
  mkdir -p "$STATE/data" "$STATE/tmp"
  CLICKHOUSE_TMP=$STATE/tmp spawn "$PIDFILE" "$LOG" "$DIST/bin/python" "$FRONT" "$STATE/data" "$SERVICE_HOST" "$PORT"
  wait_until "$PIDFILE" "$LOG" "ClickHouse" answers
}
start() {
  local t0=$SECONDS
  need flock setsid curl
  lock_service
  if alive "$PIDFILE"; then
    [ "$CUR_PORT" = "$PORT" ] || die "already runs with CLICKHOUSE_HTTP_PORT=$CUR_PORT: stop it first"
    wait_until "$PIDFILE" "$LOG" "ClickHouse" answers
  else
    install_once "$DIST" install_chdb
    echo "$PORT" >"$STATE/current"
    launch
  fi
  say "answers on http://$SERVICE_HOST:$PORT after $((SECONDS - t0)) s"
}
stop() { lock_service; stop_pid "$PIDFILE"; rm -f "$STATE/current"; say stopped; }
status() {
  local p
  if p=$(pid_of "$PIDFILE"); then
    if answers 2>/dev/null; then s=answers; else s='does not answer'; fi
    echo "clickhouse: pid $p, http://$SERVICE_HOST:$PORT $s, RSS $(rss_mib "$PIDFILE") MiB"
    [ "$s" = answers ] || return 1
  else
    echo "clickhouse: not running"; return 3
  fi
}
must_run() { p=$(pid_of "$PIDFILE") || die "not running"; }

case ${1:-} in
  start) start ;;
  stop) stop ;;
  status) status ;;
  env)
    put_env CLICKHOUSE_URL "http://$SERVICE_HOST:$PORT"
    put_env CLICKHOUSE_USER "$CLICKHOUSE_USER"
    put_env CLICKHOUSE_PASSWORD "$CLICKHOUSE_PASSWORD" ;;
  clean) stop; rm -rf "$STATE/data" "$STATE/tmp"; say "data removed" ;;
  kill) lock_service; must_run; stop_pid "$PIDFILE" KILL; say killed ;;
  restart) lock_service; stop_pid "$PIDFILE"; echo "$PORT" >"$STATE/current"; launch; say "answers again" ;;
  pause) must_run; kill -s STOP "$p"; say paused ;;
  resume) must_run; kill -s CONT "$p"; say resumed ;;
  log) echo "$LOG" ;;
  *) sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
