#!/usr/bin/env bash
# A real HDFS on loopback: one NameNode (or two) and NODES DataNodes, each a process of
# its own; the data outlives stop and start.
#   hdfs.sh start|stop|status|env|clean
#   hdfs.sh kill WHAT | restart WHAT | halt WHAT | pause WHAT | resume WHAT
#                                  (WHAT: nn, nn2, dn1, dn2, ..., or kdc)
#   hdfs.sh active WHAT            (makes nn or nn2 the active one of two NameNodes)
#   hdfs.sh dfs ARGS...            (hdfs dfs, e.g. hdfs.sh dfs -ls /)
#   hdfs.sh admin ARGS...          (hdfs dfsadmin, e.g. hdfs.sh admin -safemode enter)
#   hdfs.sh kadmin QUERY           (a command of kadmin.local, on a secure one)
#   hdfs.sh log [WHAT]             (prints the path of a log)
# Env: NODES (1), HDFS_PORT (19000), HDFS_SECURE (0; 1: Kerberos), HDFS_HA (0; 1: two
#      NameNodes), HDFS_NN_HEAP (512m), HDFS_DN_HEAP (256m), HDFS_VERSION,
#      HDFS_PROTECTION (privacy), HDFS_EXTRA (lines of key=value put into
#      hdfs-site.xml). See README.md.
. "$(dirname "${BASH_SOURCE[0]}")/_lib.sh"
init_service hdfs

HDFS_VERSION=${HDFS_VERSION:-3.5.0}
DIST=$SERVICES_DOWNLOADS/hdfs-$HDFS_VERSION
KRB_DIST=$SERVICES_DOWNLOADS/krb5
REALM=SLUICE.TEST
PROTECTION=${HDFS_PROTECTION:-privacy}
# What runs now decides; what the environment asks for comes second.
read_current() {
  CUR=
  if [ -s "$STATE/current" ]; then CUR=$(cat "$STATE/current"); fi
  read -r CUR_NODES CUR_PORT CUR_SECURE CUR_HA <<<"$CUR" || true
  [ -z "$CUR" ] || CUR="$CUR_NODES $CUR_PORT ${CUR_SECURE:-0} ${CUR_HA:-0}"
}
use_shape() { # NODES PORT SECURE HA
  N=$1; HDFS_PORT=$2; SECURE=$3; HA=$4
  case $N in [1-9]) ;; *) die "NODES must be 1 to 9, not '$N'" ;; esac
  case $SECURE$HA in [01][01]) ;; *) die "HDFS_SECURE and HDFS_HA must be 0 or 1" ;; esac
  CLUSTER=$STATE/plain
  [ "$SECURE" = 0 ] || CLUSTER=$STATE/secure
  [ "$HA" = 0 ] || CLUSTER=$CLUSTER-ha
}
read_current
WANT="${NODES:-${CUR_NODES:-1}} ${HDFS_PORT:-${CUR_PORT:-19000}} ${HDFS_SECURE:-${CUR_SECURE:-0}} ${HDFS_HA:-${CUR_HA:-0}}"
# shellcheck disable=SC2086
use_shape $WANT

use_current() { # what runs, or else what is asked for
  # shellcheck disable=SC2086
  use_shape ${CUR:-$WANT}
}

# Ports of the NameNodes nn and nn2.
nn_port() { if [ "$1" = nn ]; then echo "$HDFS_PORT"; else echo $((HDFS_PORT + 1)); fi; }
nn_http() { if [ "$1" = nn ]; then echo $((HDFS_PORT + 70)); else echo $((HDFS_PORT + 71)); fi; }
namenodes() { echo nn; [ "$HA" = 0 ] || echo nn2; }
kdc_port() { echo $((HDFS_PORT + 88)); }
dn_port() { echo $((HDFS_PORT + 100 + 10 * $1 + $2)); } # NODE 0|1|2: data, http, ipc
pidfile() { echo "$CLUSTER/$1/pid"; }
logfile() { echo "$CLUSTER/$1/hdfs.log"; }
members() { local i; [ "$SECURE" = 0 ] || echo kdc; namenodes; for i in $(seq 1 "$N"); do echo "dn$i"; done; }
all_pids() { local d; for d in "$CLUSTER"/dn* "$CLUSTER"/nn* "$CLUSTER"/kdc; do if [ -d "$d" ]; then echo "$d/pid"; fi; done; }
any_alive() { local f; for f in $(all_pids); do alive "$f" && return 0; done; return 1; }

JAVA_OPENS=(--add-opens=java.base/java.lang=ALL-UNNAMED --add-opens=java.base/java.io=ALL-UNNAMED
  --add-opens=java.base/java.net=ALL-UNNAMED --add-opens=java.base/java.nio=ALL-UNNAMED
  --add-opens=java.base/java.util=ALL-UNNAMED --add-opens=java.base/java.util.concurrent=ALL-UNNAMED
  --add-opens=java.base/sun.nio.ch=ALL-UNNAMED --add-opens=java.base/sun.net.dns=ALL-UNNAMED
  --add-opens=java.base/sun.net.util=ALL-UNNAMED --add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED
  --add-exports=java.security.jgss/sun.security.krb5=ALL-UNNAMED)

install_hdfs() {
  maven_libs "$1" "org.apache.hadoop:hadoop-hdfs:$HDFS_VERSION" "org.apache.hadoop:hadoop-hdfs-client:$HDFS_VERSION" \
    "org.apache.hadoop:hadoop-common:$HDFS_VERSION" || return 1
  # The jars come without the web applications that the HTTP servers insist on;
  # empty ones do for JMX and WebHDFS.
  local w
  for w in hdfs datanode; do
    mkdir -p "$1/webapps/$w/WEB-INF"
    echo '<web-app version="2.4"></web-app>' >"$1/webapps/$w/WEB-INF/web.xml"
  done
  mkdir -p "$1/webapps/static"
}

# The KDC of MIT Kerberos, taken out of Debian's packages and not installed.
install_krb() {
  local d pkgs="krb5-kdc krb5-admin-server krb5-user libkadm5srv-mit12 libkadm5clnt-mit12 libkdb5-10 libgssrpc4 libverto1 libverto-libev1 libev4 libss2"
  command -v apt-get || { echo "no apt-get here"; return 1; }
  mkdir -p "$1/debs" && cd "$1/debs" || return 1
  # shellcheck disable=SC2086
  apt-get download $pkgs || { apt-get update && apt-get download $pkgs; } || return 1
  for d in *.deb; do dpkg -x "$d" "$1/root" || return 1; done
  # Debian's folders for libraries carry the machine's name.
  find "$1/root" -name '*.so*' -path '*/lib/*' ! -path '*/krb5/*' -printf '%P\n' | xargs -n1 dirname | sort -u >"$1/libs"
  find "$1/root" -type d -path '*/krb5/plugins/kdb' -printf '%P\n' >"$1/plugins"
}
krb_env() { KRB_LIBS=$(sed "s|^|$KRB_DIST/root/|" "$KRB_DIST/libs" | paste -sd:); }
krb() { # PROGRAM ARGS...
  local p=$1; shift
  krb_env
  LD_LIBRARY_PATH=$KRB_LIBS KRB5_CONFIG=$CLUSTER/kdc/krb5.conf KRB5_KDC_PROFILE=$CLUSTER/kdc/kdc.conf "$KRB_DIST/root/usr/$p" "$@"
}
kadmin() { krb sbin/kadmin.local -r "$REALM" -q "$1"; }
write_kdc() {
  local d=$CLUSTER/kdc
  mkdir -p "$d"
  cat >"$d/krb5.conf" <<P
[libdefaults]
  default_realm = $REALM
  dns_lookup_kdc = false
  dns_lookup_realm = false
  rdns = false
  udp_preference_limit = 1
  ticket_lifetime = 24h
  renew_lifetime = 7d
  default_ccache_name = FILE:$d/ccache
[realms]
  $REALM = {
    kdc = $SERVICE_HOST:$(kdc_port)
  }
[domain_realm]
  localhost = $REALM
  $SERVICE_HOST = $REALM
P
  cat >"$d/kdc.conf" <<P
[kdcdefaults]
  kdc_listen = $SERVICE_HOST:$(kdc_port)
  kdc_tcp_listen = $SERVICE_HOST:$(kdc_port)
[realms]
  $REALM = {
    database_name = $d/principal
    key_stash_file = $d/stash
    max_life = 24h
    max_renewable_life = 7d
    supported_enctypes = aes256-cts-hmac-sha1-96:normal aes128-cts-hmac-sha1-96:normal
  }
[dbmodules]
  db_module_dir = $KRB_DIST/root/$(cat "$KRB_DIST/plugins")
P
  [ -e "$d/etl.keytab" ] && return 0
  {
    rm -f "$d"/principal* "$d"/*.keytab
    krb sbin/kdb5_util -r "$REALM" create -s -P sluice-test
    for p in hdfs/localhost HTTP/localhost etl; do kadmin "addprinc -randkey $p"; done
    kadmin "ktadd -k $d/hdfs.keytab hdfs/localhost HTTP/localhost"
    kadmin "ktadd -k $d/etl.keytab etl"
  } >"$d/create.log" 2>&1 9>&- || fail_with_log "$d/create.log" "making the KDC's database failed"
}

address() { if [ "$HA" = 0 ]; then echo "hdfs://$SERVICE_HOST:$HDFS_PORT"; else echo hdfs://sluice; fi; }
property() { printf '  <property><name>%s</name><value>%s</value></property>\n' "$1" "$2"; }
write_config() { # WHAT
  local what=$1 d=$CLUSTER/$1 i k v
  mkdir -p "$d/conf" "$d/tmp"
  cat >"$d/conf/log4j.properties" <<'P'
log4j.rootLogger=INFO,console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %p %c{2}: %m%n
log4j.logger.org.apache.hadoop.util.NativeCodeLoader=ERROR
P
  {
    echo '<configuration>'
    property fs.defaultFS "$(address)"
    property hadoop.tmp.dir "$d/tmp"
    if [ "$SECURE" = 1 ]; then
      property hadoop.security.authentication kerberos
      property hadoop.security.authorization true
      property hadoop.rpc.protection "$PROTECTION"
      # The user of the tests is a superuser, as the one who runs the script is without Kerberos.
      property hadoop.user.group.static.mapping.overrides "etl=supergroup;hdfs=supergroup"
    fi
    echo '</configuration>'
  } >"$d/conf/core-site.xml"
  {
    echo '<configuration>'
    property dfs.replication $((N < 3 ? N : 3))
    if [ "$HA" = 0 ]; then
      property dfs.namenode.rpc-address "$SERVICE_HOST:$HDFS_PORT"
      property dfs.namenode.http-address "$SERVICE_HOST:$(nn_http nn)"
    else
      property dfs.nameservices sluice
      property dfs.ha.namenodes.sluice nn,nn2
      for k in nn nn2; do
        property "dfs.namenode.rpc-address.sluice.$k" "$SERVICE_HOST:$(nn_port "$k")"
        property "dfs.namenode.http-address.sluice.$k" "$SERVICE_HOST:$(nn_http "$k")"
      done
      case $what in nn*) property dfs.ha.namenode.id "$what" ;; esac
      property dfs.namenode.shared.edits.dir "file://$CLUSTER/edits"
      property dfs.client.failover.proxy.provider.sluice org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider
      property dfs.ha.fencing.methods 'shell(/bin/true)'
      property dfs.ha.tail-edits.period 1
      property dfs.ha.log-roll.period 10
    fi
    property dfs.namenode.name.dir "file://$d/name"
    property dfs.namenode.safemode.extension 0
    property dfs.namenode.datanode.registration.ip-hostname-check false
    property dfs.namenode.handler.count 8
    property dfs.namenode.fs-limits.min-block-size 4096
    property dfs.namenode.resource.du.reserved 1048576
    property dfs.namenode.redundancy.interval.seconds 1
    # A DataNode counts as dead after 2 x recheck + 10 x heartbeat = 16 s, as stale after 3 s.
    property dfs.heartbeat.interval 1
    property dfs.namenode.heartbeat.recheck-interval 3000
    property dfs.namenode.stale.datanode.interval 3000
    if [ "$SECURE" = 1 ]; then
      for k in namenode datanode; do
        property "dfs.$k.kerberos.principal" "hdfs/localhost@$REALM"
        property "dfs.$k.keytab.file" "$CLUSTER/kdc/hdfs.keytab"
      done
      property dfs.web.authentication.kerberos.principal "HTTP/localhost@$REALM"
      property dfs.web.authentication.kerberos.keytab "$CLUSTER/kdc/hdfs.keytab"
      property dfs.block.access.token.enable true
      property dfs.data.transfer.protection "$PROTECTION"
      property dfs.encrypt.data.transfer.cipher.suites AES/CTR/NoPadding
      property ignore.secure.ports.for.testing true
    fi
    if [ "${what#dn}" != "$what" ]; then
      i=${what#dn}
      property dfs.datanode.data.dir "file://$d/data"
      property dfs.datanode.address "$SERVICE_HOST:$(dn_port "$i" 0)"
      property dfs.datanode.http.address "$SERVICE_HOST:$(dn_port "$i" 1)"
      property dfs.datanode.ipc.address "$SERVICE_HOST:$(dn_port "$i" 2)"
      property dfs.datanode.hostname "$SERVICE_HOST"
      property dfs.datanode.handler.count 4
    fi
    while IFS='=' read -r k v; do
      if [ -n "$k" ]; then property "$k" "$v"; fi
    done <<<"${HDFS_EXTRA:-}"
    echo '</configuration>'
  } >"$d/conf/hdfs-site.xml"
}

run_java() { # HEAP WHAT CLASS ARGS...: prints nothing, becomes java
  local heap=$1 d=$CLUSTER/$2; shift 2
  exec java -Xmx"$heap" -Djava.security.krb5.conf="$CLUSTER/kdc/krb5.conf" -XX:+UseSerialGC -Djava.net.preferIPv4Stack=true -Djava.awt.headless=true \
    "${JAVA_OPENS[@]}" -cp "$d/conf:$DIST:$DIST/lib/*" "$@"
}

launch() { # WHAT
  local what=$1 d=$CLUSTER/$1 heap class i
  alive "$(pidfile "$what")" && return 0
  if [ "$what" = kdc ]; then
    require_free_port "$(kdc_port)"
    write_kdc
    krb_env
    spawn "$(pidfile kdc)" "$(logfile kdc)" env LD_LIBRARY_PATH="$KRB_LIBS" KRB5_CONFIG="$d/krb5.conf" KRB5_KDC_PROFILE="$d/kdc.conf" \
      "$KRB_DIST/root/usr/sbin/krb5kdc" -n -r "$REALM"
    return
  fi
  write_config "$what"
  if [ "${what#nn}" != "$what" ]; then
    require_free_port "$(nn_port "$what")" "$(nn_http "$what")"
    heap=${HDFS_NN_HEAP:-512m}; class=org.apache.hadoop.hdfs.server.namenode.NameNode
    if [ ! -e "$d/name/current/VERSION" ]; then
      i=-format
      # The second one copies what the first one has, which must answer for it.
      if [ "$what" = nn2 ]; then i=-bootstrapStandby; wait_until "$(pidfile nn)" "$(logfile nn)" "the NameNode" nn_answers nn; fi
      (run_java 256m "$what" -XX:TieredStopAtLevel=1 $class $i -nonInteractive -force) \
        >"$d/format.log" 2>&1 </dev/null 9>&- || fail_with_log "$d/format.log" "formatting the NameNode failed"
    fi
  else
    i=${what#dn}
    require_free_port "$(dn_port "$i" 0)" "$(dn_port "$i" 1)" "$(dn_port "$i" 2)"
    heap=${HDFS_DN_HEAP:-256m}; class=org.apache.hadoop.hdfs.server.datanode.DataNode
  fi
  spawn "$(pidfile "$what")" "$(logfile "$what")" java -Xmx"$heap" -Djava.security.krb5.conf="$CLUSTER/kdc/krb5.conf" -XX:+UseSerialGC -XX:+ExitOnOutOfMemoryError \
    -Djava.net.preferIPv4Stack=true -Djava.awt.headless=true "${JAVA_OPENS[@]}" -cp "$d/conf:$DIST:$DIST/lib/*" "$class"
}

jmx() { curl -fsS -m 5 "http://$SERVICE_HOST:$1/jmx?qry=$2"; }
# A key of a bean of the NameNode that is active, or of the one named.
active() { local m; for m in $(namenodes); do [ "$(bean "$m" NameNodeStatus State)" != active ] || { echo "$m"; return; }; done; echo nn; }
bean() { # NAMENODE BEAN KEY
  jmx "$(nn_http "$1")" "Hadoop:service=NameNode,name=$2" 2>/dev/null | sed -n "s/.*\"$3\" : \"\{0,1\}\([A-Za-z0-9]*\).*/\1/p"
}
live_nodes() { bean "$(active)" FSNamesystemState NumLiveDataNodes; }
safemode() { bean "${1:-$(active)}" FSNamesystemState FSState; }
nn_answers() { [ -n "$(safemode "$@")" ]; }
make_active() { # NAMENODE
  local other=nn2
  [ "$1" = nn ] || other=nn
  [ "$(bean "$other" NameNodeStatus State)" != active ] || (client org.apache.hadoop.hdfs.tools.DFSHAAdmin -transitionToStandby "$other") >&2
  (client org.apache.hadoop.hdfs.tools.DFSHAAdmin -transitionToActive --forceactive "$1") >&2
}
# The NameNode itself has this very DataNode process on its list, newly heard from.
dn_registered() { # WHAT
  local i=${1#dn}
  port_open "$(dn_port "$i" 0)" || return 1
  grep -q 'successfully registered with NN\|Successfully sent block report' "$(logfile "$1")"
}
# Out of safe mode, with all DataNodes: a write works.
cluster_ready() { [ "$(safemode)" = Operational ] && [ "$(live_nodes)" -ge "$1" ]; }

await_all() {
  local m
  [ "$SECURE" = 0 ] || wait_until "$(pidfile kdc)" "$(logfile kdc)" "the KDC" port_open "$(kdc_port)"
  for m in $(namenodes); do wait_until "$(pidfile "$m")" "$(logfile "$m")" "the NameNode $m" nn_answers "$m"; done
  if [ "$HA" = 1 ] && [ "$(bean "$(active)" NameNodeStatus State)" != active ]; then make_active nn; fi
  for m in $(members); do
    case $m in dn*) wait_until "$(pidfile "$m")" "$(logfile "$m")" "DataNode $m" dn_registered "$m" ;; esac
  done
  wait_until "$(pidfile nn)" "$(logfile nn)" "the NameNode (out of safe mode with $N DataNodes)" cluster_ready "$N"
}

start() {
  local m t0=$SECONDS
  need java curl flock setsid
  lock_service
  if [ -n "$CUR" ]; then
    use_current
    if any_alive && [ "$CUR" != "$WANT" ]; then
      die "already runs with NODES=$CUR_NODES HDFS_PORT=$CUR_PORT HDFS_SECURE=$CUR_SECURE HDFS_HA=$CUR_HA: stop it first"
    fi
  fi
  # shellcheck disable=SC2086
  use_shape $WANT
  install_once "$DIST" install_hdfs
  [ "$SECURE" = 0 ] || install_once "$KRB_DIST" install_krb
  mkdir -p "$CLUSTER"
  echo "$WANT" >"$STATE/current"
  for m in $(members); do launch "$m"; done
  await_all
  say "NameNode with $N DataNode(s) answers as $(address), port $HDFS_PORT, after $((SECONDS - t0)) s"
}

stop() {
  local f p
  lock_service
  use_current
  for f in $(all_pids); do
    if p=$(pid_of "$f"); then kill -s TERM "$p" 2>/dev/null || true; kill -s CONT "$p" 2>/dev/null || true; fi
  done
  for f in $(all_pids); do stop_pid "$f"; done
  rm -f "$STATE/current"
  say stopped
}

status() {
  local m p rc=0
  use_current
  for m in $(members); do
    if p=$(pid_of "$(pidfile "$m")"); then
      echo "hdfs $m: pid $p, RSS $(rss_mib "$(pidfile "$m")") MiB"
    else
      echo "hdfs $m: not running"; rc=3
    fi
  done
  if [ $rc = 0 ]; then
    echo "hdfs $(address): $(safemode 2>/dev/null || echo 'does not answer'), $(live_nodes 2>/dev/null || echo '?') live DataNode(s)"
    nn_answers || rc=1
  fi
  return $rc
}

print_env() {
  use_current
  put_env HDFS_NAMENODE "$SERVICE_HOST:$HDFS_PORT"
  put_env HDFS_URL "$(address)"
  put_env WEBHDFS_URL "http://$SERVICE_HOST:$(nn_http nn)/webhdfs/v1"
  put_env HADOOP_CONF_DIR "$CLUSTER/nn/conf"
  if [ "$SECURE" = 0 ]; then put_env HADOOP_USER_NAME "$(id -un)"; return; fi
  put_env HDFS_PRINCIPAL "etl@$REALM"
  put_env HDFS_KEYTAB "$CLUSTER/kdc/etl.keytab"
  put_env KRB5_CONFIG "$CLUSTER/kdc/krb5.conf"
}

one_member() { # VERB WHAT
  local p what=${2:-}
  [ -n "$CUR_NODES" ] || die "not started"
  use_current
  case " $(members | tr '\n' ' ') " in *" ${what:-none} "*) ;; *) die "$1 needs one of: $(members | tr '\n' ' ')" ;; esac
  lock_service
  p=$(pid_of "$(pidfile "$what")") || p=
  case $1 in
    kill) [ -n "$p" ] || die "$what is not running"; stop_pid "$(pidfile "$what")" KILL; say "$what killed" ;;
    halt) stop_pid "$(pidfile "$what")"; say "$what stopped" ;;
    restart)
      stop_pid "$(pidfile "$what")"; launch "$what"
      if [ "${what#nn}" != "$what" ]; then
        wait_until "$(pidfile "$what")" "$(logfile "$what")" "the NameNode" nn_answers "$what"
        # One of two begins as a standby.
        [ "$HA" = 0 ] || { say "$what answers again"; return; }
        live=0; for m in $(members); do [ "${m#dn}" = "$m" ] || ! alive "$(pidfile "$m")" || live=$((live + 1)); done
        wait_until "$(pidfile nn)" "$(logfile nn)" "the NameNode (out of safe mode)" cluster_ready "$live"
      elif [ "$what" = kdc ]; then
        wait_until "$(pidfile kdc)" "$(logfile kdc)" "the KDC" port_open "$(kdc_port)"
      else
        wait_until "$(pidfile "$what")" "$(logfile "$what")" "DataNode $what" dn_registered "$what"
      fi
      say "$what answers again" ;;
    pause) [ -n "$p" ] || die "$what is not running"; kill -s STOP "$p"; say "$what paused" ;;
    resume) [ -n "$p" ] || die "$what is not running"; kill -s CONT "$p"; say "$what resumed" ;;
  esac
}

client() { # CLASS ARGS...
  use_current
  if [ "$SECURE" = 1 ]; then
    export KRB5CCNAME=FILE:$CLUSTER/kdc/ccache
    krb bin/kinit -k -t "$CLUSTER/kdc/etl.keytab" etl
  fi
  run_java 256m nn -XX:TieredStopAtLevel=1 "$@"
}

case ${1:-} in
  start) start ;;
  stop) stop ;;
  status) status ;;
  env) print_env ;;
  clean) stop; rm -rf "$STATE"/plain* "$STATE"/secure*; say "data removed" ;;
  kill|halt|restart|pause|resume) one_member "$1" "${2:-}" ;;
  dfs) shift; client org.apache.hadoop.fs.FsShell "$@" ;;
  active) lock_service; use_current; make_active "${2:-}"; say "${2:-} is active" ;;
  admin) shift; client org.apache.hadoop.hdfs.tools.DFSAdmin "$@" ;;
  kadmin) use_current; kadmin "${2:-}" ;;
  log) use_current; logfile "${2:-nn}" ;;
  *) sed -n '2,16s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
