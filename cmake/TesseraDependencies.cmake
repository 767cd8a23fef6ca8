# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# Finds what Tessera uses. The core needs fmt and OpenMP; every other library switches on the part that needs it, and a missing one
# is said in one line.
find_package(fmt REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(Threads REQUIRED)

function(tessera_optional name found needed_for debian_package)
  if(NOT ${found} AND PROJECT_IS_TOP_LEVEL)
    message(STATUS "Tessera: ${name} not found: without ${needed_for} (Debian: ${debian_package})")
  endif()
endfunction()

find_package(dnnl QUIET CONFIG)
tessera_optional(oneDNN dnnl_FOUND "dense layers (tessera/dense, train_dlrm)" "libdnnl-dev ocl-icd-opencl-dev")
find_package(MPI QUIET COMPONENTS CXX)
tessera_optional(MPI MPI_CXX_FOUND "MpiCommunicator" libopenmpi-dev)
find_package(NCCL QUIET)
tessera_optional(NCCL NCCL_FOUND "NcclCommunicator" "libnccl-dev, from NVIDIA")
find_package(liburing QUIET)
tessera_optional(liburing liburing_FOUND "many transfers at a time of tables OnFile" liburing-dev)
find_package(yaml-cpp QUIET CONFIG)
find_package(ZLIB QUIET)
find_package(zstd QUIET CONFIG)
if(yaml-cpp_FOUND AND ZLIB_FOUND AND zstd_FOUND)
  set(tessera_data_FOUND TRUE)
endif()
tessera_optional("yaml-cpp, zlib or zstd" tessera_data_FOUND "datasets of any columns and their files (tessera_data/schema, tabular_*, history_reader, feature_spec)"
  "libyaml-cpp-dev zlib1g-dev libzstd-dev")
if(PROJECT_IS_TOP_LEVEL)
  find_package(CLI11 QUIET CONFIG)
  tessera_optional(CLI11 CLI11_FOUND "examples with a command line (train_dlrm)" libcli11-dev)
  find_package(nlohmann_json QUIET CONFIG)
  tessera_optional("nlohmann JSON" nlohmann_json_FOUND "examples that write JSON (train_dlrm)" nlohmann-json3-dev)
  find_package(Boost 1.74 QUIET)
  tessera_optional("Boost.Beast" Boost_FOUND "the model server (serve_model)" libboost-dev)
endif()
