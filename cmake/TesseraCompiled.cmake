# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# tessera::bodies    tessera::tessera with the functions that are no templates compiled once (TESSERA_INLINE in config.hpp).
# tessera::compiled  tessera::bodies with common instantiations compiled once.
#
# Both are built by the project that links them, with that project's flags; anything that they lack is compiled where it is used.
# tessera::compiled holds the steps of host collections without policies for what travels, over each of the communicators, the memory of
# steps and tables, the grouping of a batch's entries by row, and the kernels of each width, with each element type and optimizer. A project may set other lists first.
set(TESSERA_COMPILED_COMMUNICATORS Thread Any CACHE STRING "Communicators whose steps tessera::compiled holds")
set(TESSERA_COMPILED_WIDTHS 0 8 16 32 64 128 CACHE STRING "Widths whose kernels it holds; 0: kernels for any width")
set(TESSERA_COMPILED_ELEMENTS float CACHE STRING "Element types of its tables")
set(TESSERA_COMPILED_OPTIMIZERS Sgd Adagrad RowWiseAdagrad Adam CACHE STRING "Its optimizers")

# @template@ below is `extern template` for those who use a library, `template` in its own sources.
#
# tessera_row_kernels(RESULT TEMPLATE ELEMENT WIDTH OPTIMIZER...) appends the lookups and updates of such rows to RESULT.
function(tessera_row_kernels result template element width)
  string(CONFIGURE [[
namespace tessera { inline namespace v0 {
@template@ struct op::Kernel<op::Lookup<@element@, std::int32_t, @width@>, Host>;
@template@ struct op::Kernel<op::Lookup<@element@, std::int64_t, @width@>, Host>;
}}
]] text @ONLY)
  string(APPEND ${result} "${text}")
  foreach(optimizer IN LISTS ARGN)
    string(CONFIGURE [[
namespace tessera { inline namespace v0 { namespace detail {
@template@ std::int64_t update_rows<@element@, @width@, @optimizer@, float>(
    const Host&, const GroupedRows<float>&, const op::ArenaState<@element@, @optimizer@>&, const typename @optimizer@::Step&, const float*);
}}}
]] text @ONLY)
    string(APPEND ${result} "${text}")
    set(apart)  # of optimizers that need a mean square of the row: its halves, for tables whose columns are cut
    if(optimizer MATCHES "RowWise|^Lamb$")
      string(APPEND apart "@template@ struct op::Kernel<op::Apply<@element@, @width@, @optimizer@>, Host>;\n")
    endif()
    if(width EQUAL 0 AND optimizer MATCHES "^(Lamb|RowWiseAdagradL2)$")
      string(APPEND apart "@template@ struct op::Kernel<op::Measure<@element@, @optimizer@>, Host>;\n")
    endif()
    if(apart)
      string(CONFIGURE "namespace tessera { inline namespace v0 {\n${apart}}}\n" text @ONLY)
      string(APPEND ${result} "${text}")
    endif()
  endforeach()
  set(${result} "${${result}}" PARENT_SCOPE)
endfunction()

# tessera_row_partitions(RESULT TEMPLATE) appends what groups a batch's entries by row.
function(tessera_row_partitions result template)
  string(CONFIGURE [[
namespace tessera { inline namespace v0 { namespace detail {
@template@ class RowPartition<std::int32_t, float>;
@template@ class RowPartition<std::int64_t, float>;
}}}
]] text @ONLY)
  set(${result} "${${result}}${text}" PARENT_SCOPE)
endfunction()

# tessera_row_sums(RESULT TEMPLATE WIDTH) appends the sums over the entries of each row.
function(tessera_row_sums result template width)
  string(CONFIGURE [[
namespace tessera { inline namespace v0 { namespace detail {
@template@ void merge_rows<@width@, float>(const Host&, const GroupedRows<float>&, int, op::MergedGradients*, const op::MergedRoom*,
                                           std::span<const op::MergedGradients>);
}}}
]] text @ONLY)
  set(${result} "${${result}}${text}" PARENT_SCOPE)
endfunction()

block()
  set(folder "${CMAKE_CURRENT_BINARY_DIR}/tessera_compiled")
  file(CONFIGURE OUTPUT "${folder}/bodies.cpp" CONTENT "#define TESSERA_BODIES_HERE\n#include <tessera/tessera.hpp>\n")
  add_library(tessera_bodies STATIC EXCLUDE_FROM_ALL "${folder}/bodies.cpp")
  add_library(tessera::bodies ALIAS tessera_bodies)
  target_compile_definitions(tessera_bodies INTERFACE TESSERA_BODIES_COMPILED)
  # What files of rows hold depends on it.
  target_link_libraries(tessera_bodies PUBLIC tessera::tessera $<TARGET_NAME_IF_EXISTS:tessera::uring>)
  set(steps [[
namespace tessera { inline namespace v0 { namespace detail {
@template@ struct Stages<StagePolicies<float, CodecChoice<Fp32>, CodecChoice<Fp32>, false>, Shared::@shared@, Host, @communicator@>;
@template@ struct StageCalls<Stages<StagePolicies<float, CodecChoice<Fp32>, CodecChoice<Fp32>, false>, Shared::@shared@, Host, @communicator@>, std::int32_t>;
@template@ struct StageCalls<Stages<StagePolicies<float, CodecChoice<Fp32>, CodecChoice<Fp32>, false>, Shared::@shared@, Host, @communicator@>, std::int64_t>;
}}}
]])
  set(step [[
namespace tessera { inline namespace v0 {
@template@ struct Step<std::int32_t, Host>;
@template@ struct Step<std::int64_t, Host>;
@template@ class detail::RankTables<Host>;
}}
]])
  set(declared "#pragma once\n#include <tessera/host/kernels.hpp>\n#include <tessera/optimizer/optimizers.hpp>\n#include <tessera/step/stages.hpp>\n")
  foreach(template IN ITEMS "extern template" "template")
    foreach(name IN LISTS TESSERA_COMPILED_COMMUNICATORS)
      string(TOLOWER "${name}" file)
      set(communicator ${name}Communicator)
      set(code "#include <tessera/comm/${file}_communicator.hpp>\n")
      foreach(shared IN ITEMS nothing copies rows)
        string(CONFIGURE "${steps}" text @ONLY)
        string(APPEND code "${text}")
      endforeach()
      set(code_of_steps_${file} "${code}")
      list(APPEND parts steps_${file})
    endforeach()
    string(CONFIGURE "${step}" code_of_rows @ONLY)
    tessera_row_partitions(code_of_rows "${template}")
    list(APPEND parts rows)
    foreach(width IN LISTS TESSERA_COMPILED_WIDTHS)
      set(code)
      tessera_row_sums(code "${template}" ${width})
      foreach(element IN LISTS TESSERA_COMPILED_ELEMENTS)
        tessera_row_kernels(code "${template}" ${element} ${width} ${TESSERA_COMPILED_OPTIMIZERS})
      endforeach()
      set(code_of_kernels_${width} "${code}")
      list(APPEND parts kernels_${width})
    endforeach()
    list(REMOVE_DUPLICATES parts)
    foreach(part IN LISTS parts)
      if(template STREQUAL "template")
        file(CONFIGURE OUTPUT "${folder}/${part}.cpp" CONTENT "#include <tessera/tessera.hpp>\n${code_of_${part}}")
        list(APPEND sources "${folder}/${part}.cpp")
      else()
        string(APPEND declared "${code_of_${part}}")
      endif()
    endforeach()
  endforeach()
  file(CONFIGURE OUTPUT "${folder}/tessera_compiled.hpp" CONTENT "${declared}")
  add_library(tessera_compiled STATIC EXCLUDE_FROM_ALL ${sources})
  add_library(tessera::compiled ALIAS tessera_compiled)
  target_compile_definitions(tessera_compiled PUBLIC TESSERA_COMPILED)
  target_include_directories(tessera_compiled PUBLIC "${folder}")
  target_link_libraries(tessera_compiled PUBLIC tessera::bodies)
endblock()
