// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// train_dlrm killed by SIGKILL again and again, and resumed: at the end the same model, to the bit,
// as of a run that nobody disturbed; under another plan and number of ranks the same to tolerance.
#include <fmt/format.h>
#include <trainer/command.hpp>

#include <tessera/checkpoint/folder.hpp>
#include <tessera/checkpoint/reader.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

using namespace tessera;

namespace {

using Clock = std::chrono::steady_clock;

const std::string kModel =
    "--samples 40000 --test-fraction 0.1 --max-rows 2000 --batch-size 100 --epochs 2 "
    "--embedding-width 8 --bottom-mlp 16 --top-mlp 32 ";
constexpr std::int64_t kSteps = 720;

/// Starts train_dlrm and kills it when `now()` says so. Whether it was still running then.
template <class Now>
bool killed(const std::string& arguments, const Now& now) {
  std::vector<std::string> words{train_dlrm_path()};
  std::istringstream stream(arguments);
  for (std::string word; stream >> word;) words.push_back(word);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    const int null = ::open("/dev/null", O_WRONLY);
    ::dup2(null, 1);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  int status = 0;
  while (!now()) {
    if (::waitpid(child, &status, WNOHANG) == child) {
      CHECK(status == 0);
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, &status, 0);
  return true;
}

/// 29 files: 26 tables, the linear layers, the description of the model, the manifest.
void check_same_files(const std::filesystem::path& a, const std::filesystem::path& b,
                      int expected = 29) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(a)) {
    ++files;
    INFO(entry.path().string());
    CHECK(text_of(entry.path()) == text_of(b / entry.path().filename()));
  }
  CHECK(files == expected);
}

/// A folder of its own that holds one checkpoint, to be resumed from.
std::filesystem::path copy_of(const std::filesystem::path& checkpoint,
                              const std::filesystem::path& folder) {
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  std::filesystem::copy(checkpoint, folder / checkpoint.filename());
  return folder;
}

/// Every key's row, count and step, by table and key: in a checkpoint keys stand in the order of
/// the ranks that saved them.
std::map<std::pair<int, std::int64_t>, std::array<std::int64_t, 3>> known_keys(
    const std::filesystem::path& checkpoint) {
  CheckpointReader reader(checkpoint);
  std::map<std::pair<int, std::int64_t>, std::array<std::int64_t, 3>> known;
  for (int t = 0; t < 26; ++t) {
    const auto read = [&](const char* part) {
      return reader.read<std::int64_t>(fmt::format("vocabulary.{}.{}", t, part));
    };
    const auto keys = read("keys"), rows = read("rows"), counts = read("counts"),
               steps = read("steps");
    for (std::size_t i = 0; i < keys.size(); ++i)
      known[{t, keys[i]}] = {rows[i], counts[i], steps[i]};
  }
  return known;
}

/// Clicks whose categories come into use and go out of use again, a new one every `stays` lines.
void write_clicks(const std::filesystem::path& file, int lines, unsigned stays = 40) {
  std::mt19937 random(3);
  std::ofstream out(file);
  for (int i = 0; i < lines; ++i) {
    out << random() % 2;
    for (int j = 0; j < 13; ++j) out << '\t' << random() % 9;
    for (int j = 0; j < 26; ++j)
      out << fmt::format("\t{:08x}", static_cast<std::uint32_t>(
                                         0x9e3779b9u * (random() % 60 * (random() % 60) / 30 +
                                                        static_cast<unsigned>(i) / stays)));
    out << '\n';
  }
}

/// The rows of keys that have none in the tables, by table and key: ranks keep parts of them.
std::map<std::pair<int, std::int64_t>, std::vector<std::uint8_t>> cold_rows(
    const std::filesystem::path& checkpoint) {
  CheckpointReader reader(checkpoint);
  std::map<std::pair<int, std::int64_t>, std::vector<std::uint8_t>> kept;
  for (int t = 0; t < 26; ++t) {
    if (reader.manifest().find(fmt::format("cold_rows.{}.keys", t)) == nullptr) continue;
    const auto keys = reader.read<std::int64_t>(fmt::format("cold_rows.{}.keys", t));
    const auto rows = reader.read<std::uint8_t>(fmt::format("cold_rows.{}.rows", t));
    const std::size_t count = keys.size() / 2,
                      bytes = rows.size() / std::max<std::size_t>(count, 1);
    for (std::size_t i = 0; i < count; ++i) {
      std::vector<std::uint8_t>& row = kept[{t, keys[2 * i]}];
      row.resize(bytes);
      for (std::size_t b = 0; b < bytes; ++b) row[b] |= rows[i * bytes + b];
    }
  }
  return kept;
}

/// The largest difference of any number of two checkpoints of the same tensors, but for vocabularies
/// (known_keys) and cold rows.
double difference(const std::filesystem::path& a, const std::filesystem::path& b) {
  CheckpointReader first(a), second(b);
  double most = 0;
  for (const detail::StoredTensor& tensor : first.manifest().tensors) {
    if (tensor.name.starts_with("vocabulary.") || tensor.name.starts_with("cold_rows.")) continue;
    const std::vector<float> x = first.read<float>(tensor.name),
                             y = second.read<float>(tensor.name);
    REQUIRE(x.size() == y.size());
    for (std::size_t i = 0; i < x.size(); ++i)
      most = std::max(most, static_cast<double>(std::abs(x[i] - y[i])));
  }
  return most;
}

/// Trains in `folder`/other as `base` and `how` say, from checkpoint `middle` of `folder`/one on if
/// `how` resumes: the model, its keys and its test are those of `folder`/one.
void check_one_model(const std::filesystem::path& folder, const std::string& base,
                     const std::string& how, const std::filesystem::path& middle,
                     const std::filesystem::path& last, const nlohmann::json& expected) {
  CAPTURE(how);
  const std::filesystem::path one = folder / "one", other = folder / "other";
  std::filesystem::remove_all(other);
  if (how.find("--resume") != std::string::npos) copy_of(one / middle, other);
  const std::string rows = how.ends_with("files ") ? (folder / "rows").string() : "";
  CHECK(results(base + other.string() + " " + how + rows).at("logloss") == expected.at("logloss"));
  CHECK(difference(one / last, other / last) == 0);
  CHECK(known_keys(other / last) == known_keys(one / last));
}

}  // namespace

TEST_CASE("killed and resumed until it is done: the same files as without") {
  std::mt19937 random(7);
  const TemporaryFolder rows;
  // the whole training always has its tables in memory
  const std::string in_files = " --host-memory 600KiB --table-files " + rows.path.string();
  for (const std::string how :
       {"--optimizer adam --plan mixed --ranks 3 --save-async",
        "--optimizer rowwise-adagrad --dense-optimizer adagrad --plan column-wise --ranks 2 "
        "--overlap",
        "--optimizer ftrl:C1*,frozen:C2,adagrad:* --plan grid --ranks 2 --save-increments 3 "
        "--save-async"}) {
    CAPTURE(how);
    const TemporaryFolder folder;
    const std::string base = kModel + how + " --save-every 30 --keep 3 --save ";
    const auto begin = Clock::now();
    results(base + (folder.path / "whole").string());
    const auto whole = Clock::now() - begin;
    const std::filesystem::path last = detail::checkpoint_name(kSteps);
    int kills = 0, useful = 0;
    std::int64_t before = 0;
    while (kills < 40) {
      // Twice just after a checkpoint, whatever the machine's speed; then at any time.
      const auto end = Clock::now() + whole * static_cast<int>(10 + random() % 50) / 100;
      const auto now = [&] {
        if (kills >= 2) return Clock::now() >= end;
        const auto steps = detail::checkpoint_steps(folder.path / "killed");
        return !steps.empty() && steps.back() > before;
      };
      if (!killed(base + (folder.path / "killed").string() + " --resume" + in_files +
                      " --predictions " + (folder.path / "test.npy").string(),
                  now))
        break;
      ++kills;
      const auto steps = detail::checkpoint_steps(folder.path / "killed");
      if (steps.empty()) continue;
      CHECK(steps.back() >= before);
      useful += steps.back() > before;
      before = steps.back();
    }
    // the two trainings and the predictions: what was killed left none
    CHECK(std::distance(std::filesystem::directory_iterator(folder.path), {}) == 3);
    MESSAGE(kills << " kills, of which " << useful << " came after a new checkpoint");
    CHECK(kills >= 2);
    CHECK(useful >= 2);
    check_same_files(folder.path / "whole" / last, folder.path / "killed" / last);
    // An increment's base may stay beside the last three.
    CHECK(detail::checkpoint_steps(folder.path / "killed").size() - 3 <=
          (how.find("increments") == std::string::npos ? 0 : 1));
    const std::string test = base + (folder.path / "killed").string() + " --resume --mode eval";
    nlohmann::json in_memory = results(test), from_files = results(test + in_files);
    CHECK(from_files["auc"] == in_memory["auc"]);
    CHECK(from_files["table_files"]["fetched_rows"] > 1000);
    CHECK(!in_memory.contains("table_files"));
  }
}

TEST_CASE("resumed under another plan and number of ranks: the same to tolerance") {
  const TemporaryFolder folder;
  const std::string whole = (folder.path / "whole").string();
  results(kModel + "--plan table-wise --ranks 1 --save-every 360 --save " + whole);
  const std::filesystem::path middle = detail::checkpoint_name(360),
                              last = detail::checkpoint_name(kSteps);
  // How far half a training moves numbers, to judge differences by.
  CHECK(difference(folder.path / "whole" / middle, folder.path / "whole" / last) > 0.05);
  for (const std::string how :
       {"--plan row-wise --ranks 3", "--plan mixed --ranks 2", "--plan replicated --ranks 4"}) {
    CAPTURE(how);
    const std::filesystem::path other =
        copy_of(folder.path / "whole" / middle, folder.path / "other");
    const Outcome outcome = train_dlrm(kModel + how + " --resume --save " + other.string());
    CHECK(outcome.status == 0);
    CHECK(outcome.out.find("resumed from " + (other / middle).string()) != std::string::npos);
    const double most = difference(folder.path / "whole" / last, other / last);
    MESSAGE(how << ": largest difference " << most);
    CHECK(most < 1e-5);
  }
}

TEST_CASE(
    "one rank reads for all: resumed as if nothing had happened, also where every rank reads "
    "again") {
  const TemporaryFolder folder;
  const std::string base =
      "--samples 3000 --test-fraction 0.1 --max-rows 100 --batch-size 100 --epochs 2 --bottom-mlp "
      "8 --top-mlp 8 --ranks 2 --keep 9 --save ";
  const std::string whole = (folder.path / "whole").string();
  results(base + whole + " --save-every 20 --loader first-rank");
  CHECK(detail::checkpoint_steps(whole) == std::vector<std::int64_t>{20, 40, 54});
  for (const std::string loader : {"first-rank", "every-rank"}) {
    CAPTURE(loader);
    const auto other =
        copy_of(folder.path / "whole" / detail::checkpoint_name(20), folder.path / "other");
    const Outcome outcome = train_dlrm(base + other.string() + " --resume --loader " + loader);
    CHECK(outcome.status == 0);
    CHECK(outcome.out.find("resumed from") != std::string::npos);
    check_same_files(folder.path / "whole" / detail::checkpoint_name(54),
                     other / detail::checkpoint_name(54));
  }
}

TEST_CASE("gradients of several batches: resumed as if nothing had happened; not by other steps") {
  const TemporaryFolder folder;
  const std::string base =
      "--samples 3000 --test-fraction 0.1 --max-rows 100 --batch-size 100 --epochs 2 --bottom-mlp "
      "8 --top-mlp 8 --ranks 2 --keep 9 --clip-norm 0.5 --save ";
  const std::string whole = (folder.path / "whole").string();
  results(base + whole + " --save-every 5 --accumulate 4");
  CHECK(detail::checkpoint_steps(whole) ==
        std::vector<std::int64_t>{5, 10, 14});  // 27 batches an epoch
  for (const std::int64_t step : {5, 10}) {
    CAPTURE(step);
    const auto other =
        copy_of(folder.path / "whole" / detail::checkpoint_name(step), folder.path / "other");
    const Outcome refused = train_dlrm(base + other.string() + " --resume --accumulate 2");
    CHECK(refused.status != 0);
    CHECK(refused.err.find("4 batches a step") != std::string::npos);
    results(base + other.string() + " --resume --overlap --accumulate 4");
    check_same_files(folder.path / "whole" / detail::checkpoint_name(14),
                     other / detail::checkpoint_name(14));
  }
}

TEST_CASE(
    "--virtual-ranks: one model, to the bit, on any ranks under any plan, also when resumed") {
  const TemporaryFolder folder;
  // 100 samples and 8 parts: of 12 or 13
  const std::string model =
      "--samples 3000 --test-fraction 0.1 --max-rows 100 --batch-size 100 --epochs 2 "
      "--embedding-width 8 --bottom-mlp 16 --top-mlp 32 --virtual-ranks 8 ";
  for (const std::string extra : {"", "--accumulate 2 --clip-norm 0.5 --interaction cross "}) {
    CAPTURE(extra);
    const std::filesystem::path one = folder.path / ("one" + std::to_string(extra.size()));
    const std::string last = detail::checkpoint_name(extra.empty() ? 54 : 28);
    const nlohmann::json expected = results(
        model + extra + "--ranks 1 --plan table-wise --save-every 20 --save " + one.string());
    int others = 0;
    for (const std::string how :
         {"--ranks 2 --plan mixed", "--ranks 4 --plan row-wise --overlap", "--ranks 8 --plan grid",
          "--ranks 4 --plan replicated", "--ranks 4 --plan column-wise", "--ranks 2 --plan auto"}) {
      if (!extra.empty() && others >= 2) continue;
      CAPTURE(how);
      const std::filesystem::path other = folder.path / std::to_string(++others);
      std::filesystem::remove_all(other);
      const nlohmann::json found = results(model + extra + how + " --save " + other.string());
      CHECK(found.at("auc") == expected.at("auc"));
      CHECK(found.at("logloss") == expected.at("logloss"));
      CHECK(difference(one / last, other / last) == 0);
      const auto resumed = copy_of(one / detail::checkpoint_name(20), folder.path / "resumed");
      results(model + extra + how + " --resume --save " + resumed.string());
      CHECK(difference(one / last, resumed / last) == 0);
    }
  }
  // bags of 1 to 10 ids, whose sums over blocks of rows are fixed, too
  const std::string bags =
      "--samples 2000 --test-fraction 0.1 --batch-size 100 --synthetic-model tiny --scale 1/10000 "
      "--virtual-ranks 4 --save-every 9 ";
  const std::filesystem::path one = folder.path / "bags", last = detail::checkpoint_name(18);
  const nlohmann::json expected =
      results(bags + "--ranks 1 --plan table-wise --save " + one.string());
  for (const std::string how :
       {"--ranks 4 --plan column-wise", "--ranks 2 --plan row-wise", "--ranks 4 --plan grid"}) {
    CAPTURE(how);
    const std::filesystem::path resumed =
        copy_of(one / detail::checkpoint_name(9), folder.path / "resumed_bags");
    const nlohmann::json found = results(bags + how + " --resume --save " + resumed.string());
    CHECK(found.at("auc") == expected.at("auc"));
    CHECK(found.at("logloss") == expected.at("logloss"));
    CHECK(difference(one / last, resumed / last) == 0);
  }
  // without it the last bits differ
  const std::string plain = model.substr(0, model.find("--virtual"));
  CHECK(results(plain + "--ranks 1").at("logloss") != results(plain + "--ranks 4").at("logloss"));
}

TEST_CASE(
    "with a vocabulary: resumed as if nothing had happened, its rows the same on any number of "
    "ranks, with batches routed ahead") {
  const TemporaryFolder folder;
  write_clicks(folder.path / "clicks.tsv", 3000);
  // In the middle stands an increment, a whole checkpoint, one written while rows changed hands.
  for (const auto& given :
       {std::tuple("oldest", 2, " --save-increments 3"), std::tuple("least-frequent", 3, ""),
        std::tuple("oldest", 2, " --save-async"),
        std::tuple("oldest", 2, " --save-async --save-increments 2")}) {
    const char *const eviction = std::get<0>(given), *const how = std::get<2>(given);
    const int ranks = std::get<1>(given);
    CAPTURE(eviction);
    CAPTURE(how);
    const std::string base = "--data " + (folder.path / "clicks.tsv").string() +
                             " --vocabulary --max-rows 60 --min-count 2 --test-fraction 0.1 "
                             "--batch-size 100 --epochs 2 --bottom-mlp 8 "
                             "--top-mlp 8 --keep 9 --eviction " +
                             eviction + " --save ";
    const std::string whole = (folder.path / "whole").string();
    std::filesystem::remove_all(whole);
    const nlohmann::json expected = results(base + whole + " --ranks 2 --save-every 10" + how);
    const std::filesystem::path middle = whole / std::filesystem::path(detail::checkpoint_name(20)),
                                last = detail::checkpoint_name(54);
    const auto known = known_keys(whole / last), before = known_keys(middle);
    int evicted = 0;
    for (const auto& [key, was] : before)
      evicted += was[0] > 0 && (!known.contains(key) || known.at(key)[0] != was[0]);
    CHECK(evicted > 100);  // or this tests little
    const auto other = copy_of(middle, folder.path / "other");
    const std::string needed = detail::read_manifest(middle).first.base;
    CHECK(needed.empty() == (std::string(how).find("increments") == std::string::npos));
    if (!needed.empty())
      std::filesystem::copy(whole / std::filesystem::path(needed), other / needed);
    const nlohmann::json resumed =
        results(base + other.string() + " --resume --overlap --save-every 10 --ranks " +
                std::to_string(ranks));
    CHECK(known_keys(other / last) == known);
    if (ranks == 2) check_same_files(whole / last, other / last, 30);
    const std::filesystem::path later = detail::checkpoint_name(40);  // saved between two batches
    if (ranks == 2 && needed.empty()) check_same_files(whole / later, other / later, 30);
    CHECK(std::abs(resumed.at("logloss").get<double>() - expected.at("logloss").get<double>()) <
          1e-5);
  }
}

TEST_CASE(
    "with a vocabulary, rows in files: increments and tests are those of a training in memory") {
  const TemporaryFolder folder;
  write_clicks(folder.path / "clicks.tsv", 3000, 2);
  const auto train = [&](const std::string& name, const std::string& how) {
    return results("--data " + (folder.path / "clicks.tsv").string() +
                   " --vocabulary --max-rows 500 --min-count 1 --eviction oldest --ranks 1 "
                   "--test-fraction 0.1 --batch-size 100 --embedding-width 64 --bottom-mlp 8 "
                   "--top-mlp 8 --epochs 2 --save-every 10 --save-increments 3 --save " +
                   (folder.path / name).string() + how);
  };
  nlohmann::json memory = train("memory", ""),
                 files = train("files", " --overlap --host-memory 3MiB --table-files " +
                                            (folder.path / "rows").string());
  CHECK(files["table_files"]["fetched_rows"] > 1000);
  CHECK(files["logloss"] == memory["logloss"]);
  // an increment has no description of the model
  for (const auto& [step, expected] : {std::pair(20, 29), std::pair(50, 30), std::pair(54, 30)})
    check_same_files(folder.path / "memory" / detail::checkpoint_name(step),
                     folder.path / "files" / detail::checkpoint_name(step), expected);
}

TEST_CASE(
    "with a vocabulary and accumulated batches: one model, to the bit, on any ranks, with batches "
    "routed ahead, rows in files, and resumed") {
  const TemporaryFolder folder;
  write_clicks(folder.path / "clicks.tsv", 3000);
  const std::string base = "--data " + (folder.path / "clicks.tsv").string() +
                           " --vocabulary --max-rows 60 --min-count 2 --eviction oldest "
                           "--admit-probability 0.7 --time-to-live 9 "
                           "--test-fraction 0.1 --batch-size 100 --epochs 3 --bottom-mlp 8 "
                           "--top-mlp 8 --embedding-width 64 --virtual-ranks 4 --accumulate 3 "
                           "--optimizer adam --save-every 5 --keep 9 --save ";
  const std::filesystem::path one = folder.path / "one", last = detail::checkpoint_name(27),
                              middle = detail::checkpoint_name(5);
  const nlohmann::json expected = results(base + one.string() + " --ranks 1");
  const auto known = known_keys(one / last), before = known_keys(one / middle);
  int evicted = 0;
  for (const auto& [key, was] : before)
    evicted += was[0] > 0 && (!known.contains(key) || known.at(key)[0] != was[0]);
  CHECK(evicted > 100);  // or this tests little
  for (const std::string how :
       {"--ranks 1 --overlap", "--ranks 2 --plan row-wise", "--ranks 4 --plan mixed --overlap",
        "--ranks 2 --plan replicated",
        "--ranks 4 --plan column-wise --resume --save-async --save-increments 2",
        "--ranks 1 --overlap --resume --host-memory 1400KiB --table-files "}) {
    check_one_model(folder.path, base, how, middle, last, expected);
  }
}

TEST_CASE(
    "categories that come again find their vectors: one model, to the bit, on any ranks, with "
    "batches routed ahead, rows in files, and resumed") {
  const TemporaryFolder folder;
  write_clicks(folder.path / "clicks.tsv", 3000);
  const std::string without =
                        "--data " + (folder.path / "clicks.tsv").string() +
                        " --vocabulary --max-rows 60 --min-count 1 --eviction oldest "
                        "--test-fraction 0.1 --batch-size 100 --epochs 1 --bottom-mlp 8 "
                        "--top-mlp 8 --embedding-width 64 --virtual-ranks 4 --optimizer adam ",
                    base = without + "--cold-keys 2000 --save-every 5 --keep 9 --save ";
  const std::filesystem::path one = folder.path / "one", last = detail::checkpoint_name(27),
                              middle = detail::checkpoint_name(10);
  const nlohmann::json expected = results(base + one.string() + " --ranks 1");
  CHECK(results(without + "--ranks 1").at("logloss") != expected.at("logloss"));
  const auto kept = cold_rows(one / last);
  CHECK(kept.size() == 2000);
  for (const std::string how :
       {"--ranks 2 --plan row-wise --overlap", "--ranks 4 --plan mixed --overlap --resume",
        "--ranks 2 --plan replicated --save-async --save-increments 2",
        "--ranks 1 --resume --host-memory 1400KiB --table-files "}) {
    check_one_model(folder.path, base, how, middle, last, expected);
    CHECK(cold_rows(folder.path / "other" / last) == kept);
  }
}

TEST_CASE("what cannot be resumed says why") {
  const TemporaryFolder folder;
  const std::string path = (folder.path / "c").string();
  const std::string tiny =
      "--samples 2000 --max-rows 20 --batch-size 100 --bottom-mlp 8 --top-mlp 8 --ranks 2 --save " +
      path + " ";
  const Outcome fresh = train_dlrm(tiny + "--resume");
  CHECK(fresh.status == 0);
  CHECK(fresh.out.find("resumed") == std::string::npos);
  CHECK(train_dlrm(tiny + "--resume").status == 0);  // nothing is left to do
  const auto fails = [&](const std::string& arguments, const std::string& what) {
    const Outcome outcome = train_dlrm(arguments, false);
    INFO(arguments, outcome.err);
    CHECK(outcome.status != 0);
    CHECK(outcome.err.find(what) != std::string::npos);
    CHECK(std::count(outcome.err.begin(), outcome.err.end(), '\n') == 1);
  };
  fails(tiny + "--resume --seed 3", "was trained with --seed 1; leave --seed out");
  fails(tiny + "--resume --embedding-width 32", "was trained with --embedding-width 16");
  fails("--resume", "--save");
  fails("--save-every 5", "--save");
  fails("--samples 1000 --max-rows 10 --save /proc/no", "/proc/no");
  for (const auto& entry : std::filesystem::directory_iterator(*latest_checkpoint(path)))
    if (entry.path().filename().string().ends_with("-C4.safetensors"))
      std::filesystem::resize_file(entry.path(), entry.file_size() - 1);
  fails(tiny + "--resume", "it was truncated or changed");
}

TEST_CASE("a training goes on with its own order, inputs and options alone") {
  const TemporaryFolder folder;
  const auto at = [&](const char* name) { return (folder.path / name).string(); };
  {
    std::ofstream clicks(folder.path / "c.csv");
    clicks << "y,n,c\n";
    for (int i = 0; i < 5000; ++i) clicks << i % 3 / 2 << ',' << i % 50 << ",k" << i % 70 << '\n';
  }
  const auto schema = [&](const char* name, const char* transform, const char* pooling) {
    std::ofstream(folder.path / name)
        << "label: y\nnumeric: [{name: n, transform: " << transform
        << "}]\ncategorical: [{name: c, list: '|', pooling: " << pooling << "}]\n";
  };
  schema("s.yaml", "[log1p, standardize]", "mean");
  schema("pooling.yaml", "[log1p, standardize]", "sum");
  schema("transform.yaml", "log1p", "mean");
  const std::string given = "--data " + at("c.csv") +
                            " --bottom-mlp 8 --top-mlp 8 --ranks 1 --epochs 1 --batch-size 100 "
                            "--save ",
                    saved = at("saved");
  const std::string first = " --schema " + at("s.yaml") + " --shuffle-window 2048",
                    options = " --vocabulary --eviction oldest --min-count 2";
  REQUIRE(train_dlrm(given + saved + first + options + " --max-steps 20").status == 0);
  const auto fails = [&](const std::string& arguments, const std::string& what) {
    const Outcome outcome = train_dlrm(given + saved + " --resume" + arguments, false);
    INFO(arguments, outcome.err);
    CHECK(outcome.status != 0);
    CHECK(outcome.err.find(what) != std::string::npos);
  };
  fails(" --schema " + at("s.yaml"), "windows of 2048 samples; now there are");
  fails(" --shuffle-window 2048 --schema " + at("pooling.yaml"),
        "with column 'c', pooling mean; the schema now has column 'c', pooling sum");
  fails(
      " --shuffle-window 2048 --schema " + at("transform.yaml"),
      "with numeric column 'n', transform log1p and standardize, empty: none; the schema now has");
  fails(first + " --min-count 7", "was trained with --min-count 2; leave --min-count out");
  fails(first + " --vocabulary --eviction none", "was trained with --eviction oldest");
  // options that are left out are the checkpoint's
  REQUIRE(train_dlrm(given + saved + first + " --resume").status == 0);
  const std::filesystem::path last = *latest_checkpoint(saved), other = folder.path / "whole";
  REQUIRE(train_dlrm(given + other.string() + first + options).status == 0);
  CHECK(difference(other / last.filename(), last) == 0);
}

TEST_CASE("resumed by other optimizers: tables keep weights, and what begins anew is told") {
  const TemporaryFolder folder;
  const std::string base =
      "--samples 2000 --test-fraction 0.1 --max-rows 20 --batch-size 100 --bottom-mlp 8 --top-mlp "
      "8 --ranks 2 --keep 9 --max-steps 10 --save " +
      (folder.path / "c").string() + " ";
  results(base + "--save-every 5 --optimizer 'adam:C1,ftrl:C2*,rowwise-adagrad:*'");
  const std::filesystem::path middle = folder.path / "c" / detail::checkpoint_name(5),
                              last = folder.path / "c" / detail::checkpoint_name(10);
  const std::filesystem::path kept =
      copy_of(middle, folder.path / "kept") / detail::checkpoint_name(5);
  std::filesystem::remove_all(last);
  // C1 and C3 change; C2, C20 to C26 and the others do not. A rate of 0 keeps what was loaded.
  const std::string other = base +
                            "--resume --learning-rate 0 --optimizer 'adagrad:C1,frozen:C3,ftrl:C2*,"
                            "rowwise-adagrad:*'";
  const Outcome outcome = train_dlrm(other);
  CHECK(outcome.status == 0);
  CHECK(outcome.out.find("optimizer adam -> adagrad, weights kept, state begun anew: C1\n") !=
        std::string::npos);
  CHECK(outcome.out.find(
            "optimizer rowwise-adagrad -> frozen, weights kept, state begun anew: C3\n") !=
        std::string::npos);
  CHECK(outcome.out.find("ftrl ->") == std::string::npos);
  CHECK(outcome.out.find("rowwise-adagrad -> rowwise-adagrad") == std::string::npos);
  CheckpointReader before(kept), after(last);
  for (const std::string tensor : {"C1.weight", "C2.weight", "C3.weight", "C4.weight"}) {
    CAPTURE(tensor);
    CHECK(before.read<float>(tensor) == after.read<float>(tensor));
  }
  // Adam's moments are gone; Adagrad's sums are of five steps, not of ten
  CHECK(before.manifest().find("C1.m") != nullptr);
  CHECK(after.manifest().find("C1.m") == nullptr);
  CHECK(after.manifest().find("C3.sum") == nullptr);
  const std::vector<float> anew = after.read<float>("C1.sum");
  CHECK(std::ranges::any_of(anew, [](float sum) { return sum > 0; }));
  const std::vector<float> sum_before = before.read<float>("C4.sum"),
                           sum_after = after.read<float>("C4.sum");
  for (std::size_t i = 0; i < sum_before.size(); ++i) CHECK(sum_after[i] >= sum_before[i]);
  // evaluation needs no state, and says nothing of it
  const Outcome scored = train_dlrm(base + "--resume --mode eval --optimizer sgd");
  CHECK(scored.status == 0);
  CHECK(scored.out.find("begun anew") == std::string::npos);
}

TEST_CASE("another training's folder is refused, and so is one that another program saves to") {
  const TemporaryFolder folder;
  const std::string tiny =
      "--samples 2000 --max-rows 20 --batch-size 100 --bottom-mlp 8 --top-mlp 8 --ranks 2 --keep 1 "
      "--save " +
      folder.path.string() + " ";
  const auto fails = [&](const std::string& arguments, const std::string& what) {
    const Outcome outcome = train_dlrm(tiny + arguments, false);
    INFO(outcome.err);
    CHECK(outcome.status == 1);
    CHECK(outcome.err.find(what) != std::string::npos);
    CHECK(std::count(outcome.err.begin(), outcome.err.end(), '\n') == 1);
  };
  {
    const FolderLock lock(folder.path);
    fails("", "another program or save writes to '" + folder.path.string() + "'");
  }
  CHECK(detail::checkpoint_steps(folder.path).empty());
  results(tiny + "--save-every 5");
  CHECK(detail::checkpoint_steps(folder.path) == std::vector<std::int64_t>{18});
  fails("--save-every 5 --seed 2",
        "up to 'step-000000000018': go on with --resume, or give another folder");
  CHECK(detail::checkpoint_steps(folder.path) == std::vector<std::int64_t>{18});

  // A step beyond the training's is no step of it.
  const auto other = folder.path / detail::checkpoint_name(999'999);
  std::filesystem::rename(folder.path / detail::checkpoint_name(18), other);
  detail::Manifest manifest =
      detail::parse_manifest(text_of(other / "manifest.json"), "manifest.json");
  manifest.step = 999'999;
  std::ofstream(other / "manifest.json") << detail::format_manifest(manifest);
  fails("--resume", "is of step 999999, and this training has 18");
}

TEST_CASE(
    "a training that diverges leaves its last good checkpoint, and names it; what is older and "
    "damaged is a warning") {
  const TemporaryFolder folder;
  const std::string path = (folder.path / "c").string();
  const std::string tiny =
      "--samples 2000 --max-rows 20 --batch-size 100 --bottom-mlp 8 --top-mlp 8 --ranks 2 "
      "--constant-rates --epochs 2 --save " +
      path + " ";
  results(tiny + "--save-every 5");
  for (const int step : {15, 20, 25, 30, 35, 36})
    std::filesystem::remove_all(path + "/" + detail::checkpoint_name(step));
  for (const std::string how : {"", "--save-async "}) {
    CAPTURE(how);
    const auto other = copy_of(path + "/" + detail::checkpoint_name(10), folder.path / "other");
    const Outcome outcome = train_dlrm(
        "--samples 2000 --max-rows 20 --batch-size 100 --bottom-mlp 8 --top-mlp 8 --ranks 2 "
        "--constant-rates --epochs 2 --resume --keep 1 "
        "--save-every 1 --learning-rate 1e30 " +
            how + "--save " + other.string(),
        false);
    INFO(outcome.err);
    CHECK(outcome.status == 1);
    CHECK(outcome.err.find("; the last good checkpoint is '" +
                           (other / detail::checkpoint_name(10)).string() + "'") !=
          std::string::npos);
    CHECK(std::count(outcome.err.begin(), outcome.err.end(), '\n') == 1);
    // What is there beside it is finite, too.
    for (const std::int64_t step : detail::checkpoint_steps(other)) {
      CheckpointReader reader(other / detail::checkpoint_name(step));
      std::int64_t wrong = 0;
      for (const detail::StoredTensor& tensor : reader.manifest().tensors)
        for (const float x : reader.read<float>(tensor.name)) wrong += !std::isfinite(x);
      CHECK(wrong == 0);
    }
    // As the message says.
    for (const std::int64_t step : detail::checkpoint_steps(other))
      if (step > 10) std::filesystem::remove_all(other / detail::checkpoint_name(step));
    CHECK(train_dlrm("--samples 2000 --max-rows 20 --batch-size 100 --bottom-mlp 8 --top-mlp 8 "
                     "--ranks 2 --constant-rates --epochs 2 --resume "
                     "--save " +
                     other.string())
              .status == 0);
    CHECK(detail::checkpoint_steps(other) == std::vector<std::int64_t>{10, 36});
  }
  const auto manifest = path + "/" + detail::checkpoint_name(5) + "/manifest.json";
  std::string text = text_of(manifest);
  text[100] = '?';
  std::ofstream(manifest) << text;
  const Outcome outcome = train_dlrm(tiny + "--resume --keep 3");
  CHECK(outcome.status == 0);
  CHECK(outcome.err.find("warning: older checkpoints were not removed: file '" + manifest + "'") !=
        std::string::npos);
  CHECK(detail::checkpoint_steps(path) == std::vector<std::int64_t>{5, 10, 36});
}

TEST_CASE("a limit of file sizes is an error like a full disk, for table files, too") {
  const TemporaryFolder folder;
  const Outcome outcome = train_dlrm(
      "--samples 2000 --max-rows 20 --batch-size 100 --ranks 2 --bottom-mlp 8 --top-mlp 64 "
      "--save " +
          (folder.path / "c").string(),
      false, "ulimit -f 8;");
  INFO(outcome.err);
  CHECK(outcome.status == 1);
  CHECK(outcome.err.find("-dense.safetensors': File too large") != std::string::npos);
  CHECK(std::filesystem::is_empty(folder.path / "c"));
  const std::string rows = (folder.path / "rows").string(),
                    tiny = "--samples 2000 --max-rows 900 --ranks 1 --table-files ";
  const auto fails = [&](const std::string& arguments, const char* what,
                         const char* limit = "ulimit -f 8;") {
    const Outcome refused = train_dlrm(tiny + arguments, false, limit);
    INFO(refused.err);
    CHECK(refused.status == 1);
    CHECK(refused.err.find(what) != std::string::npos);
    CHECK(std::count(refused.err.begin(), refused.err.end(), '\n') == 1);
  };
  fails(rows + " --host-memory 200KiB", "no room for the table file");
  fails(rows + " --host-memory 20KiB", "different ones: give it", "");
  CHECK(std::filesystem::is_empty(rows));
  fails("/proc/no/rows --host-memory 20KiB", "cannot make the folder of table files", "");
}

namespace {

const std::string kSmall =
    "--samples 4000 --test-fraction 0.2 --max-rows 100 --batch-size 100 --epochs 2 "
    "--embedding-width 8 --bottom-mlp 16 --top-mlp 16 ";

}  // namespace

TEST_CASE("schedules: the rates of each step, and the same bits after a stop within a ramp") {
  const TemporaryFolder folder;
  const auto at = [&](const char* name) { return (folder.path / name).string(); };
  const std::string base = kSmall + "--ranks 2 ",
                    ramps = base +
                            "--schedule warmup:24,hold:20,poly:16:2 "
                            "--dense-schedule warmup:9,cosine:30:0.1 ";
  const std::filesystem::path last = detail::checkpoint_name(64);
  results(ramps + "--save " + at("whole"));
  CHECK(results(ramps + "--max-steps 10 --save " + at("cut"))["steps"] == 10);
  CHECK(std::filesystem::exists(folder.path / "cut" / detail::checkpoint_name(10)));
  results(ramps + "--resume --max-steps 50 --save " + at("cut"));
  results(ramps + "--resume --save " + at("cut"));
  check_same_files(folder.path / "whole" / last, folder.path / "cut" / last);
  results(base + "--constant-rates --save " + at("constant"));
  results(base + "--schedule constant --save " + at("named"));
  check_same_files(folder.path / "constant" / last, folder.path / "named" / last);
  results(base + "--schedule constant --dense-schedule hold:9,poly:9 --save " + at("dense"));
  CHECK(difference(folder.path / "constant" / last, folder.path / "dense" / last) > 0);
  CHECK(difference(folder.path / "constant" / last, folder.path / "whole" / last) > 0);
}

TEST_CASE("tests within epochs change nothing, the best model is kept, and tests again alike") {
  const TemporaryFolder folder;
  const auto at = [&](const char* name) { return (folder.path / name).string(); };
  const std::string tested = "--evals-per-epoch 3 --eval-batch-size 70 ";
  for (const std::string how :
       {"--ranks 3", "--ranks 2 --overlap --loader first-rank", "--ranks 2 --save-async"}) {
    CAPTURE(how);
    for (const char* name : {"plain", "tested"}) std::filesystem::remove_all(folder.path / name);
    const std::string base = kSmall + how + " --keep 1 --save-every 9 ";
    results(base + "--save " + at("plain"));
    const nlohmann::json training = results(base + tested + "--save " + at("tested"));
    check_same_files(folder.path / "plain" / detail::checkpoint_name(64),
                     folder.path / "tested" / detail::checkpoint_name(64));
    const nlohmann::json& tests = training["evaluations"];
    REQUIRE(tests.size() == 6);
    CHECK(tests[0]["step"] == 11);
    CHECK(tests[2]["step"] == 32);
    CHECK(tests[5]["step"] == 64);
    CHECK(tests[5]["auc"] == training["auc"]);
    const auto best = std::max_element(tests.begin(), tests.end(),
                                       [](auto& a, auto& b) { return a["auc"] < b["auc"]; });
    CHECK(detail::checkpoint_steps(folder.path / "tested" / "best") ==
          std::vector<std::int64_t>{(*best)["step"]});
    // a model as good is not above the best one
    const auto kept = std::filesystem::last_write_time(folder.path / "tested" / "best");
    results(base + tested + "--resume --save " + at("tested"));
    CHECK(std::filesystem::last_write_time(folder.path / "tested" / "best") == kept);
    for (const std::string ranks :
         {"--ranks 1 --plan row-wise", "--ranks 4 --plan grid --eval-batch-size 333"}) {
      CAPTURE(ranks);
      const std::string test = kSmall + ranks + " --mode eval --resume --save ";
      const nlohmann::json last = results(test + at("tested")),
                           top = results(test + at("tested") + "/best");
      for (const char* key : {"auc", "logloss", "normalized_entropy", "calibration"}) {
        CHECK(last[key] == training[key]);
        CHECK(top[key] == (*best)[key]);
      }
      CHECK(last["steps"] == 64);
    }
  }
}

TEST_CASE("the best model's folder holds one of this training alone") {
  const TemporaryFolder folder;
  const std::filesystem::path save = folder.path / "run", best = save / "best";
  const std::string how = kSmall +
                          "--ranks 1 --constant-rates --evals-per-epoch 3 --save-every 9 --save " +
                          save.string();
  results(how + " --learning-rate 0.0001 --dense-learning-rate 0.00001");
  REQUIRE(detail::checkpoint_steps(best).front() > 30);
  for (const std::int64_t step : detail::checkpoint_steps(save))
    if (step > 9) std::filesystem::remove_all(save / detail::checkpoint_name(step));
  results(how + " --resume --max-steps 30");
  const auto steps = detail::checkpoint_steps(best);
  REQUIRE(steps.size() == 1);
  CHECK(steps.front() <= 30);
  // nor does it begin among those of another training that had saved nothing else
  for (const std::int64_t step : detail::checkpoint_steps(save))
    std::filesystem::remove_all(save / detail::checkpoint_name(step));
  CHECK(train_dlrm(how, false).err.find("holds checkpoints of an earlier training") !=
        std::string::npos);
  CHECK(train_dlrm(how + " --resume --seed 99", false).err.find("was saved with") !=
        std::string::npos);
}

TEST_CASE("predictions, speed, thresholds, and an end at an AUC") {
  const TemporaryFolder folder;
  const auto at = [&](const char* name) { return (folder.path / name).string(); };
  const std::string base = kSmall + "--ranks 2 --save " + at("saved");
  const Outcome printed = train_dlrm(base + " --print-every 16 --predictions " + at("a.npy"));
  REQUIRE(printed.status == 0);
  for (const char* step : {"step 16/64", "step 32/64", "step 48/64", "step 64/64"})
    CHECK(printed.out.find(step) != std::string::npos);
  const nlohmann::json speed =
      results(kSmall +
              "--ranks 3 --eval-batch-size 50 --mode inference --auc binned --resume "
              "--save " +
              at("saved") + " --predictions " + at("b.npy"));
  const std::string predictions = text_of(folder.path / "a.npy");
  CHECK(predictions == text_of(folder.path / "b.npy"));
  CHECK(predictions.starts_with("\x93NUMPY\x01"));
  CHECK(predictions.find("'<f4'") != std::string::npos);
  CHECK(predictions.find("(800,)") != std::string::npos);
  REQUIRE(predictions.size() == 128 + 800 * sizeof(float));
  double sum = 0;
  for (std::size_t i = 128; i < predictions.size(); i += sizeof(float)) {
    float value = 0;
    std::memcpy(&value, predictions.data() + i, sizeof value);
    CHECK((value > 0 && value < 1));
    sum += static_cast<double>(value);
  }
  CHECK(sum > 1);
  const double p50 = speed["latency_ms"]["p50"], p99 = speed["latency_ms"]["p99"];
  CHECK((p50 > 0 && p99 >= p50));
  CHECK(speed["samples_per_second"] > 0);
  const double exact = printed.json["auc"], binned = speed["auc"];
  CHECK(binned != exact);
  CHECK(binned == doctest::Approx(exact).epsilon(1e-3));
  CHECK(speed["logloss"] == printed.json["logloss"]);

  // the checkpoint says what its model is, and how data become its rows
  CHECK(results("--mode eval --resume --ranks 1 --save " + at("saved"))["auc"] ==
        printed.json["auc"]);
  for (const char* wrong : {"--bottom-mlp 7,9", "--embedding-width 12", "--max-rows 17"}) {
    const Outcome outcome = train_dlrm(
        std::string("--mode inference --resume ") + wrong + " --save " + at("saved"), false);
    INFO(outcome.err);
    CHECK(outcome.status == 2);
    const std::string name = std::string(wrong).substr(0, std::string(wrong).find(' '));
    CHECK(outcome.err.find(wrong + std::string(": '") + at("saved")) != std::string::npos);
    CHECK(outcome.err.find("was trained with " + name + " ") != std::string::npos);
    CHECK(outcome.err.find("; leave " + name + " out") != std::string::npos);
  }

  const nlohmann::json stopped =
      results(kSmall +
              "--ranks 2 --overlap --loader first-rank --evals-per-epoch 4 "
              "--stop-at-auc 0.01 --save " +
              at("stopped"));
  CHECK(stopped["steps"] == 8);
  CHECK(stopped["evaluations"].size() == 1);
  CHECK(detail::checkpoint_steps(folder.path / "stopped") == std::vector<std::int64_t>{8});

  // Resumed, it has ended: no file changes. A higher AUC, or none, lets it go on.
  const std::string goes_on = kSmall + "--ranks 2 --evals-per-epoch 4 --keep 1 --log " +
                              at("ended.jsonl") + " --save " + at("ended"),
                    ended = goes_on + " --stop-at-auc 0.01";
  const auto state = [&] {
    std::map<std::string, std::string> files{{"log", text_of(folder.path / "ended.jsonl")}};
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path / "ended"))
      if (entry.is_regular_file()) files[entry.path().string()] = text_of(entry.path());
    return files;
  };
  const nlohmann::json before = results(ended);
  const auto files = state();
  for (const char* leftover : {"/ended/.partial-removed-step-000000000004",
                               "/ended/best/.partial-removed-step-000000000004"})
    std::filesystem::create_directories(folder.path.string() + leftover);
  const Outcome again = train_dlrm(ended + " --resume");
  REQUIRE(again.status == 0);
  CHECK(again.out.find("the training has ended at step 8, at a test AUC of ") != std::string::npos);
  CHECK(again.json["auc"] == before["auc"]);
  CHECK(again.json["steps"] == 8);
  CHECK(state() == files);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path / "ended"))
    CHECK(entry.path().filename().string().find(".partial-") == std::string::npos);
  // killed after the last save, before the log's end: the last test is not logged twice
  std::string log = files.at("log");
  log.resize(log.rfind('\n', log.size() - 2) + 1);
  std::ofstream(folder.path / "ended.jsonl") << log;
  results(ended + " --resume");
  const std::string logged = text_of(folder.path / "ended.jsonl");
  std::size_t tests = 0, ends = 0;
  std::istringstream lines(logged);
  for (std::string line; std::getline(lines, line);) {
    tests += nlohmann::json::parse(line)["event"] == "test";
    ends += nlohmann::json::parse(line)["event"] == "end";
  }
  CHECK(tests == 1);
  CHECK(ends == 1);
  CHECK(results(goes_on + " --resume --max-steps 12")["steps"] == 12);
  const Outcome twelve = train_dlrm(goes_on + " --resume --max-steps 12", false);
  CHECK(twelve.out.find("the training has ended at step 12: nothing") != std::string::npos);

  const Outcome empty =
      train_dlrm(kSmall + "--ranks 2 --mode eval --resume --save " + at("nothing"), false);
  CHECK(empty.status == 1);
  CHECK(empty.err.find("/nothing' of --save holds no checkpoint") != std::string::npos);
}
