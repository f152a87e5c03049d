# The life of a service that is one process; sourced after init_service. A script sets
#   TITLE   what messages call it            PORT    where it listens
#   SHAPE   what it was started with and cannot be changed while it runs, such as its port;
#           CUR is that of the one that runs, and VARIABLES are those that set it
#   NEEDS   the commands that it needs       DIST    where `fetch DIR` installs it
# and defines run (spawns it), answers and print_env; it may replace what stands before
# launch below. Its last line is: serve "$@"
# shellcheck shell=bash disable=SC2034
read_current() { CUR=; if [ -s "$STATE/current" ]; then read -r CUR <"$STATE/current"; fi; }
read_current
PIDFILE=$STATE/pid
LOG=$STATE/$NAME.log
NEEDS=() STOP_SIGNAL=TERM VARIABLES=$(printf %s "$NAME" | tr a-z- A-Z_)_PORT

where() { echo "$SERVICE_HOST:$PORT"; }
install() { install_once "$DIST" fetch; }
installed() { :; }                                # what answers and more need is there
arrange() { mkdir -p "$STATE/data"; }             # before it runs
ready() { :; }                                    # each time that it was started and answers
hard_kill() { stop_pid "$PIDFILE" KILL; }
remove_data() { rm -rf "$STATE/data"; }
more() { return 64; }                             # further commands; 64 for none of them

launch() {
  arrange
  echo "$SHAPE" >"$STATE/current"
  require_free_port "$PORT"
  run
  wait_until "$PIDFILE" "$LOG" "$TITLE" answers
}
start() {
  local t0=$SECONDS
  need flock setsid "${NEEDS[@]}"
  lock_service
  install
  if alive "$PIDFILE"; then
    [ "$CUR" = "$SHAPE" ] || die "already runs with $VARIABLES=$CUR: stop it first"
    wait_until "$PIDFILE" "$LOG" "$TITLE" answers
  else
    launch
  fi
  ready
  say "answers on $(where) after $((SECONDS - t0)) s"
}
restart() {
  lock_service
  install
  stop_pid "$PIDFILE" "$STOP_SIGNAL"
  launch
  ready
  say "answers again"
}
stop() { lock_service; stop_pid "$PIDFILE" "$STOP_SIGNAL"; rm -f "$STATE/current"; say stopped; }
status() {
  local p s='does not answer'
  installed || { echo "$NAME: not installed"; return 3; }
  p=$(pid_of "$PIDFILE") || { echo "$NAME: not running"; return 3; }
  if answers 2>/dev/null; then s=answers; fi
  echo "$NAME: pid $p, $(where) $s, RSS $(rss_mib "$PIDFILE") MiB"
  [ "$s" = answers ]
}
must_run() { alive "$PIDFILE" || die "not running"; }
signal() { must_run; kill -s "$1" "$(pid_of "$PIDFILE")"; say "$2"; }
# The comment at the head of the script.
usage() { awk 'NR > 1 { if (!sub(/^# ?/, "")) exit; print }' "$0" >&2; }

serve() {
  case ${1:-} in
    start) start ;;
    stop) stop ;;
    status) status ;;
    env) print_env ;;
    clean) stop; remove_data; say "data removed" ;;
    kill) lock_service; must_run; hard_kill; say killed ;;
    restart) restart ;;
    pause) signal STOP paused ;;
    resume) signal CONT resumed ;;
    log) echo "$LOG" ;;
    *)
      local code=0
      more "$@" || code=$?
      if [ "$code" = 64 ]; then usage; code=2; fi
      exit "$code"
      ;;
  esac
}
