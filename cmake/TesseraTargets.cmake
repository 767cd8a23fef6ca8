# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# tessera::tessera  the library: headers, fmt, OpenMP
# tessera::dense    the same and oneDNN (linear layers)
# tessera::data     the companion tessera_data/: the same as tessera::tessera, yaml-cpp, zlib and zstd
# tessera::serving  the companion tessera_serving/: the same as tessera::tessera; whole models need tessera::dense, too
# tessera::mpi      the same as tessera::tessera and MPI
# tessera::gloo     the same as tessera::tessera, Gloo, Boost.Asio and OpenSSL
# tessera::uring    the same as tessera::tessera, with io_uring under tables OnFile
# tessera::nccl     the same as tessera::tessera, NCCL and the CUDA runtime
add_library(tessera INTERFACE)
add_library(tessera::tessera ALIAS tessera)
target_include_directories(tessera INTERFACE
  "$<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include>" "$<INSTALL_INTERFACE:include>")
target_compile_features(tessera INTERFACE cxx_std_20)
target_link_libraries(tessera INTERFACE fmt::fmt OpenMP::OpenMP_CXX Threads::Threads)

if(dnnl_FOUND)
  add_library(tessera_dense INTERFACE)
  add_library(tessera::dense ALIAS tessera_dense)
  set_target_properties(tessera_dense PROPERTIES EXPORT_NAME dense)
  target_link_libraries(tessera_dense INTERFACE tessera DNNL::dnnl)
endif()
if(tessera_data_FOUND)
  add_library(tessera_data INTERFACE)
  add_library(tessera::data ALIAS tessera_data)
  set_target_properties(tessera_data PROPERTIES EXPORT_NAME data)
  # A package manager may have zstd as an archive alone.
  target_link_libraries(tessera_data INTERFACE tessera yaml-cpp ZLIB::ZLIB
    "$<IF:$<TARGET_EXISTS:zstd::libzstd_shared>,zstd::libzstd_shared,zstd::libzstd_static>")
endif()
add_library(tessera_serving INTERFACE)
add_library(tessera::serving ALIAS tessera_serving)
set_target_properties(tessera_serving PROPERTIES EXPORT_NAME serving)
target_link_libraries(tessera_serving INTERFACE tessera)
if(MPI_CXX_FOUND)
  add_library(tessera_mpi INTERFACE)
  add_library(tessera::mpi ALIAS tessera_mpi)
  set_target_properties(tessera_mpi PROPERTIES EXPORT_NAME mpi)
  target_link_libraries(tessera_mpi INTERFACE tessera MPI::MPI_CXX)
endif()
if(tessera_gloo_FOUND)
  add_library(tessera_gloo INTERFACE)
  add_library(tessera::gloo ALIAS tessera_gloo)
  set_target_properties(tessera_gloo PROPERTIES EXPORT_NAME gloo)
  target_link_libraries(tessera_gloo INTERFACE tessera gloo Boost::headers OpenSSL::Crypto)
endif()
if(liburing_FOUND)
  add_library(tessera_uring INTERFACE)
  add_library(tessera::uring ALIAS tessera_uring)
  set_target_properties(tessera_uring PROPERTIES EXPORT_NAME uring)
  target_compile_definitions(tessera_uring INTERFACE TESSERA_HAS_LIBURING)
  target_link_libraries(tessera_uring INTERFACE tessera liburing::liburing)
endif()
if(NCCL_FOUND)
  add_library(tessera_nccl INTERFACE)
  add_library(tessera::nccl ALIAS tessera_nccl)
  set_target_properties(tessera_nccl PROPERTIES EXPORT_NAME nccl)
  target_link_libraries(tessera_nccl INTERFACE tessera NCCL::nccl)
endif()
