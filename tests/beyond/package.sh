#!/usr/bin/env bash
# Whether Baton's packages do what they should: built twice from two folders they are the same, they ask for no newer glibc than
# they say, and in a new Debian they install, work, and leave nothing behind.
#
#     tests/beyond/package.sh            all of that
#     tests/beyond/package.sh FOLDER     only what is done with a package; it is there already
#
# Needs root, for a root file system of its own (debootstrap). Installs what it needs. About 20 minutes the first time.
set -euo pipefail
cd "$(dirname "$0")/../.."
say() { printf '\n== %s\n' "$*"; }
fail() { echo "package.sh: $*" >&2; exit 1; }

say "tools"
missing=()
for tool in debootstrap:debootstrap objdump:binutils dpkg-deb:dpkg; do
    command -v "${tool%%:*}" >/dev/null || missing+=("${tool##*:}")
done
if ((${#missing[@]})); then
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi
command -v cargo-zigbuild >/dev/null || pip install -q ziglang cargo-zigbuild
for tool in cargo-deb cargo-deny cargo-cyclonedx; do
    command -v "$tool" >/dev/null || cargo install -q --locked "$tool"
done

work=$(mktemp -d)
root=$work/root
trap 'umount -l "$root/proc" 2>/dev/null || true; rm -rf "$work"' EXIT

build_twice() {
    say "licences, bans, sources"
    cargo deny --locked check --hide-inclusion-graph licenses bans sources

    say "the same bytes from another folder"
    packaging/build "$work/one"
    git clone -q . "$work/elsewhere"
    (cd "$work/elsewhere" && packaging/build "$work/two" >/dev/null)
    python3 - "$work"/one/*.cdx.json <<'END'
import json, sys
for path in sys.argv[1:]:
    found = json.load(open(path))
    assert found["bomFormat"] == "CycloneDX" and found["components"], path
    print(path.rsplit("/")[-1], len(found["components"]), "components")
END
    diff "$work/one/SHA256SUMS" "$work/two/SHA256SUMS" || fail "two builds differ"
    rm -rf "$work/elsewhere"
}
if [[ ${1:-} ]]; then ln -s "$(realpath "$1")" "$work/one"; else build_twice; fi
package=$(echo "$work"/one/baton_*_amd64.deb)

say "glibc"
dpkg-deb -x "$package" "$work/unpacked"
highest=$(objdump -T "$work"/unpacked/usr/bin/baton "$work"/unpacked/usr/lib/baton/* |
    grep -oE 'GLIBC_[0-9.]+' | sort -uV | tail -1)
echo "the highest symbol is $highest"
[[ $(printf '%s\nGLIBC_2.17\n' "$highest" | sort -V | tail -1) == GLIBC_2.17 ]] || fail "$highest is too new"

say "a new Debian"
debootstrap --variant=minbase bookworm "$root" >/dev/null
mount -t proc proc "$root/proc"
inside() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "$@"; }
# What apt itself keeps is not the package's.
files() {
    (cd "$root" && find . -xdev -path ./proc -prune -o -path ./var/lib/apt -prune -o -path ./var/cache -prune -o \
        -path ./var/log -prune -o -path './var/lib/dpkg/*-old' -prune -o -path ./tmp -prune -o -print | sort)
}
files >"$work/before"
cp "$package" "$root/tmp/"
inside apt-get install -y -qq "/tmp/$(basename "$package")" >/dev/null
inside baton --version

say "ldconfig"
inside ldconfig
# The library says that it is libcuda.so.1: wherever ldconfig looked, it would make that its name.
if inside ldconfig -p | grep -E 'libcuda|baton'; then fail "ldconfig has found Baton's library"; fi
echo "ldconfig does not know it"

say "the README's use"
inside baton demo --driver sim
inside bash -ec '
    baton serve --driver sim --arena 64MiB >/dev/null 2>&1 &
    until baton status >/dev/null 2>&1; do sleep 0.1; done
    baton run --name one --driver sim -- /usr/lib/baton/large_table --megabytes 40 --rounds 3 &
    one=$!
    baton run --name two --driver sim -- /usr/lib/baton/large_table --megabytes 40 --rounds 3
    wait $one
    baton stop --now
    ! baton status 2>/dev/null'
inside test -s /usr/share/man/man1/baton.1.gz -a -s /usr/share/bash-completion/completions/baton

say "purge"
inside apt-get purge -y -qq baton >/dev/null
files >"$work/after"
diff "$work/before" "$work/after" || fail "something is left"
echo "nothing is left"
say "all is well"
