#!/usr/bin/env bash
# A real S3-compatible server (versitygw, posix backend) on loopback.
#   s3.sh start|stop|status|env|clean
#   s3.sh kill | restart | pause | resume
#   s3.sh bucket NAME...             (creates buckets in the running server)
#   s3.sh log                        (prints the path of the log)
# Env: S3_PORT (19500), S3_BUCKETS (etl-test; several separated by blanks or commas),
#      S3_ACCESS_KEY, S3_SECRET_KEY, S3_REGION (us-east-1), S3_TLS (0),
#      S3_SIDECAR (0: metadata in extended attributes; 1: in files, for a file
#      system without them), VERSITYGW_VERSION.
. "$(dirname "${BASH_SOURCE[0]}")/_lib.sh"
init_service s3

VERSITYGW_VERSION=${VERSITYGW_VERSION:-v1.8.0}
DIST=$SERVICES_DOWNLOADS/versitygw-$VERSITYGW_VERSION
read_current() {
  if [ -s "$STATE/current" ]; then read -r CUR_PORT CUR_TLS <"$STATE/current"; else CUR_PORT=; CUR_TLS=; fi
}
read_current
S3_PORT=${S3_PORT:-${CUR_PORT:-19500}}
S3_TLS=${S3_TLS:-${CUR_TLS:-0}}
if [ -z "${S3_BUCKETS:-}" ] && [ -s "$STATE/buckets" ]; then S3_BUCKETS=$(cat "$STATE/buckets"); fi
S3_BUCKETS=${S3_BUCKETS:-etl-test}
S3_ACCESS_KEY=${S3_ACCESS_KEY:-etl-access}
S3_SECRET_KEY=${S3_SECRET_KEY:-etl-secret-key}
S3_REGION=${S3_REGION:-us-east-1}
PIDFILE=$STATE/pid
LOG=$STATE/s3.log
CERTS=$STATE/certs
if [ "$S3_TLS" = 1 ]; then ENDPOINT=https://$SERVICE_HOST:$S3_PORT; else ENDPOINT=http://$SERVICE_HOST:$S3_PORT; fi

install_s3() {
  need go
  (cd "$1" && env -u GOFLAGS GOBIN="$1/bin" GO111MODULE=on go install -p 2 -ldflags '-s -w' \
    "github.com/versity/versitygw/cmd/versitygw@$VERSITYGW_VERSION")
}

# METHOD PATH: prints the HTTP status.
signed() {
  local tls=()
  if [ "$S3_TLS" = 1 ]; then tls=(--cacert "$CERTS/ca.pem"); fi
  curl -sS -m 10 -o "$STATE/answer" -w '%{http_code}' -X "$1" "${tls[@]}" --aws-sigv4 "aws:amz:$S3_REGION:s3" \
    --user "$S3_ACCESS_KEY:$S3_SECRET_KEY" -H 'x-amz-content-sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855' \
    "$ENDPOINT$2"
}
# A signed ListBuckets: the server, its backend and the keys work.
answers() { [ "$(signed GET / 2>/dev/null)" = 200 ]; }

make_bucket() {
  local code
  code=$(signed PUT "/$1") || die "creating bucket $1: no answer"
  case $code in
    200) ;;
    409) grep -q 'BucketAlreadyOwnedByYou' "$STATE/answer" || { cat "$STATE/answer" >&2; die "bucket $1: HTTP $code"; } ;;
    *) cat "$STATE/answer" >&2; die "creating bucket $1: HTTP $code" ;;
  esac
}

launch() {
  local opts=() tls=()
  if [ "${S3_SIDECAR:-0}" = 1 ]; then mkdir -p "$STATE/meta"; opts+=(--sidecar "$STATE/meta"); fi
  if [ "$S3_TLS" = 1 ]; then make_certs "$CERTS"; tls=(--cert "$CERTS/server.pem" --key "$CERTS/server.key"); fi
  mkdir -p "$STATE/data"
  require_free_port "$S3_PORT"
  spawn "$PIDFILE" "$LOG" env ROOT_ACCESS_KEY_ID="$S3_ACCESS_KEY" ROOT_SECRET_ACCESS_KEY="$S3_SECRET_KEY" \
    GOMEMLIMIT="${S3_MEMLIMIT:-512MiB}" "$DIST/bin/versitygw" --port "$SERVICE_HOST:$S3_PORT" --region "$S3_REGION" \
    --keep-alive "${tls[@]}" posix "${opts[@]}" "$STATE/data"
  wait_until "$PIDFILE" "$LOG" "the S3 server" answers
}

start() {
  local b t0=$SECONDS
  need curl flock setsid
  lock_service
  if alive "$PIDFILE"; then
    [ "$CUR_PORT $CUR_TLS" = "$S3_PORT $S3_TLS" ] || die "already runs with S3_PORT=$CUR_PORT S3_TLS=$CUR_TLS: stop it first"
    wait_until "$PIDFILE" "$LOG" "the S3 server" answers
  else
    install_once "$DIST" install_s3
    echo "$S3_PORT $S3_TLS" >"$STATE/current"
    launch
  fi
  for b in ${S3_BUCKETS//,/ }; do make_bucket "$b"; done
  echo "$S3_BUCKETS" >"$STATE/buckets"
  say "answers on $ENDPOINT after $((SECONDS - t0)) s"
}
stop() { lock_service; stop_pid "$PIDFILE"; rm -f "$STATE/current"; say stopped; }
status() {
  local p
  if p=$(pid_of "$PIDFILE"); then
    if answers; then s=answers; else s='does not answer'; fi
    echo "s3: pid $p, $ENDPOINT $s, RSS $(rss_mib "$PIDFILE") MiB"
    [ "$s" = answers ] || return 1
  else
    echo "s3: not running"; return 3
  fi
}
print_env() {
  local b=${S3_BUCKETS//,/ }
  put_env S3_ENDPOINT "$ENDPOINT"
  put_env S3_BUCKET "${b%% *}"
  put_env S3_REGION "$S3_REGION"
  put_env AWS_ENDPOINT_URL_S3 "$ENDPOINT"
  put_env AWS_REGION "$S3_REGION"
  put_env AWS_ACCESS_KEY_ID "$S3_ACCESS_KEY"
  put_env AWS_SECRET_ACCESS_KEY "$S3_SECRET_KEY"
  put_env S3_FORCE_PATH_STYLE true
  if [ "$S3_TLS" = 1 ]; then put_env S3_CA_FILE "$CERTS/ca.pem"; put_env AWS_CA_BUNDLE "$CERTS/ca.pem"; fi
}
must_run() { p=$(pid_of "$PIDFILE") || die "not running"; }

case ${1:-} in
  start) start ;;
  stop) stop ;;
  status) status ;;
  env) print_env ;;
  clean) stop; rm -rf "$STATE/data" "$STATE/meta" "$STATE/buckets"; say "data removed" ;;
  kill) lock_service; must_run; stop_pid "$PIDFILE" KILL; say killed ;;
  restart) lock_service; stop_pid "$PIDFILE"; echo "$S3_PORT $S3_TLS" >"$STATE/current"; launch; say "answers again" ;;
  pause) must_run; kill -s STOP "$p"; say paused ;;
  resume) must_run; kill -s CONT "$p"; say resumed ;;
  bucket) shift; for b in "$@"; do make_bucket "$b"; done ;;
  log) echo "$LOG" ;;
  *) sed -n '2,11s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
