#!/usr/bin/env bash
# Checks that a release is as it should be: made twice from two folders it has the same bytes, and on a clean Debian it installs, works as
# the README says, and leaves nothing behind (packaging/check).
#
#     tests/beyond/package.sh
#
# Needs root. Installs what it needs. About 25 minutes the first time.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=packaging/tools.sh
. packaging/tools.sh
say() { printf '\n== %s\n' "$*"; }
fail() { echo "package.sh: $*" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

say "licences, bans, sources"
need_crates cargo-deny
cargo deny --locked check --hide-inclusion-graph licenses bans sources

say "the same bytes from another folder"
packaging/release "$work/one"
git clone -q . "$work/elsewhere"
(cd "$work/elsewhere" && packaging/release "$work/two" >/dev/null)
diff "$work/one/SHA256SUMS" "$work/two/SHA256SUMS" || fail "two builds differ"
rm -rf "$work/elsewhere"

packaging/check "$work/one"
