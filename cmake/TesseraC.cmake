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

# tessera_named_kernels  the kernels of tables whose optimizers have names (settings/optimizers_by_name.hpp), compiled once; sources that are
#                        compiled with the options TESSERA_NAMED_KERNELS use them
block(PROPAGATE TESSERA_NAMED_KERNELS)
  set(folder "${CMAKE_CURRENT_BINARY_DIR}/tessera_named_kernels")
  set(suffixes hpp cpp)
  set(templates "extern template" template)
  set(frequent Sgd Adagrad RowWiseAdagrad Adam)
  set(others Ftrl Momentum AdamW PartialRowWiseAdam Lamb Lion RowWiseAdagradL2 RowWiseAdagradDecoupled CountedRowWiseAdagrad CountedAdam)
  foreach(suffix template IN ZIP_LISTS suffixes templates)
    set(code "#include <tessera/host/kernels.hpp>\n#include <tessera/settings/optimizers_by_name.hpp>\n")
    foreach(element IN ITEMS float BFloat16 Half)
      tessera_row_kernels(code "${template}" ${element} 0 ${frequent} ${others})
    endforeach()
    foreach(width IN ITEMS 8 16 32 64)
      tessera_row_kernels(code "${template}" float ${width} ${frequent})
    endforeach()
    file(CONFIGURE OUTPUT "${folder}.${suffix}" CONTENT "${code}")
  endforeach()
  add_library(tessera_named_kernels OBJECT EXCLUDE_FROM_ALL "${folder}.cpp")
  target_link_libraries(tessera_named_kernels PRIVATE tessera::tessera)
  set(TESSERA_NAMED_KERNELS -include "${folder}.hpp")
endblock()

block()
  set(folder "${CMAKE_CURRENT_LIST_DIR}/c_library")
  set(sources handles communicators layouts collections files frozen)
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
  set_property(SOURCE "${folder}/collections.cpp" APPEND PROPERTY COMPILE_OPTIONS ${TESSERA_NAMED_KERNELS})
  set_target_properties(tessera_c_objects tessera_named_kernels PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  # fmt's code inside: who loads the library may have another version of it.
  target_compile_definitions(tessera_c_objects PRIVATE FMT_HEADER_ONLY)
  target_link_libraries(tessera_c_objects PRIVATE ${libraries})

  add_library(tessera_c SHARED EXCLUDE_FROM_ALL $<TARGET_OBJECTS:tessera_c_objects> $<TARGET_OBJECTS:tessera_named_kernels>)
  add_library(tessera::c ALIAS tessera_c)
  set_target_properties(tessera_c PROPERTIES VERSION ${tessera_VERSION} SOVERSION 0 LINK_DEPENDS "${folder}/exported.map")
  target_link_options(tessera_c PRIVATE "LINKER:--version-script=${folder}/exported.map,--as-needed")
  add_library(tessera_c_static STATIC EXCLUDE_FROM_ALL $<TARGET_OBJECTS:tessera_c_objects> $<TARGET_OBJECTS:tessera_named_kernels>)
  add_library(tessera::c_static ALIAS tessera_c_static)
  foreach(target IN ITEMS tessera_c tessera_c_static)
    target_include_directories(${target} INTERFACE $<TARGET_PROPERTY:tessera::tessera,INTERFACE_INCLUDE_DIRECTORIES>)
    target_link_libraries(${target} PRIVATE ${libraries})
  endforeach()
endblock()
