#!/bin/sh
# Installs Baton @VERSION@ on Linux (x86-64, glibc 2.17 or later). Root of a Debian or Ubuntu gets the package; any other user gets a
# folder in their home, which needs no root.
#
#     curl -fsSL @ADDRESS@/install.sh | sh
#     curl -fsSL @ADDRESS@/install.sh | sh -s -- --uninstall
#
# Options: --tarball    the folder, also for root
#          --prefix P   the folder below P, instead of ~/.local: P/lib/baton-@VERSION@, and P/bin/baton, which points there
#          --uninstall  remove what this has installed
# BATON_RELEASE is another address of the same files.
set -eu

version=@VERSION@
address=${BATON_RELEASE:-@ADDRESS@}
# The files' checksums, as sha256sum writes them.
sums='@SUMS@'

fail() {
    echo "install.sh: $*" >&2
    exit 1
}

fetch() { # FILE: into $work, and it is what it has to be
    echo "fetching $address/$1" >&2
    if command -v curl >/dev/null; then
        curl -fsSL --retry 2 -o "$work/$1" "$address/$1" || fail "$address/$1 did not arrive whole; nothing was installed. Try again"
    elif command -v wget >/dev/null; then
        wget -q -O "$work/$1" "$address/$1" || fail "$address/$1 did not arrive whole; nothing was installed. Try again"
    else
        fail "please install curl or wget"
    fi
    wanted=$(echo "$sums" | grep -F "/$1" | cut -d ' ' -f 1)
    found=$(sha256sum "$work/$1" | cut -d ' ' -f 1)
    [ "$found" = "$wanted" ] ||
        fail "$1 is not the file of this release (its SHA-256 is $found instead of $wanted); nothing was installed"
}

# Debian's way, with root.
install_package() {
    package=baton_${version}_amd64.deb
    fetch "$package"
    # For apt's own user.
    chmod 755 "$work"
    apt-get install -y -qq --no-install-recommends "$work/$package" >"$work/apt" 2>&1 </dev/null || {
        cat "$work/apt" >&2
        fail "apt-get has not installed it"
    }
    baton=baton
}

install_folder() {
    lib=$prefix/lib bin=$prefix/bin
    mkdir -p "$lib" "$bin" 2>/dev/null || true
    if ! [ -w "$lib" ] || ! [ -w "$bin" ]; then
        fail "$(id -un) may not write in $lib and $bin; choose another folder with --prefix; nothing was installed"
    fi
    fetch "baton-$version-x86_64-linux.tar.gz"
    tar -xzf "$work/baton-$version-x86_64-linux.tar.gz" -C "$work"
    "$work/baton-$version-x86_64-linux/bin/baton" --version >/dev/null || fail "it does not run here; nothing was installed"
    # Programs that run keep the files that they have open.
    rm -rf "$lib/baton-$version"
    mv "$work/baton-$version-x86_64-linux" "$lib/baton-$version"
    ln -sf "$lib/baton-$version/bin/baton" "$bin/baton"
    baton=$bin/baton
    [ "$(command -v baton || true)" != "$bin/baton" ] || baton=baton
}

uninstall() {
    if [ "$way" = package ]; then
        apt-get purge -y -qq baton >/dev/null 2>&1 </dev/null || fail "apt-get has not removed it"
    else
        [ -d "$prefix/lib/baton-$version" ] || fail "there is no $prefix/lib/baton-$version"
        rm -rf "$prefix/lib/baton-$version"
        # Another version may be there.
        [ -e "$prefix/bin/baton" ] || rm -f "$prefix/bin/baton"
    fi
    echo "Baton $version is gone."
}

# The shell reads all of this file before it runs any of it: a cut download does nothing.
main() {
    prefix=${HOME:-}/.local way=folder wanted=install
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null && command -v dpkg >/dev/null; then way=package; fi
    while [ $# -gt 0 ]; do
        case $1 in
        --tarball) way=folder ;;
        --prefix)
            [ $# -gt 1 ] || fail "--prefix needs a folder"
            prefix=$2 way=folder
            shift
            ;;
        --uninstall) wanted=uninstall ;;
        *) fail "$1 is no option; there are --tarball, --prefix FOLDER and --uninstall" ;;
        esac
        shift
    done
    [ "$(uname -sm)" = "Linux x86_64" ] || fail "Baton runs on Linux on x86-64, and this is $(uname -sm)"
    if [ "$wanted" = uninstall ]; then
        uninstall
        return
    fi
    libc=$(getconf GNU_LIBC_VERSION 2>/dev/null) || fail "Baton needs glibc, as CUDA does; this system has another C library"
    [ "$(printf '%s\nglibc 2.17\n' "$libc" | sort -V | head -n 1)" = "glibc 2.17" ] || fail "Baton needs glibc 2.17 or later, and this is $libc"
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    "install_$way"
    echo "Baton $version is installed. Try it, with a GPU or without:"
    echo "  $baton demo"
    if [ "$baton" != baton ]; then
        echo "So that you can say \"baton\": export PATH=\"$(dirname "$baton"):\$PATH\""
    fi
}

main "$@"
