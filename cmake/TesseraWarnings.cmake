# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# Flags of this project's own tests, examples and benchmarks. Users get none of them.
add_library(tessera_own_flags INTERFACE)
target_compile_options(tessera_own_flags INTERFACE -Wall -Wextra -Werror $<$<BOOL:${TESSERA_NATIVE}>:-march=native>)
