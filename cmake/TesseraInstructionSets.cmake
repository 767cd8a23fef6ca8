# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
#   tessera_add_portable_executable(NAME SOURCES a.cpp ... [LINK_LIBRARIES tessera::tessera ...] [LEVELS x86-64 x86-64-v3 x86-64-v4])
#
# A program for any x86-64 processor. The length of the kernels' vectors follows -march, so SOURCES are compiled once per level, and
# main() of the best level that the processor has is called; TESSERA_INSTRUCTION_SET=x86-64-v3 asks for that one. A level has its own
# copy of whatever its sources define, static variables too, and initializes it only if it is the one that runs. LINK_LIBRARIES are
# compiled with their own flags and shared by all levels; an inline variable of theirs and of SOURCES exists twice. What the sources need
# (include folders, definitions, options) comes through them, or from the folder's settings.
#
# Where this cannot be done (another processor or system, no GNU binutils, sanitizers) NAME is an ordinary executable of the same
# sources and the user's flags, and one line says why. Linking is not interprocedural (-flto) across SOURCES. A replaced operator new
# belongs into a library: one among SOURCES would serve its level only, not the C++ library.
cmake_policy(VERSION 3.25)  # whatever the including project asks for; ends with this file

# `reason`: empty where levels can be built.
function(tessera_why_no_levels reason)
  set(${reason} "" PARENT_SCOPE)
  if(NOT CMAKE_SYSTEM_NAME STREQUAL "Linux" OR NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$" OR
     NOT CMAKE_SIZEOF_VOID_P EQUAL 8)
    set(${reason} "not Linux on x86-64" PARENT_SCOPE)
  elseif(NOT CMAKE_CXX_COMPILER_ID MATCHES "^(GNU|Clang)$")
    set(${reason} "the compiler is neither g++ nor clang" PARENT_SCOPE)
  elseif(CMAKE_CONFIGURATION_TYPES)
    set(${reason} "a generator of several configurations" PARENT_SCOPE)
  elseif(CMAKE_CXX_FLAGS MATCHES "-fsanitize")
    set(${reason} "sanitizers" PARENT_SCOPE)
  else()
    find_program(TESSERA_LD NAMES x86_64-linux-gnu-ld.bfd ld.bfd x86_64-linux-gnu-ld ld)
    find_program(TESSERA_OBJCOPY NAMES x86_64-linux-gnu-objcopy objcopy)
    mark_as_advanced(TESSERA_LD TESSERA_OBJCOPY)
    if(NOT TESSERA_LD OR NOT TESSERA_OBJCOPY)
      set(${reason} "ld or objcopy not found (Debian: binutils)" PARENT_SCOPE)
      return()
    endif()
    execute_process(COMMAND "${TESSERA_LD}" --help OUTPUT_VARIABLE help ERROR_QUIET)
    if(NOT help MATCHES "--force-group-allocation" OR NOT help MATCHES "elf_x86_64|elf64-x86-64")
      set(${reason} "${TESSERA_LD} is not GNU ld for x86-64" PARENT_SCOPE)
    endif()
  endif()
endfunction()

function(tessera_add_portable_executable name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LINK_LIBRARIES;LEVELS")
  set(tessera_levels x86-64 x86-64-v2 x86-64-v3 x86-64-v4)
  set(call "tessera_add_portable_executable(${name})")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "${call}: '${arg_UNPARSED_ARGUMENTS}' follows none of SOURCES, LINK_LIBRARIES, LEVELS")
  endif()
  if(NOT arg_SOURCES)
    message(FATAL_ERROR "${call}: no SOURCES")
  endif()
  if(NOT arg_LEVELS)
    set(arg_LEVELS x86-64 x86-64-v3 x86-64-v4)
  endif()
  foreach(level IN LISTS arg_LEVELS)
    if(NOT level IN_LIST tessera_levels)
      list(JOIN tessera_levels ", " known)
      message(FATAL_ERROR "${call}: unknown level '${level}'; there are ${known}")
    endif()
  endforeach()
  set(levels)
  foreach(level IN LISTS tessera_levels)  # ascending
    if(level IN_LIST arg_LEVELS)
      list(APPEND levels ${level})
    endif()
  endforeach()

  tessera_why_no_levels(reason)
  if(reason)
    message(STATUS "${call}: one instruction set, that of the compiler's flags: ${reason}")
    add_executable(${name} ${arg_SOURCES})
    target_link_libraries(${name} PRIVATE ${arg_LINK_LIBRARIES})
    return()
  endif()

  set(here "${CMAKE_CURRENT_FUNCTION_LIST_DIR}")
  set(folder "${CMAKE_CURRENT_BINARY_DIR}/${name}_levels")
  set(TESSERA_LEVEL_DECLARATIONS)
  set(TESSERA_LEVEL_ROWS)
  set(parts)
  foreach(level IN LISTS levels)
    string(MAKE_C_IDENTIFIER "${level}" id)
    set(objects ${name}_${id})
    add_library(${objects} OBJECT EXCLUDE_FROM_ALL ${arg_SOURCES})
    target_link_libraries(${objects} PRIVATE ${arg_LINK_LIBRARIES})
    tessera_compile_for_level(${objects} ${level})

    # One object of the whole level. Groups become ordinary sections: as groups, those of equal names are merged when the program is
    # linked, and an inline function compiled for AVX-512 would serve every level. Initializers go to a section of the level's own.
    file(CONFIGURE OUTPUT "${folder}/${id}.ld" @ONLY CONTENT [[
SECTIONS {
  tessera_init_@id@ 0 : { KEEP(*(.preinit_array)) KEEP(*(SORT_BY_INIT_PRIORITY(.init_array.*))) KEEP(*(.init_array)) }
  tessera_fini_@id@ 0 : { KEEP(*(SORT_BY_INIT_PRIORITY(.fini_array.*))) KEEP(*(.fini_array)) }
  /DISCARD/ : { *(.llvm_addrsig) }
}
]])
    set(part "${folder}/${id}.o")
    add_custom_command(OUTPUT "${part}" DEPENDS ${objects} $<TARGET_OBJECTS:${objects}> "${folder}/${id}.ld" VERBATIM COMMAND_EXPAND_LISTS
      COMMAND "${TESSERA_LD}" -m elf_x86_64 -r -dc --force-group-allocation -T "${folder}/${id}.ld" -o "${part}.all"
              "$<TARGET_OBJECTS:${objects}>"
      COMMAND "${TESSERA_OBJCOPY}" --redefine-sym main=tessera_main_${id} --keep-global-symbol=tessera_main_${id} "${part}.all" "${part}"
      COMMENT "${name}: ${level}")
    list(APPEND parts "${part}")

    set(arrays)
    foreach(array IN ITEMS init fini)
      list(APPEND arrays __start_tessera_${array}_${id} __stop_tessera_${array}_${id})
      string(APPEND TESSERA_LEVEL_DECLARATIONS "extern \"C\" [[gnu::weak, gnu::visibility(\"hidden\")]] const Function "
        "__start_tessera_${array}_${id}[], __stop_tessera_${array}_${id}[];\n")
    endforeach()
    string(APPEND TESSERA_LEVEL_DECLARATIONS "extern \"C\" int tessera_main_${id}(int, char**, char**);\n")
    list(JOIN arrays ", " arrays)
    list(FIND tessera_levels ${level} number)
    math(EXPR number "${number} + 1")
    string(APPEND TESSERA_LEVEL_ROWS "    {\"${level}\", ${number}, tessera_main_${id}, ${arrays}},\n")
  endforeach()

  configure_file("${here}/instruction_sets.cpp.in" "${folder}/instruction_sets.cpp" @ONLY)
  # By itself: no library's flags may reach the code that finds out what the processor can do.
  add_library(${name}_dispatcher OBJECT EXCLUDE_FROM_ALL "${folder}/instruction_sets.cpp")
  target_compile_features(${name}_dispatcher PRIVATE cxx_std_17)
  tessera_compile_for_level(${name}_dispatcher x86-64)
  add_executable(${name} $<TARGET_OBJECTS:${name}_dispatcher> ${parts})
  set_target_properties(${name} PROPERTIES LINKER_LANGUAGE CXX INTERPROCEDURAL_OPTIMIZATION OFF)
  foreach(library IN LISTS arg_LINK_LIBRARIES)
    target_link_libraries(${name} PRIVATE "${library}")
  endforeach()
endfunction()

function(tessera_compile_for_level target level)
  string(MAKE_C_IDENTIFIER "${level}" id)
  set_target_properties(${target} PROPERTIES INTERPROCEDURAL_OPTIMIZATION OFF)
  # Unique symbols (g++'s inline variables) cannot be made private. The header refuses flags that undo the level.
  target_compile_options(${target} PRIVATE -march=${level} -fno-lto $<$<CXX_COMPILER_ID:GNU>:-fno-gnu-unique>
    "SHELL:-include \"${CMAKE_CURRENT_FUNCTION_LIST_DIR}/instruction_set_check.hpp\"")
  target_compile_definitions(${target} PRIVATE TESSERA_LEVEL_${id})
endfunction()
