// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "handles.hpp"

#include <tessera/planner/plan_file.hpp>
#include <tessera/planner/plan_layout.hpp>

#include <fmt/format.h>

#include <charconv>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

using tessera_c::call;
using tessera_c::checked;

namespace tessera_c { namespace {

/// Adds a pin for a table that is to be cut by a policy; none for "auto".
void pin_table(tessera::detail::PlanConstraints& constraints, const tessera::TableSpec& table,
               std::string_view policy, std::string_view call) {
  using tessera::Cut;
  if (policy == "auto") return;
  const std::size_t colon = std::min(policy.find(':'), policy.size());
  const std::string_view name = policy.substr(0, colon);
  tessera::detail::TablePin pin{.table = table.name};
  bool known = false;
  for (const Cut cut :
       {Cut::replicated, Cut::table_wise, Cut::column_wise, Cut::row_wise, Cut::grid})
    if (to_string(cut) == name) pin.cut = cut, known = true;
  tessera::require(known,
                   "{}: table '{}': there is no policy '{}'; give auto, replicated, table-wise, "
                   "column-wise:PARTS, row-wise or grid:PARTS",
                   call, table.name, policy);
  if (colon < policy.size()) {
    const std::string_view parts = policy.substr(colon + 1);
    const auto read = std::from_chars(parts.data(), parts.data() + parts.size(), pin.parts);
    tessera::require(
        (pin.cut == Cut::column_wise || pin.cut == Cut::grid) && read.ec == std::errc() &&
            read.ptr == parts.data() + parts.size() && pin.parts > 0 &&
            table.width % pin.parts == 0,
        "{}: table '{}' of {} columns: '{}'; give column-wise:PARTS or grid:PARTS with "
        "a number that divides them",
        call, table.name, table.width, policy);
  }
  constraints.pins.push_back(pin);
}

/// Makes a layout of tables that are not cut yet.
std::unique_ptr<tessera_layout> uncut(const tessera_table* tables, std::size_t table_count,
                                      const tessera_feature* features, std::size_t feature_count,
                                      int ranks, int ranks_per_node, std::string_view call) {
  auto made = std::make_unique<tessera_layout>();
  std::vector<tessera::TableSpec> specs;
  for (const tessera_table& table : array(tables, table_count, call, "tables"))
    specs.push_back(
        {.name = keep(*made->names, table.name, call, fmt::format("table {}", specs.size())),
         .rows = table.rows,
         .width = table.width});
  tessera::require(ranks <= 32767, "{}: {} ranks; give 1 to 32767", call, ranks);
  tessera::require(ranks_per_node >= 0 && ranks_per_node <= ranks,
                   "{}: {} ranks per node of {} ranks; 0: all are on one", call, ranks_per_node,
                   ranks);
  made->layout = tessera::uncut_layout(tessera::Topology{ranks, ranks_per_node}, std::move(specs),
                                       features_of(features, feature_count, *made->names, call));
  return made;
}

void finish(std::unique_ptr<tessera_layout> made, std::string_view call, tessera_layout** out) {
  tessera::require(made->layout.fault.ok(), "{}: {}", call, describe(made->layout.fault));
  made->text = tessera::plan_file_text(made->layout);
  *out = made.release();
}

}  // namespace
}  // namespace tessera_c

tessera_status tessera_layout_create(const tessera_table* tables, size_t table_count,
                                     const tessera_feature* features, size_t feature_count,
                                     int ranks, int ranks_per_node, const char* policy,
                                     tessera_layout** out) {
  return call([&] {
    constexpr std::string_view name = "tessera_layout_create";
    checked(out, name, "out");
    auto made =
        tessera_c::uncut(tables, table_count, features, feature_count, ranks, ranks_per_node, name);
    tessera::detail::PlanConstraints constraints;
    for (std::size_t t = 0; t < table_count; ++t) {
      const char* const own = tables[t].policy;
      tessera_c::pin_table(constraints, made->layout.tables[t],
                           own != nullptr      ? own
                           : policy != nullptr ? policy
                                               : "auto",
                           name);
    }
    made->layout = tessera::plan_layout(
        std::move(made->layout), tessera::Cluster{.ranks = ranks, .ranks_per_node = ranks_per_node},
        {}, constraints);
    tessera_c::finish(std::move(made), name, out);
  });
}

tessera_status tessera_layout_from_file(const char* path, const tessera_table* tables,
                                        size_t table_count, const tessera_feature* features,
                                        size_t feature_count, int ranks, int ranks_per_node,
                                        tessera_layout** out) {
  return call([&] {
    constexpr std::string_view name = "tessera_layout_from_file";
    checked(out, name, "out");
    checked(path, name, "path");
    auto made =
        tessera_c::uncut(tables, table_count, features, feature_count, ranks, ranks_per_node, name);
    made->layout = tessera::read_plan_file(path, made->layout.tables, made->layout.features,
                                           made->layout.topology);
    tessera_c::finish(std::move(made), name, out);
  });
}

tessera_status tessera_layout_text(const tessera_layout* layout, const char** text) {
  return call([&] {
    constexpr std::string_view name = "tessera_layout_text";
    checked(text, name, "text") = checked(layout, name, "layout").text.c_str();
  });
}

tessera_status tessera_layout_columns(const tessera_layout* layout, int64_t* columns) {
  return call([&] {
    constexpr std::string_view name = "tessera_layout_columns";
    checked(columns, name, "columns") = checked(layout, name, "layout").layout.columns();
  });
}

void tessera_layout_destroy(tessera_layout* layout) { delete layout; }
