# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# tessera_header_check(TARGET FOLDER HEADER...) makes a program of translation units that include each header twice, after nothing or after
# what it includes itself, and one unit more that includes all of them, and checks their texts' formats. The compiler finds missing includes and guards; the linker finds what
# is not inline, because each header is in two translation units. HEADERs are paths in FOLDER. header_units.py says, when CMake configures,
# which headers share a unit: a third as many units as headers. Without Python each has its own.
find_package(Python3 QUIET COMPONENTS Interpreter)
set(header_units "${CMAKE_CURRENT_LIST_DIR}/header_units.py")
function(tessera_header_check target include_folder)
  set(folder "${CMAKE_CURRENT_BINARY_DIR}/${target}_sources")
  set(units ${ARGN})
  if(Python3_FOUND)
    execute_process(COMMAND "${Python3_EXECUTABLE}" "${header_units}" "${include_folder}" ${ARGN} OUTPUT_VARIABLE units
                    OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
    string(REPLACE "\n" ";" units "${units}")
  endif()
  set(sources)
  foreach(unit IN LISTS units)
    string(REGEX REPLACE "[^ ]+ " "" last "${unit}")
    string(MAKE_C_IDENTIFIER "${last}" name)
    string(REGEX REPLACE "([^ ]+) ?" "#include <\\1>\n" includes "${unit}")
    file(CONFIGURE OUTPUT "${folder}/${name}.cpp" CONTENT "${includes}${includes}" @ONLY)
    list(APPEND sources "${folder}/${name}.cpp")
  endforeach()
  set(all ${ARGN})
  list(REVERSE all)
  list(TRANSFORM all REPLACE "(.+)" "#include <\\1>\n")
  list(JOIN all "" all)
  file(CONFIGURE OUTPUT "${folder}/all.cpp" CONTENT "${all}int main() {}\n" @ONLY)
  add_executable(${target} ${sources} "${folder}/all.cpp")
  target_compile_options(${target} PRIVATE -O0)
  set_source_files_properties("${folder}/all.cpp" PROPERTIES COMPILE_DEFINITIONS TESSERA_CHECK_FORMATS)
endfunction()
