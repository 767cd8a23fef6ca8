# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# tessera_header_check(TARGET cpp|cu HEADER...) makes a program of one translation unit per header, which includes it twice and first,
# and one more that includes all of them. The compiler finds missing includes and guards; the linker finds what is not inline, because
# each header is in two translation units.
function(tessera_header_check target extension)
  set(folder "${CMAKE_CURRENT_BINARY_DIR}/${target}_sources")
  set(sources)
  set(all "")
  foreach(header IN LISTS ARGN)
    string(MAKE_C_IDENTIFIER "${header}" name)
    file(CONFIGURE OUTPUT "${folder}/${name}.${extension}" CONTENT "#include <${header}>\n#include <${header}>\n" @ONLY)
    list(APPEND sources "${folder}/${name}.${extension}")
    string(PREPEND all "#include <${header}>\n")
  endforeach()
  file(CONFIGURE OUTPUT "${folder}/all.${extension}" CONTENT "${all}int main() {}\n" @ONLY)
  add_executable(${target} ${sources} "${folder}/all.${extension}")
  target_compile_options(${target} PRIVATE -O0)
endfunction()
