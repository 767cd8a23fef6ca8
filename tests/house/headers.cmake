# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# tessera_header_check(TARGET FOLDER HEADER...) makes a program of one translation unit per header, which includes it twice and first,
# and one more that includes all of them. The compiler finds missing includes and guards; the linker finds what is not inline, because
# each header is in two translation units. HEADERs are paths in FOLDER. One that another HEADER includes before anything else, and in any
# case, comes first in that one's unit and needs none of its own: a third of the units. (Asked when CMake configures.)
function(tessera_header_check target include_folder)
  set(folder "${CMAKE_CURRENT_BINARY_DIR}/${target}_sources")
  set(sources)
  set(all "")
  set(own_units ${ARGN})
  foreach(header IN LISTS ARGN)
    file(STRINGS "${include_folder}/${header}" first REGEX "^ *# *(include|if)" LIMIT_COUNT 1)
    if(first MATCHES "^ *# *include *[<\"]([^>\"]+)[>\"]")
      list(REMOVE_ITEM own_units "${CMAKE_MATCH_1}")
    endif()
  endforeach()
  foreach(header IN LISTS ARGN)
    if(header IN_LIST own_units)
      string(MAKE_C_IDENTIFIER "${header}" name)
      file(CONFIGURE OUTPUT "${folder}/${name}.cpp" CONTENT "#include <${header}>\n#include <${header}>\n" @ONLY)
      list(APPEND sources "${folder}/${name}.cpp")
    endif()
    string(PREPEND all "#include <${header}>\n")
  endforeach()
  file(CONFIGURE OUTPUT "${folder}/all.cpp" CONTENT "${all}int main() {}\n" @ONLY)
  add_executable(${target} ${sources} "${folder}/all.cpp")
  target_compile_options(${target} PRIVATE -O0)
endfunction()
