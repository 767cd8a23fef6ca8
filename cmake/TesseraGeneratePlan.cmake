# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# tessera_generate_plan(CONFIG TARGET target [HEADER plan.hpp] [NAMESPACE planned] [OPTIONS option...]) plans the tables of CONFIG, a model in
# YAML or JSON, when the target is built, prints the plan with its reasons, and writes it as a header of types that the target includes:
#   #include "plan.hpp"    // planned::Plan, planned::Optimizer, planned::kCluster, planned::kBatch
# OPTIONS go to tessera_plan, as `--page plan.html`. A change of CONFIG, or of a file that it names, plans again.
# tessera_plan is built by the project that calls this, once. TESSERA_PLAN_PROGRAM names one that is built already.
cmake_policy(VERSION 3.25)  # of depfiles, whatever the project's is
set(TESSERA_PLAN_PROGRAM "" CACHE FILEPATH "A tessera_plan for tessera_generate_plan; without it one is built")

# Sets RESULT to what runs tessera_plan: a target, or TESSERA_PLAN_PROGRAM.
function(tessera_plan_program result)
  set(${result} tessera_plan PARENT_SCOPE)
  if(TESSERA_PLAN_PROGRAM)
    if(NOT EXISTS "${TESSERA_PLAN_PROGRAM}")
      message(FATAL_ERROR "tessera_generate_plan: there is no TESSERA_PLAN_PROGRAM '${TESSERA_PLAN_PROGRAM}'; name a tessera_plan, or leave it out "
        "to have one built")
    endif()
    set(${result} "${TESSERA_PLAN_PROGRAM}" PARENT_SCOPE)
  elseif(NOT TARGET tessera_plan)
    if(CMAKE_CROSSCOMPILING)
      message(FATAL_ERROR "tessera_generate_plan: a cross build cannot run the tessera_plan that it builds; set TESSERA_PLAN_PROGRAM to one for this "
        "machine")
    endif()
    find_package(CLI11 QUIET CONFIG)
    find_package(nlohmann_json QUIET CONFIG)
    set(missing)
    if(NOT TARGET tessera::data)
      list(APPEND missing "libyaml-cpp-dev zlib1g-dev libzstd-dev (for tessera's component data)")
    endif()
    if(NOT TARGET CLI11::CLI11)
      list(APPEND missing libcli11-dev)
    endif()
    if(NOT TARGET nlohmann_json::nlohmann_json)
      list(APPEND missing nlohmann-json3-dev)
    endif()
    if(missing)
      list(JOIN missing " " missing)
      message(FATAL_ERROR "tessera_generate_plan: tessera_plan cannot be built here; install ${missing}, or set TESSERA_PLAN_PROGRAM to a tessera_plan "
        "that is built already")
    endif()
    set(folder "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/tessera_plan_source")
    if(NOT EXISTS "${folder}")
      set(folder "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../examples")
    endif()
    file(GLOB sources "${folder}/tessera_plan.cpp" "${folder}/tessera_plan/*.cpp" "${folder}/support/*.cpp")
    list(FILTER sources EXCLUDE REGEX "/parquet[.]cpp$")  # its stand-in, no_parquet.cpp, needs no library
    add_executable(tessera_plan EXCLUDE_FROM_ALL ${sources})
    target_link_libraries(tessera_plan PRIVATE tessera::data CLI11::CLI11 nlohmann_json::nlohmann_json)
    target_compile_options(tessera_plan PRIVATE -O1)  # it searches, also in a build for debugging
  endif()
endfunction()

function(tessera_generate_plan config)
  cmake_parse_arguments(PARSE_ARGV 1 plan "" "TARGET;HEADER;NAMESPACE" "OPTIONS")
  if(plan_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "tessera_generate_plan(${config}): there is no '${plan_UNPARSED_ARGUMENTS}'; there are TARGET, HEADER, NAMESPACE, OPTIONS")
  endif()
  if(NOT TARGET "${plan_TARGET}")
    message(FATAL_ERROR "tessera_generate_plan(${config}): there is no target '${plan_TARGET}'; write TARGET and the name of a program or a library "
      "that was added before")
  endif()
  if(NOT plan_HEADER)
    set(plan_HEADER plan.hpp)
  endif()
  if(NOT plan_NAMESPACE)
    set(plan_NAMESPACE planned)
  endif()
  cmake_path(ABSOLUTE_PATH config BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" NORMALIZE OUTPUT_VARIABLE file)
  if(NOT EXISTS "${file}")
    message(FATAL_ERROR "tessera_generate_plan(${config}): there is no file '${file}'")
  endif()
  tessera_plan_program(program)
  set(folder "${CMAKE_CURRENT_BINARY_DIR}/tessera_plans/${plan_TARGET}")
  set(header "${folder}/${plan_HEADER}")
  cmake_path(GET header PARENT_PATH parent)
  file(MAKE_DIRECTORY "${parent}")
  add_custom_command(OUTPUT "${header}"
    COMMAND "${program}" "${file}" --header "${header}" --namespace "${plan_NAMESPACE}" --depfile "${header}.d" ${plan_OPTIONS}
    DEPENDS "${file}" "${program}" DEPFILE "${header}.d" COMMENT "Planning ${config} for ${plan_TARGET}" VERBATIM)
  get_target_property(owner "${plan_TARGET}" SOURCE_DIR)
  if(owner STREQUAL CMAKE_CURRENT_SOURCE_DIR)
    target_sources("${plan_TARGET}" PRIVATE "${header}")
  else()  # a target of another folder has no rule for what this one makes
    string(MAKE_C_IDENTIFIER "${plan_TARGET}_${plan_HEADER}" target)
    add_custom_target("${target}" DEPENDS "${header}")
    add_dependencies("${plan_TARGET}" "${target}")
  endif()
  target_include_directories("${plan_TARGET}" PRIVATE "${folder}")
endfunction()
