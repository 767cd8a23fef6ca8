# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# cmake --install puts the headers and the package "tessera" where find_package finds it. One export file per component, so that a
# machine without oneDNN, yaml-cpp, MPI or NCCL can use the rest.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/tessera")
install(DIRECTORY include/tessera include/tessera_data include/tessera_serving DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
  FILES_MATCHING PATTERN "*.hpp" PATTERN "*.cuh" PATTERN "tessera.h")
foreach(component IN ITEMS core serving dense data mpi gloo nccl uring)
  set(target tessera_${component})
  if(component STREQUAL "core")
    set(target tessera)
  endif()
  if(TARGET ${target})
    install(TARGETS ${target} EXPORT ${target})
    install(EXPORT ${target} NAMESPACE tessera:: FILE "${target}_targets.cmake" DESTINATION "${package_dir}")
  endif()
endforeach()

configure_package_config_file(cmake/tesseraConfig.cmake.in "${CMAKE_CURRENT_BINARY_DIR}/tesseraConfig.cmake" INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file("${CMAKE_CURRENT_BINARY_DIR}/tesseraConfigVersion.cmake" COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/tesseraConfig.cmake" "${CMAKE_CURRENT_BINARY_DIR}/tesseraConfigVersion.cmake" cmake/FindNCCL.cmake cmake/Findliburing.cmake
  cmake/TesseraC.cmake cmake/TesseraCompiled.cmake cmake/TesseraGeneratePlan.cmake cmake/TesseraInstructionSets.cmake cmake/instruction_sets.cpp.in cmake/instruction_set_check.hpp DESTINATION "${package_dir}")
install(DIRECTORY cmake/c_library DESTINATION "${package_dir}")
# The sources of the program that tessera_generate_plan has the user's project build.
install(FILES examples/tessera_plan.cpp DESTINATION "${package_dir}/tessera_plan_source")
install(DIRECTORY examples/tessera_plan examples/support DESTINATION "${package_dir}/tessera_plan_source" FILES_MATCHING PATTERN "*.hpp" PATTERN "*.cpp")

if(PROJECT_IS_TOP_LEVEL)
  include(packages/TesseraDebian)
endif()
