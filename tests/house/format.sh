#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# clang-format 19 leaves every file as it is. Another version formats differently and is not asked.
cd "$(dirname "$0")/../.." || exit 1
tool=$(command -v clang-format-19 || command -v clang-format) || { echo "no clang-format (Debian: clang-format-19)"; exit 77; }
"$tool" --version | grep -q 'version 19\.' || { echo "this is not clang-format 19: $("$tool" --version)"; exit 77; }
mapfile -t files < <(find include tests examples bench -name '*.hpp' -o -name '*.cuh' -o -name '*.cpp' -o -name '*.cu' | sort)
"$tool" --dry-run -Werror "${files[@]}" && echo "${#files[@]} files"
