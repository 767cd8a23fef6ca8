// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "model.hpp"

#include "../support/files.hpp"
#include "feature_spec.hpp"
#include "place.hpp"
#include "plain_yaml.hpp"

#include <tessera/core/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <limits>
#include <map>
#include <set>
#include <utility>

namespace plan {
namespace {

using namespace tessera;
using Json = nlohmann::ordered_json;

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

/// Names stand in C++, in pages and in lines of text: without line ends and the like. Throws
/// DataError with the place.
std::string checked_name(std::string name, const std::string& place) {
  require<DataError>(!name.empty(), "{}: the name is empty", place);
  for (const char c : name)
    require<DataError>(!is_control(c),
                       "{}: a name with the control character {:#04x}; names are one line", place,
                       static_cast<unsigned char>(c));
  return name;
}

/// A value of a document with its path. As a string it is its place, for errors.
class Node {
 public:
  Node(const Json& json, const Source& source, std::string path = {})
      : json_(json), source_(source), path_(std::move(path)) {}

  const Json& json() const { return json_; }
  const Source& source() const { return source_; }
  std::string place() const { return place_text(source_, path_); }
  operator std::string() const { return place(); }
  bool has(const char* key) const {
    return json_.is_object() && json_.contains(key) && !json_.at(key).is_null();
  }
  Node at(const std::string& key) const {
    require<DataError>(json_.is_object() && json_.contains(key), "{}: '{}' is missing", *this, key);
    return {json_.at(key), source_, path_of(path_, key)};
  }
  std::vector<Node> list() const {
    require<DataError>(json_.is_array(), "{}: must be a list", *this);
    std::vector<Node> items;
    for (std::size_t i = 0; i < json_.size(); ++i)
      items.push_back({json_[i], source_, path_of(path_, i)});
    return items;
  }
  /// The values of a mapping with their keys.
  std::vector<std::pair<std::string, Node>> pairs() const {
    require<DataError>(json_.is_object(), "{}: must be a mapping", *this);
    std::vector<std::pair<std::string, Node>> all;
    for (const auto& [key, value] : json_.items())
      all.emplace_back(key, Node{value, source_, path_of(path_, key)});
    return all;
  }
  /// Throws DataError for a key that is none of these.
  void only(const char* what, std::initializer_list<std::string_view> keys) const {
    for (const auto& [key, value] : pairs())
      require<DataError>(std::find(keys.begin(), keys.end(), key) != keys.end(),
                         "{}: {} has no '{}'; there are {}", value, what, key,
                         fmt::format("{}", fmt::join(keys, ", ")));
  }
  double number(double least, double most) const {
    require<DataError>(json_.is_number(), "{}: must be a number", *this);
    const double value = json_.get<double>();
    require<DataError>(value >= least && value <= most, "{}: {} is not in {} .. {}", *this,
                       json_.dump(), least, most);
    return value;
  }
  std::int64_t whole(std::int64_t least, std::int64_t most) const {
    require<DataError>(json_.is_number_integer(), "{}: must be a whole number", *this);
    const auto value = json_.get<std::int64_t>();
    require<DataError>(value >= least && value <= most, "{}: {} is not in {} .. {}", *this,
                       json_.dump(), least, most);
    return value;
  }
  std::string text() const {
    require<DataError>(json_.is_string(), "{}: must be a text", *this);
    return json_.get<std::string>();
  }
  std::string name() const {
    std::string name = text();
    if (name.empty() || std::any_of(name.begin(), name.end(), is_control))
      checked_name(name, place());
    return name;
  }

 private:
  const Json& json_;
  const Source& source_;
  std::string path_;
};

constexpr std::size_t kMostFeatures = 20'000;

/// A path in a file, which is beside that file if it is relative.
std::string beside(const std::string& file, const std::string& path) {
  return (std::filesystem::path(file).parent_path() / path).string();
}

std::string known(const Json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  return fmt::format("{}", fmt::join(keys, ", "));
}

/// One table, and a feature for each of `hotness`; without names of their own these are NAME,
/// NAME_1, ...
void add_table(Model& model, const std::string& name, std::int64_t rows, int width,
               const std::vector<double>& hotness, double skew, Pooling pooling = Pooling::sum,
               const std::vector<std::string>& names = {}) {
  require<DataError>(model.features.size() + hotness.size() <= kMostFeatures,
                     "table '{}': more than {} features in all, which is what a plan is made for; "
                     "join tables of one kind",
                     name, kMostFeatures);
  const std::string_view table = model.keep(name);
  model.tables.push_back({.name = table,
                          .rows = rows,
                          .width = width,
                          .pooling = pooling,
                          .hotness = hotness.front(),
                          .skew = skew});
  for (std::size_t f = 0; f < hotness.size(); ++f)
    model.features.push_back({.name = !names.empty() ? model.keep(names[f])
                                      : f == 0       ? table
                                                     : model.keep(fmt::format("{}_{}", name, f)),
                              .table = table,
                              .pooling = pooling,
                              .hotness = hotness[f]});
}

std::vector<double> hotness_of(const Node& table) {
  if (!table.has("hotness")) return {1};
  const Node hotness = table.at("hotness");
  if (hotness.json().is_number()) return {hotness.number(0.001, kMostHotness)};
  std::vector<double> all;
  for (const Node& one : hotness.list()) all.push_back(one.number(0.001, kMostHotness));
  require<DataError>(!all.empty(), "{}: must not be empty", hotness);
  return all;
}

/// The features that read a table: a name each; with one hotness for all, or as many.
std::vector<std::string> feature_names(const Node& table, std::vector<double>& hotness) {
  std::vector<std::string> names;
  if (!table.has("features")) return names;
  for (const Node& feature : table.at("features").list()) names.push_back(feature.name());
  require<DataError>(!names.empty(), "{}: the list is empty; name a feature, or leave the key out",
                     table.at("features"));
  if (hotness.size() == 1) hotness.assign(names.size(), hotness.front());
  require<DataError>(names.size() == hotness.size(), "{}: {} names, but {} values of hotness",
                     table.at("features"), names.size(), hotness.size());
  return names;
}

/// The features of the file of "from data", each with its number of ids.
std::map<std::string, std::int64_t> read_data(Model& model, const Node& root) {
  std::map<std::string, std::int64_t> rows;
  if (!root.has("data")) return rows;
  const Node data = root.at("data");
  model.data = beside(root.source().file, data.text());
  try {
    for (const CategoricalFeature& f :
         read_feature_spec(support::read_file(model.data), model.data))
      rows[f.name] = f.cardinality;
  } catch (const DataError& error) {
    throw DataError(fmt::format("{}: {}", data.place(), error.what()));
  }
  return rows;
}

/// A number of rows, or "from data": that of the feature of the table's name, or else the largest of
/// the features that read it.
std::int64_t rows_of(const Node& table, const std::map<std::string, std::int64_t>& data,
                     const std::vector<std::string>& features) {
  const Node rows = table.at("rows");
  if (!rows.json().is_string()) return rows.whole(1, kMostRows);
  require<DataError>(rows.text() == "from data",
                     "{}: '{}' is neither a whole number nor 'from data'", rows, rows.text());
  require<DataError>(
      !data.empty(),
      "{}: from data, but no data are named; add 'data: FOLDER/feature_spec.yaml' to "
      "the file, as convert_dataset writes it",
      rows);
  const std::string name = table.at("name").name();
  if (const auto own = data.find(name); own != data.end()) return own->second;
  std::int64_t most = 0;
  for (const std::string& feature : features)
    if (const auto found = data.find(feature); found != data.end())
      most = std::max(most, found->second);
  std::vector<std::string> names;
  for (const auto& [feature, count] : data) names.push_back(feature);
  require<DataError>(most > 0, "{}: the data have no feature '{}'; there are {}", rows, name,
                     fmt::format("{}", fmt::join(names, ", ")));
  return most;
}

/// What the file says in place of options.
void read_settings(Model& model, const Node& root) {
  const auto plain = [](const Node& value) {
    return value.json().is_string() ? value.text() : value.json().dump();
  };
  const auto add = [&](const char* option, const Node& value, std::string text) {
    require<DataError>(value.json().is_primitive() && !value.json().is_boolean(),
                       "{}: must be a text or a number", value);
    model.settings.push_back({option, std::move(text), value.place()});
  };
  const auto add_cluster = [&](const Node& value) {
    const std::string name = value.text();
    const bool file = name.find('.') != name.npos || name.find('/') != name.npos;
    add("--cluster", value, file ? beside(root.source().file, name) : name);
  };
  for (const auto& [key, option] :
       {std::pair{"optimizer", "--optimizer"}, std::pair{"element_bytes", "--element-bytes"}})
    if (root.has(key)) add(option, root.at(key), plain(root.at(key)));
  if (root.has("cluster")) {
    const Node cluster = root.at("cluster");
    if (!cluster.json().is_object()) {
      add_cluster(cluster);
    } else {
      cluster.only("a cluster", {"name", "ranks", "ranks_per_node", "cores", "memory",
                                 "host_memory", "file_memory", "reserve"});
      for (const auto& [key, value] : cluster.pairs()) {
        std::string option = "--" + key;
        std::replace(option.begin(), option.end(), '_', '-');
        if (key == "name")
          add_cluster(value);
        else
          add(option.c_str(), value, plain(value));
      }
    }
  }
  if (root.has("pins"))
    for (const auto& [table, how] : root.at("pins").pairs())
      add("--pin", how, fmt::format("{}={}", table, how.text()));
  if (root.has("forbid"))
    for (const Node& cut : root.at("forbid").list()) add("--forbid", cut, cut.text());
}

/// {"tables": [{"name", "rows", "width", "hotness": 1 or [1, 10], "features": [NAME, NAME], "skew",
/// "pooling"}], "workload": {...}, "dense": {...}, and what read_settings reads}
void read_tables(Model& model, const Node& root, int width) {
  root.only("a model", {"name", "tables", "data", "workload", "dense", "optimizer", "element_bytes",
                        "cluster", "pins", "forbid", "statistics"});
  const std::map<std::string, std::int64_t> data = read_data(model, root);
  std::set<std::string> given;
  for (const Node& table : root.at("tables").list()) {
    table.only("a table", {"name", "rows", "width", "hotness", "features", "skew", "pooling"});
    Pooling pooling = Pooling::sum;
    if (table.has("pooling")) {
      const Node given_pooling = table.at("pooling");
      const auto found = tessera::detail::find_pooling(given_pooling.text());
      require<DataError>(found.has_value(),
                         "{}: '{}' is none of sum, mean, sqrtn, max and none (a sequence)",
                         given_pooling, given_pooling.text());
      pooling = *found;
    }
    const std::string name = table.at("name").name();
    require<DataError>(given.insert(name).second, "{}: two tables have the name '{}'",
                       table.at("name"), name);
    std::vector<double> hotness = hotness_of(table);
    const std::vector<std::string> names = feature_names(table, hotness);
    add_table(model, name, rows_of(table, data, names),
              table.has("width") ? static_cast<int>(table.at("width").whole(1, 1 << 16)) : width,
              hotness, table.has("skew") ? table.at("skew").number(0, 16) : -1, pooling, names);
  }
  read_settings(model, root);
  if (root.has("workload")) {
    const Node workload = root.at("workload");
    workload.only("a workload", {"batch", "skew", "sorted_ids"});
    if (workload.has("skew")) model.workload.skew = workload.at("skew").number(0, 16);
    if (workload.has("batch"))
      model.workload.batch = workload.at("batch").whole(1, std::int64_t{1} << 40);
    if (workload.has("sorted_ids")) {
      require<DataError>(workload.at("sorted_ids").json().is_boolean(), "{}: must be true or false",
                         workload.at("sorted_ids"));
      model.workload.sorted_ids = workload.at("sorted_ids").json().get<bool>();
    }
  }
  if (root.has("statistics")) {
    const std::string file = beside(root.source().file, root.at("statistics").text());
    take_statistics(model, file, support::read_file(file));
  }
  if (root.has("dense")) {
    const Node dense = root.at("dense");
    dense.only("'dense'", {"flops_per_sample", "bytes_per_sample", "parameters"});
    if (dense.has("flops_per_sample"))
      model.workload.dense_flops = dense.at("flops_per_sample").number(0, 1e18);
    if (dense.has("bytes_per_sample"))
      model.workload.dense_bytes = dense.at("bytes_per_sample").number(0, 1e18);
    if (dense.has("parameters"))
      model.workload.dense_parameters = dense.at("parameters").whole(0, std::int64_t{1} << 50);
  }
}

/// A model of NVIDIA Merlin's synthetic ones: groups of equal tables; each hotness of a group is a
/// feature of each of its tables.
void read_groups(Model& model, const Node& root, const Node& entry) {
  double columns = 0, hidden = 0;
  int number = 0;
  for (const Node& group : entry.at("embedding_groups").list()) {
    const std::vector<double> hotness = hotness_of(group);
    const std::int64_t rows = group.at("num_rows").whole(1, kMostRows);
    const int width = static_cast<int>(group.at("width").whole(1, 1 << 16));
    for (std::int64_t i = group.at("num_tables").whole(1, 100'000); i > 0; --i)
      add_table(model, fmt::format("t{}", number++), rows, width, hotness, -1);
    columns += static_cast<double>(width) *
               static_cast<double>(group.at("num_tables").whole(1, 100'000)) *
               static_cast<double>(hotness.size());
  }
  Workload& w = model.workload;
  if (entry.has("mlp_sizes")) {
    // The interaction averages runs of `stride` columns; numbers are appended; then come the hidden
    // layers and one logit.
    const double stride =
        entry.has("interact_stride") ? entry.at("interact_stride").number(1, 1e6) : 1;
    double in =
        std::ceil(columns / stride) + (entry.has("num_numerical_features")
                                           ? entry.at("num_numerical_features").number(0, 1e9)
                                           : 0);
    double parameters = 0;
    std::vector<double> sizes;
    for (const Node& size : entry.at("mlp_sizes").list()) sizes.push_back(size.number(1, 1e9));
    sizes.push_back(1);
    hidden = in;
    for (const double out : sizes) {
      parameters += in * out + out;
      w.dense_flops += 6 * in * out;  // forward, and two products backward
      hidden += out;
      in = out;
    }
    require<DataError>(parameters <= 1e18, "{}: {} dense parameters are too many", entry,
                       parameters);
    w.dense_parameters = static_cast<std::int64_t>(parameters);
    // vectors read, their gradients written; activations and gradients of the layers
    w.dense_bytes = 4 * (2 * columns + 6 * hidden);
  }
  if (root.has("common") && root.at("common").has("id_distribution")) {
    const Node ids = root.at("common").at("id_distribution");
    if (ids.has("alpha_flag_default")) w.skew = ids.at("alpha_flag_default").number(0, 16);
    if (ids.has("ids_are_frequency_sorted"))
      w.sorted_ids = ids.at("ids_are_frequency_sorted").json() == true;
  }
}

/// A set of cardinalities: one-hot tables of one width, or with `multi_hot_sizes...`.
void read_cardinalities(Model& model, const Node& root, const Node& set, int width) {
  const std::vector<Node> rows = set.at("cardinalities").list();
  std::vector<Node> sizes;
  for (const auto& [key, value] : set.json().items())
    if (key.rfind("multi_hot_sizes", 0) == 0) sizes = set.at(key).list();
  require<DataError>(sizes.empty() || sizes.size() == rows.size(),
                     "{}: {} cardinalities, but {} multi-hot sizes", set, rows.size(),
                     sizes.size());
  if (root.has("embedding_dim"))
    width = static_cast<int>(root.at("embedding_dim").whole(1, 1 << 16));
  for (std::size_t i = 0; i < rows.size(); ++i)
    add_table(model, fmt::format("cat_{}", i), rows[i].whole(1, kMostRows), width,
              {sizes.empty() ? 1 : sizes[i].number(0.001, kMostHotness)}, -1);
}

void read_document(Model& model, const Json& json, const Source& source, const std::string& which,
                   int width) {
  const Node root(json, source);
  for (const char* key : {"models", "sets"}) {
    if (!root.has(key)) continue;
    const Node all = root.at(key);
    require<DataError>(all.has(which.c_str()), "{}: --model must name one of: {}", source.file,
                       known(all.json()));
    model.name = checked_name(which, source.file + ": --model");
    const Node entry = all.at(which);
    if (entry.has("tables")) return read_tables(model, entry, width);
    return std::string_view(key) == "models" ? read_groups(model, root, entry)
                                             : read_cardinalities(model, root, entry, width);
  }
  if (root.has("name")) model.name = root.at("name").name();
  require<DataError>(which.empty() || which == model.name, "{}: its only model is '{}', not '{}'",
                     source.file, model.name, which);
  read_tables(model, root, width);
}

}  // namespace

Model read_model(const std::string& path, const std::string& which, int width) {
  Source source{path, support::read_file(path)};
  const std::string& text = source.text;
  Model model;
  model.name = "model";
  source.yaml = is_yaml(path);
  if (source.yaml && !is_feature_spec(text)) {
    read_document(model, plain_yaml(text, path), source, which, width);
  } else if (source.yaml) {
    require<DataError>(which.empty(),
                       "{}: a feature specification has one model, without a name; "
                       "leave --model out",
                       path);
    for (const CategoricalFeature& f : read_feature_spec(text, path))
      add_table(model, checked_name(f.name, path), f.cardinality, width, {f.hotness}, f.skew);
  } else {
    Json json;
    try {
      json = parse_json<Json>(text, path);
    } catch (const Json::exception& error) {
      throw DataError(not_json(source, error));
    }
    read_document(model, json, source, which, width);
  }
  require<DataError>(!model.tables.empty(), "{}: there are no tables", path);
  std::set<std::string_view> tables, features;
  for (const TableSpec& t : model.tables)
    require<DataError>(tables.insert(t.name).second, "{}: two tables have the name '{}'", path,
                       t.name);
  for (const FeatureSpec& f : model.features)
    require<DataError>(features.insert(f.name).second, "{}: two features have the name '{}'", path,
                       f.name);
  return model;
}

void take_statistics(Model& model, const std::string& path, const std::string& text) {
  Json json;
  try {
    json = parse_json<Json>(text, path);
  } catch (const Json::exception&) {  // and so it is none of these
  }
  require<DataError>(json.is_object() && json.contains("tessera_statistics"),
                     "{}: no file of statistics, as tessera_plan --measure-ids writes it", path);
  const Source source{path, text};
  const Node root(json, source);
  root.only("a file of statistics",
            {"tessera_statistics", "samples", "batch", "sorted_ids", "tables", "features"});
  root.at("tessera_statistics").whole(1, 1);
  model.statistics = path;
  std::set<std::string> known;
  for (const Node& of : root.at("tables").list()) {
    const std::string name = of.at("name").name();
    require<DataError>(known.insert(name).second, "{}: table '{}' was there before", of.at("name"),
                       name);
    const auto table = std::find_if(model.tables.begin(), model.tables.end(),
                                    [&](const TableSpec& t) { return t.name == name; });
    require<DataError>(table != model.tables.end(), "{}: the model has no table '{}'",
                       of.at("name"), name);
    const std::int64_t rows = of.at("rows").whole(1, kMostRows);
    require<DataError>(rows == table->rows,
                       "{}: table '{}' has {} rows, in the model {}; measure "
                       "its ids again",
                       of.at("rows"), name, rows, table->rows);
    if (of.has("skew")) table->skew = of.at("skew").number(0, 16);
    if (!of.has("frequencies")) continue;
    tessera::detail::RowFrequencies& found = model.frequencies.emplace_back();
    double all_rows = 0, all_ids = 0, before = std::numeric_limits<double>::infinity();
    for (const Node& group : of.at("frequencies").list()) {
      const std::vector<Node> pair = group.list();
      require<DataError>(pair.size() == 2, "{}: a group is [rows, share of the ids]", group);
      found.groups.push_back({static_cast<double>(pair[0].whole(1, rows)), pair[1].number(0, 1)});
      const auto& [count, share] = found.groups.back();
      require<DataError>(share / count <= before * (1 + 1e-9),
                         "{}: its rows are drawn more often than those before", group);
      before = share / count;
      all_rows += count;
      all_ids += share;
    }
    require<DataError>(all_rows == static_cast<double>(rows) && std::abs(all_ids - 1) < 1e-6,
                       "{}: the groups have {} of {} rows, and {} of the ids in place of 1",
                       of.at("frequencies"), all_rows, rows, all_ids);
    table->frequencies = &found;
  }
  require<DataError>(known.size() == model.tables.size(),
                     "{}: statistics of {} of the model's {} tables; measure its ids again", path,
                     known.size(), model.tables.size());
  for (const Node& of : root.at("features").list()) {
    const std::string name = of.at("name").name();
    const auto feature = std::find_if(model.features.begin(), model.features.end(),
                                      [&](const FeatureSpec& f) { return f.name == name; });
    require<DataError>(feature != model.features.end(), "{}: the model has no feature '{}'",
                       of.at("name"), name);
    feature->hotness = std::max(0.001, of.at("hotness").number(0, kMostHotness));
  }
  const Node sorted = root.at("sorted_ids");
  require<DataError>(sorted.json().is_boolean(), "{}: must be true or false", sorted);
  model.workload.sorted_ids = sorted.json().get<bool>();
}

}  // namespace plan
