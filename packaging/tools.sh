# shellcheck shell=bash
# For scripts to source: installs the tools that they need beyond Rust, where these are missing.

# Debian's packages of tools that are not here. On another system: a sentence.
need() { # TOOL:PACKAGE...
    local tool missing=() sudo=()
    for tool; do command -v "${tool%%:*}" >/dev/null || missing+=("${tool##*:}"); done
    ((${#missing[@]})) || return 0
    command -v apt-get >/dev/null || { echo "${0##*/}: please install ${missing[*]}" >&2; return 1; }
    ((UID == 0)) || sudo=(sudo)
    "${sudo[@]}" apt-get update -qq
    "${sudo[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# Tools from crates.io and PyPI, in target/tools, which leaves the machine's own alone.
need_crates() { # NAME...
    local tool
    PATH=$PWD/target/tools/bin:$PATH
    for tool; do command -v "$tool" >/dev/null || cargo install -q --locked --root target/tools "$tool"; done
}
need_zigbuild() {
    PATH=$PWD/target/tools/bin:$PATH
    command -v cargo-zigbuild >/dev/null && return
    # Where Debian's Python cannot make environments, it lacks ensurepip.
    python3 -c 'import ensurepip' 2>/dev/null || need ensurepip:python3-venv
    python3 -m venv target/tools && target/tools/bin/pip install -q ziglang cargo-zigbuild
}
