# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# To be sourced: install_packages PACKAGE... installs those Debian packages that are missing, and nothing where none is.

install_packages() {
  if ! command -v dpkg-query >/dev/null; then
    echo "Not a Debian system: what is needed there are the counterparts of these packages: $*"
    return 0
  fi
  local package missing=() as_root=()
  for package in "$@"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  if [ "$(id -u)" != 0 ]; then
    as_root=(sudo)
    command -v sudo >/dev/null || as_root=()
  fi
  if ! command -v apt-get >/dev/null || { [ "$(id -u)" != 0 ] && [ ${#as_root[@]} = 0 ]; }; then
    echo "Cannot install packages here (no root, no sudo). Please have these installed and run again: ${missing[*]}" >&2
    return 1
  fi
  echo "Installing with apt: ${missing[*]}"
  local log
  log=$(mktemp)
  if ! { "${as_root[@]}" apt-get update -q && "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends \
           "${missing[@]}"; } >"$log" 2>&1 </dev/null; then
    tail -n 20 "$log" >&2
    echo "apt failed (above: its last lines). Please install these packages and run again: ${missing[*]}" >&2
    rm -f "$log"
    return 1
  fi
  rm -f "$log"
}
