// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// State dicts of PyTorch programs come in, and go out, under any layout: safetensors bytes that are
// put together here, and files that PyTorch itself writes where it is there.
#include <fmt/format.h>
#include <checkpoint/models.hpp>

#include <tessera/checkpoint/torchrec.hpp>

#include <doctest/doctest.h>
#include <support/text_of.hpp>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <tuple>
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
            int columns, int array = 0) {
  Bytes bytes{name, type, fmt::format("[{}, {}]", rows, columns), ""};
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c) {
      const T x = value<T>(5, numbers, array, r, c);
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

/// Loads from a folder that has other bytes in one file, which must be refused or make no
/// difference to what is read.
void check_changed(const std::filesystem::path& folder, const std::string& file,
                   const std::string& bytes) {
  write_text(folder / file, bytes);
  SelfCommunicator c;
  Trained<RowWiseAdagrad, float, SelfCommunicator> model(c, layout(1), 99);
  try {
    load_torchrec_checkpoint(c, folder, model.contents);
    CHECK(wrong<float>(model) == 0);
  } catch (const DataError& error) {
    CHECK(std::string(error.what()) != "");
    CHECK(model.is<float>(99));
  }
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

/// Returns the Pythons that have torch, perhaps of two versions.
std::set<std::string> torch_pythons() {
  const std::string python = torch_python();
  if (python.empty()) {
    MESSAGE("no Python with torch: left out");
    return {};
  }
  std::set<std::string> pythons = {python};
  if (std::system("/usr/bin/python3 -c 'import torch' >/dev/null 2>&1") == 0)
    pythons.insert("/usr/bin/python3");
  return pythons;
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
                         doctest::Contains("two tensors would be 'embedding_bags.u.weight'"),
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

TEST_CASE("states of TorchRec's fused optimizers come in and go out") {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path / "state.safetensors",
                              out = folder.path / "out.safetensors";
  // A number a row: of one dimension, as TorchRec has it, or two.
  const auto rows_state = [](const std::string& name, const std::string& shape, std::string_view of,
                             int rows) {
    Bytes bytes = table<float>(name, "F32", of, rows, 1, 1);
    bytes.shape = shape;
    return bytes;
  };
  const Bytes t = table<float>("model.ebc.embedding_bags.t.weight", "F32", "t", 700, 12),
              u = table<float>("model.ebc.embedding_bags.u.weight", "F32", "u", 9, 3),
              sum_t = rows_state("optim.state.ebc.embedding_bags.t.weight.t.momentum1", "[700]",
                                 "t", 700),
              sum_u = rows_state("optim.state.ebc.embedding_bags.u.weight.u.momentum1", "[9, 1]",
                                 "u", 9);
  const std::string begin = "optim.state.ebc";
  write_safetensors(file, {t, sum_t, u, sum_u});
  check_load<float, float>(file);  // without `states` they stay
  for (const int ranks : {1, 2, 3})
    for (const std::string& states : {begin, begin + '.', std::string("*")})
      run_ranks(ranks, [&](ThreadCommunicator& c) {
        Model<float> model(c, layout(ranks), 99);
        CHECK(load_torchrec_checkpoint(c, file, model.contents, {.states = states}) == 2);
        CHECK(differences<float>(model.tables, 5) == 0);
        CHECK(model.tables.steps() == 99 + 7);
      });
  run_ranks(3, [&](ThreadCommunicator& c) {
    Model<float> model(c, layout(3), 5);
    const TorchrecOptions options{.prefix = "model.ebc", .states = begin};
    save_torchrec_checkpoint(c, out, model.contents, options);
    CHECK_THROWS_WITH_AS(
        save_torchrec_checkpoint(c, folder.path / "any", model.contents, {.states = "*"}),
        doctest::Contains("states '*' is for a load"), DataError);
    Model<float> again(c, layout(3), 99);
    CHECK(load_torchrec_checkpoint(c, out, again.contents, options) == 2);
    CHECK(differences<float>(again.tables, 5) == 0);
  });
  const std::string bytes = text_of(out);
  for (const char* text :
       {R"("optim.state.ebc.embedding_bags.t.weight.t.momentum1":{"dtype":"F32","shape":[700],)",
        R"("optim.state.ebc.embedding_bags.u.weight.u.momentum1":{"dtype":"F32","shape":[9],)",
        R"("model.ebc.embedding_bags.u.weight":{"dtype":"F32","shape":[9,3],)"})
    CHECK(bytes.find(text) != std::string::npos);
  for (const Bytes& tensor : {t, u, sum_t, sum_u})
    CHECK(bytes.find(tensor.data) != std::string::npos);

  // Adam: two numbers an element, whose second has had two names.
  SelfCommunicator self;
  using Moments = Trained<Adam, float, SelfCommunicator>;
  const auto moments = [&](const char* second) {
    std::vector<Bytes> tensors{t, u};
    for (const auto& [name, rows, columns] : {std::tuple("t", 700, 12), std::tuple("u", 9, 3)}) {
      const std::string own = fmt::format("optim.state.ebc.embedding_bags.{0}.weight.{0}.", name);
      tensors.push_back(table<float>(own + "momentum1", "F32", name, rows, columns, 1));
      tensors.push_back(table<float>(own + second, "F32", name, rows, columns, 2));
    }
    return tensors;
  };
  for (const char* second : {"exp_avg_sq", "momentum2"}) {
    write_safetensors(file, moments(second));
    Moments model(self, layout(1), 99);
    CHECK(load_torchrec_checkpoint(self, file, model.contents, {.states = begin}) == 2);
    CHECK(differences<float>(model.tables, 5) == 0);
    std::filesystem::remove(out);
    save_torchrec_checkpoint(self, out, model.contents, {.states = begin});
    CHECK(text_of(out).find("t.weight.t.exp_avg_sq\"") != std::string::npos);
  }
  check_refused(file,
                {"'optim.state.ebc.embedding_bags.t.weight.t.momentum1' is F32 [700,12], 't.sum' "
                 "in the model F32 [700,1]"},
                {.states = begin});
  check_refused(file,
                {"'t.sum' is not there: its tensor would be "
                 "'other.embedding_bags.t.weight.t.momentum1'"},
                {.states = "other"});
  Bytes twin = sum_t;
  twin.name = "old." + sum_t.name;
  write_safetensors(file, {t, u, sum_t, sum_u, twin});
  check_refused(file, {"'t.sum' may be '", "' or '", "': give states, or rename"}, {.states = "*"});
  run_ranks(2, [&](ThreadCommunicator& c) {
    Model<float> model(c, layout(2), 99);
    CHECK(load_torchrec_checkpoint(c, file, model.contents,
                                   {.states = "*", .rename = {{"t.sum", twin.name}}}) == 2);
    CHECK(differences<float>(model.tables, 5) == 0);
  });
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

namespace {

/// What programs on torch.distributed.checkpoint begin with.
constexpr const char* kDcp = R"(
import dataclasses, inspect, os, sys, warnings
warnings.simplefilter("ignore")
import torch, torch.distributed as dist
try:
    import torch.distributed.checkpoint as dcp
except ImportError:  # PyTorch 1.13; Python 3.11 takes one of its dataclasses only if it has a hash
    real = dataclasses.dataclass
    def hashable(cls=None, **options):
        if cls is None:
            return lambda cls: real(cls, **options)
        return real(cls, **options, **({"unsafe_hash": True} if cls.__name__ == "TensorProperties" else {}))
    dataclasses.dataclass = hashable
    import torch.distributed._shard.checkpoint as dcp
    dataclasses.dataclass = real
    for name in ("", ".metadata", ".filesystem"):  # as PyTorch 2 calls them
        sys.modules["torch.distributed.checkpoint" + name] = sys.modules["torch.distributed._shard.checkpoint" + name]
from torch.distributed._shard.metadata import ShardMetadata
from torch.distributed._shard.sharded_tensor import Shard, init_from_local_shards

def read(name, rows, columns):
    return torch.frombuffer(bytearray(open(name + ".bin", "rb").read()), dtype=torch.float32).reshape(rows, columns)

modern = "checkpoint_id" in inspect.signature(getattr(dcp, "load", len)).parameters  # PyTorch 2.3

def save(state, folder, **options):
    if modern:
        dcp.save(state, storage_writer=dcp.FileSystemWriter(folder))
    else:
        dcp.save_state_dict(state, dcp.FileSystemWriter(folder), **options)

def sharded(tensor, cuts, rank):
    """A tensor of which rectangle i is on rank i % 2."""
    shards = [Shard(tensor[r:r + h, c:c + w].contiguous(), ShardMetadata([r, c], [h, w], f"rank:{i % 2}/cpu"))
              for i, (r, c, h, w) in enumerate(cuts) if i % 2 == rank]
    return init_from_local_shards(shards, *tensor.shape)

def two_processes(run):
    """Runs run(rank) in two processes of their own."""
    if len(sys.argv) > 1:
        rank = int(sys.argv[1])
        dist.init_process_group("gloo", init_method="file://" + os.path.abspath("meeting"), rank=rank, world_size=2)
        run(rank)
        os._exit(0)
    import subprocess
    ranks = [subprocess.Popen([sys.executable, "-B", __file__, str(rank)]) for rank in (0, 1)]
    assert [process.wait() for process in ranks] == [0, 0]
)";

/// Writes folders by torch.distributed.checkpoint, from two processes.
constexpr const char* kWriteDcp = R"(
def run(rank):
    t, u = read("t", 700, 12), read("u", 9, 3)
    save({"model.ebc.embedding_bags.t.weight": sharded(t, [(0, 0, 250, 12), (250, 0, 250, 12), (500, 0, 200, 12)], rank),
          "model.ebc.embedding_bags.u.weight": sharded(u, [(0, 0, 9, 2), (0, 2, 9, 1)], rank),
          "model.over.weight": torch.ones(3, 4, dtype=torch.int32), "step": 7}, "sharded")
    sums = [read(name + ".sum", rows, 1).flatten() for name, rows in (("t", 700), ("u", 9))]
    list_of = lambda x, cuts: init_from_local_shards(
        [Shard(x[r:r + n].contiguous(), ShardMetadata([r], [n], f"rank:{i}/cpu")) for i, (r, n) in enumerate(cuts) if i == rank], *x.shape)
    save({"model.ebc.embedding_bags.t.weight": sharded(t, [(0, 0, 350, 12), (350, 0, 350, 12)], rank),
          "model.ebc.embedding_bags.u.weight": sharded(u, [(0, 0, 9, 3)], rank),
          "optim.state.ebc.embedding_bags.t.weight.t.momentum1": list_of(sums[0], [(0, 350), (350, 350)]),
          "optim.state.ebc.embedding_bags.u.weight.u.momentum1": list_of(sums[1], [(0, 9)])}, "states")
    save({"ebc.embedding_bags.t.weight": sharded(t.half(), [(0, 0, 400, 5), (0, 5, 400, 7), (400, 0, 300, 6), (400, 6, 300, 6)], rank),
          "ebc.embedding_bags.u.weight": sharded(u.half(), [(0, 0, 9, 3)], rank)}, "grid")
    try:
        from torch.distributed.tensor import DeviceMesh, Replicate, Shard as Cut, distribute_tensor
    except ImportError:
        return
    mesh = DeviceMesh("cpu", [0, 1])
    save({"app": {"model": {"t.weight": distribute_tensor(t.bfloat16(), mesh, [Cut(0)]),
                            "u.weight": distribute_tensor(u.bfloat16(), mesh, [Replicate()])}}}, "dtensor")

two_processes(run)
t, u = read("t", 700, 12), read("u", 9, 3)
save({"ebc.embedding_bags.t.weight": t, "ebc.embedding_bags.u.weight": u, "step": 7,
      "optimizer": {"lr": 0.5}}, "whole", no_dist=True)
save({"t.weight": t, "u.weight": u.t().contiguous().t()}, "strides", no_dist=True)
save({"t.weight": t.double(), "u.weight": u.int()}, "types", no_dist=True)
print(torch.__version__)
)";

}  // namespace

namespace {

/// Pickles, of protocol 2, put together from their instructions.
std::string number(std::uint64_t value, int bytes) {
  return {reinterpret_cast<const char*>(&value), static_cast<std::size_t>(bytes)};
}
std::string text(const std::string& value) { return 'X' + number(value.size(), 4) + value; }
std::string integer(std::int64_t value) {
  return 'J' + number(static_cast<std::uint64_t>(value), 4);
}
std::string dict(const std::vector<std::pair<std::string, std::string>>& items) {
  std::string made = "}(";
  for (const auto& [key, item] : items) made += key + item;
  return made + 'u';
}
std::string name(const std::string& module, const std::string& own) {
  return 'c' + module + '\n' + own + '\n';
}
std::string object(const std::string& module, const std::string& own, const std::string& state) {
  return name(module, own) + ")\x81" + state + 'b';
}
std::string pair(std::int64_t a, std::int64_t b) { return integer(a) + integer(b) + "\x86"; }
std::string size(std::int64_t a, std::int64_t b) {
  return name("torch", "Size") + pair(a, b) + "\x85R";
}
std::string pickle(const std::string& value) { return "\x80\x02" + value + '.'; }

/// Puts files into an archive as torch.save does, without its checksums.
std::string archive(const std::vector<std::pair<std::string, std::string>>& files) {
  std::string bytes, directory;
  for (const auto& [file, content] : files) {
    const std::string sizes = number(0, 4) + number(content.size(), 4) + number(content.size(), 4) +
                              number(file.size(), 2);
    directory += std::string("PK\1\2\0\0\0\0\0\0\0\0\0\0\0\0", 16) + sizes + std::string(12, '\0') +
                 number(bytes.size(), 4) + file;
    bytes += std::string("PK\3\4\0\0\0\0\0\0\0\0\0\0", 14) + sizes + number(0, 2) + file + content;
  }
  const std::size_t begin = bytes.size();
  return bytes + directory + std::string("PK\5\6\0\0\0\0", 8) + number(files.size(), 2) +
         number(files.size(), 2) + number(directory.size(), 4) + number(begin, 4) + number(0, 2);
}

/// A rectangle of a table's float32 numbers, and what may be wrong with how it is saved.
struct Chunk {
  std::string table;
  std::int64_t row = 0, column = 0, rows = 0, columns = 0;
  std::string storage = "FloatStorage", order = "little";
  std::int64_t missing_bytes = 0, rows_said = -1;
};

std::string saved(const Chunk& chunk) {
  std::string data = "1234";  // the storage has an element before
  for (std::int64_t r = 0; r < chunk.rows; ++r)
    for (std::int64_t c = 0; c < chunk.columns; ++c) {
      const auto x = value<float>(5, chunk.table, 0, chunk.row + r, chunk.column + c);
      data.append(reinterpret_cast<const char*>(&x), 4);
    }
  data.resize(data.size() - static_cast<std::size_t>(chunk.missing_bytes));
  const std::string storage = '(' + text("storage") + name("torch", chunk.storage) + text("0") +
                              text("cpu") + integer(9) + "tQ";
  const std::int64_t rows = chunk.rows_said < 0 ? chunk.rows : chunk.rows_said;
  const std::string tensor = name("torch._utils", "_rebuild_tensor_v2") + '(' + storage +
                             integer(1) + pair(rows, chunk.columns) + pair(chunk.columns, 1) +
                             "\x89" + name("collections", "OrderedDict") + ")RtR";
  return archive({{"archive/data.pkl", pickle(tensor)},
                  {"archive/byteorder", chunk.order},
                  {"archive/data/0", data}});
}

/// Writes a folder as torch.distributed.checkpoint does: `listed` are the chunks in the metadata.
void write_dcp(const std::filesystem::path& folder, const std::vector<Chunk>& chunks,
               const std::vector<Chunk>& listed, const std::string& file = "__0_0.distcp",
               std::int64_t length_said = -1) {
  const std::string module = "torch.distributed.checkpoint.metadata";
  std::string data = "before";
  std::vector<std::pair<std::string, std::string>> places, tensors;
  for (const Chunk& chunk : chunks) {
    const std::string bytes = saved(chunk);
    places.emplace_back(
        object(module, "MetadataIndex",
               dict({{text("fqn"), text(chunk.table + ".weight")},
                     {text("offset"), size(chunk.row, chunk.column)}})),
        object(
            "torch.distributed.checkpoint.filesystem", "_StorageInfo",
            dict({{text("relative_path"), text(file)},
                  {text("offset"), integer(static_cast<std::int64_t>(data.size()))},
                  {text("length"), integer(length_said < 0 ? std::ssize(bytes) : length_said)}})));
    data += bytes;
  }
  for (const auto& [table, rows, columns] : {std::tuple("t", 700, 12), std::tuple("u", 9, 3)}) {
    std::string list = "](";
    for (const Chunk& chunk : listed)
      if (chunk.table == table)
        list += object(module, "ChunkStorageMetadata",
                       dict({{text("offsets"), size(chunk.row, chunk.column)},
                             {text("sizes"), size(chunk.rows, chunk.columns)}}));
    tensors.emplace_back(
        text(std::string(table) + ".weight"),
        object(module, "TensorStorageMetadata",
               dict({{text("properties"),
                      object(module, "TensorProperties", name("torch", "float32") + "\x85")},
                     {text("size"), size(rows, columns)},
                     {text("chunks"), list + 'e'}})));
  }
  std::filesystem::create_directories(folder);
  write_text(folder / ".metadata", pickle(object(module, "Metadata",
                                                 dict({{text("state_dict_metadata"), dict(tensors)},
                                                       {text("storage_data"), dict(places)}}))));
  write_text(folder / "__0_0.distcp", data);
}

}  // namespace

TEST_CASE("a folder of torch.distributed.checkpoint is read by its format, and nothing else is") {
  const TemporaryFolder folder;
  const Chunk left{"t", 0, 0, 700, 5}, top{"t", 0, 5, 90, 7}, bottom{"t", 90, 5, 610, 7},
      u{"u", 0, 0, 9, 3};
  const std::vector<Chunk> all = {bottom, u, left, top};
  write_dcp(folder.path, all, all);
  check_load<float, float>(folder.path);
  check_load<float, BFloat16>(folder.path, {.rename = {{"t.weight", "t.weight"}}});
  write_dcp(folder.path, all, {left, left, top, bottom, u});  // two ranks held the same
  check_load<float, float>(folder.path);

  const auto refused = [&](const std::vector<Chunk>& chunks, const std::vector<Chunk>& listed,
                           const std::string& what) {
    write_dcp(folder.path, chunks, listed);
    check_refused(folder.path, {what});
  };
  refused(all, {left, top, u}, "the chunks of 't.weight' do not cover it");
  refused({left, top, Chunk{"t", 89, 5, 611, 7}, u}, {left, top, Chunk{"t", 89, 5, 611, 7}, u},
          "the chunks of 't.weight' do not cover it");
  // rows and columns cut at once: what is above a piece may be several, and wider
  const Chunk wide{"t", 0, 0, 90, 12}, narrow{"t", 90, 0, 610, 4}, broad{"t", 90, 4, 610, 8};
  write_dcp(folder.path, {broad, u, wide, narrow}, {broad, u, wide, narrow});
  check_load<float, float>(folder.path);
  refused({Chunk{"t", 0, 0, 700, 6}, Chunk{"t", 0, 5, 350, 6}, Chunk{"t", 350, 6, 350, 6}, u},
          {Chunk{"t", 0, 0, 700, 6}, Chunk{"t", 0, 5, 350, 6}, Chunk{"t", 350, 6, 350, 6}, u},
          "the chunks of 't.weight' do not cover it");
  // Two pieces of one place, the second listed again and again: comparing all pairs took minutes.
  write_dcp(folder.path, all, {left, top, bottom, Chunk{"u", 0, 0, 9, 2}, u});
  std::string listed_again = text_of(folder.path / ".metadata");
  const std::string sizes = text("sizes") + size(9, 3) + "ub";
  std::string repeated = "q\x01";
  for (int i = 0; i < 300'000; ++i) repeated += "h\x01";
  listed_again.insert(listed_again.find(sizes) + sizes.size(), repeated);
  write_text(folder.path / ".metadata", listed_again);
  check_refused(folder.path, {"the chunks of 'u.weight' do not cover it"});
  refused({left, top, u}, all, "a chunk of 't.weight' is in no file");
  refused(all, {left, top, Chunk{"t", 90, 5, 611, 7}, u}, "a chunk of 't.weight' is outside of it");
  const auto with = [&](auto&& change) {
    std::vector<Chunk> other = all;
    change(other[0]);
    return other;
  };
  refused(with([](Chunk& c) { c.storage = "HalfStorage"; }), all,
          "is torch.HalfStorage, the metadata says torch.float32");
  refused(with([](Chunk& c) { c.order = "big"; }), all, "is not little-endian");
  refused(with([](Chunk& c) { c.missing_bytes = 1; }), all, "has less data than its shape needs");
  refused(with([](Chunk& c) { c.rows_said = 609; }), all,
          "has another shape than the metadata says");
  write_dcp(folder.path, {u, left, top, bottom}, all, "__0_0.distcp", 0);
  check_refused(folder.path, {"a tensor has no bytes in its file"});
  write_dcp(folder.path, all, all, "../__0_0.distcp");
  check_refused(folder.path, {"'../__0_0.distcp' is no file beside it"});

  // A wrong bit in each byte of an archive, but for the numbers in it, and the length of what is
  // before them: their checksum is not looked at.
  write_dcp(folder.path, {u, left, top, bottom}, all);
  const std::string file = "__0_0.distcp", data = text_of(folder.path / file);
  const std::size_t begin = data.find("archive/data/0") + 14 + 4;
  for (std::size_t i = 6; i < 6 + saved(u).size(); ++i) {
    if ((i >= begin && i < begin + 9 * 3 * 4) || i == begin - 20 || i == begin - 19) continue;
    std::string other = data;
    other[i] = static_cast<char>(other[i] ^ (1 << i % 8));
    check_changed(folder.path, file, other);
  }

  // Nothing runs, whatever a pickle asks for.
  const auto metadata = [&](const std::string& bytes, const std::string& what) {
    write_text(folder.path / ".metadata", bytes);
    check_refused(folder.path, {".metadata', offset ", what});
  };
  metadata(pickle(name("posix", "system") + text("touch ran") + "\x85R"),
           "offset 2: 'posix.system' is not read");
  metadata(pickle(name("torch", "load") + text("x") + "\x85R"), "'torch.load' is not read");
  metadata(pickle(name("builtins", "eval") + text("1") + "\x85R"), "'builtins.eval' is not read");
  metadata(pickle(name("torch", "float" + std::string(300, '0'))), "more than 256 characters");
  metadata(pickle("I1\n"), "the instruction 0x49 is not read");
  metadata("\x80\x06.", "protocol is later than 5");
  metadata("", "ends too early");
  metadata(pickle(""), "ends inside a value");
  metadata(pickle("N") + "N", "bytes follow the pickle");
  metadata(pickle("h\x03"), "names a value that it does not have");
  metadata(pickle("a"), "takes a value too many");
  metadata(pickle("NNs"), "adds to a value of another kind");
  metadata(pickle("u"), "has no mark here");
  metadata(pickle("}(Nu"), "a key has no value");
  metadata(pickle("NN\x81"), "makes an object of no class");
  metadata(pickle("NN\x93"), "a class has no name");
  metadata(pickle("\x8a\x09" + std::string(9, 'x')), "more than 64 bits");
  write_text(folder.path / ".metadata", pickle("N"));
  check_refused(folder.path, {"it describes no checkpoint"});
  std::filesystem::resize_file(folder.path / ".metadata", (64u << 20) + 1);
  check_refused(folder.path, {".metadata", "are the most"});
}

TEST_CASE("tables come from folders that torch.distributed.checkpoint wrote") {
  for (const std::string& one : torch_pythons()) {
    CAPTURE(one);
    const TemporaryFolder folder;
    write_text(folder.path / "t.bin", table<float>("", "", "t", 700, 12).data);
    write_text(folder.path / "u.bin", table<float>("", "", "u", 9, 3).data);
    write_text(folder.path / "t.sum.bin", table<float>("", "", "t", 700, 1, 1).data);
    write_text(folder.path / "u.sum.bin", table<float>("", "", "u", 9, 1, 1).data);
    REQUIRE(run_python(one, folder.path, std::string(kDcp) + kWriteDcp));
    check_load<float, float>(folder.path / "whole");
    check_load<float, BFloat16>(folder.path / "whole");
    check_load<float, float>(folder.path / "sharded");
    check_load<float, float>(folder.path / "sharded", {.prefix = "model.ebc"});
    check_load<Half, float>(folder.path / "grid");
    check_load<float, float>(folder.path / "states");
    run_ranks(2, [&](ThreadCommunicator& c) {
      Model<float> model(c, layout(2), 99);
      CHECK(load_torchrec_checkpoint(c, folder.path / "states", model.contents,
                                     {.states = "optim.state.ebc"}) == 2);
      CHECK(differences<float>(model.tables, 5) == 0);
    });
    if (std::filesystem::exists(folder.path / "dtensor"))
      check_load<BFloat16, float>(folder.path / "dtensor", {.prefix = "app.model"});
    check_refused(folder.path / "strides", {"is not contiguous: save tensor.contiguous()"});
    check_refused(folder.path / "types", {"'t.weight' is float64 [700,12], table 't'",
                                          "'u.weight' is int32 [9,3], table 'u'"});
    // Every length and every byte of the metadata; a cut and a missing file of data.
    const std::filesystem::path whole = folder.path / "whole", sharded = folder.path / "sharded";
    const std::string metadata = text_of(whole / ".metadata");
    for (std::size_t i = 0; i < metadata.size(); ++i) {
      check_changed(whole, ".metadata", metadata.substr(0, i));
      std::string other = metadata;
      other[i] = static_cast<char>(other[i] ^ (1 << i % 8));
      check_changed(whole, ".metadata", other);
    }
    write_text(whole / ".metadata", metadata);
    check_load<float, float>(whole);
    std::string first = "__0_0.distcp";
    const std::string data = text_of(sharded / first);
    std::filesystem::resize_file(sharded / first, data.size() - 1);
    check_refused(sharded, {first, "it was truncated or changed"});
    std::filesystem::remove(sharded / first);
    check_refused(sharded, {"cannot open", first});
    write_text(sharded / first, std::string(data.size(), 'x'));
    check_refused(sharded, {first, "has no end record"});
    MESSAGE("PyTorch " << text_of(folder.path / "out.txt"));
  }
}

namespace {

/// Reads folders by torch.distributed.checkpoint, whole and cut over two processes; archives also
/// by the zip files of Python itself, which checks their sums.
constexpr const char* kReadDcp = R"(
def load(state, folder, **options):
    if modern:
        dcp.load(state, storage_reader=dcp.FileSystemReader(folder))
    else:
        dcp.load_state_dict(state, dcp.FileSystemReader(folder), **options)

t, u = read("t", 700, 12), read("u", 9, 3)
table, state = "ebc.embedding_bags.{}.weight", "optim.embedding_bags.{0}.weight.{0}.momentum1"

def run(rank):
    wanted = {table.format("t"): (t, [(0, 0, 280, 7), (0, 7, 280, 5), (280, 0, 420, 5), (280, 5, 420, 7)]),
              table.format("u"): (u, [(0, 0, 4, 3), (4, 0, 5, 3)])}
    loaded = {name: sharded(torch.zeros_like(x), cuts, rank) for name, (x, cuts) in wanted.items()}
    load(loaded, "out")
    for name, (x, cuts) in wanted.items():
        shards = loaded[name].local_shards()
        mine = [cut for i, cut in enumerate(cuts) if i % 2 == rank]
        assert len(shards) == len(mine) > 0
        for shard, (r, c, h, w) in zip(shards, mine):
            assert torch.equal(shard.tensor, x[r:r + h, c:c + w])

two_processes(run)
import io, zipfile
for folder, convert in (("out", lambda x: x), ("narrow", lambda x: x.bfloat16())):
    wanted = {table.format("t"): convert(t), table.format("u"): convert(u),
              state.format("t"): read("t.sum", 700, 1).flatten(), state.format("u"): read("u.sum", 9, 1).flatten()}
    loaded = {name: torch.zeros_like(x) for name, x in wanted.items()}
    load(loaded, folder, no_dist=True)
    assert all(torch.equal(loaded[name], x) for name, x in wanted.items())
    metadata = dcp.FileSystemReader(folder).read_metadata()
    assert set(metadata.state_dict_metadata) == set(wanted)
    for place in metadata.storage_data.values():
        with open(os.path.join(folder, place.relative_path), "rb") as file:
            file.seek(place.offset)
            with zipfile.ZipFile(io.BytesIO(file.read(place.length))) as archive:
                assert archive.testzip() is None
if modern:
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
    dcp_to_torch_save("out", "out.pt")
    assert torch.equal(torch.load("out.pt")[table.format("t")], t)
if modern and "allow_partial_load" in inspect.signature(dcp.DefaultLoadPlanner).parameters:
    planner = dcp.DefaultLoadPlanner(allow_partial_load=True)
    loaded = {"ebc": {"embedding_bags.t.weight": torch.zeros_like(t), "over": torch.ones(2)}}
    dcp.load(loaded, checkpoint_id="out", planner=planner)
    assert torch.equal(loaded["ebc"]["embedding_bags.t.weight"], t)
print(torch.__version__)
)";

}  // namespace

TEST_CASE("tables go out as a folder of torch.distributed.checkpoint, from any plan into any") {
  const TorchrecOptions options{.prefix = "ebc", .states = "optim"};
  const TemporaryFolder folder;
  const std::filesystem::path out = folder.path / "out", narrow = folder.path / "narrow";
  for (const int ranks : {1, 2, 3}) {
    std::filesystem::remove_all(out);
    std::filesystem::remove_all(narrow);
    run_ranks(ranks, [&](ThreadCommunicator& c) {
      Model<float> model(c, layout(ranks), 5);
      TorchrecOptions cut = options;
      cut.max_chunk_bytes = 4000;  // several archives a rectangle
      save_torchrec_dcp(c, out / "", model.contents, cut);
      Model<BFloat16> other(c, layout(ranks), 5);
      save_torchrec_dcp(c, narrow, other.contents, options);
      CHECK_THROWS_WITH_AS(save_torchrec_dcp(c, out, model.contents),
                           doctest::Contains("is there already"), DataError);
      CHECK_THROWS_WITH_AS(save_torchrec_dcp(c, folder.path / "no" / "out", model.contents),
                           doctest::Contains("no/out.partial"), DataError);
    });
    std::set<std::string> files, expected{".metadata"};
    for (const auto& entry : std::filesystem::directory_iterator(out))
      files.insert(entry.path().filename().string());
    for (int rank = 0; rank < ranks; ++rank) expected.insert(fmt::format("__{}_0.distcp", rank));
    CHECK(files == expected);
    CHECK(!std::filesystem::exists(folder.path / "out.partial"));
    for (const int readers : {1, 2, 3})
      run_ranks(readers, [&](ThreadCommunicator& c) {
        Model<float> model(c, layout(readers), 99);
        CHECK(load_torchrec_checkpoint(c, out, model.contents, options) == 2);
        CHECK(differences<float>(model.tables, 5) == 0);
        Model<BFloat16> other(c, layout(readers), 99);
        CHECK(load_torchrec_checkpoint(c, narrow, other.contents, options) == 2);
        CHECK(differences<BFloat16>(other.tables, 5) == 0);
      });
  }
  for (const auto& [name, rows, columns] : {std::tuple("t", 700, 12), std::tuple("u", 9, 3)}) {
    write_text(folder.path / fmt::format("{}.bin", name),
               table<float>("", "", name, rows, columns).data);
    write_text(folder.path / fmt::format("{}.sum.bin", name),
               table<float>("", "", name, rows, 1, 1).data);
  }
  for (const std::string& one : torch_pythons()) {
    CAPTURE(one);
    REQUIRE(run_python(one, folder.path, std::string(kDcp) + kReadDcp));
    std::filesystem::remove(folder.path / "meeting");
    MESSAGE("PyTorch " << text_of(folder.path / "out.txt"));
  }
}
