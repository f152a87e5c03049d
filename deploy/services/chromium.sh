#!/usr/bin/env bash
# Chromium, which tests of the dashboard drive, with the fonts that it shows text in;
# and Node with npm, which run these tests. It is no server: start installs it with apt.
#   chromium.sh start|stop|status|env|clean
# Env: CHROMIUM (path of one that is there already).
. "$(dirname "${BASH_SOURCE[0]}")/_lib.sh"
init_service chromium
read_current() { :; }

# A browser that is named has to be there; else the first that is found.
browser() {
  if [ -n "${CHROMIUM:-}" ]; then command -v "$CHROMIUM"; return; fi
  command -v chromium || command -v chromium-browser || command -v google-chrome-stable || command -v google-chrome
}
# What the dashboard is built and tested with needs Node 20.19.
recent() { node -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 20 || (a === 20 && b >= 19) ? 0 : 1)' 2>/dev/null; }
complete() { browser >/dev/null && recent && command -v npm >/dev/null; }

install_chromium() {
  local want=()
  need apt-get
  browser >/dev/null || want+=(chromium fonts-dejavu-core)
  command -v node >/dev/null || want+=(nodejs)
  command -v npm >/dev/null || want+=(npm)
  say "first use: installing ${want[*]}"
  { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${want[@]}"; } >"$STATE/apt.log" 2>&1 ||
    fail_with_log "$STATE/apt.log" "the install failed"
}

start() {
  local t0=$SECONDS
  need flock
  lock_service
  complete || install_chromium
  complete || die "there is no chromium, no npm, or no Node 20.19 or newer, and the packages of this system have none: install it"
  say "ready after $((SECONDS - t0)) s"
}
status() {
  if complete; then echo "chromium: $(browser), node $(node --version)"; else echo "chromium: not installed"; return 3; fi
}
print_env() { put_env CHROMIUM "$(browser)"; }

case ${1:-} in
  start) start ;;
  stop|clean) say "nothing runs, and what apt installed stays" ;;
  status) status ;;
  env) print_env ;;
  *) sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
