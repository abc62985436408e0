"""Asks a Prometheus everything that a Grafana dashboard asks it, and draws the answers into one picture.

    python dashboard.py PROMETHEUS_URL BEGIN DASHBOARD_JSON PICTURE_PNG

BEGIN is a Unix time: the picture shows what has happened since. It exits 1 and names each expression that has no answer.
"""

import json
import math
import re
import sys
import textwrap
import urllib.parse
import urllib.request

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

# What stands for a reader's choices.
CHOSEN = {"$__rate_interval": "15s", "$__range": "5m"}
ALL = re.compile(r"\$\w+")
COLUMNS = 4


class Prometheus:
    def __init__(self, url, begin):
        self.url = url
        self.end = float(self.ask("query", query="time()")["result"][0])
        self.begin = begin

    def ask(self, path, **parameters):
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=30) as reply:
            answer = json.load(reply)
        if answer["status"] != "success":
            raise ValueError(answer)
        return answer["data"]

    def now(self, expression):
        series = self.ask("query", query=expression, time=self.end)["result"]
        return [(one["metric"], [one["value"]]) for one in series]

    def since(self, expression):
        step = max(1, round((self.end - self.begin) / 120))
        series = self.ask("query_range", query=expression, start=self.begin, end=self.end, step=step)
        return [(one["metric"], one["values"]) for one in series["result"]]

    def choices(self, query):
        """What `label_values(SELECTOR, LABEL)` gives."""
        selector, label = re.fullmatch(r"label_values\((.+), (\w+)\)", query).groups()
        return self.ask(f"label/{label}/values", **{"match[]": filled(selector)})


def filled(expression):
    for name, value in CHOSEN.items():
        expression = expression.replace(name, value)
    return ALL.sub(".*", expression)


def numbers(series):
    """The series with their finite values, as (labels, times, values)."""
    found = []
    for labels, values in series:
        points = [(float(at), float(value)) for at, value in values]
        points = [point for point in points if math.isfinite(point[1])]
        if points:
            found.append((labels, *zip(*points)))
    return found


def legend(target, labels):
    template = target.get("legendFormat", "")
    return re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda name: labels.get(name[1], ""), template)


def colour(panel, name):
    """What an override says of a series of this name."""
    for override in panel["fieldConfig"]["overrides"]:
        if override["matcher"] == {"id": "byName", "options": name}:
            for entry in override["properties"]:
                if entry["id"] == "color":
                    return entry["value"]["fixedColor"]
    return None


def draw_lines(panel, axes, begin, end, answers):
    stacked = panel["fieldConfig"]["defaults"]["custom"]["stacking"]["mode"] == "normal"
    lines = [
        (legend(target, labels), [at - begin for at in times], values)
        for target, series in answers
        for labels, times, values in series
    ]
    lines.sort(key=lambda line: -max(line[2]))
    if stacked:
        moments = sorted({at for _, times, _ in lines for at in times})
        rows = []
        for _, times, values in lines:
            known = dict(zip(times, values))
            rows.append([known.get(at, 0) for at in moments])
        colours = [colour(panel, name) or f"C{nth % 10}" for nth, (name, _, _) in enumerate(lines)]
        axes.stackplot(moments, rows, labels=[line[0] for line in lines], colors=colours, alpha=0.7)
    else:
        for nth, (name, times, values) in enumerate(lines):
            mark = "." if len(times) < 3 else ""
            look = colour(panel, name) or f"C{nth % 10}"
            axes.plot(times, values, mark + "-", label=name, color=look)
    many = len(lines) > 8
    axes.legend(fontsize=5 if many else 7, loc="upper left", ncols=4 if many else 2, framealpha=0.6)
    low, high = axes.get_ylim()
    # The legend has the upper part for itself.
    axes.set_ylim(min(0, low), high * (1.6 if many else 1.35) if high > 0 else 1)
    axes.set_xlim(0, end - begin)


def draw_heatmap(axes, begin, answers):
    """Buckets are sums up to their edge; a row shows what is between two edges."""
    (_, series), = answers
    edges = sorted(series, key=lambda one: float(one[0]["le"]))
    moments = sorted({at for _, times, _ in edges for at in times})
    below, rows = [0] * len(moments), []
    for _, times, values in edges:
        known = dict(zip(times, values))
        upto = [known.get(at, 0) for at in moments]
        rows.append([max(0, more - less) for more, less in zip(upto, below)])
        below = upto
    axes.pcolormesh([at - begin for at in moments], range(len(rows)), rows, cmap="Oranges")
    axes.set_yticks(range(len(rows)), [labels["le"] for labels, _, _ in edges], fontsize=7)


def draw_stat(panel, axes, answers):
    (_, ((_, _, values),)), = answers
    percent = panel["fieldConfig"]["defaults"]["unit"] == "percentunit"
    text = f"{values[-1]:.1%}" if percent else f"{values[-1]:g}"
    axes.text(0.5, 0.5, text, fontsize=22, ha="center", va="center")
    axes.axis("off")


def table(panel, answers):
    """Merges the answers by their labels, as the panel's transformations do; header and rows."""
    organize = next(one["options"] for one in panel["transformations"] if one["id"] == "organize")
    names, hidden = organize["renameByName"], organize["excludeByName"]
    common = set.intersection(*(set(one[0]) for _, series in answers for one in series))
    merged, columns = {}, sorted(common)
    for target, series in answers:
        value = f"Value #{target['refId']}"
        shown = None if hidden.get(value) else names.get(value, value)
        for labels, _, values in series:
            row = merged.setdefault(tuple(labels[name] for name in sorted(common)), dict(labels))
            row.update({names.get(name, name): text for name, text in labels.items()})
            if shown:
                row[shown] = f"{values[-1]:.4g}"
        more = {names.get(name, name) for labels, _, _ in series for name in labels if name not in common}
        columns += [name for name in [*sorted(more), shown] if name and name not in columns]
    rows = [[row.get(name, "") for name in columns] for _, row in sorted(merged.items())]
    return columns, rows


def draw_table(panel, axes, answers):
    columns, rows = table(panel, answers)
    axes.axis("off")
    drawn = axes.table(rows, colLabels=columns, loc="upper center", cellLoc="left")
    drawn.auto_set_font_size(False)
    drawn.set_fontsize(9)
    drawn.auto_set_column_width(range(len(columns)))


def draw(panel, axes, begin, end, answers):
    axes.set_title("\n".join(textwrap.wrap(panel["title"], 44)), fontsize=11)
    axes.tick_params(labelsize=8)
    match panel["type"]:
        case "timeseries":
            draw_lines(panel, axes, begin, end, answers)
        case "heatmap":
            draw_heatmap(axes, begin, answers)
        case "stat":
            draw_stat(panel, axes, answers)
        case "table":
            draw_table(panel, axes, answers)
        case other:
            raise ValueError(f"nobody here can draw a {other}")


def main(url, begin, path, picture):
    with open(path, encoding="utf-8") as file:
        dashboard = json.load(file)
    prometheus = Prometheus(url, float(begin))
    silent = []
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query" and not prometheus.choices(variable["query"]["query"]):
            silent.append(f"variable {variable['name']}: {variable['query']['query']}")
    for annotation in dashboard["annotations"]["list"]:
        if not numbers(prometheus.since(filled(annotation["expr"]))):
            silent.append(f"annotation {annotation['name']}: {annotation['expr']}")
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    wide = [panel for panel in panels if panel["gridPos"]["w"] == 24]
    small = [panel for panel in panels if panel["gridPos"]["w"] < 24]
    lines = math.ceil(len(small) / COLUMNS)
    figure = pyplot.figure(figsize=(20, 2.9 * (lines + 2 * len(wide))))
    figure.subplots_adjust(left=0.03, right=0.99, top=0.985, bottom=0.01, wspace=0.13, hspace=0.35)
    grid = figure.add_gridspec(lines + len(wide), COLUMNS, height_ratios=[1] * lines + [2] * len(wide))
    places = [grid[nth // COLUMNS, nth % COLUMNS] for nth in range(len(small))]
    places += [grid[lines + nth, :] for nth in range(len(wide))]
    drawn = 0
    for panel, place in zip(small + wide, places):
        answers = []
        for target in panel["targets"]:
            ask = prometheus.now if target.get("instant") else prometheus.since
            series = numbers(ask(filled(target["expr"])))
            if series:
                answers.append((target, series))
            else:
                silent.append(f"{panel['title']}, {target['refId']}: {target['expr']}")
        axes = figure.add_subplot(place)
        if len(answers) == len(panel["targets"]):
            draw(panel, axes, prometheus.begin, prometheus.end, answers)
            drawn += 1
        else:
            axes.set_title(f"{panel['title']}: no answer", fontsize=11, color="red")
    figure.savefig(picture, dpi=110)
    print(f"{len(panels)} panels, {drawn} drawn in {picture}")
    for line in silent:
        print(f"no answer: {line}", file=sys.stderr)
    return 1 if silent else 0


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
