# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# Run by CPack before it packs: Debian wants the licence where its own packages have it.
set(folder "${CPACK_TEMPORARY_INSTALL_DIRECTORY}/usr/share/doc/${CPACK_PACKAGE_NAME}")
file(MAKE_DIRECTORY "${folder}")
file(COPY_FILE "${CPACK_RESOURCE_FILE_LICENSE}" "${folder}/copyright")
