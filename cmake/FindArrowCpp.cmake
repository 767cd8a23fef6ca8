# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# ArrowCpp::parquet: Apache Arrow's C++ library with Parquet, from its own CMake package or from PyPI's pyarrow, whose wheel holds headers and
# shared libraries. ArrowCpp_PYTHON is the interpreter that has pyarrow; without it the first python3 on the PATH is asked.
find_package(Parquet QUIET CONFIG)
if(TARGET Parquet::parquet_shared)
  set(ArrowCpp_PLACE "${Parquet_DIR}")
  set(libraries Parquet::parquet_shared Arrow::arrow_shared)
else()
  find_program(ArrowCpp_PYTHON python3 NO_CACHE)
  execute_process(COMMAND "${ArrowCpp_PYTHON}" -c "import importlib.util as u; print(u.find_spec('pyarrow').submodule_search_locations[0])"
    OUTPUT_VARIABLE ArrowCpp_PLACE OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  # Each release has its number in the names of its libraries.
  file(GLOB libraries "${ArrowCpp_PLACE}/libparquet.so.*" "${ArrowCpp_PLACE}/libarrow.so.*")
  list(LENGTH libraries count)
  if(NOT ArrowCpp_PLACE OR NOT count EQUAL 2 OR NOT EXISTS "${ArrowCpp_PLACE}/include/parquet/arrow/reader.h")
    set(ArrowCpp_PLACE)
  else()
    set(ArrowCpp_PYTHON "${ArrowCpp_PYTHON}" CACHE FILEPATH "The interpreter whose pyarrow is used")
    mark_as_advanced(ArrowCpp_PYTHON)
  endif()
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(ArrowCpp REQUIRED_VARS ArrowCpp_PLACE)
if(ArrowCpp_FOUND AND NOT TARGET ArrowCpp::parquet)
  add_library(ArrowCpp::parquet INTERFACE IMPORTED)
  target_link_libraries(ArrowCpp::parquet INTERFACE ${libraries})
  if(NOT TARGET Parquet::parquet_shared)
    target_include_directories(ArrowCpp::parquet SYSTEM INTERFACE "${ArrowCpp_PLACE}/include")
  endif()
endif()
