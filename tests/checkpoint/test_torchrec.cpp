// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// State dicts of PyTorch programs come in, and go out, under any layout: safetensors bytes that are
// put together here, and files that PyTorch itself writes where it is there.
#include <checkpoint/models.hpp>

#include <tessera/checkpoint/torchrec.hpp>

#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <set>
#include <string>
#include <utility>
#include <vector>

using namespace models;

namespace {

/// A tensor's bytes, and how a header describes it.
struct Bytes {
  std::string name, type, shape, data;
};

template <class T>
Bytes table(const std::string& name, const std::string& type, std::string_view numbers, int rows,
            int columns) {
  Bytes bytes{name, type, fmt::format("[{}, {}]", rows, columns), ""};
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c) {
      const T x = value<T>(5, numbers, 0, r, c);
      bytes.data.append(reinterpret_cast<const char*>(&x), sizeof(T));
    }
  return bytes;
}

/// Writes a safetensors file as its format says: 8 bytes of length, JSON, data.
void write_safetensors(const std::filesystem::path& path, const std::vector<Bytes>& tensors) {
  std::string json = "{", data;
  for (const Bytes& t : tensors) {
    json += fmt::format(R"({}"{}": {{"dtype": "{}", "shape": {}, "data_offsets": [{}, {}]}})",
                        json.size() > 1 ? ", " : "", t.name, t.type, t.shape, data.size(),
                        data.size() + t.data.size());
    data += t.data;
  }
  json += '}';
  const std::uint64_t length = json.size();
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(&length), 8);
  file << json << data;
}

void write_text(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::string text_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Tables cut in another way for each number of ranks: by rows, by columns, copied.
Layout layout(int ranks) {
  return make_layout({ranks}, {{"t", 700, 12}, {"u", 9, 3}}, {},
                     {{0, {0, 300, 0, 12}, 0},
                      {0, {300, 700, 0, 5}, ranks - 1},
                      {0, {300, 700, 5, 12}, 0},
                      {1, {0, 9, 0, 3}, every_rank}});
}

/// Weights that are not those of `Stored` in the files, and states that are not the model's own.
template <class Stored, class Model>
std::int64_t wrong(Model& model) {
  std::int64_t count = 0;
  visit(model.tables, [&](std::string_view name, int array, std::int64_t row, std::int64_t column,
                          auto& x) {
    using X = std::remove_reference_t<decltype(x)>;
    const X expected = array == 0 ? from_float<X>(to_float(value<Stored>(5, name, 0, row, column)))
                                  : value<X>(99, name, array, row, column);
    count += std::memcmp(&x, &expected, sizeof(X)) != 0;
  });
  return count;
}

template <class T>
using Model = Trained<RowWiseAdagrad, T, ThreadCommunicator>;

/// Loads into a model of `T` on 1, 2 and 3 ranks, and compares every number.
template <class Stored, class T>
void check_load(const std::filesystem::path& path, const TorchrecOptions& options = {}) {
  for (const int ranks : {1, 2, 3})
    run_ranks(ranks, [&](ThreadCommunicator& c) {
      Model<T> model(c, layout(ranks), 99);
      CHECK(load_torchrec_checkpoint(c, path, model.contents, options) == 2);
      CHECK(wrong<Stored>(model) == 0);
      CHECK(model.dense[17] == 99.0f + 17.0f);
      CHECK(model.tables.steps() == 99 + 7);
    });
}

/// Loads what must be refused, with the texts in the error, on two ranks; nothing has changed.
void check_refused(const std::filesystem::path& path, const std::vector<std::string>& texts,
                   const TorchrecOptions& options = {}) {
  run_ranks(2, [&](ThreadCommunicator& c) {
    Model<float> model(c, layout(2), 99);
    std::string error;
    try {
      load_torchrec_checkpoint(c, path, model.contents, options);
    } catch (const DataError& fault) {
      error = fault.what();
    }
    for (const std::string& text : texts) {
      CAPTURE(error);
      CAPTURE(text);
      CHECK(error.find(text) != std::string::npos);
    }
    CHECK(model.is<float>(99));
  });
}

/// Returns how to call a Python that has torch; empty: there is none.
std::string torch_python() {
  const char* given = std::getenv("TESSERA_PYTHON");
  for (const std::string& python :
       {std::string(given == nullptr ? "python3" : given), std::string("/usr/bin/python3")})
    if (std::system(("'" + python + "' -c 'import torch' >/dev/null 2>&1").c_str()) == 0)
      return python;
  return {};
}

/// Runs a Python program in a folder; returns whether it ended well. What it says is in out.txt.
bool run_python(const std::string& python, const std::filesystem::path& folder,
                const std::string& program) {
  write_text(folder / "program.py", program);
  const bool good = std::system(("cd '" + folder.string() + "' && OMP_NUM_THREADS=1 '" + python +
                                 "' -B program.py >out.txt 2>&1")
                                    .c_str()) == 0;
  if (!good) MESSAGE(text_of(folder / "out.txt"));
  return good;
}

}  // namespace

TEST_CASE("tables come from a safetensors file, by the names of TorchRec and of PyTorch") {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path / "state.safetensors";
  const Bytes dense{"over.0.weight", "F64", "[1]", std::string(8, 'x')};
  write_safetensors(file,
                    {dense, table<float>("model.ebc.embedding_bags.t.weight", "F32", "t", 700, 12),
                     table<float>("model.ec.embeddings.u.weight", "F32", "u", 9, 3)});
  check_load<float, float>(file);
  check_load<float, BFloat16>(file);
  write_safetensors(file, {table<Half>("t.weight", "F16", "t", 700, 12),
                           table<Half>("u.weight", "F16", "u", 9, 3)});
  check_load<Half, float>(file);
  check_load<Half, Half>(folder.path);  // a folder of one file needs no index
  write_safetensors(file, {table<BFloat16>("embedding_bags.t.weight", "BF16", "t", 700, 12),
                           table<BFloat16>("embedding_bags.u.weight", "BF16", "u", 9, 3)});
  check_load<BFloat16, float>(file);
}

TEST_CASE("a prefix and other names say which tensors are meant") {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path / "state.safetensors";
  write_safetensors(file, {table<float>("a.embedding_bags.t.weight", "F32", "t", 700, 12),
                           table<float>("b.embedding_bags.t.weight", "F32", "other", 700, 12),
                           table<float>("a.embedding_bags.user.weight", "F32", "u", 9, 3),
                           table<float>("lists.u.weight", "F32", "other", 9, 3)});
  check_load<float, float>(file, {.prefix = "a", .rename = {{"u", "user"}}});
  check_load<float, float>(
      file, {.prefix = "a.", .rename = {{"u.weight", "a.embedding_bags.user.weight"}}});
  check_refused(file,
                {"the state dict and the model differ",
                 "table 't' may be 'a.embedding_bags.t.weight' or 'b.embedding_bags.t.weight'",
                 "table 'u' is not there: its tensor would be '*.embedding_bags.u.weight', "
                 "'*.embeddings.u.weight' or 'u.weight'"});
  check_refused(file,
                {"table 'u' is not there: its tensor would be 'b.embedding_bags.user.weight'"},
                {.prefix = "b", .rename = {{"u", "user"}}});
  check_refused(file, {"table 'u' is not there: its tensor would be 'a.other'"},
                {.prefix = "a", .rename = {{"u.weight", "a.other"}}});
  run_ranks(2, [&](ThreadCommunicator& c) {
    Model<float> model(c, layout(2), 99);
    CHECK(load_torchrec_checkpoint(c, file, model.contents, {.prefix = "b", .missing = {"u*"}}) ==
          1);
    std::int64_t kept = 0, rows = 0;
    visit(model.tables, [&](std::string_view name, int array, std::int64_t row, std::int64_t column,
                            auto& x) {
      if (array != 0) return;
      ++rows;
      kept += static_cast<float>(x) == (name == "u" ? value<float>(99, "u", 0, row, column)
                                                    : value<float>(5, "other", 0, row, column));
    });
    CHECK(kept == rows);
  });
}

TEST_CASE("a folder of safetensors files has an index") {
  const TemporaryFolder folder;
  write_safetensors(folder.path / "one.safetensors",
                    {table<float>("ebc.embedding_bags.t.weight", "F32", "t", 700, 12),
                     table<float>("ebc.embedding_bags.u.weight", "F32", "stale", 9, 3)});
  write_safetensors(folder.path / "two.safetensors",
                    {table<float>("ebc.embedding_bags.u.weight", "F32", "u", 9, 3)});
  const std::filesystem::path index = folder.path / "model.safetensors.index.json";
  check_refused(folder.path, {"has 2 safetensors files and no 'model.safetensors.index.json'",
                              "give one of the files"});
  const auto write_index = [&](const std::string& t, const std::string& u) {
    write_text(index, R"({"metadata": {"total_size": 33708}, "weight_map": {)"
                      R"("ebc.embedding_bags.t.weight": ")" +
                          t + R"(", "ebc.embedding_bags.u.weight": ")" + u + "\"}}\n");
  };
  write_index("one.safetensors", "two.safetensors");
  check_load<float, float>(folder.path);
  write_index("two.safetensors", "two.safetensors");
  check_refused(folder.path, {"two.safetensors' has no tensor 'ebc.embedding_bags.t.weight', which",
                              "index.json' says it has"});
  write_index("three.safetensors", "two.safetensors");
  check_refused(folder.path, {"cannot open", "three.safetensors"});
  write_index("../one.safetensors", "two.safetensors");
  check_refused(folder.path, {"index.json", "is not one beside the index"});
  write_text(index, R"({"metadata": {}})");
  check_refused(folder.path, {"index.json", "needs weight_map"});
  write_text(index, R"({"weight_map": {"t": 3}})");
  check_refused(folder.path, {"index.json", "a string is expected here"});
}

TEST_CASE("what is wrong with a state dict is said before anything changes") {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path / "state.safetensors";
  check_refused(file, {"there is no '", "state.safetensors"});
  check_refused(folder.path, {"has 0 safetensors files"});
  write_safetensors(file, {table<float>("t.weight", "F32", "t", 700, 11),
                           {"u.weight", "F64", "[9, 3]", std::string(9 * 3 * 8, 'x')}});
  check_refused(file, {"state.safetensors': the state dict and the model differ:",
                       "'t.weight' is F32 [700,11], table 't' in the model F32 [700,12]",
                       "'u.weight' is F64 [9,3], table 'u' in the model F32 [9,3]"});
  write_safetensors(file, {table<float>("t.weight", "F8_E4M3", "t", 700, 12)});
  check_refused(file, {"tensor 't.weight'", "dtype is none of"});
  write_safetensors(file, {{"t.weight", "F32", "[33600]", std::string(33600 * 4, 'x')}});
  check_refused(file, {"'t.weight' is F32 [33600]", "table 'u' is not there"});
  write_safetensors(file, {table<float>("t.weight", "F32", "t", 700, 12),
                           table<float>("u.weight", "F32", "u", 9, 3)});
  check_load<float, float>(file);
  const auto size = std::filesystem::file_size(file);
  for (const auto bytes : {size - 1, size / 2, std::uintmax_t{40}, std::uintmax_t{7}}) {
    std::filesystem::resize_file(file, bytes);
    check_refused(file, {"state.safetensors', "});
  }
  run_ranks(2, [&](ThreadCommunicator& c) {
    std::vector<float> dense(4);
    CheckpointContents contents;
    contents.add("t.weight", {4}, std::span(dense));
    CHECK_THROWS_WITH_AS(load_torchrec_checkpoint(c, file, contents),
                         doctest::Contains("the model has no tables"), DataError);
    CHECK_THROWS_WITH_AS(save_torchrec_checkpoint(c, folder.path / "new", contents),
                         doctest::Contains("the model has no tables"), DataError);
  });
}

TEST_CASE("tables go out as one state dict") {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path / "out.safetensors";
  run_ranks(3, [&](ThreadCommunicator& c) {
    Model<float> model(c, layout(3), 5);
    save_torchrec_checkpoint(c, file, model.contents, {.prefix = "ebc"});
    CHECK_THROWS_WITH_AS(save_torchrec_checkpoint(c, file, model.contents),
                         doctest::Contains("is there already"), DataError);
    CHECK_THROWS_WITH_AS(save_torchrec_checkpoint(c, folder.path / "no" / "out", model.contents),
                         doctest::Contains("cannot create"), DataError);
    CHECK_THROWS_WITH_AS(save_torchrec_checkpoint(c, folder.path / "twice", model.contents,
                                                  {.rename = {{"t", "u"}}}),
                         doctest::Contains("two tables would be 'embedding_bags.u.weight'"),
                         DataError);
  });
  std::set<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path))
    left.insert(entry.path().filename().string());
  CHECK(left == std::set<std::string>{"out.safetensors"});
  // The bytes, by the format's own words.
  const std::string bytes = text_of(file);
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  REQUIRE(bytes.size() == 8 + length + 700 * 12 * 4 + 9 * 3 * 4);
  const std::string header = bytes.substr(8, length);
  CHECK(header.find(R"("ebc.embedding_bags.t.weight":{"dtype":"F32","shape":[700,12],)"
                    R"("data_offsets":[0,33600]})") != std::string::npos);
  CHECK(header.find(R"("ebc.embedding_bags.u.weight":{"dtype":"F32","shape":[9,3],)"
                    R"("data_offsets":[33600,33708]})") != std::string::npos);
  CHECK(header.find("sum") == std::string::npos);
  CHECK(bytes.substr(8 + length) ==
        table<float>("", "", "t", 700, 12).data + table<float>("", "", "u", 9, 3).data);
  check_load<float, float>(file);
  const std::filesystem::path plain = folder.path / "plain.safetensors";
  run_ranks(2, [&](ThreadCommunicator& c) {
    Model<BFloat16> model(c, layout(2), 5);
    save_torchrec_checkpoint(
        c, plain, model.contents,
        {.modules = "", .rename = {{"t", "user"}, {"u.weight", "lists.u.weight"}}});
  });
  CHECK(text_of(plain).find(R"("user.weight":{"dtype":"BF16")") != std::string::npos);
  CHECK(text_of(plain).find(R"("lists.u.weight":{"dtype":"BF16")") != std::string::npos);
  check_load<BFloat16, float>(
      plain, {.modules = "", .rename = {{"t", "user"}, {"u.weight", "lists.u.weight"}}});
}

TEST_CASE("PyTorch loads what goes out, and what PyTorch writes comes in") {
  const std::string python = torch_python();
  if (python.empty() ||
      std::system(("'" + python + "' -c 'import safetensors.torch' >/dev/null 2>&1").c_str()) !=
          0) {
    MESSAGE("no Python with torch and safetensors: left out");
    return;
  }
  const TemporaryFolder folder;
  run_ranks(2, [&](ThreadCommunicator& c) {
    Model<float> model(c, layout(2), 5);
    save_torchrec_checkpoint(c, folder.path / "out.safetensors", model.contents);
  });
  REQUIRE(run_python(python, folder.path, R"(
import safetensors.torch, torch
state = safetensors.torch.load_file("out.safetensors")
class Tables(torch.nn.Module):                 # the names of TorchRec's EmbeddingBagCollection
    def __init__(self):
        super().__init__()
        self.embedding_bags = torch.nn.ModuleDict({"t": torch.nn.EmbeddingBag(700, 12), "u": torch.nn.EmbeddingBag(9, 3)})
model = Tables()
model.load_state_dict(state)
assert torch.equal(model.embedding_bags["t"].weight, state["embedding_bags.t.weight"])
class Whole(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.sparse, self.over = model, torch.nn.Linear(3, 1)
safetensors.torch.save_file({k: v.to(torch.bfloat16) for k, v in Whole().state_dict().items()}, "back.safetensors")
)"));
  run_ranks(2, [&](ThreadCommunicator& c) {
    Model<float> model(c, layout(2), 99);
    CHECK(load_torchrec_checkpoint(c, folder.path / "back.safetensors", model.contents) == 2);
    CHECK(wrong<BFloat16>(model) == 0);
  });
}
