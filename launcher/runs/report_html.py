"""The report as one HTML page that needs nothing else: no script, no font, no network, light and dark."""

from __future__ import annotations

import math
import time
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from launcher.recipe.redact import redact
from launcher.runs.report import cells
from launcher.runs.report_curves import Chart, Line, drawing
from launcher.tracking import metrics
from launcher.tracking.description import flatten
from launcher.tracking.spool import effective
from launcher.units import format_bytes, format_count, format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from launcher.plan.plan import Plan
    from launcher.runs.report import Figure, Report, RunRecord
    from launcher.tracking.spool import Row

GOOD, BAD = frozenset({"Completed"}), frozenset({"Failed", "Canceled"})


def render_page(report: Report, run: RunRecord) -> str:
    """The page. Secrets of the recipe are not in it."""
    title = escape(f"{report.recipe_name}: planned and measured")
    body = [
        _heading(report, run.rows),
        *(_note(note) for note in report.notes),
        _figures(report),
        _curves(run.plan, run.rows),
        _time(report),
        _memory(run.plan),
        _recipe(run.recipe),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{title}</title><style>{STYLE}</style></head>\n<body><main>\n{''.join(body)}</main></body></html>\n"
    )


def _heading(report: Report, rows: Sequence[Row]) -> str:
    mood = "good" if report.state in GOOD else "bad" if report.state in BAD else "open"
    facts = [report.hardware, *_when(rows)]
    if report.attempts > 1:
        facts.append(f"{report.attempts} attempts")
    return (
        f'<header><h1>{escape(report.recipe_name)} <span class="state {mood}">{escape(report.state)}</span></h1>'
        f"<p>{escape('  ·  '.join(facts))}</p>"
        f'<p class="quiet"><code>{escape(report.handle)}</code>'
        f"  ·  recipe <code>{escape(report.recipe_digest[:12])}</code>"
        f"  ·  plan <code>{escape(report.plan_digest[:12])}</code></p></header>\n"
    )


def _when(rows: Sequence[Row]) -> Iterator[str]:
    if rows:
        yield time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(rows[0].time))


def _note(note: str) -> str:
    return f'<p class="note">{escape(note)}</p>\n'


def _figures(report: Report) -> str:
    rows = "".join(_figure(figure) for figure in report.figures)
    losses = _loss_row("first training loss", report.loss_first) + _loss_row("last training loss", report.loss_last)
    after = "" if report.evaluation_step is None else f" after step {report.evaluation_step:,}"
    losses += _loss_row(f"evaluation loss{after}", report.evaluation_loss)
    return (
        "<section><h2>Planned and measured</h2><table><thead><tr><th></th><th>planned</th><th>measured</th>"
        f"<th>ratio</th><th></th><th></th></tr></thead><tbody>{rows}{losses}</tbody></table></section>\n"
    )


def _figure(figure: Figure) -> str:
    label, planned, measured, ratio, verdict = map(escape, cells(figure))
    mood = {"inside the interval": "good", "": ""}.get(verdict, "warn")
    return (
        f'<tr><th>{label}</th><td>{planned}</td><td class="strong">{measured}</td><td>{ratio}</td>'
        f'<td>{_gauge(figure)}</td><td class="{mood}">{verdict}</td></tr>'
    )


def _gauge(figure: Figure) -> str:
    """Measured over planned on a scale from a quarter to four times, with the planned interval."""
    if figure.ratio is None or not figure.planned or figure.ratio <= 0:
        return ""
    low, high = figure.low or figure.planned, figure.high or figure.planned
    left, right = _gauge_place(low / figure.planned), _gauge_place(high / figure.planned)
    return (
        '<svg class="gauge" viewBox="0 0 120 16" aria-hidden="true"><line class="grid" x1="4" x2="116" y1="8" y2="8"/>'
        f'<rect class="interval" x="{left - 1:.1f}" width="{right - left + 2:.1f}" y="3" height="10" rx="2"/>'
        f'<circle class="measured" cx="{_gauge_place(figure.ratio):.1f}" cy="8" r="4"/></svg>'
    )


def _gauge_place(ratio: float) -> float:
    return 60 + 56 * max(-1.0, min(1.0, math.log(ratio, 4)))


def _loss_row(label: str, loss: float | None) -> str:
    if loss is None:
        return ""
    return f'<tr><th>{escape(label)}</th><td></td><td class="strong">{loss:.4f}</td><td></td><td></td><td></td></tr>'


def _curves(plan: Plan, rows: Sequence[Row]) -> str:
    figures = "".join(_framed(chart) for chart in _charts(plan, rows))
    return f'<section><h2>Curves</h2><div class="charts">{figures}</div></section>\n' if figures else ""


def _framed(chart: Chart) -> str:
    picture = drawing(chart)
    names = [f'<span class="key line{index}">{escape(line.name)}</span>' for index, line in enumerate(chart.lines)]
    if chart.planned is not None:
        names.append('<span class="key planned">planned</span>')
    legend = f'<span class="legend">{"".join(names)}</span>'
    return f"<figure><figcaption>{escape(chart.title)}{legend}</figcaption>{picture}</figure>" if picture else ""


def _charts(plan: Plan, rows: Sequence[Row]) -> Iterator[Chart]:
    counted = effective(rows)
    resumed = tuple(after.step for before, after in pairwise(counted) if after.attempt != before.attempt)
    loss = _line(counted, metrics.LOSS, "training", is_noisy=True)
    held_out = _line(counted, metrics.EVALUATION_LOSS, "evaluation", is_sparse=True)
    yield Chart(title="Loss, nats per token", lines=(loss, held_out), show="{:.4g}".format, resumed_at=resumed)
    for title, name, show, planned in (
        ("Tokens per second", metrics.TOKENS_PER_SECOND, format_count, plan.time.tokens_per_second),
        ("Learning rate", metrics.LEARNING_RATE, "{:.3g}".format, None),
        ("Gradient norm before clipping", metrics.GRADIENT_NORM, "{:.3g}".format, None),
        ("Step", metrics.STEP_SECONDS, format_seconds, plan.time.step_seconds),
        ("Peak memory per rank", metrics.PEAK_MEMORY_BYTES, format_bytes, float(plan.memory.bytes_per_gpu)),
    ):
        is_noisy = name in (metrics.TOKENS_PER_SECOND, metrics.GRADIENT_NORM, metrics.STEP_SECONDS)
        line = _line(counted, name, "measured", is_noisy=is_noisy)
        is_binary = name == metrics.PEAK_MEMORY_BYTES
        yield Chart(
            title=title, lines=(line,), show=show, planned=planned, resumed_at=resumed, is_binary=is_binary
        )  # fmt: skip


def _line(rows: Iterable[Row], metric: str, name: str, *, is_noisy: bool = False, is_sparse: bool = False) -> Line:
    points = tuple((float(row.step), row.metrics[metric]) for row in rows if metric in row.metrics)
    return Line(name=name, points=points, is_noisy=is_noisy, is_sparse=is_sparse)


def _time(report: Report) -> str:
    shown = [share for share in report.shares if share.measured >= 0.0005]
    if not shown:
        return ""
    parts = [(share.name, share.measured, f"{100 * share.measured:.1f} %") for share in shown]
    return f"<section><h2>Where the time went</h2>{_bar(parts)}</section>\n"


def _memory(plan: Plan) -> str:
    whole = sum(line.bytes for line in plan.memory.lines)
    parts = [(line.name, line.bytes / whole, format_bytes(line.bytes)) for line in plan.memory.lines if line.bytes]
    return f"<section><h2>Planned memory of {escape(plan.memory.worst)}</h2>{_bar(parts)}</section>\n"


def _bar(parts: Sequence[tuple[str, float, str]]) -> str:
    """A stacked bar and its legend, from (name, share, text)."""
    pieces = "".join(
        f'<span class="part part{index % 8}" style="flex-grow:{share:.5f}" title="{escape(f"{name} {text}")}"></span>'
        for index, (name, share, text) in enumerate(parts)
    )
    legend = "".join(
        f'<li><span class="dot part{index % 8}"></span>{escape(name)} <b>{escape(text)}</b></li>'
        for index, (name, _, text) in enumerate(parts)
    )
    return f'<div class="bar">{pieces}</div><ul class="legend">{legend}</ul>'


def _recipe(recipe: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><th><code>{escape(key)}</code></th><td><code>{escape(value)}</code></td></tr>"
        for key, value in flatten(redact(recipe)).items()
    )
    return f"<section><details><summary>Recipe</summary><table>{rows}</table></details></section>\n"


STYLE = """
:root{color-scheme:light dark;--paper:#fff;--ink:#1b1f24;--quiet:#66707b;--rule:#e3e6ea;--panel:#f7f8fa;
--a:#2563c9;--b:#c2570c;--good:#1a7f4b;--bad:#c0362c;--warn:#9a6700;--plan:#8a63d2}
@media(prefers-color-scheme:dark){:root{--paper:#0f1216;--ink:#e4e8ed;--quiet:#929ba6;--rule:#272d35;--panel:#161b21;
--a:#6ea8ff;--b:#ffa25c;--good:#4cc38a;--bad:#ff7b72;--warn:#e3b341;--plan:#b79bf0}}
*{box-sizing:border-box}body{margin:0;background:var(--paper);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;font-variant-numeric:tabular-nums}
main{max-width:1200px;margin:0 auto;padding:40px 28px 64px}
h1{font-size:28px;line-height:1.2;margin:0 0 6px;letter-spacing:-.01em}
h2{font-size:16px;margin:36px 0 12px}p{margin:2px 0}header{margin-bottom:20px}
code{font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;overflow-wrap:anywhere}
.quiet{color:var(--quiet)}.state{font-size:13px;font-weight:600;vertical-align:middle;padding:2px 10px;
border-radius:999px;border:1px solid;margin-left:6px;letter-spacing:0}
.good{color:var(--good)}.bad{color:var(--bad)}.warn{color:var(--warn)}.open{color:var(--a)}
.note{border-left:3px solid var(--warn);background:var(--panel);padding:8px 12px;margin:8px 0;max-width:90ch}
table{border-collapse:collapse;width:100%}th{font-weight:400;text-align:left;color:var(--quiet)}
td,th{padding:7px 12px 7px 0;border-bottom:1px solid var(--rule);vertical-align:middle}
thead th{font-size:13px}td.strong{font-weight:600}
.gauge{width:120px;height:16px;display:block}.interval{fill:var(--plan);opacity:.35}.measured{fill:var(--a)}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,480px),1fr));gap:20px}
figure{margin:0;padding:14px 14px 6px;background:var(--panel);border:1px solid var(--rule);border-radius:10px}
figcaption{display:flex;justify-content:space-between;gap:12px;font-weight:600;font-size:14px;margin-bottom:6px}
figure svg{width:100%;height:auto;display:block}.grid{stroke:var(--rule);stroke-width:1}
.tick{fill:var(--quiet);font-size:11.5px}
.line{fill:none;stroke-width:1.8;stroke-linejoin:round}.pale{opacity:.28;stroke-width:1}
.line0{stroke:var(--a)}.line1{stroke:var(--b)}
.mark{stroke:none}.mark.line0{fill:var(--a)}.mark.line1{fill:var(--b)}
.hover{fill:transparent;stroke:none}.hover:hover{fill:currentColor;fill-opacity:.25}
.planned{stroke:var(--plan);stroke-width:1.4;stroke-dasharray:5 4}
.resumed{stroke:var(--quiet);stroke-width:1;stroke-dasharray:2 3}
.legend{display:flex;flex-wrap:wrap;gap:4px 18px;font-weight:400;font-size:13px;color:var(--quiet)}
.key::before{content:"";display:inline-block;width:14px;border-top:2px solid var(--a);margin-right:6px;
vertical-align:middle}.key.line1::before{border-color:var(--b)}
.key.planned::before{border-top:2px dashed var(--plan)}
.bar{display:flex;height:22px;gap:2px;border-radius:6px;overflow:hidden}.part{min-width:2px}
ul.legend{list-style:none;margin:10px 0 0;padding:0;color:var(--ink)}ul.legend b{font-weight:600}
.dot{display:inline-block;width:10px;height:10px;border-radius:3px;margin-right:7px}
.part0{background:#3b78d8}.part1{background:#e0822e}.part2{background:#2f9e6e}.part3{background:#8a63d2}
.part4{background:#c94f7c}.part5{background:#3aa6b9}.part6{background:#a98b2d}.part7{background:#7b8794}
summary{font-weight:600;font-size:16px;cursor:pointer;margin:36px 0 12px}
@media(max-width:720px){main{padding:24px 14px}td:nth-child(5),th:nth-child(5){display:none}}
@media print{main{max-width:none;padding:0}figure{break-inside:avoid}}
"""
