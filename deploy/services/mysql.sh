#!/usr/bin/env bash
# A real MariaDB (which speaks MySQL's protocol) on loopback, in a data folder of its own.
#   mysql.sh start|stop|status|env|clean
#   mysql.sh kill | restart | pause | resume
#   mysql.sh sql ARGS...             (the client on the test database)
#   mysql.sh log
# Env: MYSQL_PORT (19306), MYSQL_USER (etl), MYSQL_PASSWORD (etl-secret), MYSQL_DB (etl),
#      MYSQL_DATA (data folder), MYSQL_EXTRA (options of the server, one a word).
# As root the server runs as the user mysql, and its data goes to a folder under
# ${TMPDIR:-/tmp} if that user cannot reach SERVICES_DIR.
. "$(dirname "${BASH_SOURCE[0]}")/_lib.sh"
init_service mysql
. "$(dirname "${BASH_SOURCE[0]}")/_process.sh"

PORT=${MYSQL_PORT:-${CUR:-19306}}
SHAPE=$PORT TITLE=MariaDB
DB_USER=${MYSQL_USER:-etl}
DB_PASSWORD=${MYSQL_PASSWORD:-etl-secret}
DB=${MYSQL_DB:-etl}

installed() {
  SERVER=$(command -v mariadbd || ls /usr/sbin/mariadbd 2>/dev/null) && CLIENT=$(command -v mariadb) && command -v mariadb-install-db >/dev/null
}
install() {
  installed && return 0
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || die "no MariaDB server here: install one"
  say "first use: installing MariaDB"
  { DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends mariadb-server ||
    { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends mariadb-server; }; } \
    >"$STATE/install.log" 2>&1 || fail_with_log "$STATE/install.log" "installing MariaDB failed"
  installed || die "no MariaDB server after the install"
}

# As root: become the user mysql, in place (the same pid).
AS=()
if [ "$(id -u)" = 0 ]; then AS=(setpriv --reuid=mysql --regid=mysql --clear-groups --); fi
choose_data() {
  DATA=${MYSQL_DATA:-$STATE/data}
  [ "$(id -u)" = 0 ] || { mkdir -p "$DATA"; return 0; }
  if [ -z "${MYSQL_DATA:-}" ] && ! "${AS[@]}" test -x "$STATE" 2>/dev/null; then
    DATA=${TMPDIR:-/tmp}/etl-services-mysql-$(printf %s "$STATE" | cksum | cut -d ' ' -f 1)
  fi
  if [ "${1:-}" = make ]; then mkdir -p "$DATA"; chown mysql: "$DATA"; chmod 700 "$DATA"; fi
}

run_sql() { # DATABASE ARGS...
  local db=$1; shift
  MYSQL_PWD=$DB_PASSWORD "$CLIENT" --no-defaults --connect-timeout=5 -h "$SERVICE_HOST" -P "$PORT" --protocol=TCP -u "$DB_USER" "$db" "$@" 9>&-
}
answers() { [ "$(run_sql "$DB" -Nse 'select 1' 2>/dev/null)" = 1 ]; }

arrange() {
  choose_data make
  [ -d "$DATA/mysql" ] && return 0
  (cd / && "${AS[@]}" mariadb-install-db --no-defaults --datadir="$DATA" --auth-root-authentication-method=normal --skip-test-db) \
    >"$STATE/init.log" 2>&1 9>&- || fail_with_log "$STATE/init.log" "mariadb-install-db failed"
  # Runs at each start; what is there already stays.
  cat >"$DATA/users.sql" <<Q
CREATE DATABASE IF NOT EXISTS \`$DB\` CHARACTER SET utf8mb4;
CREATE USER IF NOT EXISTS '$DB_USER'@'%' IDENTIFIED BY '$DB_PASSWORD';
GRANT ALL ON *.* TO '$DB_USER'@'%' WITH GRANT OPTION;
DELETE FROM mysql.global_priv WHERE User = '';
FLUSH PRIVILEGES;
Q
  [ ${#AS[@]} = 0 ] || chown mysql: "$DATA/users.sql"
}
run() {
  cd /
  # shellcheck disable=SC2086
  spawn "$PIDFILE" "$LOG" "${AS[@]}" "$SERVER" --no-defaults --datadir="$DATA" --bind-address="$SERVICE_HOST" --port="$PORT" \
    --socket="$DATA/socket" --pid-file="$DATA/pid" --init-file="$DATA/users.sql" --skip-name-resolve --innodb-buffer-pool-size=128M \
    --character-set-server=utf8mb4 ${MYSQL_EXTRA:-}
}
print_env() {
  put_env MYSQL_URL "mysql://$DB_USER:$DB_PASSWORD@$SERVICE_HOST:$PORT/$DB"
  put_env MYSQL_HOST "$SERVICE_HOST"
  put_env MYSQL_PORT "$PORT"
  put_env MYSQL_USER "$DB_USER"
  put_env MYSQL_PASSWORD "$DB_PASSWORD"
  put_env MYSQL_DB "$DB"
}
remove_data() { choose_data; rm -rf "$DATA"; }
more() {
  [ "${1:-}" = sql ] || return 64
  shift
  installed || die "not installed"
  run_sql "$DB" "$@"
}

serve "$@"
