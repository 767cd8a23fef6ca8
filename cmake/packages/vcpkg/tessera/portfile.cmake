# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# Tessera for vcpkg, from the checkout that this port is in: vcpkg install tessera --overlay-ports=cmake/packages/vcpkg
set(VCPKG_BUILD_TYPE release) # headers only
get_filename_component(SOURCE_PATH "${CURRENT_PORT_DIR}/../../../.." ABSOLUTE)

vcpkg_check_features(OUT_FEATURE_OPTIONS FEATURE_OPTIONS
  INVERTED_FEATURES
    data CMAKE_DISABLE_FIND_PACKAGE_yaml-cpp
    dense CMAKE_DISABLE_FIND_PACKAGE_dnnl
    gloo CMAKE_DISABLE_FIND_PACKAGE_Gloo
    mpi CMAKE_DISABLE_FIND_PACKAGE_MPI
    nccl CMAKE_DISABLE_FIND_PACKAGE_NCCL
    uring CMAKE_DISABLE_FIND_PACKAGE_liburing
)
vcpkg_cmake_configure(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS
    ${FEATURE_OPTIONS}
    -DTESSERA_BUILD_TESTS=OFF
    -DTESSERA_BUILD_EXAMPLES=OFF
    -DTESSERA_BUILD_BENCH=OFF
)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/tessera)
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/lib")

vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
file(INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
