// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// serve_model without its connections: models are swapped while threads ask for scores, and
// requests that are none get a status.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wsubobject-linkage"  // of a source that is included
#endif
#include "../../examples/serve_model/protocol.cpp"
#include "../../examples/serve_model/service.cpp"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include <future>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <serving/saved_model.hpp>

using namespace saved_model;

namespace {

constexpr int kSamples = 16;

serve::HttpReply answer(serve::Service& service, std::string method, std::string target,
                        std::string body = {}, std::optional<std::string> json_bytes = {}) {
  std::promise<serve::HttpReply> made;
  service.handle({std::move(method), std::move(target), std::move(body), std::move(json_bytes)},
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
