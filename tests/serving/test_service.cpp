// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// serve_model without its connections: models are swapped while threads ask for scores, and
// requests that are none get a status.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wsubobject-linkage"  // of a source that is included
#endif
#include "../../examples/serve_model/coding.cpp"
#include "../../examples/serve_model/protocol.cpp"
#include "../../examples/serve_model/service.cpp"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include <atomic>
#include <cerrno>
#include <future>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <serving/saved_model.hpp>

using namespace saved_model;

namespace {

/// Work for threads of which only the first few can be started.
struct Few {
  explicit Few(int& started) : copies(&started) {}
  Few(const Few& other) : copies(other.copies) {
    if (++*copies > 3) throw std::system_error(EAGAIN, std::generic_category());
  }
  void operator()() const {}
  int* copies;
};

constexpr int kSamples = 16;

serve::HttpReply answer(serve::Service& service, std::string method, std::string target,
                        std::string body = {}, std::optional<std::string> json_bytes = {}) {
  std::promise<serve::HttpReply> made;
  service.handle({std::move(method), std::move(target), std::move(body), std::move(json_bytes), {}},
                 [&](serve::HttpReply reply) { made.set_value(std::move(reply)); });
  return made.get_future().get();
}

std::string body_of(const Samples& samples) {
  nlohmann::json inputs = nlohmann::json::array();
  const auto add = [&](const char* name, const char* type, nlohmann::json shape, auto data) {
    inputs.push_back({{"name", name}, {"datatype", type}, {"shape", shape}, {"data", data}});
  };
  const auto n = std::ssize(samples.price);
  // the library writes NaN as null
  add("price", "FP32", {n, 1}, samples.price);
  add("age", "FP32", {n, 1}, samples.age);
  add("C1", "BYTES", {n, 1}, samples.c1);
  add("cities__values", "BYTES", {std::ssize(samples.cities)}, samples.cities);
  add("cities__lengths", "INT64", {n, 1}, samples.lengths);
  add("home", "BYTES", {n, 1}, samples.home);
  return nlohmann::json{{"inputs", inputs}}.dump();
}

/// Appears under its name when it is complete.
void put(const std::filesystem::path& live, const std::filesystem::path& checkpoint) {
  std::filesystem::copy(checkpoint, live / "tmp", std::filesystem::copy_options::recursive);
  std::filesystem::rename(live / "tmp", live / checkpoint.filename());
}

std::int64_t served_step(serve::Service& service) {
  return nlohmann::json::parse(answer(service, "GET", "/v2/models/m").body)["parameters"]["step"];
}

}  // namespace

TEST_CASE("threads that cannot be started are an error, when the others have ended") {
  int copies = 0, stops = 0;
  CHECK_THROWS_WITH_AS(detail::RunningThreads(9, Few(copies), [&] { ++stops; }),
                       doctest::Contains("only 3 of 9 threads can be started"), Error);
  CHECK(stops == 1);
}

TEST_CASE("models are swapped while threads score: each answer has the bits of one version") {
  const Samples samples(3, kSamples);
  const std::string body = body_of(samples);
  const TemporaryFolder live;
  std::vector<std::unique_ptr<Saved>> saves;
  std::map<std::int64_t, std::vector<float>> expected;
  for (unsigned i = 0; i < 6; ++i) {
    saves.push_back(std::make_unique<Saved>(description("dot"), i, 10 * (i + 1)));
    const FrozenModel model(saves.back()->checkpoint);
    EncodedSamples encoded;
    model.inputs().encode(samples.columns(), encoded);
    model.score(encoded, expected[model.step()] = std::vector<float>(kSamples));
  }
  put(live.path, saves[0]->checkpoint);
  serve::Service service({.models = {{"m", live.path}},
                          .threads = 2,
                          .batch_samples = kSamples,  // which are not joined with others
                          .watch_seconds = 0.002});
  std::atomic<bool> over{false};
  std::vector<std::set<std::int64_t>> seen(3);
  std::vector<std::thread> threads;
  for (std::set<std::int64_t>& steps : seen)
    threads.emplace_back([&] {
      while (!over) {
        const serve::HttpReply reply = answer(service, "POST", "/v2/models/m/infer", body);
        if (reply.status != 200) return;
        const nlohmann::json json = nlohmann::json::parse(reply.body);
        const std::int64_t step = json["parameters"]["step"];
        if (json["outputs"][0]["data"].get<std::vector<float>>() != expected.at(step)) return;
        steps.insert(step);
      }
      steps.insert(-1);  // all was well
    });
  for (std::size_t i = 1; i < saves.size(); ++i) {
    put(live.path, saves[i]->checkpoint);
    const auto until = serve::Clock::now() + std::chrono::seconds(60);
    const std::int64_t step = 10 * (static_cast<std::int64_t>(i) + 1);
    while (served_step(service) != step && serve::Clock::now() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    CHECK(served_step(service) == step);
  }
  over = true;
  for (std::thread& thread : threads) thread.join();
  std::set<std::int64_t> all;
  for (const std::set<std::int64_t>& steps : seen) {
    CHECK(steps.contains(-1));
    all.insert(steps.begin(), steps.end());
  }
  CHECK(all.size() > 2);
}

TEST_CASE("requests that are none get a status and a text, and the next good one its scores") {
  const Saved saved(description("dot"));
  serve::Service service({.models = {{"m", saved.folder.path}}, .most_samples = 1000});
  const std::string body = body_of(Samples(4, 5));
  const auto scores = [&] {
    return nlohmann::json::parse(answer(service, "POST", "/v2/models/m/infer", body).body)
        .at("outputs")[0]["data"]
        .get<std::vector<float>>();
  };
  const std::vector<float> good = scores();
  REQUIRE(good.size() == 5);
  std::minstd_rand random(9);
  std::map<int, int> statuses;
  for (int i = 0; i < 3000; ++i) {
    std::string text = body;
    for (auto n = 1 + random() % 6; n > 0 && !text.empty(); --n) {
      const std::size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, 1 + random() % 40);
          break;
        case 2:
          text.insert(at, text.substr(random() % text.size(), 1 + random() % 40));
          break;
        default: {
          const char* const parts[] = {"[", "{", "\"", "-1", "1e999", "null", "\\u0000", ","};
          text.insert(at, parts[random() % 8]);
        }
      }
    }
    std::optional<std::string> json_bytes;
    if (random() % 4 == 0) json_bytes = std::to_string(random() % (text.size() + 9));
    const serve::HttpReply reply =
        answer(service, "POST", "/v2/models/m/infer", std::move(text), std::move(json_bytes));
    ++statuses[reply.status];
    if (!nlohmann::json::accept(reply.body)) ++statuses[-1];
  }
  for (const auto& found : statuses) CHECK((found.first == 200 || found.first == 400));
  CHECK(statuses[400] > 2000);
  CHECK(scores() == good);
}

TEST_CASE("names from outside are cut and escaped in every text and reply") {
  const Saved saved(description("dot"));
  const std::string name = "a\"b\\c\nd";
  serve::Service service({.models = {{name, saved.folder.path}, {"m", saved.folder.path}}});
  const auto error_of = [&](std::string target, std::string body = {}, int status = 400,
                            std::string method = "POST") {
    const serve::HttpReply reply = answer(service, method, std::move(target), std::move(body));
    CHECK(reply.status == status);
    CHECK(reply.body.size() < 600);
    return nlohmann::json::parse(reply.body).at("error").get<std::string>();
  };
  const std::string infer = "/v2/models/m/infer", longer(5000, 'x'),
                    shown = "'" + longer.substr(0, 80) + "...'";
  const auto has = [](const std::string& text, std::string_view part) {
    CAPTURE(text);
    CHECK(text.find(part) != std::string::npos);
  };
  const auto input = [](const std::string& n, const std::string& type = "FP32") {
    return R"({"inputs":[{"name":")" + n + R"(","datatype":")" + type +
           R"(","shape":[1],"data":[]}]})";
  };
  has(error_of(infer, input(longer)), "input " + shown + ": 0 elements");
  has(error_of(infer, input("I", longer)), "datatype " + shown);
  has(error_of(infer, R"({"id":"1","outputs":[{"name":")" + longer + "\"}]}"), shown);
  has(error_of("/v2/models/" + longer, {}, 404, "GET"), shown);
  has(error_of("/" + longer, {}, 404, "GET"), longer.substr(0, 79) + "...'");
  has(error_of(infer, {}, 405, longer), shown);
  has(error_of("/v2/models/a%00b", {}, 404, "GET"), "'a\\x00b'; there are");
  has(error_of("/v2/models/m/versions/" + longer, {}, 404, "GET"), shown);
  has(error_of(infer, "{\"id\":\"\xff\xfe\"}"), "JSON, offset 7: this is not UTF-8");
  CHECK(answer(service, "GET", "http://host:80/v2/health/live").status == 200);
  CHECK(answer(service, "GET", "http://host").status == 404);

  const std::string path = "/v2/models/a%22b%5Cc%0Ad";
  CHECK(nlohmann::json::parse(answer(service, "GET", path + "/ready").body).at("name") == name);
  CHECK(nlohmann::json::parse(answer(service, "GET", path).body).at("name") == name);
  CHECK(answer(service, "GET", "/metrics").body.find(R"(model="a\"b\\c\nd",version="1"} 12)") !=
        std::string::npos);
}

TEST_CASE("numbers of JSON: what clients write for none, too small and too large ones") {
  const Saved saved(description("dot"));
  serve::Service service({.models = {{"m", saved.folder.path}}});
  const Samples samples(4, 3);
  const auto reply = [&](const std::string& first, bool name_last = false) {
    nlohmann::ordered_json body = nlohmann::ordered_json::parse(body_of(samples));
    for (auto& input : body["inputs"])
      if (input["name"] == "age") {
        input.erase("data");  // it comes behind the name
        input["data"] = {12345678, 1, 2};
        if (name_last) input.erase("name"), input["name"] = "age";
      }
    std::string text = body.dump();
    text.replace(text.find("12345678"), 8, first);
    return answer(service, "POST", "/v2/models/m/infer", text);
  };
  const auto scores = [&](const std::string& first) {
    const serve::HttpReply made = reply(first);
    CAPTURE(made.body);
    REQUIRE(made.status == 200);
    return nlohmann::json::parse(made.body)["outputs"][0]["data"];
  };
  const auto error = [&](const std::string& first, bool name_last = false) {
    const serve::HttpReply made = reply(first, name_last);
    CHECK(made.status == 400);
    return made.body;
  };
  CHECK(scores("NaN") == scores("null"));
  CHECK(scores("NaN") != scores("0"));
  for (const char* zero : {"1e-400", "-1e-99999999999999999999", "1e-46", "0.0e5"})
    CHECK(scores(zero) == scores("0"));
  CHECK(scores("1e-40") == scores("0.0"));
  for (const char* large : {"1e400", "1e39", "-1e999999999999999999999"}) {
    CHECK(error(large).find("input 'age', offset") != std::string::npos);
    CHECK(error(large).find("too large") != std::string::npos);
  }
  CHECK(error("Infinity").find("column 'age', sample 0: inf is not finite") != std::string::npos);
  CHECK(error("nonsense").find("input 'age', offset") != std::string::npos);
  CHECK(error("nonsense", true).find("input number 2, offset") != std::string::npos);
  CHECK(error("NaNs").find("input 'age', offset") != std::string::npos);
  CHECK(error("+1").find("a number is expected") != std::string::npos);
}

TEST_CASE("long bodies are read elsewhere, and what they take is counted before it is taken") {
  const Saved saved(description("dot"));
  serve::Service service({.models = {{"m", saved.folder.path}}, .most_samples = 1000});
  const auto with = [](const std::string& name, std::size_t count, const std::string& element,
                       const std::string& type, std::int64_t shape) {
    std::string body = R"({"inputs":[{"name":")" + name + R"(","datatype":")" + type +
                       R"(","shape":[)" + std::to_string(shape) + R"(],"data":[)";
    for (std::size_t i = 0; i < count; ++i) body += (i ? "," : "") + element;
    return body + "]}]}";
  };
  std::atomic<std::uint64_t> all{0};
  const auto ask = [&](std::string body, std::uint64_t most) {
    serve::Held held(all, most);
    REQUIRE(held.set(body.size()));
    std::promise<std::pair<serve::HttpReply, std::thread::id>> made;
    service.handle(
        {.method = "POST", .target = "/v2/models/m/infer", .body = std::move(body), .held = &held},
        [&](serve::HttpReply reply) {
          made.set_value({std::move(reply), std::this_thread::get_id()});
        });
    const auto [reply, thread] = made.get_future().get();
    CHECK((reply.body.find("samples are more") != std::string::npos ||
           thread != std::this_thread::get_id()));
    CHECK(held.bytes() <= most);
    return reply;
  };
  constexpr std::uint64_t kMiB = 1 << 20;
  // 48 bytes of memory for each of 3
  const std::string texts = with("cities__values", 100'000, "\"\"", "BYTES", 100'000);
  CHECK(ask(texts, kMiB).status == 503);
  CHECK(ask(texts, 8 * kMiB).status == 400);  // other inputs are missing
  CHECK(ask(with("cities__values", 50'000, R"("\n")", "BYTES", 50'000), kMiB).status == 503);
  CHECK(ask(with("price", 100'000, "1", "FP32", 100'000), kMiB)
            .body.find("100000 samples are more than the 1000") != std::string::npos);
  CHECK(ask(with("price", 100'000, "1", "FP32", 7), 2 * kMiB).body.find("8 elements or more") !=
        std::string::npos);
  std::string shape = R"({"inputs":[{"name":"I1","shape":[1)";
  for (int i = 0; i < 50'000; ++i) shape += ",1";
  CHECK(ask(shape + "]}]}", kMiB).body.find("at most 8 extents") != std::string::npos);
  std::string keys = R"({"x":0)";
  for (int i = 0; i < 20'000; ++i) keys += ",\"" + std::to_string(i) + "\":0";
  CHECK(ask(keys + "}", kMiB).body.find("no 'inputs'") != std::string::npos);
  CHECK(all == 0);

  const auto takes = [&](const char* method, const char* target, const char* encoding = "") {
    return service.takes_body({.method = method, .target = target, .encoding = encoding});
  };
  CHECK(takes("POST", "/v2/models/m/infer"));
  CHECK(takes("POST", "/v2/models/m/infer", "gzip"));
  CHECK(!takes("POST", "/v2/models/m/infer", "br"));
  CHECK(!takes("GET", "/v2/models/m/infer"));
  CHECK(!takes("POST", "/v2/models/other/infer"));
  CHECK(!takes("POST", "/nothing"));
}

TEST_CASE("a checkpoint of NaN is refused, and the model that is there goes on") {
  const Saved first(description("dot"), 1, 10);
  const TemporaryFolder live;
  put(live.path, first.checkpoint);
  std::mutex mutex;
  std::string log;
  serve::Service service(
      {.models = {{"m", live.path}}, .watch_seconds = 0.002, .log = [&](const std::string& line) {
         const std::lock_guard lock(mutex);
         log += line + "\n";
       }});
  const std::string body = body_of(Samples(3, kSamples));
  const std::string before = answer(service, "POST", "/v2/models/m/infer", body).body;
  Saved second(description("dot"), 2, 20);
  {
    SelfCommunicator self;
    CheckpointContents contents;
    second.tensors.at("C1.weight").at(7 * kWidth + 2) = NAN;
    for (auto& [name, values] : second.tensors)
      contents.add(Host(), name, CheckpointReader(second.checkpoint).tensor(name).shape,
                   std::span(values));
    add_model_description(contents, description("dot"),
                          {{"C1", {{0x1f, 0xabcdef01, 0}, {2, 39, 7}}}});
    save_checkpoint(self, second.folder.path, contents, 30);
  }
  put(live.path, *latest_checkpoint(second.folder.path));
  const auto until = serve::Clock::now() + std::chrono::seconds(60);
  const auto refused = [&] {
    const std::lock_guard lock(mutex);
    return log.find("step 10 goes on; refused: file '") != std::string::npos &&
           log.find("table 'C1', row 7, column 2: nan") != std::string::npos;
  };
  while (!refused() && serve::Clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(refused());
  CHECK(answer(service, "POST", "/v2/models/m/infer", body).body == before);
}
