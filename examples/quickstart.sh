#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# Installs what is missing, builds in Release for this machine, and trains a DLRM. Options go to the trainer:
#   bash examples/quickstart.sh --help
set -euo pipefail
root=$(CDPATH= cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

for argument in "$@"; do
  if [ "$argument" = --help ] || [ "$argument" = -h ]; then
    sed -n '/^# Installs/,/^set/s/^# *//p' "${BASH_SOURCE[0]}"
    trainer=$root/build/release/bin/train_dlrm
    if [ -x "$trainer" ]; then exec "$trainer" --help; fi
    echo "The trainer's options are shown when it is built, and are in docs/trainer.md."
    exit 0
  fi
done

source "$root/cmake/install_packages.sh"
install_packages g++ cmake ninja-build libfmt-dev libdnnl-dev ocl-icd-opencl-dev libcli11-dev libyaml-cpp-dev zlib1g-dev libzstd-dev nlohmann-json3-dev

# The build speaks only when it fails or when it is a terminal that shows its progress.
log=$(mktemp)
trap 'rm -f "$log"' EXIT
cd "$root"
cmake --preset release >"$log" || { cat "$log"; exit 1; }
if [ -t 1 ]; then
  cmake --build --preset release --target train_dlrm
else
  cmake --build --preset release --target train_dlrm >"$log" || { cat "$log"; exit 1; }
fi
cd "$OLDPWD"
rm -f "$log"
exec "$root/build/release/bin/train_dlrm" "$@"
