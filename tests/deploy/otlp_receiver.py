"""A collector of traces for the tests: OTLP over HTTP, decoded with OpenTelemetry's own classes.

It prints its port, then one JSON object an export. It ends when its standard input does.

Usage: otlp_receiver.py [CERTIFICATE KEY]
"""

import json
import os
import ssl
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status


def value_of(value):
    kind = value.WhichOneof("value")
    return getattr(value, kind) if kind else None


def attributes_of(message):
    names = [one.key for one in message.attributes]
    assert len(set(names)) == len(names), f"an attribute stands twice: {names}"
    return {one.key: value_of(one.value) for one in message.attributes}


def span_of(span):
    return {
        "trace": span.trace_id.hex(),
        "id": span.span_id.hex(),
        "parent": span.parent_span_id.hex(),
        "name": span.name,
        "kind": Span.SpanKind.Name(span.kind),
        "start": span.start_time_unix_nano,
        "end": span.end_time_unix_nano,
        "attributes": attributes_of(span),
        "status": Status.StatusCode.Name(span.status.code),
        "message": span.status.message,
        "flags": span.flags,
    }


def exports_of(body):
    request = ExportTraceServiceRequest()
    request.ParseFromString(body)
    for of_resource in request.resource_spans:
        for of_scope in of_resource.scope_spans:
            yield {
                "resource": attributes_of(of_resource.resource),
                "scope": of_scope.scope.name,
                "spans": [span_of(span) for span in of_scope.spans],
            }


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        assert self.headers["Content-Type"] == "application/x-protobuf", self.headers
        headers = {name.lower(): value for name, value in self.headers.items()}
        for export in exports_of(body):
            say({"path": self.path, "headers": headers, "size": len(body), **export})
        answer = ExportTraceServiceResponse().SerializeToString()
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


def say(value):
    # One write a line: requests are served at the same time.
    os.write(1, (json.dumps(value) + "\n").encode())


def main():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    if len(sys.argv) > 2:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(sys.argv[1], sys.argv[2])
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    say({"port": server.server_address[1]})
    sys.stdin.read()


main()
