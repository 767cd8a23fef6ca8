# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# cpack -G DEB makes the Debian package libtessera-dev: headers and the CMake package, for any architecture. A component is in it if its
# library was found when this was configured; a program that asks for one needs that library's package, too.
set(CPACK_PACKAGE_NAME libtessera-dev)
set(CPACK_PACKAGE_CONTACT "The Tessera authors")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_RESOURCE_FILE_LICENSE "${CMAKE_CURRENT_SOURCE_DIR}/LICENSE")
set(CPACK_PRE_BUILD_SCRIPTS "${CMAKE_CURRENT_LIST_DIR}/debian_copyright.cmake")
set(CPACK_GENERATOR DEB)
set(CPACK_SOURCE_GENERATOR "")
set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE all)
set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libfmt-dev (>= 9)")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "libdnnl-dev, ocl-icd-opencl-dev, libyaml-cpp-dev, zlib1g-dev, libzstd-dev, libopenmpi-dev, libgloo-dev, libssl-dev, libboost-dev, liburing-dev, libnccl-dev")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
include(CPack)
