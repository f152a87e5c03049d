#!/usr/bin/env bash
# A server that speaks MongoDB's protocol, on loopback: FerretDB over SQLite, with two faults mended.
#   mongodb.sh start|stop|status|env|clean
#   mongodb.sh kill | restart | pause | resume
#   mongodb.sh log
# Env: MONGODB_PORT (19717).
. "$(dirname "${BASH_SOURCE[0]}")/_lib.sh"
init_service mongodb
. "$(dirname "${BASH_SOURCE[0]}")/_process.sh"

FERRETDB_VERSION=v1.24.2
DIST=$SERVICES_DOWNLOADS/ferretdb-$FERRETDB_VERSION-mended
PORT=${MONGODB_PORT:-${CUR:-19717}}
SHAPE=$PORT TITLE=FerretDB NEEDS=(go)

# mend FILE SED_EXPRESSION: fails where the expression changes nothing.
mend() { sed -i.orig "$2" "$1" && ! cmp -s "$1" "$1.orig"; }

# Without these, an update reads the whole collection, as its condition is not the index's expression;
# and each holds a connection to SQLite, of a hundred, until its request ends: a large one never does.
mend_ferretdb() {
  # shellcheck disable=SC2016
  mend "$1/internal/backends/sqlite/metadata/metadata.go" 's/"->\x27$\._id\x27"/`->"_id"`/' &&
    mend "$1/internal/handler/msg_update.go" '/common.UpdateDocument(ctx, c, "update"/a closer.Close()'
}

# Its own command needs files that a module does not hold; its package does not. SQLite leaves it to the
# system when data reaches the disk: a killed server loses nothing.
fetch() {
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
		Listener: ferretdb.ListenerConfig{TCP: os.Args[1]}, Handler: "sqlite", SQLiteURL: "file:" + os.Args[2] + "/?_pragma=synchronous(off)",
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
      go mod init local/mongodb && go get "github.com/FerretDB/FerretDB@$FERRETDB_VERSION" &&
      cp -r "$(go list -m -f '{{.Dir}}' github.com/FerretDB/FerretDB)" ferretdb && chmod -R u+w ferretdb && mend_ferretdb ferretdb &&
      go mod edit -replace github.com/FerretDB/FerretDB=./ferretdb && go build -o ../bin/ferretdb .
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
run() {
  spawn "$PIDFILE" "$LOG" "$DIST/bin/ferretdb" "$SERVICE_HOST:$PORT" "$STATE/data"
}
print_env() { put_env MONGODB_URL "mongodb://$SERVICE_HOST:$PORT/"; }

serve "$@"
