#!/usr/bin/env bash
# Python with the clients that tests read results with: a virtual environment of
# its own, made once for a list of packages. It is no server: start makes it.
#   python.sh start|stop|status|env|clean
#   python.sh run ARGS...            (runs its python)
# Env: PYTHON_BASE (python3: what it is made with).
. "$(dirname "${BASH_SOURCE[0]}")/_lib.sh"
init_service python
read_current() { :; }

# Every package that a test imports, pinned. What they need comes along.
PACKAGES=(
  pyarrow==26.0.1
  fastavro==1.13.1
  cramjam==2.11.0
  'confluent-kafka[avro,json,protobuf,schemaregistry]==2.16.1'
  'psycopg[binary]==3.3.9'
  pymysql==1.2.4
  'pyiceberg[pyarrow,sql-sqlite,sql-postgres]==0.12.0'
)
PYTHON_BASE=${PYTHON_BASE:-python3}

# A changed list makes another environment.
sum=$(printf '%s\n' "${PACKAGES[@]}" | cksum | cut -d ' ' -f 1)
DIST=$SERVICES_DOWNLOADS/python-$sum
PYTHON=$DIST/bin/python

# Only scripts of the environment know its path, which moves after this; python itself does not.
install_python() {
  need "$PYTHON_BASE"
  "$PYTHON_BASE" -m venv "$1"
  "$1/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir "${PACKAGES[@]}"
}
works() { "$PYTHON" -c 'import pyarrow, fastavro' 2>/dev/null; }

start() {
  local t0=$SECONDS
  need flock
  lock_service
  install_once "$DIST" install_python
  works || die "the packages in $DIST cannot be imported: remove the folder and start again"
  say "ready after $((SECONDS - t0)) s"
}
status() {
  if [ -e "$DIST/.ok" ] && works; then echo "python: $PYTHON"; else echo "python: not made"; return 3; fi
}
print_env() { put_env PYTHON "$PYTHON"; }

case ${1:-} in
  start) start ;;
  stop) say "nothing runs" ;;
  status) status ;;
  env) print_env ;;
  clean) rm -rf "$DIST" "$DIST.lock" "$DIST.log"; say "removed" ;;
  run) shift; exec "$PYTHON" "$@" ;;
  *) sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
