// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Each call becomes the request of HTTP that asks for the same, with binary tensors, and its JSON the answer: what is checked, counted and
// refused is the same.
#include "grpc.hpp"

#include <tessera/core/error.hpp>
#include <tessera/io/json_reader.hpp>

#include <fmt/format.h>
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/stubs/common.h>
#include <google/protobuf/util/json_util.h>
#include <grpcpp/grpcpp.h>
#include <inference.grpc.pb.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace serve { namespace {

namespace pb = google::protobuf;
using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;
using grpc::Status;
using grpc::StatusCode;

std::string json_string(std::string_view text) {
  std::string out;
  tessera::detail::append_json_string(out, text);
  return out;
}

/// Reads the JSON of a reply, whose members may be more than the message has.
bool read_json(std::string_view json, pb::Message* message) {
  pb::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  return pb::util::JsonStringToMessage({json.data(), json.size()}, message, options).ok();
}

std::string text_of(const pb::Struct& object, const std::string& key) {
  const auto found = object.fields().find(key);
  return found == object.fields().end() ? std::string() : found->second.string_value();
}

Status status_of(const HttpReply& reply) {
  if (reply.status == 200) return Status::OK;
  pb::Struct body;
  read_json(reply.body, &body);
  const StatusCode code = reply.status == 400   ? StatusCode::INVALID_ARGUMENT
                          : reply.status == 404 ? StatusCode::NOT_FOUND
                          : reply.status == 413 ? StatusCode::RESOURCE_EXHAUSTED
                          : reply.status == 503 ? StatusCode::UNAVAILABLE
                                                : StatusCode::INTERNAL;
  return {code, text_of(body, "error")};
}

/// The path of a model, as HTTP asks for it.
std::string path_of(const std::string& model, const std::string& version, std::string_view verb) {
  const auto escaped = [](const std::string& text) {
    std::string out;
    for (const char c : text) out += fmt::format("%{:02x}", static_cast<unsigned char>(c));
    return out;
  };
  return fmt::format("/v2/models/{}{}{}", escaped(model),
                     version.empty() ? "" : "/versions/" + escaped(version), verb);
}

/// The bytes of a tensor that came as a list of numbers or texts.
std::string raw_contents(const inference::ModelInferRequest::InferInputTensor& tensor) {
  const inference::InferTensorContents& contents = tensor.contents();
  const auto bytes = [](const auto& values) {
    return std::string(reinterpret_cast<const char*>(values.data()),
                       static_cast<std::size_t>(values.size()) * sizeof(*values.data()));
  };
  if (tensor.datatype() == "FP32") return bytes(contents.fp32_contents());
  if (tensor.datatype() == "FP64") return bytes(contents.fp64_contents());
  if (tensor.datatype() == "INT64") return bytes(contents.int64_contents());
  std::string raw;
  for (const std::string& text : contents.bytes_contents()) {
    const auto length = static_cast<std::uint32_t>(text.size());
    raw.append(reinterpret_cast<const char*>(&length), sizeof(length));
    raw += text;
  }
  return raw;
}

/// Writes the body of HTTP: JSON, then the tensors; returns the bytes of JSON.
std::size_t write_body(const inference::ModelInferRequest& request, std::string& body) {
  const bool raw = request.raw_input_contents_size() > 0;
  std::string json = "{\"parameters\":{\"binary_data_output\":true},\"inputs\":[", tensors;
  if (!request.id().empty()) json.insert(1, "\"id\":" + json_string(request.id()) + ",");
  for (int i = 0; i < request.inputs_size(); ++i) {
    const auto& input = request.inputs(i);
    const std::size_t before = tensors.size();
    tensors += raw ? request.raw_input_contents(i) : raw_contents(input);
    json += fmt::format(
        "{}{{\"name\":{},\"datatype\":{},\"shape\":[{}],\"parameters\":{{\"binary_data_size\":{}}}}"
        "}",
        i == 0 ? "" : ",", json_string(input.name()), json_string(input.datatype()),
        fmt::join(input.shape(), ","), tensors.size() - before);
  }
  json += "],\"outputs\":[";
  for (int i = 0; i < request.outputs_size(); ++i)
    json += fmt::format(
        "{}{{\"name\":{},\"parameters\":{{{}}}}}", i == 0 ? "" : ",",
        json_string(request.outputs(i).name()),
        request.outputs(i).parameters().count("classification") > 0 ? "\"classification\":1" : "");
  json += "]}";
  const std::size_t bytes = json.size();
  body = std::move(json);
  body += tensors;
  return bytes;
}

/// Puts a reply of HTTP, JSON and then floats, in the call's. Lists of numbers get one back.
bool read_reply(const HttpReply& reply, bool raw, inference::ModelInferResponse& response) {
  const std::string_view body = reply.body;
  pb::Struct json;
  if (!read_json(body.substr(0, reply.json_bytes), &json)) return false;
  const std::string_view scores = body.substr(reply.json_bytes);
  const std::size_t count = scores.size() / sizeof(float);
  response.set_model_name(text_of(json, "model_name"));
  response.set_model_version(text_of(json, "model_version"));
  response.set_id(text_of(json, "id"));
  const double step =
      json.fields().at("parameters").struct_value().fields().at("step").number_value();
  (*response.mutable_parameters())["step"].set_int64_param(static_cast<std::int64_t>(step));
  auto& output = *response.add_outputs();
  output.set_name("score");
  output.set_datatype("FP32");
  output.add_shape(static_cast<std::int64_t>(count));
  output.add_shape(1);
  if (raw) {
    response.add_raw_output_contents(scores.data(), scores.size());
  } else {
    auto& list = *output.mutable_contents()->mutable_fp32_contents();
    list.Resize(static_cast<int>(count), 0);
    if (count > 0) std::memcpy(list.mutable_data(), scores.data(), scores.size());
  }
  return true;
}

class Calls final : public inference::GRPCInferenceService::CallbackService {
 public:
  Calls(serve::Service& service, const HttpOptions& options)
      : service_(service), options_(options) {}

  ServerUnaryReactor* ServerLive(CallbackServerContext* context,
                                 const inference::ServerLiveRequest*,
                                 inference::ServerLiveResponse* response) override {
    return ask(context, "/v2/health/live", response);
  }
  ServerUnaryReactor* ServerReady(CallbackServerContext* context,
                                  const inference::ServerReadyRequest*,
                                  inference::ServerReadyResponse* response) override {
    return ask_ready(context, "/v2/health/ready", response);
  }
  ServerUnaryReactor* ModelReady(CallbackServerContext* context,
                                 const inference::ModelReadyRequest* request,
                                 inference::ModelReadyResponse* response) override {
    return ask_ready(context, path_of(request->name(), request->version(), "/ready"), response);
  }
  ServerUnaryReactor* ServerMetadata(CallbackServerContext* context,
                                     const inference::ServerMetadataRequest*,
                                     inference::ServerMetadataResponse* response) override {
    return ask(context, "/v2", response);
  }
  ServerUnaryReactor* ModelMetadata(CallbackServerContext* context,
                                    const inference::ModelMetadataRequest* request,
                                    inference::ModelMetadataResponse* response) override {
    return ask(context, path_of(request->name(), request->version(), ""), response);
  }
  ServerUnaryReactor* ModelConfig(CallbackServerContext* context,
                                  const inference::ModelConfigRequest* request,
                                  inference::ModelConfigResponse* response) override {
    return ask(context, path_of(request->name(), request->version(), "/config"),
               response->mutable_config());
  }
  ServerUnaryReactor* ModelStatistics(CallbackServerContext* context,
                                      const inference::ModelStatisticsRequest* request,
                                      inference::ModelStatisticsResponse* response) override {
    return ask(context, path_of(request->name(), request->version(), "/stats"), response);
  }
  ServerUnaryReactor* RepositoryIndex(CallbackServerContext* context,
                                      const inference::RepositoryIndexRequest*,
                                      inference::RepositoryIndexResponse* response) override {
    return call(context, {.method = "POST", .target = "/v2/repository/index"},
                [response](HttpReply& reply) {
                  if (reply.status == 200) reply.body = "{\"models\":" + reply.body + "}";
                  return answered(reply, response);
                });
  }

  ServerUnaryReactor* ModelInfer(CallbackServerContext* context,
                                 const inference::ModelInferRequest* request,
                                 inference::ModelInferResponse* response) override {
    ServerUnaryReactor* const reactor = context->DefaultReactor();
    const bool raw = request->raw_input_contents_size() > 0;
    if (raw && request->raw_input_contents_size() != request->inputs_size()) {
      reactor->Finish(
          {StatusCode::INVALID_ARGUMENT,
           fmt::format("{} raw_input_contents for {} inputs; give one of each, or lists "
                       "of all in 'contents'",
                       request->raw_input_contents_size(), request->inputs_size())});
      return reactor;
    }
    // the message stays until it is answered, beside the request that is made of it
    struct Bytes {
      Held message, request;
      Bytes(std::atomic<std::uint64_t>& all, std::uint64_t most)
          : message(all, most), request(all, most) {}
    };
    const auto held = std::make_shared<Bytes>(service_.held_bytes(), options_.most_memory);
    const std::uint64_t size = request->ByteSizeLong();
    if (!held->message.set(size) || !held->request.set(2 * size)) {
      reactor->Finish({StatusCode::UNAVAILABLE, kHeldTooMuch});
      service_.refusal(503, kHeldTooMuch);
      return reactor;
    }
    HttpRequest http{.method = "POST",
                     .target = path_of(request->model_name(), request->model_version(), "/infer"),
                     .held = &held->request};
    http.json_bytes = std::to_string(write_body(*request, http.body));
    service_.handle(std::move(http), [reactor, response, raw, held](HttpReply reply) {
      const Status status = reply.status != 200 ? status_of(reply)
                            : read_reply(reply, raw, *response)
                                ? Status::OK
                                : Status(StatusCode::INTERNAL, "the reply is no JSON");
      reactor->Finish(status);
    });
    return reactor;
  }

 private:
  static Status answered(const HttpReply& reply, pb::Message* response) {
    if (reply.status != 200) return status_of(reply);
    return read_json(reply.body, response) ? Status::OK
                                           : Status(StatusCode::INTERNAL, "the reply is no JSON");
  }
  /// Calls `answer(reply)` with what the service answers.
  template <class Answer>
  ServerUnaryReactor* call(CallbackServerContext* context, HttpRequest request, Answer answer) {
    ServerUnaryReactor* const reactor = context->DefaultReactor();
    service_.handle(std::move(request),
                    [reactor, answer](HttpReply reply) { reactor->Finish(answer(reply)); });
    return reactor;
  }
  ServerUnaryReactor* ask(CallbackServerContext* context, std::string target,
                          pb::Message* response) {
    return call(context, {.method = "GET", .target = std::move(target)},
                [response](HttpReply& reply) { return answered(reply, response); });
  }
  /// A server that is about to end, or has no such model, answers that it is not ready.
  ServerUnaryReactor* ask_ready(CallbackServerContext* context, std::string target,
                                pb::Message* response) {
    return call(context, {.method = "GET", .target = std::move(target)},
                [response](HttpReply& reply) {
                  if (reply.status == 503 || reply.status == 404) return Status::OK;
                  return answered(reply, response);
                });
  }

  serve::Service& service_;  // the base class has one of its own
  const HttpOptions& options_;
};

class Server final : public GrpcServer {
 public:
  Server(Service& service, const HttpOptions& options, int port)
      : calls_(service, options), seconds_(options.request_seconds) {
#if GOOGLE_PROTOBUF_VERSION < 4022000
    pb::SetLogHandler(nullptr);  // a line of the log for each message that is damaged
#endif
    constexpr std::uint64_t kMost = std::numeric_limits<int>::max();
    grpc::ResourceQuota memory;
    memory.Resize(options.most_memory);
    grpc::ServerBuilder builder;
    builder.SetResourceQuota(memory);
    builder.SetMaxReceiveMessageSize(static_cast<int>(std::min(options.most_body, kMost)));
    builder.SetMaxSendMessageSize(-1);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS,
                               static_cast<int>(std::min(options.idle_seconds * 1e3, 1e9)));
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // a port has one server
    const std::string host =
        options.host.find(':') == std::string::npos ? options.host : "[" + options.host + "]";
    builder.AddListeningPort(fmt::format("{}:{}", host, port), grpc::InsecureServerCredentials(),
                             &port_);
    builder.RegisterService(&calls_);
    server_ = builder.BuildAndStart();
    tessera::require<tessera::Error>(server_ != nullptr && port_ != 0,
                                     "--grpc-port: cannot listen on {}, port {}; give another",
                                     options.host, port);
  }
  ~Server() override {
    server_->Shutdown(std::chrono::system_clock::now() +
                      std::chrono::milliseconds(static_cast<std::int64_t>(seconds_ * 1e3)));
  }
  int port() const override { return port_; }

 private:
  Calls calls_;
  double seconds_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

[[maybe_unused]] const bool added = [] {
  grpc_servers() = [](Service& service, const HttpOptions& options, int port) {
    return std::make_unique<Server>(service, options, port);
  };
  return true;
}();

}}  // namespace serve::
