// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "protocol.hpp"

#include <tessera/core/error.hpp>
#include <tessera/io/json_reader.hpp>
#include <tessera/io/text.hpp>
#include <tessera/version.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <system_error>
#include <utility>

namespace serve {
namespace {

using namespace tessera;

static_assert(std::endian::native == std::endian::little, "binary tensors are little-endian");

constexpr std::string_view kBody = "body";

template <class... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> text, Args&&... args) {
  throw Refusal(400, fmt::format(text, std::forward<Args>(args)...));
}

/// Elements of a shape, at most 2^40.
std::int64_t elements(const Tensor& tensor) {
  std::int64_t count = 1;
  for (const std::int64_t extent : tensor.shape)
    if (__builtin_mul_overflow(count, extent, &count) || count > std::int64_t{1} << 40)
      refuse("input {}: its shape has too many elements", detail::quoted(tensor.name));
  return count;
}

std::string shape_of(const Tensor& tensor) {
  std::string text;
  for (const std::int64_t extent : tensor.shape)
    text += fmt::format("{}{}", text.empty() ? "" : ",", extent);
  return "[" + text + "]";
}

struct Known {
  std::string_view name;
  std::size_t bytes;  ///< of an element; 0: it says itself
};
constexpr Known kDatatypes[] = {{"FP32", 4}, {"FP64", 8}, {"INT64", 8}, {"BYTES", 0}};

/// Of a column of numbers.
std::string_view number_type(const NumberInput& input) {
  return input.needs_double() && !input.list ? "FP64" : "FP32";
}

/// Refuses what has more elements than its shape.
[[noreturn]] void refuse_surplus(const Tensor& tensor, std::int64_t count) {
  refuse("input {}: {} elements or more are given; its shape {} has {}",
         detail::quoted(tensor.name), count + 1, shape_of(tensor), count);
}

void check_samples(const Tensor& tensor, std::int64_t most) {
  if (!tensor.shape.empty() && tensor.shape[0] > most)
    refuse("input {}: {} samples are more than the {} of one request; send them in parts",
           detail::quoted(tensor.name), tensor.shape[0], most);
}

/// Takes the memory of `count` elements, first what they are read to, then what they become rows in.
template <class T>
void reserve(std::vector<T>& elements, std::int64_t count, const RequestLimits& limits) {
  constexpr std::uint64_t kEncoded = 2 * sizeof(std::int64_t);
  limits.take(static_cast<std::uint64_t>(count) * (sizeof(T) + kEncoded));
  elements.reserve(static_cast<std::size_t>(count));
}

/// The `count` elements of `data`, which may be nested as the shape says.
void read_data(std::string_view data, std::size_t at, std::int64_t count, Tensor& tensor,
               const RequestLimits& limits) {
  detail::JsonReader json(data, kBody, at);
  json.set_context(fmt::format("input {}", detail::quoted(tensor.name)));
  const std::int64_t room = std::min(count, static_cast<std::int64_t>(data.size() / 2 + 1));
  if (tensor.datatype == "FP32") reserve(tensor.floats, room, limits);
  if (tensor.datatype == "FP64") reserve(tensor.doubles, room, limits);
  if (tensor.datatype == "INT64") reserve(tensor.integers, room, limits);
  if (tensor.datatype == "BYTES") reserve(tensor.texts, room, limits);
  if (tensor.datatype == "BYTES" && data.find('\\') != std::string_view::npos) {
    limits.take(data.size());  // it must not grow: texts are views of it
    tensor.unescaped.reserve(data.size());
  }
  std::int64_t given = 0;
  const auto element = [&](std::size_t place) {
    if (given++ == count) refuse_surplus(tensor, count);
    if (tensor.datatype == "FP32") {
      if (json.null()) return tensor.floats.push_back(std::numeric_limits<float>::quiet_NaN());
      if (const auto special = json.not_finite())
        return tensor.floats.push_back(static_cast<float>(*special));
      const auto value = static_cast<float>(json.real());
      json.check(std::isfinite(value), place, "the number is too large for a float");
      tensor.floats.push_back(value);
    } else if (tensor.datatype == "FP64") {
      if (json.null()) return tensor.doubles.push_back(std::numeric_limits<double>::quiet_NaN());
      const auto special = json.not_finite();
      tensor.doubles.push_back(special ? *special : json.real());
    } else if (tensor.datatype == "INT64") {
      const std::string_view number = json.skip();
      std::int64_t value = 0;
      const auto [end, error] =
          std::from_chars(number.data(), number.data() + number.size(), value);
      json.check(error == std::errc() && end == number.data() + number.size(), place,
                 "a whole number of 64 bits is expected here");
      tensor.integers.push_back(value);
    } else {
      tensor.texts.push_back(json.string(tensor.unescaped));
    }
  };
  json.array([&](std::size_t place) { json.next() == '[' ? json.array(element) : element(place); });
  json.end();
}

/// `bytes` of the binary part, of `count` elements.
void read_binary(std::string_view bytes, std::int64_t count, Tensor& tensor,
                 const RequestLimits& limits) {
  const auto take = [&](auto& values) {
    reserve(values, count, limits);
    values.resize(static_cast<std::size_t>(count));
    if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  };
  if (tensor.datatype == "FP32") return take(tensor.floats);
  if (tensor.datatype == "FP64") return take(tensor.doubles);
  if (tensor.datatype == "INT64") return take(tensor.integers);
  reserve(tensor.texts, std::min(count, static_cast<std::int64_t>(bytes.size() / 4)), limits);
  while (!bytes.empty()) {
    std::uint32_t length = 0;
    if (bytes.size() >= sizeof(length)) std::memcpy(&length, bytes.data(), sizeof(length));
    if (bytes.size() < sizeof(length) || length > bytes.size() - sizeof(length))
      refuse(
          "input {}: its binary data end inside element {}; each is 4 bytes of length, "
          "little-endian, then the text",
          detail::quoted(tensor.name), tensor.texts.size());
    if (std::ssize(tensor.texts) == count) refuse_surplus(tensor, count);
    tensor.texts.push_back(bytes.substr(sizeof(length), length));
    bytes.remove_prefix(sizeof(length) + length);
  }
}

/// The tail of a body, whose tensors lie in the order of the inputs.
struct BinaryPart {
  std::string_view rest;
  std::string_view take(std::uint64_t bytes, const Tensor& tensor) {
    if (bytes > rest.size())
      refuse(
          "input {}: binary_data_size is {}, and only {} bytes are left behind the JSON; check "
          "the header Inference-Header-Content-Length",
          detail::quoted(tensor.name), bytes, rest.size());
    const std::string_view taken = rest.substr(0, static_cast<std::size_t>(bytes));
    rest.remove_prefix(taken.size());
    return taken;
  }
};

/// Calls member(key) for the members of an object whose keys are `known`, each once. Passes over
/// others, of which nothing is kept.
template <class Member>
void members(detail::JsonReader& json, std::initializer_list<std::string_view> known,
             const Member& member) {
  std::uint32_t seen = 0;
  json.object([&](const std::string& key, std::size_t at) {
    const auto found = std::find(known.begin(), known.end(), key);
    if (found == known.end()) return static_cast<void>(json.skip());
    const std::uint32_t bit = 1u << (found - known.begin());
    if (seen & bit)
      json.check(false, at, fmt::format("the key {} appears twice", detail::quoted(key)));
    seen |= bit;
    member(key);
  });
}

void read_input(detail::JsonReader& json, std::size_t at, BinaryPart& binary, InferRequest& request,
                const RequestLimits& limits) {
  Tensor tensor;
  std::optional<std::uint64_t> binary_size;
  std::string_view data;
  std::size_t data_at = 0;
  bool shaped = false;
  const auto name_it = [&] {
    return tensor.name.empty() ? fmt::format("input number {}", request.inputs.size() + 1)
                               : fmt::format("input {}", detail::quoted(tensor.name));
  };
  members(json, {"name", "datatype", "shape", "parameters", "data"}, [&](const std::string& key) {
    json.set_context(name_it());
    if (key == "name") {
      tensor.name = json.string();
    } else if (key == "datatype") {
      tensor.datatype = json.string();
    } else if (key == "shape") {
      shaped = true;
      json.array([&](std::size_t place) {
        json.check(tensor.shape.size() < 8, place, "a shape has at most 8 extents");
        tensor.shape.push_back(json.count("the extent is too large"));
      });
    } else if (key == "parameters") {
      members(json, {"binary_data_size"}, [&](const std::string&) { binary_size = json.number(); });
    } else {
      data_at = json.next_position();
      data = json.skip(true);
    }
    json.set_context("");
  });
  json.check(!tensor.name.empty() && !tensor.datatype.empty() && shaped, at,
             "an input needs name, shape and datatype");
  const Known* const known =
      std::find_if(std::begin(kDatatypes), std::end(kDatatypes),
                   [&](const Known& k) { return k.name == tensor.datatype; });
  if (known == std::end(kDatatypes))
    refuse(
        "input {}: datatype {} is not served; give FP32, FP64, INT64 or BYTES as the model's "
        "metadata says",
        detail::quoted(tensor.name), detail::quoted(tensor.datatype));
  if (binary_size.has_value() == !data.empty())
    refuse("input {}: {}", detail::quoted(tensor.name),
           data.empty() ? "it has neither 'data' nor the parameter 'binary_data_size'"
                        : "it has both 'data' and the parameter 'binary_data_size'; give one");
  const std::int64_t count = elements(tensor);
  // of a list's values each sample may have many
  if (!tensor.name.ends_with("__values")) check_samples(tensor, limits.most_samples);
  limits.take(sizeof(Tensor) + tensor.name.size());
  if (binary_size) {
    if (known->bytes != 0 && *binary_size != static_cast<std::uint64_t>(count) * known->bytes)
      refuse("input {}: binary_data_size is {}; {} {} needs {} bytes", detail::quoted(tensor.name),
             *binary_size, tensor.datatype, shape_of(tensor),
             static_cast<std::uint64_t>(count) * known->bytes);
    read_binary(binary.take(*binary_size, tensor), count, tensor, limits);
  } else {
    read_data(data, data_at, count, tensor, limits);
  }
  const auto given = static_cast<std::int64_t>(std::max(
      {tensor.floats.size(), tensor.doubles.size(), tensor.integers.size(), tensor.texts.size()}));
  if (given != count)
    refuse("input {}: {} elements are given; its shape {} has {}", detail::quoted(tensor.name),
           given, shape_of(tensor), count);
  request.inputs.push_back(std::move(tensor));
}

void read_outputs(detail::JsonReader& json, std::optional<bool>& binary) {
  json.array([&](std::size_t at) {
    std::string name;
    members(json, {"name", "parameters"}, [&](const std::string& key) {
      if (key == "name") {
        name = json.string();
        return;
      }
      members(json, {"binary_data", "classification"}, [&](const std::string& parameter) {
        if (parameter == "classification")
          refuse("output {}: the classification extension is not served; leave it out",
                 detail::quoted(name));
        binary = json.boolean();
      });
    });
    json.check(name == "score", at,
               fmt::format("there is no output {}; the model's only one is 'score'",
                           detail::quoted(name)));
  });
}

/// DataError names a file; a client has none.
std::string without_file(std::string_view text) {
  constexpr std::string_view prefix = "file 'body', ";
  if (text.starts_with(prefix)) text.remove_prefix(prefix.size());
  return fmt::format("the request's JSON, {}", text);
}

}  // namespace

InferRequest parse_infer_request(std::string_view body, std::optional<std::string_view> header,
                                 const RequestLimits& limits) {
  std::size_t json_bytes = body.size();
  if (header) {
    const auto [end, error] =
        std::from_chars(header->data(), header->data() + header->size(), json_bytes);
    if (error != std::errc() || end != header->data() + header->size() || json_bytes > body.size())
      refuse(
          "the header Inference-Header-Content-Length is {}; it must be the bytes of JSON at "
          "the beginning of the body, which has {}",
          detail::quoted(*header), body.size());
  }
  const std::string_view text = body.substr(0, json_bytes);
  if (const std::size_t end = detail::utf8_end(text); end < text.size())
    refuse(
        "the request's JSON, offset {}: this is not UTF-8; send UTF-8, or texts as binary tensors",
        end);
  InferRequest request;
  BinaryPart binary{body.substr(json_bytes)};
  bool inputs = false;
  std::optional<bool> binary_output, binary_outputs;  // of the output, and of all
  try {
    detail::JsonReader json(text, kBody);
    members(json, {"id", "parameters", "inputs", "outputs"}, [&](const std::string& key) {
      if (key == "id") {
        request.id = json.string();
      } else if (key == "parameters") {
        members(json, {"binary_data_output"},
                [&](const std::string&) { binary_outputs = json.boolean(); });
      } else if (key == "inputs") {
        inputs = true;
        json.array([&](std::size_t at) { read_input(json, at, binary, request, limits); });
      } else {
        read_outputs(json, binary_output);
      }
    });
    json.end();
  } catch (const DataError& error) {
    refuse("{}", without_file(error.what()));
  }
  if (!inputs) refuse("the request has no 'inputs'");
  request.binary_output = binary_output.value_or(binary_outputs.value_or(false));
  if (!binary.rest.empty())
    refuse(
        "{} bytes follow the last binary tensor; binary_data_size of the inputs must add up to "
        "all that follows the JSON",
        binary.rest.size());
  return request;
}

ModelColumns columns_of(const InferRequest& request, const ModelDescription& model,
                        std::int64_t most_samples) {
  std::vector<bool> used(request.inputs.size(), false);
  const auto find = [&](std::string_view name, std::string_view expected) -> const Tensor& {
    const Tensor* found = nullptr;
    for (std::size_t i = 0; i < request.inputs.size(); ++i) {
      if (request.inputs[i].name != name) continue;
      if (found != nullptr) refuse("input {} is given twice", detail::quoted(name));
      found = &request.inputs[i];
      used[i] = true;
    }
    if (found == nullptr)
      refuse("input {} is missing; give {}, as GET of the model's metadata lists it",
             detail::quoted(name), expected);
    return *found;
  };
  std::int64_t samples = -1;
  std::string_view first;
  // One entry per sample.
  const auto column = [&](const Tensor& tensor) {
    if (tensor.shape.empty() || tensor.shape.size() > 2 ||
        (tensor.shape.size() == 2 && tensor.shape[1] != 1))
      refuse("input {}: shape {}; give [n,1]", detail::quoted(tensor.name), shape_of(tensor));
    if (samples < 0) samples = tensor.shape[0], first = tensor.name;
    if (tensor.shape[0] != samples)
      refuse("input {}: {} samples; input {} has {}; give as many of all",
             detail::quoted(tensor.name), tensor.shape[0], detail::quoted(first), samples);
    check_samples(tensor, most_samples);
  };
  const auto of_type = [](const Tensor& tensor, std::initializer_list<std::string_view> types) {
    if (std::find(types.begin(), types.end(), tensor.datatype) == types.end())
      refuse("input {}: datatype {}; give {}", detail::quoted(tensor.name),
             detail::quoted(tensor.datatype),
             types.size() == 1 ? std::string(*types.begin())
                               : "BYTES, texts as in the data, or INT64, rows");
  };
  ModelColumns columns;
  // The values of a list column, and how many each sample has.
  const auto list =
      [&](const std::string& name,
          std::string_view types) -> std::pair<const Tensor&, std::span<const std::int64_t>> {
    const Tensor& tensor =
        find(name + "__values", fmt::format("{} [entries], and NAME__lengths", types));
    if (tensor.shape.empty() || tensor.shape.size() > 2 ||
        (tensor.shape.size() == 2 && tensor.shape[1] != 1))
      refuse("input {}: shape {}; give [entries], of all samples together",
             detail::quoted(tensor.name), shape_of(tensor));
    const Tensor& lengths = find(name + "__lengths", "INT64 [n,1], entries per sample");
    of_type(lengths, {"INT64"});
    column(lengths);
    return {tensor, lengths.integers};
  };
  for (const NumberInput& input : model.numeric) {
    if (input.list) {
      const auto [tensor, lengths] = list(input.name, "FP32");
      of_type(tensor, {"FP32"});
      columns.numbers.emplace_back(tensor.floats);
      columns.number_lengths = lengths;
      continue;
    }
    const std::string_view type = number_type(input);
    const Tensor& tensor = find(input.name, fmt::format("{} [n,1], NaN for an empty field", type));
    of_type(tensor, {type});
    column(tensor);
    columns.numbers.push_back(type == "FP64" ? NumberValues(tensor.doubles)
                                             : NumberValues(tensor.floats));
  }
  for (const CategoryInput& input : model.features) {
    const auto [tensor, lengths] = input.list
                                       ? list(input.name, "BYTES or INT64")
                                       : std::pair<const Tensor&, std::span<const std::int64_t>>(
                                             find(input.name, "BYTES or INT64 [n,1]"), {});
    of_type(tensor, {"BYTES", "INT64"});
    if (!input.list) column(tensor);
    columns.categories.push_back(
        {.texts = tensor.texts, .rows = tensor.integers, .lengths = lengths, .given = true});
  }
  for (std::size_t i = 0; i < used.size(); ++i)
    if (!used[i])
      refuse(
          "input {} is none of the model's; leave it out (GET of the model's metadata lists "
          "them)",
          detail::quoted(request.inputs[i].name));
  columns.samples = std::max<std::int64_t>(samples, 0);
  return columns;
}

Reply infer_reply(std::string_view model, std::string_view version, std::int64_t step,
                  const InferRequest& request, std::span<const float> scores) {
  Reply reply;
  std::string& out = reply.body;
  out = "{\"model_name\":";
  detail::append_json_string(out, model);
  out += ",\"model_version\":";
  detail::append_json_string(out, version);
  if (request.id) {
    out += ",\"id\":";
    detail::append_json_string(out, *request.id);
  }
  out += fmt::format(
      ",\"parameters\":{{\"step\":{}}},\"outputs\":[{{\"name\":\"score\",\"datatype\":\"FP32\","
      "\"shape\":[{},1],",
      step, scores.size());
  if (request.binary_output) {
    out += fmt::format("\"parameters\":{{\"binary_data_size\":{}}}}}]}}", scores.size_bytes());
    reply.json_bytes = out.size();
    out.append(reinterpret_cast<const char*>(scores.data()), scores.size_bytes());
    return reply;
  }
  out += fmt::format("\"data\":[{}]}}]}}", fmt::join(scores, ","));
  return reply;
}

std::string server_metadata() {
  return fmt::format(
      "{{\"name\":\"tessera serve_model\",\"version\":\"{}.{}.{}\",\"extensions\":[\"binary_tensor_"
      "data\"]}}",
      TESSERA_VERSION_MAJOR, TESSERA_VERSION_MINOR, TESSERA_VERSION_PATCH);
}

namespace {

/// f(name, type, dimensions) for each input of a model.
template <class F>
void each_input(const ModelDescription& model, const F& f) {
  const auto input = [&](const std::string& name, bool list, std::string_view type) {
    if (!list) return f(name, type, "[-1,1]");
    f(name + "__values", type, "[-1]");
    f(name + "__lengths", "INT64", "[-1,1]");
  };
  for (const NumberInput& column : model.numeric)
    input(column.name, column.list, number_type(column));
  for (const CategoryInput& column : model.features) input(column.name, column.list, "BYTES");
}

}  // namespace

std::string model_metadata(std::string_view name, std::span<const std::string> versions,
                           std::int64_t step, const ModelDescription& model) {
  std::string out = "{\"name\":";
  detail::append_json_string(out, name);
  out += ",\"versions\":[";
  for (std::size_t i = 0; i < versions.size(); ++i) {
    if (i > 0) out += ',';
    detail::append_json_string(out, versions[i]);
  }
  out +=
      fmt::format("],\"platform\":\"tessera\",\"parameters\":{{\"step\":{}}},\"inputs\":[", step);
  bool begun = false;
  each_input(model, [&](const std::string& column, std::string_view type, std::string_view shape) {
    out += std::exchange(begun, true) ? ",{\"name\":" : "{\"name\":";
    detail::append_json_string(out, column);
    out += fmt::format(",\"datatype\":\"{}\",\"shape\":{}}}", type, shape);
  });
  return out + "],\"outputs\":[{\"name\":\"score\",\"datatype\":\"FP32\",\"shape\":[-1,1]}]}";
}

std::string model_config(std::string_view name, const ModelDescription& model,
                         std::int64_t most_samples) {
  // Triton's dimensions leave out that of the batch, which lists do not have.
  bool lists = false;
  each_input(model, [&](const std::string&, std::string_view, std::string_view shape) {
    lists = lists || shape == "[-1]";
  });
  const std::string_view one = lists ? "[\"-1\",\"1\"]" : "[\"1\"]";
  std::string out = "{\"name\":";
  detail::append_json_string(out, name);
  out += fmt::format(
      ",\"platform\":\"tessera\",\"backend\":\"tessera\",\"max_batch_size\":{},"
      "\"input\":[",
      lists ? 0 : std::min<std::int64_t>(most_samples, 1 << 30));
  bool begun = false;
  each_input(model, [&](const std::string& column, std::string_view type, std::string_view shape) {
    out += std::exchange(begun, true) ? ",{\"name\":" : "{\"name\":";
    detail::append_json_string(out, column);
    out += fmt::format(",\"data_type\":\"TYPE_{}\",\"dims\":{}}}",
                       type == "BYTES" ? "STRING" : type, shape == "[-1]" ? "[\"-1\"]" : one);
  });
  return out + fmt::format(
                   "],\"output\":[{{\"name\":\"score\",\"data_type\":\"TYPE_FP32\","
                   "\"dims\":{}}}]}}",
                   one);
}

std::string model_statistics(std::string_view name, std::span<const VersionStatistics> versions) {
  std::string out = "{\"model_stats\":[";
  for (std::size_t i = 0; i < versions.size(); ++i) {
    const VersionStatistics& v = versions[i];
    out += i > 0 ? ",{\"name\":" : "{\"name\":";
    detail::append_json_string(out, name);
    out += ",\"version\":";
    detail::append_json_string(out, v.version);
    out += fmt::format(
        ",\"last_inference\":{},\"inference_count\":{},\"execution_count\":{},"
        "\"inference_stats\":{{\"success\":{{\"count\":{},\"ns\":{}}}",
        v.last_ms, v.samples, v.requests, v.requests, v.nanoseconds);
    // what is not told apart here
    for (const char* part : {"fail", "queue", "compute_input", "compute_infer", "compute_output",
                             "cache_hit", "cache_miss"})
      out += fmt::format(",\"{}\":{{\"count\":{},\"ns\":{}}}", part,
                         std::string_view(part) == "compute_infer" ? v.requests : 0,
                         std::string_view(part) == "compute_infer" ? v.nanoseconds : 0);
    out += "},\"batch_stats\":[]}";
  }
  return out + "]}";
}

std::string error_body(std::string_view text) {
  // A folder's name may have bytes that are no UTF-8, which JSON may not hold.
  std::string plain(text);
  for (std::size_t at; (at = detail::utf8_end(plain)) < plain.size();) plain[at] = '?';
  std::string out = "{\"error\":";
  detail::append_json_string(out, plain);
  return out + "}";
}

}  // namespace serve
