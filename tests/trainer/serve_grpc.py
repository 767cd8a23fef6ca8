#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""serve_model's gRPC, by NVIDIA's client, against its HTTP and against the trainer.

    serve_grpc.py BIN ROOT    BIN: the folder of train_dlrm and serve_model; ROOT: the repository

Exit code 77: serve_model was built without gRPC, or there is no tritonclient[grpc].
"""
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

try:
    import grpc
    import numpy as np
    import tritonclient.grpc as client
    from google.protobuf import descriptor_pb2
    from tritonclient.grpc import model_config_pb2, service_pb2, service_pb2_grpc
except (ImportError, RuntimeError):  # the latter if it is installed for HTTP alone
    print("skipped: no tritonclient[grpc] (pip install 'tritonclient[grpc]')")
    sys.exit(77)

import serve_model as plain
from serve_model import check

binaries, root = map(pathlib.Path, sys.argv[1:3])
CODE = grpc.StatusCode


def test_numbers(folder):
    """Names, numbers and types of all members are those of NVIDIA's client."""
    protoc = shutil.which("protoc")
    if protoc is None:
        print("no protoc: the numbers of members are not compared")
        return
    source = root / "examples/serve_model/inference.proto"
    subprocess.run([protoc, f"-I{source.parent}", f"--descriptor_set_out={folder / 'set'}", source], check=True)
    (file,) = descriptor_pb2.FileDescriptorSet.FromString((folder / "set").read_bytes()).file
    compared = 0

    def compare(message, theirs):
        nonlocal compared
        for field in message.field:
            other = theirs.fields_by_name[field.name]
            type_name = (other.message_type or other.enum_type).full_name if other.message_type or other.enum_type else ""
            repeated = other.is_repeated if hasattr(other, "is_repeated") else other.label == other.LABEL_REPEATED
            check((field.number, field.type, field.type_name.lstrip(".")) == (other.number, other.type, type_name), theirs.full_name, field)
            check((field.label == field.LABEL_REPEATED) == repeated, theirs.full_name, field)
            compared += 1
        for nested in message.nested_type:
            compare(nested, theirs.nested_types_by_name[nested.name])

    for message in file.message_type:
        theirs = service_pb2 if hasattr(service_pb2, message.name) else model_config_pb2
        compare(message, getattr(theirs, message.name).DESCRIPTOR)
    for value in file.enum_type[0].value:
        check(model_config_pb2.DataType.Value(value.name) == value.number, value)
    (service,) = file.service
    theirs = service_pb2.DESCRIPTOR.services_by_name[service.name]
    check(f"{file.package}.{service.name}" == theirs.full_name)
    for method in service.method:
        other = theirs.methods_by_name[method.name]
        check((method.input_type[1:], method.output_type[1:]) == (other.input_type.full_name, other.output_type.full_name), method)
    check(compared > 80, compared)


def serve(*options):
    server = plain.Server(binaries, "--grpc-port", "0", *options)
    server.grpc = server.lines[-2].split()[-1]
    return server


def tensors(columns):
    """Of tritonclient."""
    made = []
    for name, (datatype, shape, values) in columns.items():
        tensor = client.InferInput(name, shape, datatype)
        kinds = {"FP32": np.float32, "FP64": np.float64, "INT64": np.int64}
        tensor.set_data_from_numpy(np.array([v.encode() for v in values] if datatype == "BYTES" else values, kinds.get(datatype, object)).reshape(shape))
        made.append(tensor)
    return made


def typed(model, columns, **more):
    """A request whose tensors are lists of numbers and texts."""
    request = service_pb2.ModelInferRequest(model_name=model, **more)
    for name, (datatype, shape, values) in columns.items():
        tensor = request.inputs.add(name=name, datatype=datatype, shape=shape)
        list_ = {"FP32": "fp32_contents", "FP64": "fp64_contents", "INT64": "int64_contents", "BYTES": "bytes_contents"}[datatype]
        getattr(tensor.contents, list_).extend([v.encode() for v in values] if datatype == "BYTES" else values)
    return request


def refused(code, word, call):
    """Without a code by any."""
    try:
        call()
    except grpc.RpcError as error:
        found, text = error.code(), error.details()
    except client.InferenceServerException as error:
        found, text = error.status(), error.message()
    else:
        raise AssertionError(f"answered: {word}")
    check((code is None or found in (code, f"StatusCode.{code.name}")) and word in text, found, text)


def test_doors(server, triton, stub):
    check(triton.is_server_live() and triton.is_server_ready() and triton.is_model_ready("dot") and triton.is_model_ready("dot", "1"))
    check(not triton.is_model_ready("none") and not triton.is_model_ready("dot", "7"))
    for model, path in (("dot", "/v2/models/dot"), ("csvä", "/v2/models/csv%C3%A4")):
        mine, http = triton.get_model_metadata(model, as_json=True), server.json("GET", path)[1]
        ints = lambda t: {**t, "shape": [int(s) for s in t["shape"]]}
        check([ints(t) for t in mine["inputs"]] == http["inputs"] and [ints(t) for t in mine["outputs"]] == http["outputs"], mine)
        check(all(mine[key] == http[key] for key in ("name", "versions", "platform")), mine)
        mine, http = triton.get_model_config(model, as_json=True)["config"], server.json("GET", path + "/config")[1]
        check(mine["input"] == http["input"] and mine["output"] == http["output"] and mine["backend"] == http["backend"], mine)
        check(mine.get("max_batch_size", 0) == http["max_batch_size"], mine)
    check(triton.get_server_metadata(as_json=True) == server.json("GET", "/v2")[1])
    check(triton.get_model_repository_index(as_json=True)["models"] == server.json("POST", "/v2/repository/index")[1])
    (mine,), (http,) = triton.get_inference_statistics("dot").model_stats, server.json("GET", "/v2/models/dot/stats")[1]["model_stats"]
    check(mine.inference_count == http["inference_count"] > 0 and mine.execution_count == http["execution_count"])
    check(mine.inference_stats.success.ns == http["inference_stats"]["success"]["ns"] and mine.last_inference == http["last_inference"])
    refused(CODE.NOT_FOUND, "'none'", lambda: triton.get_model_metadata("none"))
    refused(CODE.UNIMPLEMENTED, "", lambda: triton.load_model("dot"))


def test_scores(server, triton, stub, model, columns, expected):
    for coding in (None, "gzip", "deflate"):
        reply = triton.infer(model, tensors(columns), request_id="7", compression_algorithm=coding)
        scores = reply.as_numpy("score")
        check(scores.shape == (len(expected), 1) and scores[:, 0].tobytes() == expected.tobytes(), model, "differs from HTTP")
        reply = reply.get_response()
        check(reply.id == "7" and reply.model_name == model and reply.model_version == "1" and reply.parameters["step"].int64_param > 0, reply)
    reply = stub.ModelInfer(typed(model, columns, model_version="1"))
    check(np.array(reply.outputs[0].contents.fp32_contents, np.float32).tobytes() == expected.tobytes() and not reply.raw_output_contents)
    asked = triton.infer(model, tensors(columns), outputs=[client.InferRequestedOutput("score")]).as_numpy("score")
    check(asked[:, 0].tobytes() == expected.tobytes())


def test_wrong(triton, stub, columns):
    inputs = tensors(columns)
    refused(CODE.INVALID_ARGUMENT, "'I1' is missing", lambda: triton.infer("dot", inputs[1:]))
    refused(CODE.NOT_FOUND, "'none'", lambda: triton.infer("none", inputs))
    refused(CODE.NOT_FOUND, "'9'", lambda: triton.infer("dot", inputs, model_version="9"))
    refused(CODE.INVALID_ARGUMENT, "'other'", lambda: triton.infer("dot", inputs, outputs=[client.InferRequestedOutput("other")]))
    refused(CODE.INVALID_ARGUMENT, "classification", lambda: triton.infer("dot", inputs, outputs=[client.InferRequestedOutput("score", class_count=2)]))
    request = typed("dot", columns)
    request.inputs[0].datatype = "FP16"
    refused(CODE.INVALID_ARGUMENT, "'FP16'", lambda: stub.ModelInfer(request))
    request = typed("dot", columns)
    request.inputs[0].shape[0] = -1
    refused(CODE.INVALID_ARGUMENT, "'I1'", lambda: stub.ModelInfer(request))
    request = typed("dot", columns)
    del request.inputs[0].contents.fp32_contents[-1]
    refused(CODE.INVALID_ARGUMENT, "'I1'", lambda: stub.ModelInfer(request))
    request.raw_input_contents.append(b"1234")
    refused(CODE.INVALID_ARGUMENT, "1 raw_input_contents for 39 inputs", lambda: stub.ModelInfer(request))
    request = typed("dot", columns)
    request.inputs[3].name = 'a"\\\n'
    refused(CODE.INVALID_ARGUMENT, "", lambda: stub.ModelInfer(request))
    check(len(stub.ModelInfer(typed("dot", plain.criteo_columns([]))).outputs[0].contents.fp32_contents) == 0)


def test_limits(checkpoint, columns):
    server = serve("--checkpoint", checkpoint, "--max-body", "20000", "--max-memory", "100000")
    channel = grpc.insecure_channel(server.grpc)
    stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
    few = {name: (datatype, [1, 1], values[:1]) for name, (datatype, _, values) in columns.items()}
    good = lambda: check(len(stub.ModelInfer(typed("model", few)).outputs[0].contents.fp32_contents) == 1)
    good()
    refused(CODE.RESOURCE_EXHAUSTED, "", lambda: stub.ModelInfer(typed("model", columns)))
    # what is small when packed
    bomb = typed("model", few)
    bomb.inputs[20].contents.bytes_contents[0] = bytes(10_000_000)
    refused(CODE.RESOURCE_EXHAUSTED, "", lambda: stub.ModelInfer(bomb, compression=grpc.Compression.Gzip))
    raw = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer", request_serializer=lambda b: b, response_deserializer=lambda b: b)
    for noise in (b"\xff" * 100, b"\x2a\x05abc", bytes(1000)):
        refused(None, "", lambda: raw(noise))
    good()
    channel.close()
    server.end()
    server = serve("--checkpoint", checkpoint, "--max-memory", "800000")
    with grpc.insecure_channel(server.grpc) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        refused(CODE.UNAVAILABLE, "as many bytes", lambda: stub.ModelInfer(typed("model", columns)))
        good()
    server.end()


def test_end(checkpoint, columns):
    """After SIGTERM the server is not ready, still answers, and then refuses what it has not begun."""
    server = serve("--checkpoint", checkpoint, "--drain", "5")
    channel = grpc.insecure_channel(server.grpc)
    stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
    request, answered, ends = typed("model", columns), [], []
    stop = threading.Event()

    def send():
        while not stop.is_set():
            try:
                reply = stub.ModelInfer(request)
                answered.append(len(reply.outputs[0].contents.fp32_contents) == len(columns["I1"][2]))
            except grpc.RpcError as error:
                ends.append(error.code())
                return

    threads = [threading.Thread(target=send) for _ in range(3)]
    for thread in threads:
        thread.start()
    def until(happened):
        end = time.monotonic() + 60
        while not happened() and time.monotonic() < end:
            time.sleep(0.02)

    until(lambda: len(answered) > 3)
    check(stub.ServerReady(service_pb2.ServerReadyRequest()).ready)
    server.process.send_signal(signal.SIGTERM)
    until(lambda: not stub.ServerReady(service_pb2.ServerReadyRequest()).ready)
    check(not stub.ServerReady(service_pb2.ServerReadyRequest()).ready and stub.ServerLive(service_pb2.ServerLiveRequest()).live)
    before = len(answered)
    check(server.process.wait(timeout=60) == 0)
    stop.set()
    for thread in threads:
        thread.join()
    check(len(answered) > before > 3 and all(answered), before, len(answered))
    check(len(ends) == 3 and set(ends) <= {CODE.UNAVAILABLE, CODE.CANCELLED}, ends)
    channel.close()


def test_command_line(checkpoint, server):
    def run(*options):
        ended = subprocess.run([binaries / "serve_model", "--checkpoint", checkpoint, "--port", "0", *options], capture_output=True, text=True, timeout=60)
        return ended.returncode, ended.stderr

    for port in ("-1", "65536", "x", ""):
        code, error = run("--grpc-port", port)
        check(code == 2 and "--grpc-port" in error and error.count("\n") == 1, port, error)
    code, error = run("--grpc-port", server.grpc.rsplit(":", 1)[1])
    check(code == 1 and "--grpc-port: cannot listen on 127.0.0.1, port" in error, code, error)


def main():
    ended = subprocess.run([binaries / "serve_model", "--checkpoint", "x", "--grpc-port", "0"], capture_output=True, text=True)
    if "built without gRPC" in ended.stderr:
        print("skipped:", ended.stderr.strip())
        return 77
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        test_numbers(folder)
        plain.write_criteo(folder / "clicks.tsv")
        plain.write_csv(folder / "clicks.csv")
        (folder / "schema.yaml").write_text(plain.SCHEMA)
        expected = plain.train(binaries, folder / "dot", "--data", folder / "clicks.tsv", "--max-rows", "100")
        of_lists = plain.train(binaries, folder / "csv", "--data", folder / "clicks.csv", "--schema", folder / "schema.yaml", "--embedding-width", "8")
        rows = [line.split("\t") for line in (folder / "clicks.tsv").read_text().splitlines()[-plain.TEST:]]
        columns = plain.criteo_columns(rows)
        server = serve("--model", f"dot={folder / 'dot'}", "--model", f"csvä={folder / 'csv'}")
        triton = client.InferenceServerClient(server.grpc)
        channel = grpc.insecure_channel(server.grpc)
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        scores = server.infer(columns, True, "dot")
        near = lambda found, trained: max(abs(a - b) for a, b in zip(found, trained, strict=True)) <= 1e-6
        check(near(scores, expected), "HTTP differs from the trainer")
        test_scores(server, triton, stub, "dot", columns, scores)
        lists = plain.csv_columns([line.split(",") for line in (folder / "clicks.csv").read_text().splitlines()[-plain.TEST:]])
        test_doors(server, triton, stub)
        reply = stub.ModelInfer(typed("csvä", lists)).outputs[0].contents.fp32_contents
        raw = triton.infer("csvä", tensors(lists)).as_numpy("score")[:, 0]
        check(np.array(reply, np.float32).tobytes() == raw.tobytes() and near(raw, of_lists), "lists")
        test_wrong(triton, stub, columns)
        test_command_line(folder / "dot", server)
        triton.close()
        channel.close()
        server.end()
        test_limits(folder / "dot", columns)
        test_end(folder / "dot", columns)
    print("gRPC gives what HTTP gives")
    return 0


if __name__ == "__main__":
    sys.exit(main())
