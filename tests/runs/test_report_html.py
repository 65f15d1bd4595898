from __future__ import annotations

import math
from html.parser import HTMLParser
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from launcher.recipe.codec import encode
from launcher.runs.report import RunRecord
from launcher.runs.report_curves import Chart, Line, drawing, smoothed, thinned, ticks
from launcher.runs.report_html import render_page
from tests.plan.recipes import TINY, recipe
from tests.runs.test_report import TINY_PLAN, gpu_plan, report, start, step, whole_run

if TYPE_CHECKING:
    from launcher.tracking.spool import Row

VOID = {"meta", "br", "input", "link", "img"}


class Page(HTMLParser):
    """Whether tags close in order, and what the page would load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loads += [value or "" for name, value in attributes if name in ("src", "href", "srcset", "data")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def page(rows: list[Row], **recipe_sections: object) -> str:
    record = RunRecord(plan=TINY_PLAN, recipe=encode(recipe(TINY)) | recipe_sections, rows=tuple(rows))
    return render_page(report(TINY_PLAN, rows), record)


def test_a_page_needs_nothing_but_itself() -> None:
    text = page(whole_run())
    read = Page(text)

    assert read.open == []
    assert read.loads == []
    assert {"script", "link", "img", "iframe"} & set(read.tags) == set()
    assert "url(" not in text
    assert "@import" not in text
    assert "http://" not in text
    assert "https://" not in text
    assert "prefers-color-scheme:dark" in text


def test_a_page_shows_planned_measured_and_the_digests() -> None:
    text = page(whole_run())

    assert TINY_PLAN.recipe_digest[:12] in text
    assert TINY_PLAN.plan_digest[:12] in text
    assert '<td class="strong">4.0000</td>' in text  # the last loss: 5 - 10 / 10
    assert text.count("<figure>") == 4  # loss, tokens per second, step, memory: the rows have no rate and no norm


def test_a_page_of_a_run_without_metrics_stands_all_the_same() -> None:
    text = page([])

    assert Page(text).open == []
    assert "<figure>" not in text
    assert "The run left no metrics" in text


def test_what_a_person_wrote_is_text_and_not_markup() -> None:
    text = page(whole_run(), description="<script>alert(1)</script>", name='"><b>')

    assert "<script>" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text


def test_no_secret_of_the_recipe_is_on_the_page() -> None:
    assert "hf_TESTTESTTEST" not in page(whole_run(), environment={"variables": {"HF_TOKEN": "hf_TESTTESTTEST"}})


def chart(*points: tuple[float, float], planned: float | None = None) -> Chart:
    return Chart(title="Loss", lines=(Line(name="training", points=points),), show="{:.3g}".format, planned=planned)


def test_a_curve_is_an_image_with_words_and_a_point_where_it_belongs() -> None:
    tree = ElementTree.fromstring(drawing(chart((1, 4.0), (2, 3.0), (3, 2.0))))
    circles = list(tree.iter("circle"))

    assert tree.attrib["aria-label"] == "Loss: training over steps"
    assert [circle.attrib["cx"] for circle in circles] == ["64.0", "306.0", "548.0"]  # left 64, right 560 - 12
    assert circles[1].attrib["cy"] == "106.0"  # the middle of 12 and 230 - 30
    assert circles[0].findtext("title") == "step 1: training 4"


def test_a_value_that_is_no_number_breaks_the_line_and_draws_nothing() -> None:
    tree = ElementTree.fromstring(drawing(chart((1, 4.0), (2, 3.0), (3, math.nan), (4, 2.0), (5, 1.0))))

    assert len(list(tree.iter("path"))) == 2
    assert drawing(chart((1, math.nan), (2, math.inf))) == ""


def test_one_point_and_a_constant_are_drawn() -> None:
    for points in ([(1, 0.0)], [(1, 5.0), (2, 5.0)], [(1, -2.0), (2, -2.0)]):
        assert drawing(chart(*points)).startswith("<svg")


def test_the_planned_level_is_in_the_picture() -> None:
    tree = ElementTree.fromstring(drawing(chart((1, 4.0), (2, 3.0), planned=10.0)))
    [level] = [element for element in tree.iter("line") if element.attrib["class"] == "planned"]

    assert 12 < float(level.attrib["y1"]) < 200
    assert level.findtext("title") == "planned 10"


def test_ticks_are_round_numbers() -> None:
    assert ticks(0.0, 1.0, most=6) == [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]
    assert ticks(2.1, 7.9, most=6) == [3, 4, 5, 6, 7]
    assert ticks(0.0, 12_000.0, most=7) == [0, 2000, 4000, 6000, 8000, 10_000, 12_000]


def test_a_long_curve_is_thinned_and_keeps_its_spike() -> None:
    points = [(float(step), 1.0) for step in range(100_000)]
    points[54_321] = (54_321.0, 9.0)
    kept = thinned(points)

    assert len(kept) <= 402
    assert (54_321.0, 9.0) in kept
    assert kept == sorted(kept)


def test_the_moving_mean_of_a_line_is_the_line_itself() -> None:
    points = [(float(step), 2.0 * step) for step in range(100)]  # windows of 2 on each side: exact but at the ends

    assert smoothed(points)[2:98] == points[2:98]


def test_a_resumed_run_is_marked_where_it_went_on() -> None:
    rows = [start(1, at=0.0), *(step(n, at=float(n)) for n in range(1, 8)), step(6, at=99.0, attempt=2)]

    assert page(rows).count("<title>resumed at step 6</title>") == 4


def test_a_long_run_makes_a_page_of_less_than_a_megabyte() -> None:
    rows = [step(number, at=float(number)) for number in range(1, 20_001)]
    record = RunRecord(plan=gpu_plan(), recipe=encode(recipe(TINY)), rows=tuple(rows))

    assert len(render_page(report(gpu_plan(), rows), record)) < 1_000_000
