#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# Builds a searchable site of docs/ with MkDocs Material, in pinned versions, and serves it. A broken link is an error.
#
#   bash docs/site.sh                   serves it at http://127.0.0.1:8000/, and follows changes of the pages
#   bash docs/site.sh --build [FOLDER]  builds it into FOLDER, build/site without one
#
# Exit code 77: the packages are not here and cannot be had.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
case ${1:-} in
  '' | --build) ;;
  *) sed -n '/^#   bash/s/^#   //p' "${BASH_SOURCE[0]}"; [[ $1 == -h || $1 == --help ]]; exit ;;
esac
venv=build/site_venv
pins=docs/site/requirements.txt
if ! cmp -s "$pins" "$venv/pins"; then
  rm -rf "$venv"
  if ! python3 -m venv "$venv" || ! "$venv/bin/pip" install -q --disable-pip-version-check --retries 1 --timeout 15 -r "$pins"; then
    echo "the site needs Python's venv and the packages of $pins, which could not be installed (Debian: python3-venv, and a package index)"
    exit 77
  fi
  cp "$pins" "$venv/pins"
fi
export NO_MKDOCS_2_WARNING=1
if [ "${1:-}" = --build ]; then
  # Not --quiet: that hides warnings from --strict, too.
  "$venv/bin/mkdocs" build --strict --clean -f .mkdocs.yml -d "$(realpath -m "${2:-build/site}")" 2>&1 | { grep -v '^INFO' || true; }
else
  "$venv/bin/mkdocs" serve -f .mkdocs.yml
fi
