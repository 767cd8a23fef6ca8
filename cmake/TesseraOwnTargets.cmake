# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# What this project's own tests, examples and benchmarks share. Users get none of it.
#   tessera_own_flags       warnings as errors, this machine's instructions
#   tessera_everything      tessera and every optional library that was found; the linker drops what a program does not use
#   tessera_buildable(...)  whether a source can be compiled here
add_library(tessera_own_flags INTERFACE)
target_compile_options(tessera_own_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Werror $<$<BOOL:${TESSERA_NATIVE}>:-march=native>>
  $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings -Xcompiler=-Wall,-Wextra,-fopenmp $<$<BOOL:${TESSERA_NATIVE}>:-Xcompiler=-march=native>>)

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # False reports inside std::string's operator+ (GCC bug 105651).
  target_compile_options(tessera_own_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()

add_library(tessera_everything INTERFACE)
target_link_libraries(tessera_everything INTERFACE tessera::tessera tessera_own_flags)
target_link_options(tessera_everything INTERFACE LINKER:--as-needed)
foreach(library IN ITEMS tessera::dense tessera::data tessera::mpi tessera::nccl tessera::uring CLI11::CLI11 nlohmann_json::nlohmann_json)
  if(TARGET ${library})
    target_link_libraries(tessera_everything INTERFACE ${library})
  endif()
endforeach()

# Headers of libraries that are not here: a source that includes one of them, directly or through others, is left out.
set(missing_headers)
if(NOT dnnl_FOUND)
  list(APPEND missing_headers "dnnl")
endif()
if(NOT tessera_data_FOUND)
  list(APPEND missing_headers "yaml-cpp/" "zlib[.]h" "zstd[.]h")
endif()
if(NOT MPI_CXX_FOUND)
  list(APPEND missing_headers "mpi[.]h")
endif()
if(NOT NCCL_FOUND)
  list(APPEND missing_headers "nccl[.]h")
endif()
if(NOT CLI11_FOUND)
  list(APPEND missing_headers "CLI/")
endif()
if(NOT nlohmann_json_FOUND)
  list(APPEND missing_headers "nlohmann/")
endif()
list(JOIN missing_headers "|" TESSERA_MISSING_HEADERS)

function(tessera_buildable source result)
  set(${result} TRUE PARENT_SCOPE)
  if(NOT TESSERA_MISSING_HEADERS)
    return()
  endif()
  cmake_path(ABSOLUTE_PATH source NORMALIZE)
  set(waiting "${source}")
  set(seen)
  while(waiting)
    list(POP_FRONT waiting file)
    list(APPEND seen "${file}")
    cmake_path(GET file PARENT_PATH folder)
    file(STRINGS "${file}" includes REGEX "^ *# *include")
    foreach(include IN LISTS includes)
      string(REGEX REPLACE "^ *# *include *[<\"]([^>\"]*).*" "\\1" include "${include}")
      if(include MATCHES "(^|/)(${TESSERA_MISSING_HEADERS})")
        cmake_path(RELATIVE_PATH source BASE_DIRECTORY "${PROJECT_SOURCE_DIR}")
        message(STATUS "Tessera: without ${source}: it needs <${include}>")
        set(${result} FALSE PARENT_SCOPE)
        return()
      endif()
      foreach(candidate IN ITEMS "${folder}/${include}" "${PROJECT_SOURCE_DIR}/include/${include}" "${PROJECT_SOURCE_DIR}/tests/${include}")
        cmake_path(NORMAL_PATH candidate)
        if(EXISTS "${candidate}" AND NOT candidate IN_LIST seen AND NOT candidate IN_LIST waiting)
          list(APPEND waiting "${candidate}")
        endif()
      endforeach()
    endforeach()
  endwhile()
endfunction()
