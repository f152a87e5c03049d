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
. "$(dirname "${BASH_SOURCE[0]}")/_process.sh"

VERSITYGW_VERSION=${VERSITYGW_VERSION:-v1.8.0}
DIST=$SERVICES_DOWNLOADS/versitygw-$VERSITYGW_VERSION
read -r CUR_PORT CUR_TLS <<<"$CUR"
PORT=${S3_PORT:-${CUR_PORT:-19500}}
S3_TLS=${S3_TLS:-${CUR_TLS:-0}}
SHAPE="$PORT $S3_TLS" VARIABLES="S3_PORT and S3_TLS" TITLE="the S3 server" NEEDS=(curl)
if [ -z "${S3_BUCKETS:-}" ] && [ -s "$STATE/buckets" ]; then S3_BUCKETS=$(cat "$STATE/buckets"); fi
S3_BUCKETS=${S3_BUCKETS:-etl-test}
S3_ACCESS_KEY=${S3_ACCESS_KEY:-etl-access}
S3_SECRET_KEY=${S3_SECRET_KEY:-etl-secret-key}
S3_REGION=${S3_REGION:-us-east-1}
CERTS=$STATE/certs
if [ "$S3_TLS" = 1 ]; then ENDPOINT=https://$SERVICE_HOST:$PORT; else ENDPOINT=http://$SERVICE_HOST:$PORT; fi

fetch() {
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

run() {
  local opts=() tls=()
  if [ "${S3_SIDECAR:-0}" = 1 ]; then mkdir -p "$STATE/meta"; opts+=(--sidecar "$STATE/meta"); fi
  if [ "$S3_TLS" = 1 ]; then make_certs "$CERTS"; tls=(--cert "$CERTS/server.pem" --key "$CERTS/server.key"); fi
  spawn "$PIDFILE" "$LOG" env ROOT_ACCESS_KEY_ID="$S3_ACCESS_KEY" ROOT_SECRET_ACCESS_KEY="$S3_SECRET_KEY" \
    GOMEMLIMIT="${S3_MEMLIMIT:-512MiB}" "$DIST/bin/versitygw" --port "$SERVICE_HOST:$PORT" --region "$S3_REGION" \
    --keep-alive "${tls[@]}" posix "${opts[@]}" "$STATE/data"
}

ready() {
  local b
  for b in ${S3_BUCKETS//,/ }; do make_bucket "$b"; done
  echo "$S3_BUCKETS" >"$STATE/buckets"
}
where() { echo "$ENDPOINT"; }
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
remove_data() { rm -rf "$STATE/data" "$STATE/meta" "$STATE/buckets"; }
more() {
  [ "${1:-}" = bucket ] || return 64
  shift
  for b in "$@"; do make_bucket "$b"; done
}

serve "$@"
