#!/usr/bin/env bash
# Installs what the tests of this folder run, as root on Debian. promtool is unpacked from
# the package of Prometheus into the folder that is printed, for it would be a service too.
set -euo pipefail
dir=${DEPLOY_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/etl-deploy-tools}
want=()
command -v systemd-analyze >/dev/null || want+=(systemd)
command -v dpkg-deb >/dev/null || want+=(dpkg)
command -v rpm >/dev/null || want+=(rpm)
if [ ${#want[@]} -gt 0 ] || [ ! -x "$dir/promtool" ]; then apt-get update -q >&2; fi
if [ ${#want[@]} -gt 0 ]; then
  DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${want[@]}" >&2
fi
if [ ! -x "$dir/promtool" ]; then
  tmp=$(mktemp -d)
  trap 'rm -rf "$tmp"' EXIT
  mkdir -p "$dir"
  (cd "$tmp" && apt-get download -q -o APT::Sandbox::User=root prometheus >&2 && dpkg-deb -x prometheus_*.deb .)
  mv "$tmp/usr/bin/promtool" "$dir/promtool"
fi
echo "$dir"
