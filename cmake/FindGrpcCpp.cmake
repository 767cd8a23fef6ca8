# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# GrpcCpp::grpc: gRPC for C++ and protocol buffers; GrpcCpp_PROTOC and GrpcCpp_PLUGIN make sources of a .proto. (Debian has no CMake package
# of gRPC.)
find_path(GrpcCpp_INCLUDE_DIR grpcpp/grpcpp.h)
find_path(GrpcCpp_PROTOBUF_INCLUDE_DIR google/protobuf/util/json_util.h)
find_program(GrpcCpp_PROTOC protoc)
find_program(GrpcCpp_PLUGIN grpc_cpp_plugin)
set(libraries GrpcCpp_GRPC++ GrpcCpp_PROTOBUF GrpcCpp_GRPC GrpcCpp_GPR GrpcCpp_ABSL)
find_library(GrpcCpp_GRPC++ grpc++)
find_library(GrpcCpp_PROTOBUF protobuf)
find_library(GrpcCpp_GRPC grpc)
find_library(GrpcCpp_GPR gpr)
find_library(GrpcCpp_ABSL absl_synchronization)  # the mutex of gRPC's headers
mark_as_advanced(GrpcCpp_INCLUDE_DIR GrpcCpp_PROTOBUF_INCLUDE_DIR GrpcCpp_PROTOC GrpcCpp_PLUGIN ${libraries})
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(GrpcCpp REQUIRED_VARS GrpcCpp_INCLUDE_DIR GrpcCpp_PROTOBUF_INCLUDE_DIR GrpcCpp_PROTOC GrpcCpp_PLUGIN ${libraries})
if(GrpcCpp_FOUND AND NOT TARGET GrpcCpp::grpc)
  add_library(GrpcCpp::grpc INTERFACE IMPORTED)
  target_include_directories(GrpcCpp::grpc INTERFACE "${GrpcCpp_INCLUDE_DIR}" "${GrpcCpp_PROTOBUF_INCLUDE_DIR}")
  foreach(library IN LISTS libraries)
    target_link_libraries(GrpcCpp::grpc INTERFACE "${${library}}")
  endforeach()
endif()
