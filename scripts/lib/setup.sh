# Sourced by the scripts: installs what is missing, configures and builds, without interaction.
# shellcheck shell=bash

CARVE_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
CARVE_CACHE=${CARVE_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/carve}
export CARVE_ROOT CARVE_CACHE
export DEBIAN_FRONTEND=noninteractive

say() { printf '\033[1m== %s\033[0m\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# install_packages LIST…: installs the Debian packages named in scripts/packages/LIST that are missing.
install_packages() {
  local list name missing=()
  for list in "$@"; do
    while read -r name; do
      [ "$(dpkg-query -W -f='${db:Status-Status}' "$name" 2>/dev/null)" = installed ] || missing+=("$name")
    done < <(sed 's/#.*//; s/[[:space:]]//g; /^$/d' "$CARVE_ROOT/scripts/packages/$list")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  [ "$(id -u)" = 0 ] || die "these Debian packages are missing: ${missing[*]}
  install them (apt-get install ${missing[*]}) or run this script as root; then it installs them"
  say "installing ${#missing[@]} Debian packages: ${missing[*]}"
  apt-get update -qq || die "apt-get update failed: is a Debian mirror configured and reachable?"
  apt-get install -y -qq --no-install-recommends "${missing[@]}" >"${TMPDIR:-/tmp}/carve-apt.log" 2>&1 ||
    { tail -20 "${TMPDIR:-/tmp}/carve-apt.log" >&2; die "apt-get install failed: ${missing[*]}"; }
}

# fetch_web: fetches the packages of the web page that are missing. The build continues without them; then the program
# has no web page and says so.
fetch_web() {
  "$CARVE_ROOT/scripts/lib/web_packages.py" "$CARVE_ROOT/web/packages.tsv" "$CARVE_CACHE/web/packages" ||
    echo "the packages of the web page could not be fetched: the dashboard will have no page"
}

# fetch_audit: the same for the accessibility audit of the page, which only the tests need.
fetch_audit() {
  "$CARVE_ROOT/scripts/lib/web_packages.py" "$CARVE_ROOT/tests/dashboard/packages.tsv" "$CARVE_CACHE/web/audit" ||
    echo "the accessibility audit could not be fetched: its test will be skipped"
}

# build PRESET [TARGET…]: configures and builds in build/PRESET.
build() {
  local preset=$1; shift
  say "building ($preset)"
  (cd "$CARVE_ROOT" && cmake --preset "$preset" >"${TMPDIR:-/tmp}/carve-configure.log" 2>&1) ||
    { tail -30 "${TMPDIR:-/tmp}/carve-configure.log" >&2; die "configuring $preset failed"; }
  cmake --build "$CARVE_ROOT/build/$preset" -- ${CARVE_JOBS:+-j$CARVE_JOBS} "$@" || die "building $preset failed"
}
