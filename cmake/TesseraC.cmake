# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# tessera::c         the library of <tessera/tessera.h>, for C and what calls C: libtessera_c.so, which exports tessera_* and nothing else
# tessera::c_static  the same as an archive
#
# They are built by the project that links them, with that project's flags, from the sources beside this file. Gloo is in them where it was
# found; MPI, which is another library on each machine, with TESSERA_C_MPI.
option(TESSERA_C_MPI "Ranks over MPI in tessera::c" OFF)

block()
  if(IS_DIRECTORY "${CMAKE_CURRENT_LIST_DIR}/c_library")
    set(folder "${CMAKE_CURRENT_LIST_DIR}/c_library")
  endif()
  set(sources handles communicators layouts collections files)
  list(TRANSFORM sources REPLACE "(.+)" "${folder}/\\1.cpp")
  set_source_files_properties("${folder}/communicators.cpp" PROPERTIES
    COMPILE_DEFINITIONS "TESSERA_C_GLOO=$<TARGET_EXISTS:tessera::gloo>;TESSERA_C_MPI=$<BOOL:${TESSERA_C_MPI}>")
  add_library(tessera_c_objects OBJECT EXCLUDE_FROM_ALL ${sources})
  set_target_properties(tessera_c_objects PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  # fmt's code inside: who loads the library may have another version of it.
  target_compile_definitions(tessera_c_objects PRIVATE FMT_HEADER_ONLY)
  target_link_libraries(tessera_c_objects PRIVATE tessera::serving $<TARGET_NAME_IF_EXISTS:tessera::gloo> $<$<BOOL:${TESSERA_C_MPI}>:tessera::mpi>)

  add_library(tessera_c SHARED EXCLUDE_FROM_ALL $<TARGET_OBJECTS:tessera_c_objects>)
  add_library(tessera::c ALIAS tessera_c)
  set_target_properties(tessera_c PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION 0 LINK_DEPENDS "${folder}/exported.map")
  target_link_options(tessera_c PRIVATE "LINKER:--version-script=${folder}/exported.map,--as-needed")
  add_library(tessera_c_static STATIC EXCLUDE_FROM_ALL $<TARGET_OBJECTS:tessera_c_objects>)
  add_library(tessera::c_static ALIAS tessera_c_static)
  foreach(target IN ITEMS tessera_c tessera_c_static)
    target_include_directories(${target} INTERFACE $<TARGET_PROPERTY:tessera::tessera,INTERFACE_INCLUDE_DIRECTORIES>)
    target_link_libraries(${target} PRIVATE tessera::serving $<TARGET_NAME_IF_EXISTS:tessera::gloo> $<$<BOOL:${TESSERA_C_MPI}>:tessera::mpi>)
  endforeach()
endblock()
