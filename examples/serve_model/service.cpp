// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "service.hpp"

#include "protocol.hpp"

#include <tessera/checkpoint/folder.hpp>
#include <tessera/core/error.hpp>
#include <tessera/io/json_reader.hpp>
#include <tessera/io/text.hpp>
#include <tessera_serving/batching_scorer.hpp>
#include <tessera_serving/frozen_model.hpp>
#include <tessera_serving/row_format.hpp>
#include <tessera_serving/running_threads.hpp>
#include <tessera_serving/watch.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <new>
#include <string_view>
#include <thread>
#include <utility>

namespace serve {

using namespace tessera;
using Clock = std::chrono::steady_clock;

/// A histogram of seconds, as Prometheus reads it.
class Seconds {
 public:
  void add(double seconds) {
    std::size_t i = 0;
    while (i < kBounds.size() && seconds > kBounds[i]) ++i;
    counts_[i].fetch_add(1, std::memory_order_relaxed);
    nanoseconds_.fetch_add(static_cast<std::uint64_t>(seconds * 1e9), std::memory_order_relaxed);
  }
  std::uint64_t count() const {
    std::uint64_t sum = 0;
    for (const auto& count : counts_) sum += count.load(std::memory_order_relaxed);
    return sum;
  }
  std::uint64_t nanoseconds() const { return nanoseconds_.load(std::memory_order_relaxed); }
  std::string text(std::string_view name, std::string_view labels) const {
    std::string out;
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i <= kBounds.size(); ++i) {
      sum += counts_[i].load(std::memory_order_relaxed);
      out += fmt::format("{}_bucket{{{},le=\"{}\"}} {}\n", name, labels,
                         i < kBounds.size() ? fmt::format("{}", kBounds[i]) : "+Inf", sum);
    }
    return out +
           fmt::format("{}_sum{{{}}} {}\n{}_count{{{}}} {}\n", name, labels,
                       static_cast<double>(nanoseconds_.load(std::memory_order_relaxed)) * 1e-9,
                       name, labels, sum);
  }

 private:
  static constexpr std::array<double, 12> kBounds{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005,
                                                  0.01,   0.025,   0.05,   0.1,   0.5,    2.5};
  std::array<std::atomic<std::uint64_t>, kBounds.size() + 1> counts_{};
  std::atomic<std::uint64_t> nanoseconds_{0};
};

/// A checkpoint's model, and who scores with it.
struct Served {
  std::filesystem::path checkpoint;
  std::shared_ptr<const FrozenModel> model;
  BatchingScorer scorer;

  Served(std::filesystem::path folder, std::shared_ptr<const FrozenModel> loaded,
         const BatchingOptions& batching)
      : checkpoint(std::move(folder)), model(std::move(loaded)), scorer(*model, batching) {}
};

/// A version of a model, which may follow a training run.
class Version {
 public:
  const std::string number;
  std::atomic<std::uint64_t> samples{0};
  std::atomic<std::int64_t> last_ms{0};  ///< of the last answer, since 1970
  Seconds seconds;

  /// `watch_seconds`: how often to look for newer checkpoints beside this one; 0: never.
  Version(std::string number_, std::string model, const std::filesystem::path& checkpoint,
          double watch_seconds, FrozenModelOptions frozen, BatchingOptions batching,
          std::function<void(const std::string&)> log)
      : number(std::move(number_)),
        name_(fmt::format("{} version {}", model, number)),
        frozen_(std::move(frozen)),
        batching_(batching),
        log_(std::move(log)),
        served_(load(checkpoint, nullptr)) {
    if (watch_seconds > 0)
      watch_.emplace(
          checkpoint.parent_path(), [this](const std::filesystem::path& latest) { take(latest); },
          std::chrono::milliseconds(std::max<std::int64_t>(1, std::llround(watch_seconds * 1e3))));
  }

  /// What is served now. Who holds it scores with this one model, whatever comes meanwhile.
  std::shared_ptr<Served> served() const {
    const std::lock_guard lock(mutex_);
    return served_;
  }
  /// Of newer checkpoints; none where the version does not follow.
  std::optional<CheckpointWatch::Status> watched() const {
    if (!watch_) return std::nullopt;
    return watch_->status();
  }

 private:
  std::shared_ptr<Served> load(const std::filesystem::path& checkpoint,
                               const FrozenModel* last) const {
    return std::make_shared<Served>(checkpoint, frozen_model_of(checkpoint, frozen_, last),
                                    batching_);
  }

  void take(const std::filesystem::path& latest) {
    const std::shared_ptr<Served> last = served();
    try {
      const auto [manifest, crc] = detail::read_manifest(latest);
      if (last->model->tables().checkpoint() == CheckpointMark{manifest.step, crc}) return;
      const auto begin = Clock::now();
      std::shared_ptr<Served> next = load(latest, last->model.get());
      {
        const std::lock_guard lock(mutex_);
        served_ = std::move(next);
      }
      refused_.clear();
      log_(fmt::format("{}: {} (step {}, {:.0f} ms)", name_, latest.string(), manifest.step,
                       std::chrono::duration<double, std::milli>(Clock::now() - begin).count()));
    } catch (const std::exception& error) {
      if (std::exchange(refused_, error.what()) != error.what())
        log_(fmt::format("{}: step {} goes on; refused: {}", name_, last->model->step(),
                         error.what()));
      throw;
    }
    // it ends here, with what waits for it, and not on a thread of the connections
    while (last.use_count() > 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  std::string name_;
  FrozenModelOptions frozen_;
  BatchingOptions batching_;
  std::function<void(const std::string&)> log_;
  std::string refused_;  ///< why, the last time
  mutable std::mutex mutex_;
  std::shared_ptr<Served> served_;
  std::optional<CheckpointWatch> watch_;  ///< ends first
};

/// Threads that do what would keep those of the connections for too long.
class Workers {
 public:
  /// Does all that was added before it ends.
  explicit Workers(int threads) : threads_(threads, [this] { work(); }, [this] { stop(); }) {}
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  void add(std::function<void()> job) {
    {
      const std::lock_guard lock(mutex_);
      jobs_.push_back(std::move(job));
    }
    changed_.notify_one();
  }

 private:
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
  }
  void work() {
    for (;;) {
      std::function<void()> job;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return !jobs_.empty() || stopping_; });
        if (jobs_.empty()) return;
        job = std::move(jobs_.front());
        jobs_.pop_front();
      }
      job();
    }
  }

  std::mutex mutex_;  ///< of what follows
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool stopping_ = false;
  detail::RunningThreads threads_;
};

namespace {

bool is_number(std::string_view text) {
  return !text.empty() && text.size() < 19 &&
         text.find_first_not_of("0123456789") == std::string_view::npos;
}

bool is_checkpoint(const std::filesystem::path& folder) {
  return std::filesystem::exists(folder / detail::Manifest::kFile);
}

/// A checkpoint's folder, or the last one of a training run's.
std::filesystem::path checkpoint_in(const std::filesystem::path& folder) {
  if (is_checkpoint(folder)) return folder;
  const auto latest = latest_checkpoint(folder);
  require<DataError>(
      latest.has_value(),
      "'{}' is no checkpoint, and holds none: give the folder of a training's --save, "
      "one of its checkpoints, or one whose numbered subfolders are such",
      folder.string());
  return *latest;
}

/// Numbered subfolders are versions; without such the folder is version 1: folders of checkpoints,
/// or checkpoints.
std::map<std::int64_t, std::filesystem::path> versions_in(const std::filesystem::path& folder) {
  std::map<std::int64_t, std::filesystem::path> versions;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    if (entry.is_directory() && is_number(entry.path().filename().string())) {
      const auto [version, added] =
          versions.emplace(std::stoll(entry.path().filename().string()), entry.path());
      require<DataError>(added, "'{}' and '{}' are the same version", version->second.string(),
                         entry.path().string());
    }
  require<DataError>(!error, "cannot read the folder '{}': {}", folder.string(), error.message());
  if (versions.empty()) versions[1] = folder;
  return versions;
}

/// Percent escapes of a URL's part.
std::string unescaped(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned code = 0;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(text.data() + i + 1, text.data() + i + 3, code, 16).ptr ==
            text.data() + i + 3) {
      plain.push_back(static_cast<char>(code));
      i += 2;
    } else {
      plain.push_back(text[i]);
    }
  }
  return plain;
}

/// The parts of a path; of a whole URL, which a request may have in its place, those of its path.
std::vector<std::string> path_of(std::string_view target) {
  if (const std::size_t scheme = target.find("://");
      scheme != std::string_view::npos && scheme < target.find('/')) {
    target.remove_prefix(scheme + 3);
    target.remove_prefix(std::min(target.find_first_of("/?"), target.size()));
  }
  target = target.substr(0, target.find('?'));
  std::vector<std::string> parts;
  while (!target.empty()) {
    target.remove_prefix(1);  // the slash
    const std::size_t end = std::min(target.find('/'), target.size());
    parts.push_back(unescaped(target.substr(0, end)));
    target.remove_prefix(end);
  }
  while (!parts.empty() && parts.back().empty()) parts.pop_back();
  return parts;
}

/// A label's value, as Prometheus reads it.
std::string label_text(std::string_view value) {
  std::string out;
  for (const char c : value) {
    if (c == '"' || c == '\\') out.push_back('\\');
    c == '\n' ? out += "\\n" : out += c;
  }
  return out;
}

std::string json_string(std::string_view text) {
  std::string out;
  detail::append_json_string(out, text);
  return out;
}

/// Throws Refusal if the reply is long, and all requests would hold too much with it.
void pack(HttpReply& reply, Coding coding, Held* held) {
  // short replies go out all the same: a probe of the server's health
  constexpr std::size_t kShort = std::size_t{16} << 10;
  if (coding != Coding::identity) reply.body = packed(reply.body, coding);
  reply.coding = coding;
  if (held != nullptr && !held->set(reply.body.size()) && reply.body.size() > kShort)
    throw Refusal(503, kHeldTooMuch);
}

}  // namespace

struct Service::Parts {
  explicit Parts(const ServiceOptions& given) : options(given) {
    const BatchingOptions batching{.max_samples = options.batch_samples,
                                   .max_delay = std::chrono::microseconds(options.batch_delay_us),
                                   .threads = options.threads,
                                   .max_waiting = options.most_waiting};
    for (const ModelSource& source : options.models) {
      auto& versions = models[source.name];
      require<InvalidArgument>(versions.empty(), "two models are named '{}'", source.name);
      for (const auto& [number, folder] : versions_in(source.folder))
        versions[number] = std::make_unique<Version>(
            std::to_string(number), source.name, checkpoint_in(folder),
            is_checkpoint(folder) ? 0 : options.watch_seconds,
            FrozenModelOptions{.format = parse_row_format(options.format)}, batching, options.log);
    }
  }

  using Versions = std::map<std::int64_t, std::unique_ptr<Version>>;

  Versions& versions_of(const std::string& model) {
    const auto found = models.find(model);
    if (found == models.end()) {
      std::string names;
      for (const auto& [name, versions] : models)
        names += fmt::format("{}{}", names.empty() ? "" : ", ", detail::quoted(name));
      throw Refusal(
          404, fmt::format("there is no model {}; there are {}", detail::quoted(model), names));
    }
    return found->second;
  }
  /// `number`: empty for the highest.
  Version& version_of(const std::string& model, const std::string& number) {
    Versions& versions = versions_of(model);
    if (number.empty()) return *versions.rbegin()->second;
    const auto found = is_number(number) ? versions.find(std::stoll(number)) : versions.end();
    if (found == versions.end())
      throw Refusal(
          404, fmt::format("model {} has no version {}; the highest is {}", detail::quoted(model),
                           detail::quoted(number), versions.rbegin()->first));
    return *found->second;
  }

  /// What a request asks for.
  enum class Asks : std::uint8_t {
    metrics,
    server,
    live,
    ready,
    index,
    model,
    model_ready,
    config,
    statistics,
    infer
  };
  struct Route {
    Asks asks;
    std::string name{};                ///< of the model
    Version* version = nullptr;        ///< null: of none
    Coding coding = Coding::identity;  ///< of the request's body
  };
  /// Throws Refusal.
  Route route(const HttpRequest& http) {
    const std::vector<std::string> path = path_of(http.target);
    const auto is = [&](std::size_t i, std::string_view word) {
      return i < path.size() && path[i] == word;
    };
    const auto found = [&](std::string_view method, Route route) {
      if (http.method != method)
        throw Refusal(405,
                      fmt::format("{} of {} is not served; use {}", detail::quoted(http.method),
                                  detail::quoted(http.target), method));
      return route;
    };
    if (path.size() == 1 && is(0, "metrics")) return found("GET", {Asks::metrics});
    if (path.size() == 1 && is(0, "v2")) return found("GET", {Asks::server});
    if (path.size() == 3 && is(0, "v2") && is(1, "health") && (is(2, "live") || is(2, "ready")))
      return found("GET", {is(2, "live") ? Asks::live : Asks::ready});
    if (path.size() == 3 && is(0, "v2") && is(1, "repository") && is(2, "index"))
      return found("POST", {Asks::index});
    const bool versioned = is(3, "versions") && path.size() >= 5;
    const std::size_t verb = versioned ? 5 : 3;
    if (path.size() < 3 || !is(0, "v2") || !is(1, "models") || path.size() > verb + 1)
      throw Refusal(
          404, fmt::format("there is no {}; there are /v2, /v2/health/live, "
                           "/v2/health/ready, /v2/models/NAME[/versions/N], the same with "
                           "/ready, /config, /stats or /infer behind it, /v2/repository/index, "
                           "and /metrics",
                           detail::quoted(http.target)));
    Version* const version = &version_of(path[2], versioned ? path[4] : "");
    if (path.size() == verb) return found("GET", {Asks::model, path[2], version});
    if (is(verb, "ready")) return found("GET", {Asks::model_ready, path[2], version});
    if (is(verb, "config")) return found("GET", {Asks::config, path[2], version});
    if (is(verb, "stats"))
      return found("GET", {Asks::statistics, path[2], versioned ? version : nullptr});
    if (!is(verb, "infer"))
      throw Refusal(404, fmt::format("{} of a model is not served; there are ready, config, stats "
                                     "and infer",
                                     detail::quoted(path[verb])));
    Route infer = found("POST", {Asks::infer, path[2], version});
    const std::optional<Coding> coding = coding_of(http.encoding);
    if (!coding)
      throw Refusal(415, fmt::format("bodies of Content-Encoding {} are not read; send gzip or "
                                     "deflate, one of them, or the plain body",
                                     detail::quoted(http.encoding)));
    infer.coding = *coding;
    return infer;
  }

  void count(int status) {
    const std::lock_guard lock(mutex);
    ++statuses[status];
  }

  std::string metrics() {
    std::string out =
        "# HELP serve_replies_total Replies by status of HTTP.\n# TYPE serve_replies_total "
        "counter\n";
    {
      const std::lock_guard lock(mutex);
      for (const auto& [status, n] : statuses)
        out += fmt::format("serve_replies_total{{status=\"{}\"}} {}\n", status, n);
    }
    out += fmt::format(
        "# HELP serve_requests_in_flight Inference requests that are not answered yet.\n# TYPE "
        "serve_requests_in_flight gauge\nserve_requests_in_flight {}\n",
        in_flight.load());
    const auto each = [&](std::string_view head, const auto& line) {
      out += head;
      for (const auto& [name, versions] : models)
        for (const auto& [number, version] : versions)
          out +=
              line(fmt::format("model=\"{}\",version=\"{}\"", label_text(name), number), *version);
    };
    each(
        "# HELP serve_model_step The training step of the model that is served.\n# TYPE "
        "serve_model_step gauge\n",
        [](const std::string& labels, const Version& v) {
          return fmt::format("serve_model_step{{{}}} {}\n", labels, v.served()->model->step());
        });
    each(
        "# HELP serve_looks_refused_total Looks at a training run's folder that ended with an "
        "error.\n# TYPE serve_looks_refused_total counter\n",
        [](const std::string& labels, const Version& v) {
          const auto status = v.watched();
          return status
                     ? fmt::format("serve_looks_refused_total{{{}}} {}\n", labels, status->refused)
                     : "";
        });
    each(
        "# HELP serve_samples_total Samples that were scored.\n# TYPE serve_samples_total "
        "counter\n",
        [](const std::string& labels, const Version& v) {
          return fmt::format("serve_samples_total{{{}}} {}\n", labels, v.samples.load());
        });
    each(
        "# HELP serve_request_seconds From a request's last byte to its scores.\n# TYPE "
        "serve_request_seconds histogram\n",
        [](const std::string& labels, const Version& v) {
          return v.seconds.text("serve_request_seconds", labels);
        });
    return out;
  }

  ServiceOptions options;
  std::atomic<bool> leaving{false};
  std::atomic<std::int64_t> in_flight{0};
  std::mutex mutex;  ///< of what follows
  std::map<int, std::uint64_t> statuses;
  std::map<std::string, Versions> models;  ///< answers what waits, when it ends
  Workers readers{options.threads};        ///< ends first: what it reads goes to the models
};

/// An inference request from its body to its reply. Ends itself.
struct Service::Inference {
  Clock::time_point begin = Clock::now();
  Coding coding = Coding::identity, reply_coding = Coding::identity;
  std::string name;  ///< of the model
  Version* version = nullptr;
  std::int64_t step = 0;  ///< of the model that scores it
  HttpRequest http;
  std::function<void(HttpReply)> reply;
  InferRequest request;
  EncodedSamples samples;
  std::vector<float> scores;
  BatchingScorer::Request scoring;
};

Service::Service(const ServiceOptions& options) : parts_(std::make_unique<Parts>(options)) {}
Service::~Service() = default;

void Service::leave() { parts_->leaving = true; }

HttpReply Service::refusal(int status, const std::string& text) {
  parts_->count(status);
  return {.status = status, .body = error_body(text)};
}

std::vector<std::string> Service::descriptions() const {
  std::vector<std::string> lines;
  for (const auto& [name, versions] : parts_->models)
    for (const auto& [number, version] : versions) {
      const std::shared_ptr<Served> served = version->served();
      lines.push_back(fmt::format("{} version {}: {} ({}, step {}, {} bytes of tables in {})", name,
                                  number, served->checkpoint.string(),
                                  served->model->description().interaction, served->model->step(),
                                  served->model->tables().bytes(), parts_->options.format));
    }
  return lines;
}

bool Service::takes_body(const HttpRequest& request) const {
  try {
    return parts_->route(request).asks == Parts::Asks::infer;
  } catch (const Refusal&) {
    return false;
  }
}

void Service::handle(HttpRequest http, std::function<void(HttpReply)> reply) {
  // Bodies of one sample, or of some, are read at once.
  constexpr std::size_t kLong = std::size_t{64} << 10;
  Parts& parts = *parts_;
  answer_faults(reply, [&] {
    const Parts::Route route = parts.route(http);
    const std::optional<Coding> accepted = accepted_coding(
        http.accepts ? std::optional<std::string_view>(*http.accepts) : std::nullopt);
    if (!accepted)
      throw Refusal(406, fmt::format("replies are plain, gzip or deflate, and Accept-Encoding {} "
                                     "takes none of them; leave it out",
                                     detail::quoted(*http.accepts)));
    const auto answer = [&](HttpReply made) {
      pack(made, *accepted, http.held);
      parts.count(made.status);
      reply(std::move(made));
    };
    if (parts.leaving &&
        (route.asks == Parts::Asks::ready || route.asks == Parts::Asks::model_ready))
      throw Refusal(503, "the server is about to end; send requests to another");
    switch (route.asks) {
      case Parts::Asks::metrics:
        return answer({.type = "text/plain; version=0.0.4", .body = parts.metrics()});
      case Parts::Asks::server:
        return answer({.body = server_metadata()});
      case Parts::Asks::live:
        return answer({.body = "{\"live\":true}"});
      case Parts::Asks::ready:
        return answer({.body = "{\"ready\":true}"});
      case Parts::Asks::model_ready:
        return answer(
            {.body = fmt::format("{{\"name\":{},\"ready\":true}}", json_string(route.name))});
      case Parts::Asks::model: {
        std::vector<std::string> numbers;
        for (const auto& [number, other] : parts.versions_of(route.name))
          numbers.push_back(std::to_string(number));
        const std::shared_ptr<Served> served = route.version->served();
        return answer({.body = model_metadata(route.name, numbers, served->model->step(),
                                              served->model->description())});
      }
      case Parts::Asks::config:
        return answer(
            {.body = model_config(route.name, route.version->served()->model->description(),
                                  parts.options.most_samples)});
      case Parts::Asks::statistics: {
        std::vector<VersionStatistics> all;
        for (const auto& [number, version] : parts.versions_of(route.name))
          if (route.version == nullptr || route.version == version.get())
            all.push_back({version->number, version->samples, version->seconds.count(),
                           version->seconds.nanoseconds(), version->last_ms});
        return answer({.body = model_statistics(route.name, all)});
      }
      case Parts::Asks::index: {
        std::string body;
        for (const auto& [name, versions] : parts.models)
          for (const auto& [number, version] : versions)
            body += fmt::format("{}{{\"name\":{},\"version\":\"{}\",\"state\":\"READY\"}}",
                                body.empty() ? "" : ",", json_string(name), number);
        return answer({.body = "[" + body + "]"});
      }
      case Parts::Asks::infer:
        break;
    }
    auto inference = std::make_shared<Inference>();
    inference->name = route.name;
    inference->version = route.version;
    inference->http = std::move(http);
    inference->reply = reply;
    inference->coding = route.coding;
    inference->reply_coding = *accepted;
    // a short body may unpack to a long one
    if (inference->http.body.size() <= kLong && route.coding == Coding::identity)
      return infer(inference);
    parts.readers.add([this, inference = std::move(inference)] { infer(inference); });
  });
}

/// Reads a request and gives it to its model's scorer.
void Service::infer(const std::shared_ptr<Inference>& inference) {
  Parts& parts = *parts_;
  answer_faults(inference->reply, [&] {
    // not kept by the request, which ends on a thread of its scorer; a scorer answers all
    const std::shared_ptr<Served> served = inference->version->served();
    const FrozenModel& model = *served->model;
    inference->step = model.step();
    Held* const held = inference->http.held;
    const auto hold = [&](std::uint64_t bytes) {
      if (held != nullptr && !held->set(bytes)) throw Refusal(503, kHeldTooMuch);
    };
    if (inference->coding != Coding::identity) {
      std::string& body = inference->http.body;
      body = unpacked(body, inference->coding, inference->http.most_body,
                      [&](std::uint64_t bytes) { hold(body.capacity() + bytes); });
      hold(body.capacity());
    }
    std::optional<std::string_view> json_bytes;
    if (inference->http.json_bytes) json_bytes = *inference->http.json_bytes;
    InferRequest& request = inference->request;
    EncodedSamples& samples = inference->samples;
    request = parse_infer_request(inference->http.body, json_bytes,
                                  {parts.options.most_samples, [&](std::uint64_t bytes) {
                                     hold((held == nullptr ? 0 : held->bytes()) + bytes);
                                   }});
    model.inputs().encode(columns_of(request, model.description(), parts.options.most_samples),
                          samples);
    inference->scores.resize(static_cast<std::size_t>(samples.samples));
    // all that is needed from here on
    request.inputs = {};
    inference->http.body = {};
    hold(sizeof(float) * (samples.numbers.capacity() + samples.event_numbers.capacity() +
                          inference->scores.capacity()) +
         sizeof(std::int64_t) * (samples.rows.capacity() + samples.offsets.capacity()));
    inference->scoring.samples = &samples;
    inference->scoring.scores = inference->scores;
    inference->scoring.done = [this, inference](std::exception_ptr error) {
      Version& version = *inference->version;
      HttpReply made;
      // what is wrong with the samples is an InvalidArgument, as where they are encoded
      answer_faults(inference->reply, [&] {
        --parts_->in_flight;
        if (error) std::rethrow_exception(error);
        version.samples += inference->scores.size();
        version.seconds.add(std::chrono::duration<double>(Clock::now() - inference->begin).count());
        version.last_ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                              std::chrono::system_clock::now().time_since_epoch())
                              .count();
        Reply scored = infer_reply(inference->name, version.number, inference->step,
                                   inference->request, inference->scores);
        made.body = std::move(scored.body);
        made.json_bytes = scored.json_bytes;
        if (scored.json_bytes > 0) made.type = "application/octet-stream";
        pack(made, inference->reply_coding, inference->http.held);
        parts_->count(made.status);
        inference->reply(std::move(made));
      });
    };
    ++parts.in_flight;
    if (!served->scorer.submit(inference->scoring)) {
      --parts.in_flight;
      inference->scoring.done = nullptr;  // it owns itself
      throw Refusal(503, "too many requests wait for this model; try again in a second");
    }
  });
}

/// Does f, and replies with what it throws.
template <class F>
void Service::answer_faults(const std::function<void(HttpReply)>& reply, const F& f) {
  const auto refuse = [&](int status, const std::string& text) { reply(refusal(status, text)); };
  try {
    f();
  } catch (const Refusal& refused) {
    refuse(refused.status, refused.what());
  } catch (const InvalidArgument& error) {
    refuse(400, error.what());
  } catch (const std::bad_alloc&) {
    refuse(503, "the server has no memory left for this request");
  } catch (const std::exception& error) {
    refuse(500, error.what());
  }
}

}  // namespace serve
