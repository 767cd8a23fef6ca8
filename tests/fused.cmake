# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# tessera_fuse(TARGET SOURCE) adds a test file to the one translation unit of the program TARGET, which it makes first. Each file
# keeps its names in a namespace of its own; what any of them includes comes before all. So what their collections have in common, most of
# their code, is compiled once. `--source-file` picks a file's tests. Not for files that replace operator new; tests that stand in
# headers have no file to be picked by.
function(tessera_fuse target source)
  if(NOT TARGET ${target})
    cmake_path(GET source EXTENSION LAST_ONLY extension)
    add_executable(${target} "${CMAKE_CURRENT_BINARY_DIR}/${target}${extension}")
    cmake_language(EVAL CODE "cmake_language(DEFER CALL tessera_write_fused ${target})")
  endif()
  get_target_property(includes ${target} fused_includes)
  get_target_property(bodies ${target} fused_bodies)
  foreach(text includes bodies)
    if(NOT ${text})
      set(${text} "")
    endif()
  endforeach()
  file(STRINGS "${source}" lines REGEX "^#include ")
  cmake_path(ABSOLUTE_PATH source OUTPUT_VARIABLE path)
  cmake_path(GET path PARENT_PATH folder)
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "\"(\\.\\..*)\"" "\"${folder}/\\1\"" line "${line}")
    string(FIND "${includes}" "${line}\n" at)
    if(at EQUAL -1)
      string(APPEND includes "${line}\n")
    endif()
  endforeach()
  string(MAKE_C_IDENTIFIER "${source}" name)
  string(APPEND bodies "namespace ${name} {\n#include \"${path}\"\n}\n")
  set_target_properties(${target} PROPERTIES fused_includes "${includes}" fused_bodies "${bodies}")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${source}")
endfunction()

function(tessera_write_fused target)
  get_target_property(includes ${target} fused_includes)
  get_target_property(bodies ${target} fused_bodies)
  get_target_property(unit ${target} SOURCES)
  file(CONFIGURE OUTPUT "${unit}" CONTENT "${includes}${bodies}" @ONLY)
endfunction()
