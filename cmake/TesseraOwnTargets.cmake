# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# What this project's own tests, examples and benchmarks share. Users get none of it.
#   tessera_own_flags       warnings (errors with TESSERA_WERROR), this machine's instructions
#   tessera_headers         tessera and every optional library that was found; the linker drops what a program does not use
#   tessera_everything      the same with tessera::bodies
#   tessera_needs(...)      which optional library sources need
#   tessera_buildable(...)  whether a source can be compiled here; the target of a program that cannot says what to install
add_library(tessera_own_flags INTERFACE)
target_compile_options(tessera_own_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra $<$<BOOL:${TESSERA_WERROR}>:-Werror> $<$<BOOL:${TESSERA_NATIVE}>:-march=native>>
  $<$<COMPILE_LANGUAGE:CUDA>:$<$<BOOL:${TESSERA_WERROR}>:-Werror=all-warnings> -Xcompiler=-Wall,-Wextra,-fopenmp $<$<BOOL:${TESSERA_NATIVE}>:-Xcompiler=-march=native>>)

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # False reports inside std::string's operator+ (GCC bug 105651).
  target_compile_options(tessera_own_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()

# In Release, for programs: as fast as -O3 but in the tables' kernels, and compiled in four fifths of the time.
set(TESSERA_O2 "$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-O2;$<$<CXX_COMPILER_ID:GNU>:-fvect-cost-model=dynamic>>")
foreach(target IN ITEMS tessera_c_objects tessera_named_kernels)
  target_link_libraries(${target} PRIVATE tessera_own_flags)
  target_compile_options(${target} PRIVATE ${TESSERA_O2})
endforeach()
if(TARGET tessera_c_cuda)
  target_link_libraries(tessera_c_cuda PRIVATE tessera_own_flags)
  add_dependencies(cuda_files tessera_c_cuda)
endif()
# The kernels of its tables: a step of 64 samples takes a seventh less time, of 2,048 a twentieth.
set_property(SOURCE "${CMAKE_CURRENT_LIST_DIR}/c_library/host_collections.cpp" "${CMAKE_CURRENT_BINARY_DIR}/tessera_named_kernels.cpp"
  APPEND PROPERTY COMPILE_OPTIONS "$<$<CONFIG:Release>:-O3>")

target_link_libraries(tessera_bodies PRIVATE tessera_own_flags)
target_compile_options(tessera_bodies PRIVATE ${TESSERA_O2})

add_library(tessera_headers INTERFACE)
target_link_libraries(tessera_headers INTERFACE tessera::tessera tessera_own_flags)
target_link_options(tessera_headers INTERFACE LINKER:--as-needed)
add_library(tessera_everything INTERFACE)
target_link_libraries(tessera_everything INTERFACE tessera_headers tessera::bodies)

# The optional libraries: the words for them, and their targets, which exist where they were found. (Without io_uring nothing is left out.)
set(TESSERA_LIBRARIES DENSE DATA MPI GLOO NCCL URING CLI11 JSON BOOST GRPC)
set(library_targets tessera::dense tessera::data tessera::mpi tessera::gloo tessera::nccl tessera::uring CLI11::CLI11 nlohmann_json::nlohmann_json Boost::headers
  GrpcCpp::grpc)
set(library_packages "libdnnl-dev ocl-icd-opencl-dev" "libyaml-cpp-dev zlib1g-dev libzstd-dev" libopenmpi-dev "libgloo-dev libssl-dev libboost-dev" "libnccl-dev, from NVIDIA" liburing-dev
  libcli11-dev nlohmann-json3-dev libboost-dev "libgrpc++-dev libprotobuf-dev protobuf-compiler-grpc")
foreach(library target packages IN ZIP_LISTS TESSERA_LIBRARIES library_targets library_packages)
  set(TESSERA_TARGET_${library} ${target})
  set(TESSERA_PACKAGES_${library} ${packages})
  if(TARGET ${target})
    target_link_libraries(tessera_headers INTERFACE ${target})
  endif()
endforeach()
# PyTorch's C++ library is for those who name it: its folder of headers has other libraries' too, and they take their time.
find_path(TESSERA_TORCH_API torch/torch.h PATH_SUFFIXES torch/csrc/api/include)
find_path(TESSERA_TORCH_ATEN ATen/DLConvertor.h)
find_library(TESSERA_TORCH_CPU torch_cpu)
find_library(TESSERA_C10 c10)
set(TESSERA_PACKAGES_TORCH libtorch-dev)
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  string(APPEND TESSERA_PACKAGES_TORCH " for g++: clang does not compile PyTorch 1.13's headers as C++20")
elseif(TESSERA_TORCH_API AND TESSERA_TORCH_ATEN AND TESSERA_TORCH_CPU AND TESSERA_C10)
  add_library(tessera_torch INTERFACE)
  target_include_directories(tessera_torch SYSTEM INTERFACE ${TESSERA_TORCH_API} ${TESSERA_TORCH_ATEN})
  target_link_libraries(tessera_torch INTERFACE ${TESSERA_TORCH_CPU} ${TESSERA_C10})
endif()
list(APPEND TESSERA_LIBRARIES TORCH)
set(TESSERA_TARGET_TORCH tessera_torch)

# tessera_needs(LIBRARY SOURCE...) says that the SOURCEs (files or patterns, of this folder) cannot be compiled without the LIBRARY. They
# include its headers, themselves or through others; house.needs compares what is said with what is included.
function(tessera_needs library)
  if(NOT library IN_LIST TESSERA_LIBRARIES)
    message(FATAL_ERROR "tessera_needs(${library}): it is none of ${TESSERA_LIBRARIES}")
  endif()
  foreach(pattern IN LISTS ARGN)
    file(GLOB sources "${pattern}")
    if(NOT sources)
      message(FATAL_ERROR "tessera_needs(${library}): there is no ${pattern}")
    endif()
    set_property(SOURCE ${sources} APPEND PROPERTY TESSERA_NEEDS ${library})
  endforeach()
endfunction()

# tessera_buildable(SOURCE RESULT [PART...]) sets RESULT to whether all that SOURCE needs is here. PARTs are compiled only with it: what they
# need is said of SOURCE.
function(tessera_buildable source result)
  cmake_path(ABSOLUTE_PATH source NORMALIZE)
  get_property(needs SOURCE "${source}" PROPERTY TESSERA_NEEDS)
  list(JOIN needs "," words)
  list(JOIN ARGN "," parts)
  set_property(GLOBAL APPEND_STRING PROPERTY tessera_needs "${source}|${words}|${parts}\n")
  set(${result} TRUE PARENT_SCOPE)
  set(missing)
  set(packages)
  foreach(library IN LISTS needs)
    if(NOT TARGET ${TESSERA_TARGET_${library}})
      list(APPEND missing ${TESSERA_TARGET_${library}})
      list(APPEND packages ${TESSERA_PACKAGES_${library}})
    endif()
  endforeach()
  if(missing)
    list(JOIN missing " and " missing)
    list(JOIN packages " " packages)
    cmake_path(GET source STEM name)
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY "${PROJECT_SOURCE_DIR}")
    message(STATUS "Tessera: without ${source}: it needs ${missing} (Debian: ${packages})")
    if(source MATCHES "^(examples|bench)/[^/]*$")
      set_property(GLOBAL APPEND PROPERTY tessera_absent "${name}|${missing}, which was not found here: install ${packages} (Debian), and configure again")
    endif()
    set(${result} FALSE PARENT_SCOPE)
  endif()
endfunction()

# Programs that cannot be built get a target that fails, with what to do. They come last: what asks for a
# program by if(TARGET) must not find them.
function(tessera_add_absent)
  get_property(absent GLOBAL PROPERTY tessera_absent)
  foreach(program IN LISTS absent)
    string(REPLACE "|" ";" program "${program}")
    list(POP_FRONT program name)
    add_custom_target(${name} COMMAND "${CMAKE_COMMAND}" -E echo "${name} needs ${program}" COMMAND "${CMAKE_COMMAND}" -E false
      COMMENT "${name} cannot be built" VERBATIM)
  endforeach()
endfunction()
cmake_language(DEFER CALL tessera_add_absent)

function(tessera_write_needs)
  get_property(needs GLOBAL PROPERTY tessera_needs)
  file(CONFIGURE OUTPUT "${CMAKE_BINARY_DIR}/needs.txt" CONTENT "${needs}" @ONLY)
endfunction()
cmake_language(DEFER CALL tessera_write_needs)
