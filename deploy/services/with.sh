#!/usr/bin/env bash
# Runs a command with services up and their addresses in the environment:
#   with.sh SERVICE... -- COMMAND ARGS...
# A service that already runs is used and left running; one that this script
# started is stopped at the end. A service that cannot be had is a failure.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

services=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do services+=("$1"); shift; done
if [ $# -lt 2 ] || [ ${#services[@]} -eq 0 ]; then
  sed -n '2,5s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
shift

started=()
stop_started() {
  local s
  for s in "${started[@]}"; do "$here/$s.sh" stop || true; done
}
trap stop_started EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

for s in "${services[@]}"; do
  if ! "$here/$s.sh" status >/dev/null 2>&1; then
    started+=("$s")
    "$here/$s.sh" start
  fi
  eval "$("$here/$s.sh" env)"
done
"$@"
