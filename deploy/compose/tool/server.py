"""The tool's server of compose.yaml: it answers what is signed, and nothing else."""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from verify import verify

SECRET = open(sys.argv[1] if len(sys.argv) > 1 else "/run/secrets/sortie/lookup_order").read().strip()


class Tool(BaseHTTPRequestHandler):
    """Knows one order."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        """Looks it up."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        good = verify(SECRET, self.headers["X-Tool-Signature"] or "", body)
        order = json.loads(body)["arguments"]["order_number"] if good else None
        answer = json.dumps({"order": order, "status": "shipped"} if good else {}).encode()
        self.send_response(200 if good else 401)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


if __name__ == "__main__":
    server = ThreadingHTTPServer(("", int(sys.argv[2]) if len(sys.argv) > 2 else 8700), Tool)
    print("listening on port", server.server_port, flush=True)
    server.serve_forever()
