#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""serve_model behind nginx, as examples/tls/nginx.conf has it: the same answers over TLS.

    tls_proxy.py BIN ROOT    BIN: the folder of train_dlrm and serve_model; ROOT: the repository

Exit code 77: nginx or openssl is not installed.
"""
import http.client
import json
import os
import pathlib
import random
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time

import serve_model as plain
from serve_model import check

binaries, root = map(pathlib.Path, sys.argv[1:3])
PATH = os.environ["PATH"] + ":/usr/sbin"
if shutil.which("nginx", path=PATH) is None or shutil.which("openssl") is None:
    print("skipped: no nginx or no openssl (Debian: nginx openssl)")
    sys.exit(77)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Proxy:
    """nginx with the example's file, on other ports."""

    def __init__(self, folder, ports):
        text = (root / "examples/tls/nginx.conf").read_text()
        for given, used in ports.items():
            check(text.count(str(given)) >= 2, "nginx.conf has no port", given)
            text = text.replace(str(given), str(used))
        (folder / "nginx.conf").write_text(text)
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                        "-addext", "subjectAltName=DNS:localhost", "-keyout", folder / "server.key", "-out", folder / "server.crt"],
                       check=True, capture_output=True)
        program = shutil.which("nginx", path=PATH)
        self.process = subprocess.Popen([program, "-p", folder, "-c", folder / "nginx.conf", "-g", "daemon off;"], stderr=subprocess.PIPE, text=True)
        for _ in range(200):
            check(self.process.poll() is None, "nginx ended:", self.process.poll() is not None and self.process.stderr.read())
            try:
                socket.create_connection(("127.0.0.1", ports[8443])).close()
                return
            except ConnectionRefusedError:
                time.sleep(0.05)
        self.end()
        raise AssertionError("nginx does not listen")

    def end(self):
        self.process.terminate()
        self.process.wait(timeout=20)


def test_https(server, port, certificate):
    trusting = ssl.create_default_context(cafile=certificate)

    def call(method, path, body=None, headers=None):
        connection = http.client.HTTPSConnection("localhost", port, context=trusting, timeout=30)
        connection.request(method, path, body, headers or {})
        reply = connection.getresponse()
        return reply.status, reply.read(), reply.headers

    for path in ("/v2/health/ready", "/v2", "/v2/models/model", "/v2/models/none"):
        check(call("GET", path)[:2] == server.call("GET", path)[:2], path)
    check(call("GET", "/metrics")[0] == 403 and server.call("GET", "/metrics")[0] == 200)
    body = json.dumps(plain.valid_body(300))
    one, other = call("POST", "/v2/models/model/infer", body), server.call("POST", "/v2/models/model/infer", body)
    check(one[0] == 200 and one[1] == other[1], one[0])
    rng = random.Random(1)
    data = rng.randbytes(4 * 13)
    head = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [13], "parameters": {"binary_data_size": len(data)}}]}).encode()
    binary = {"Inference-Header-Content-Length": str(len(head))}
    check(call("POST", "/v2/models/model/infer", head + data, binary)[:2] == server.call("POST", "/v2/models/model/infer", head + data, binary)[:2])
    # who does not know the certificate, and who speaks no TLS
    try:
        http.client.HTTPSConnection("localhost", port, timeout=30).request("GET", "/v2")
        check(False, "a certificate that nobody vouches for was taken")
    except ssl.SSLCertVerificationError:
        pass
    connection = http.client.HTTPConnection("localhost", port, timeout=30)
    connection.request("GET", "/v2")
    check(connection.getresponse().status == 400)


def test_grpc(server, port, certificate):
    try:
        import tritonclient.grpc as client
    except (ImportError, RuntimeError):
        print("no tritonclient[grpc]: its part is skipped")
        return
    triton = client.InferenceServerClient(f"localhost:{port}", ssl=True, root_certificates=str(certificate))
    check(triton.is_server_ready() and triton.is_model_ready("model"))
    check(triton.get_model_metadata("model", as_json=True)["inputs"][0]["name"] == "I1")
    triton.close()


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        plain.write_criteo(folder / "clicks.tsv")
        plain.train(binaries, folder / "run", "--data", folder / "clicks.tsv", "--max-rows", "100")
        ended = subprocess.run([binaries / "serve_model", "--checkpoint", "x", "--grpc-port", "0"], capture_output=True, text=True)
        grpc = "built without gRPC" not in ended.stderr
        server = plain.Server(binaries, "--checkpoint", folder / "run", *(("--grpc-port", "0") if grpc else ()))
        ports = {8000: server.port, 8001: int(server.lines[-2].rsplit(":", 1)[1]) if grpc else free_port(), 8443: free_port(), 8444: free_port()}
        proxy = Proxy(folder, ports)
        try:
            test_https(server, ports[8443], folder / "server.crt")
            if grpc:
                test_grpc(server, ports[8444], folder / "server.crt")
        finally:
            proxy.end()
        server.end()
    print("the same answers over TLS")


main()
