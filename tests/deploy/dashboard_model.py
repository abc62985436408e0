"""Reads a dashboard by Grafana's own model of one, and names everything in it that the model does not know.

    python dashboard_model.py DASHBOARD_JSON

What the model does not know, Grafana would pass over in silence: a misspelt option, an unknown unit of a panel's shape.
"""

import json
import sys

from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

# The model has annotations of no data source in particular; this one is Prometheus's.
KNOWN = {"titleFormat"}


def lost(before, after, path=""):
    """Paths at which something differs once it was read and written again."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key, value in before.items():
            if key in after:
                yield from lost(value, after[key], f"{path}/{key}")
            elif key not in KNOWN:
                yield f"{path}/{key}"
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for nth, (one, other) in enumerate(zip(before, after)):
            yield from lost(one, other, f"{path}/{nth}")
    elif before != after:
        yield path


def unknown(dashboard):
    after = json.loads(JSONEncoder().encode(Dashboard.from_json(dashboard)))
    return list(lost(dashboard, after))


def main(path):
    plugins.register_default_plugins()
    with open(path, encoding="utf-8") as file:
        dashboard = json.load(file)
    paths = unknown(dashboard)
    for one in paths:
        print(f"not known: {one}", file=sys.stderr)
    # A model that takes anything would prove nothing.
    lines = next(panel for panel in dashboard["panels"] if panel["type"] == "timeseries")
    lines["fieldConfig"]["defaults"]["custom"]["showPionts"] = "never"
    if len(unknown(dashboard)) != len(paths) + 1:
        sys.exit("the model does not see a misspelt option")
    print(f"{len(dashboard['panels'])} panels and rows read")
    return 1 if paths else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
