// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Serves models that train_dlrm or train_sequence saved, by the KServe v2 inference protocol over
// HTTP and gRPC: what tritonclient and other clients of NVIDIA Triton speak.
//   serve_model --checkpoint run7 --port 8000
//   serve_model --help
#include "serve_model/grpc.hpp"
#include "serve_model/http.hpp"
#include "serve_model/service.hpp"
#include "support/options.hpp"

#include <tessera/core/error.hpp>
#include <tessera/io/text.hpp>
#include <tessera/version.hpp>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

struct Options {
  serve::ServiceOptions service;
  serve::HttpOptions http;
  int grpc_port = -1;  ///< below 0: no gRPC
};

std::optional<Options> parse(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Serves models that train_dlrm or train_sequence saved, by the KServe v2 inference protocol "
      "over HTTP and gRPC (NVIDIA Triton's clients). Numbers are FP32 [n,1], NaN for an empty "
      "field; "
      "categories BYTES as in the data, or INT64 rows; lists their values and lengths; "
      "the output is 'score', FP32 [n,1].",
      "serve_model");
  app.option_defaults()->always_capture_default();
  std::string checkpoint, name = "model";
  std::vector<std::string> models;
  app.option_defaults()->group("Models");
  app.add_option("--checkpoint", checkpoint,
                 "Folder of a training's --save, whose last checkpoint is taken; one of its "
                 "checkpoints; or one whose numbered subfolders are such, as versions")
      ->option_text("DIR");
  app.add_option("--name", name, "Of that model");
  app.add_option("--model", models, "The same for several models")->option_text("NAME=DIR ...");
  app.add_option("--format", options.service.format, "Of the tables' rows in memory")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16", "int8", "int8-half", "int4"}));
  const auto seconds = [&](const char* option, double& value, const char* what) {
    support::limit(app.add_option(option, value, what), 0.0, 1e6, "SECONDS",
                   fmt::format("{}", value));
  };
  seconds("--watch", options.service.watch_seconds,
          "Follow the training: how often to look for a newer checkpoint in folders of "
          "--save, which then takes the place of the old one; 0: never");
  app.option_defaults()->group("Scoring");
  app.add_option("--threads", options.service.threads, "That score, for each model")
      ->check(CLI::Range(1, 256));
  app.add_option("--max-samples", options.service.most_samples, "Of a request")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24));
  app.add_option("--batch-samples", options.service.batch_samples,
                 "Requests are scored together up to so many samples")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20));
  app.add_option("--batch-delay-us", options.service.batch_delay_us,
                 "How long a request waits for others to be scored with it")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{10'000'000}));
  app.add_option("--max-waiting", options.service.most_waiting,
                 "Samples that may wait for a model; further requests are answered 503")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  app.option_defaults()->group("Connections");
  app.add_option("--host", options.http.host, "Address to listen on; 0.0.0.0: all");
  app.add_option("--port", options.http.port, "0: any that is free")->check(CLI::Range(0, 65535));
  app.add_option("--grpc-port", options.grpc_port, "Of gRPC beside HTTP, as Triton's 8001; 0: any")
      ->check(CLI::Range(0, 65535))
      ->option_text("PORT [none]");
  app.add_option("--http-threads", options.http.threads, "That read and write")
      ->check(CLI::Range(1, 256));
  app.add_option("--max-body", options.http.most_body, "Of a request: 64MiB")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 40));
  app.add_option("--max-memory", options.http.most_memory,
                 "Of all requests, with what is read of them and their replies")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 50));
  app.add_option("--max-connections", options.http.most_connections,
                 "Further ones wait to be accepted")
      ->check(CLI::Range(1, 1'000'000));
  seconds("--request-timeout", options.http.request_seconds,
          "From a request's first byte to its last, and for its answer");
  seconds("--idle-timeout", options.http.idle_seconds, "Between requests of a connection");
  seconds("--drain", options.http.drain_seconds,
          "After SIGTERM the server says that it is not ready, and still answers for so long");
  if (!support::parse(app, argc, argv)) return std::nullopt;
  tessera::require<CLI::ValidationError>(
      options.grpc_port < 0 || serve::grpc_servers(),
      "--grpc-port: this program was built without gRPC: install libgrpc++-dev libprotobuf-dev "
      "protobuf-compiler-grpc (Debian), configure and build it again");
  if (!checkpoint.empty()) models.insert(models.begin(), name + "=" + checkpoint);
  tessera::require<CLI::ValidationError>(!models.empty(),
                                         "give --checkpoint DIR, or --model NAME=DIR");
  for (const std::string& model : models) {
    const std::size_t equals = model.find('=');
    tessera::require<CLI::ValidationError>(
        equals != std::string::npos && equals > 0 && equals + 1 < model.size() &&
            model.find('/') > equals &&
            tessera::detail::is_utf8(std::string_view(model).substr(0, equals)),
        "--model: {} is not NAME=DIR, with a name in UTF-8 without slashes",
        tessera::detail::quoted(model));
    options.service.models.push_back({model.substr(0, equals), model.substr(equals + 1)});
  }
  return options;
}

void run(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a client that is gone is an error of its connection
#ifdef __GLIBC__
  // Long bodies go back to the system when they end; by itself glibc keeps ever longer ones.
  ::mallopt(M_MMAP_THRESHOLD, 1 << 20);
#endif
  auto options = parse(argc, argv);
  if (!options) return;
  options->service.log = [](const std::string& line) {
    fmt::print("{}\n", line);
    std::fflush(stdout);
  };
  serve::Service service(options->service);
  for (const std::string& line : service.descriptions()) fmt::print("{}\n", line);
  std::unique_ptr<serve::GrpcServer> grpc;
  if (options->grpc_port >= 0) {
    grpc = serve::grpc_servers()(service, options->http, options->grpc_port);
    fmt::print("serving gRPC on {}:{}\n", options->http.host, grpc->port());
  }
  serve::serve_http(service, options->http, [&](int port) {
    fmt::print("serving on http://{}:{}\n", options->http.host, port);
    std::fflush(stdout);
  });
  grpc.reset();
  fmt::print("all requests are answered\n");
}

}  // namespace

int main(int argc, char** argv) {
  return support::run_program("serve_model", "give a smaller --max-memory, or fewer models", [&] {
    run(argc, argv);
    return 0;
  });
}
