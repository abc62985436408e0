#!/usr/bin/env python3
"""Measures the image's binary on this machine: its size, how long a start takes, and what it needs when nothing happens.

Usage: deploy/image/build.sh target/image/context && tests/deploy/figures.py target/image/context/sortie [STARTS]
"""

import gzip
import http.client
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TOOLS = 50


def configuration(tools):
    """Tools as a team has them: a schema, a secret, limits by default."""
    schema = {"type": "object", "properties": {"order_number": {"type": "string"}}}
    return {
        "version": 1,
        "listeners": {"api": {"address": "127.0.0.1:0"}, "telemetry": {"address": "127.0.0.1:0"}},
        "auth": {"keys": [{"name": "runtime", "scopes": ["agent:call"], "key": {"file": "key"}}]},
        "tools": [
            {
                "name": f"lookup_{number}",
                "description": "Looks an order up by its number.",
                "url": f"https://shop{number}.example.com/lookup",
                "policy": "allow",
                "parameters": schema,
                "secret": {"current": {"file": "secret"}},
            }
            for number in range(tools)
        ],
    }


def listening(process):
    """The telemetry listener's port, from the log."""
    for line in process.stdout:
        entry = json.loads(line)
        if entry.get("message") == "Listening." and entry.get("listener") == "telemetry":
            return int(entry["address"].rsplit(":", 1)[1])
    raise SystemExit("it does not listen")


def ready(port):
    """Whether it says that it takes calls."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    finally:
        connection.close()


def worked(process):
    """The processor time of all its threads, in milliseconds: what a busy machine does not change much."""
    threads = Path(f"/proc/{process.pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e6


def resident(process):
    """Its resident memory in KiB."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


def start(binary, folder):
    """One start: milliseconds from the fork to the first 200, those of work, and the memory three seconds later."""
    began = time.monotonic()
    command = [binary, "serve", "--config", folder / "sortie.yaml"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        port = listening(process)
        while not ready(port):
            time.sleep(0.001)
        took = (time.monotonic() - began) * 1000
        work = worked(process)
        time.sleep(3)
        memory = resident(process)
        process.send_signal(signal.SIGTERM)
        process.stdout.read()
    if process.returncode != 0:
        raise SystemExit(f"it ended with {process.returncode}")
    return took, work, memory


def main():
    """Prints one JSON object."""
    binary = Path(sys.argv[1]).resolve()
    starts = int(sys.argv[2]) if len(sys.argv) > 2 else 10
    figures = {"bytes": binary.stat().st_size, "packed_bytes": len(gzip.compress(binary.read_bytes(), 6))}
    figures["cpus"] = os.cpu_count()
    for tools in (1, TOOLS):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "key").write_text("sk-figures-0123456789abcdef")
            (folder / "secret").write_text("whsec_8sKqT1vN5rYbH2mZ0cLdWx9Qa")
            (folder / "sortie.yaml").write_text(json.dumps(configuration(tools)))
            took, work, memory = zip(*(start(binary, folder) for _ in range(starts)))
        figures[f"tools_{tools}"] = {
            "ready_ms": {"median": round(statistics.median(took), 1), "max": round(max(took), 1)},
            "ready_cpu_ms": {"median": round(statistics.median(work), 1), "max": round(max(work), 1)},
            "idle_kib": {"median": round(statistics.median(memory)), "max": max(memory)},
        }
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
