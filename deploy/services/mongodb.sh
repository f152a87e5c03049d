#!/usr/bin/env bash
# A server that speaks MongoDB's protocol, on loopback: FerretDB over SQLite.
#   mongodb.sh start|stop|status|env|clean
#   mongodb.sh kill | restart | pause | resume
#   mongodb.sh log
# Env: MONGODB_PORT (19717).
. "$(dirname "${BASH_SOURCE[0]}")/_lib.sh"
init_service mongodb

FERRETDB_VERSION=v1.24.2
DIST=$SERVICES_DOWNLOADS/ferretdb-$FERRETDB_VERSION
read_current() {
  if [ -s "$STATE/current" ]; then read -r CUR_PORT <"$STATE/current"; else CUR_PORT=; fi
}
read_current
PORT=${MONGODB_PORT:-${CUR_PORT:-19717}}
PIDFILE=$STATE/pid
LOG=$STATE/mongodb.log

# Its own command needs files that a module does not hold; its package does not.
install_ferretdb() {
  mkdir -p "$1/src" "$1/bin"
  cat >"$1/src/main.go" <<'EOF'
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/FerretDB/FerretDB/ferretdb"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	f, err := ferretdb.New(&ferretdb.Config{
		Listener: ferretdb.ListenerConfig{TCP: os.Args[1]}, Handler: "sqlite", SQLiteURL: "file:" + os.Args[2] + "/",
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := f.Run(ctx); err != nil && ctx.Err() == nil {
		log.Fatal(err)
	}
}
EOF
  (
    cd "$1/src" && export GOFLAGS=-mod=mod CGO_ENABLED=0 &&
      go mod init local/mongodb && go get "github.com/FerretDB/FerretDB@$FERRETDB_VERSION" && go build -o ../bin/ferretdb .
  )
}

# An isMaster over a plain socket.
answers() {
  local got
  got=$(
    exec 3<>"/dev/tcp/$SERVICE_HOST/$PORT" || exit 1
    printf '\x3a\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\xd4\x07\x00\x00\x00\x00\x00\x00admin.$cmd\x00\x00\x00\x00\x00\xff\xff\xff\xff\x13\x00\x00\x00\x10isMaster\x00\x01\x00\x00\x00\x00' >&3
    timeout 3 head -c 16 <&3 | od -An -tu1 | wc -w
  ) 2>/dev/null
  [ "$got" -ge 16 ]
}
launch() {
  require_free_port "$PORT"
  mkdir -p "$STATE/data"
  spawn "$PIDFILE" "$LOG" "$DIST/bin/ferretdb" "$SERVICE_HOST:$PORT" "$STATE/data"
  wait_until "$PIDFILE" "$LOG" "FerretDB" answers
}
start() {
  local t0=$SECONDS
  need flock setsid go
  lock_service
  if alive "$PIDFILE"; then
    [ "$CUR_PORT" = "$PORT" ] || die "already runs with MONGODB_PORT=$CUR_PORT: stop it first"
    wait_until "$PIDFILE" "$LOG" "FerretDB" answers
  else
    install_once "$DIST" install_ferretdb
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
    echo "mongodb: pid $p, $SERVICE_HOST:$PORT $s, RSS $(rss_mib "$PIDFILE") MiB"
    [ "$s" = answers ] || return 1
  else
    echo "mongodb: not running"; return 3
  fi
}
must_run() { p=$(pid_of "$PIDFILE") || die "not running"; }

case ${1:-} in
  start) start ;;
  stop) stop ;;
  status) status ;;
  env) put_env MONGODB_URL "mongodb://$SERVICE_HOST:$PORT/" ;;
  clean) stop; rm -rf "$STATE/data"; say "data removed" ;;
  kill) lock_service; must_run; stop_pid "$PIDFILE" KILL; say killed ;;
  restart) lock_service; stop_pid "$PIDFILE"; echo "$PORT" >"$STATE/current"; launch; say "answers again" ;;
  pause) must_run; kill -s STOP "$p"; say paused ;;
  resume) must_run; kill -s CONT "$p"; say resumed ;;
  log) echo "$LOG" ;;
  *) sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
