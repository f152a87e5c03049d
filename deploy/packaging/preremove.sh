#!/bin/sh
# Before a removal, but not before an upgrade: deb gives "remove", rpm 0.
set -e
case "$1" in
remove | 0)
  if [ -d /run/systemd/system ]; then systemctl disable --now etl.service; fi
  ;;
esac
