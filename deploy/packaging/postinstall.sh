#!/bin/sh
# After an installation or upgrade: deb gives "configure OLD-VERSION", rpm a count.
set -e
if command -v systemd-sysusers >/dev/null; then
  systemd-sysusers etl.conf
  systemd-tmpfiles --create etl.conf
fi
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
case "$1:${2:-}" in
configure:?* | 2:*)
  # The new program goes on from a checkpoint that the old one takes as it stops.
  systemctl try-restart etl.service
  ;;
*)
  echo 'Put pipelines into /etc/etl/pipelines, then: systemctl enable --now etl'
  ;;
esac
