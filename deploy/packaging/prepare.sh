#!/bin/sh
# Makes what packages hold beside the program: completions and manual pages, into
# deploy/packaging/out, and the dashboard, where npm is there.
set -eu
cd "$(dirname "$0")/../.."
out=deploy/packaging/out
rm -rf "$out"
mkdir -p "$out/completions" "$out/man"
if command -v npm >/dev/null; then
  (cd cmd/etl/internal/dashboard && npm ci --no-audit --no-fund && npm run build)
fi
go build -trimpath -buildvcs=false -o "$out/etl" ./cmd/etl
for shell in bash zsh fish; do
  "$out/etl" completion "$shell" >"$out/completions/etl.$shell"
done
"$out/etl" man "$out/man"
gzip -9 -n "$out"/man/*.1
rm "$out/etl"
