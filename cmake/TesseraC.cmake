# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# tessera::c         the library of <tessera/tessera.h>, for C and what calls C: libtessera_c.so, which exports tessera_* and nothing else
# tessera::c_static  the same as an archive
#
# They are built by the project that links them, with that project's flags, from the sources beside this file. Gloo is in them where it was
# found and TESSERA_C_GLOO is on; MPI, which is another library on each machine, with TESSERA_C_MPI.
option(TESSERA_C_GLOO "Ranks over Gloo in tessera::c, where Gloo was found" ON)
option(TESSERA_C_MPI "Ranks over MPI in tessera::c" OFF)

block()
  set(folder "${CMAKE_CURRENT_LIST_DIR}/c_library")
  set(sources handles communicators layouts collections files)
  list(TRANSFORM sources REPLACE "(.+)" "${folder}/\\1.cpp")
  set(libraries tessera::serving)
  foreach(engine IN ITEMS GLOO MPI)
    string(TOLOWER "tessera::${engine}" target)
    if(TESSERA_C_${engine} AND TARGET ${target})
      list(APPEND libraries ${target})
      list(APPEND engines TESSERA_C_${engine}=1)
    endif()
  endforeach()
  set_source_files_properties("${folder}/communicators.cpp" PROPERTIES COMPILE_DEFINITIONS "${engines}")
  add_library(tessera_c_objects OBJECT EXCLUDE_FROM_ALL ${sources})
  set_target_properties(tessera_c_objects PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  # fmt's code inside: who loads the library may have another version of it.
  target_compile_definitions(tessera_c_objects PRIVATE FMT_HEADER_ONLY)
  target_link_libraries(tessera_c_objects PRIVATE ${libraries})

  add_library(tessera_c SHARED EXCLUDE_FROM_ALL $<TARGET_OBJECTS:tessera_c_objects>)
  add_library(tessera::c ALIAS tessera_c)
  set_target_properties(tessera_c PROPERTIES VERSION ${tessera_VERSION} SOVERSION 0 LINK_DEPENDS "${folder}/exported.map")
  target_link_options(tessera_c PRIVATE "LINKER:--version-script=${folder}/exported.map,--as-needed")
  add_library(tessera_c_static STATIC EXCLUDE_FROM_ALL $<TARGET_OBJECTS:tessera_c_objects>)
  add_library(tessera::c_static ALIAS tessera_c_static)
  foreach(target IN ITEMS tessera_c tessera_c_static)
    target_include_directories(${target} INTERFACE $<TARGET_PROPERTY:tessera::tessera,INTERFACE_INCLUDE_DIRECTORIES>)
    target_link_libraries(${target} PRIVATE ${libraries})
  endforeach()
endblock()
