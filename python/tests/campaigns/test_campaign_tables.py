"""Results of a campaign in other forms: summaries, CSV, Parquet, data frames, the report's page."""

from __future__ import annotations

import csv
import datetime
import html
import io
import math
import random
import re
import statistics
import subprocess
import sys
from pathlib import Path

import campaign_functions as functions
import pytest
import tidewire as tw
from tidewire._campaigns import page
from tidewire._campaigns.summary import QuantileSketch, ValueCounts

LONG = 200_000


@pytest.fixture(scope="module")
def swept(module_store: str) -> tw.Campaign:
    sweep = tw.grid(scale=[1.0, 2.5], kind=["a", "b"])
    campaign = tw.campaign(
        functions.measured, runs=400, seed=3, sweep=sweep, params={"fixed": 1}, name="swept", store=module_store
    )
    assert campaign.run(workers=1, progress=False).state == "done"
    return campaign


@pytest.fixture(scope="module")
def packed(module_store: str) -> tw.Campaign:
    campaign = tw.campaign(functions.packed, runs=30, name="packed", store=module_store)
    campaign.run(workers=1, progress=False)
    return campaign


# Summaries


@pytest.mark.parametrize("kept", [64, 4_096])
def test_quantiles_of_many_values_are_near_and_those_of_few_are_exact(kept: int) -> None:
    draws = random.Random(5)
    values = [draws.expovariate(1.0) for _ in range(LONG)]
    sketch = QuantileSketch(kept)
    for begin in range(0, LONG, 7_001):
        sketch.add(values[begin : begin + 7_001])
    weighed = sketch.weighed()
    assert sum(weight for _, weight in weighed) == LONG
    assert len(weighed) < 20 * kept, "memory does not grow with the values"
    ranked = sorted(values)
    for share in (0.05, 0.25, 0.5, 0.75, 0.95):
        [found] = sketch.quantiles([share])
        rank = sum(value <= found for value in ranked) / LONG
        assert abs(rank - share) < (0.02 if kept == 64 else 0.001)
    few = QuantileSketch(kept)
    few.add([3.0, 1.0, 2.0])
    assert few.quantiles([0.05, 0.5, 0.95]) == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(("scale", "offset"), [(1e-200, 3.0), (1.0, 1e9), (1.0, 3.0), (1e200, 3.0), (1e305, 3.0)])
def test_moments_of_values_of_any_size_and_offset_are_finite(scale: float, offset: float) -> None:
    draws = random.Random(7)
    values = [draws.gauss(offset, 100.0) for _ in range(4_000)]
    tally = ValueCounts()
    for begin in range(0, len(values), 999):
        tally.add([scale * value for value in values[begin : begin + 999]])
    assert tally.mean / scale == pytest.approx(statistics.fmean(values), rel=1e-12)
    assert tally.deviation / scale == pytest.approx(statistics.stdev(values), rel=1e-9)


def test_missing_values_count_for_nothing_else() -> None:
    tally = ValueCounts()
    tally.add([None, math.nan, 1, 3])
    one = tally.summary("x", {})
    assert (one.count, one.missing, one.mean, one.min, one.max, one.median) == (2, 2, 2.0, 1, 3, 1.0)
    nothing = ValueCounts().summary("x", {})
    assert nothing.count == 0 and math.isnan(nothing.mean)
    endless = ValueCounts()
    endless.add([math.inf, -math.inf, 1.0])
    assert math.isnan(endless.mean) and endless.most == math.inf


def test_a_summary_by_parameters_and_columns(swept: tw.Campaign) -> None:
    every = swept.summary()
    assert [one.column for one in every] == ["value", "even"]
    rows = list(swept.results())
    assert every[0].count == 400
    assert every[0].mean == pytest.approx(statistics.fmean(row.value for row in rows))
    by_two = swept.summary(by=["scale", "kind"])
    assert len(by_two) == 8
    first = by_two[0]
    assert first.by == {"scale": 1.0, "kind": "a"} and first.count == 100
    some = [row.value for row in rows if row.param_set == 0]
    assert first.standard_error == pytest.approx(statistics.stdev(some) / 10)
    assert [one.by["label"] for one in swept.summary(by="label")[:2]] == ["even", "odd"]
    assert {one.by["param_set"] for one in swept.summary("param_set")} == {0, 1, 2, 3}
    assert [one.column for one in swept.summary(by="even")] == ["value", "value"]
    assert "standard_error" in repr(by_two).splitlines()[0] and "<table>" in by_two._repr_html_()
    with pytest.raises(
        tw.InvalidArgument, match=r"by: 'colour' is no parameter and no column; there are .*scale.*label"
    ):
        swept.summary(by="colour")


@pytest.mark.parametrize("by", [None, "kind"])
def test_each_element_of_arrays_has_a_mean_with_its_interval(tmp_path: Path, by: str | None) -> None:
    campaign = tw.campaign(functions.curve, runs=40, store=f"sqlite:///{tmp_path}/farm.db")
    campaign.run(workers=1, progress=False).page(tmp_path / "report.html")
    found = {(one.column, one.by.get("kind")): one for one in campaign.summary(by=by)}
    assert {column for column, _ in found} == {"area", "curve[0]", "curve[1]", "curve[2]"}
    area, second = found["area", by and "long"], found["curve[1]", by and "long"]
    assert second.mean == area.mean and second.median == area.median
    ends = area.mean - 1.96 * area.standard_error, area.mean + 1.96 * area.standard_error
    assert second.interval() == pytest.approx(ends, rel=1e-4)
    assert (found["curve[2]", by and "long"].count, found["curve[2]", by and "long"].missing) == (20, 0 if by else 20)
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "curve by element" in text and "3 of 3 elements" in text


# Files


def test_csv_has_the_rows_with_the_parameters_that_differ(swept: tw.Campaign, tmp_path: Path) -> None:
    assert swept.to_csv(tmp_path / "out.csv") == 400
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["run", "param_set", "scale", "param_kind", "kind", "value", "even", "label"]
    for row, stored in zip(rows, swept.results(), strict=True):
        assert (int(row["run"]), float(row["value"]), row["label"]) == (stored.run, stored.value, stored.label)
        assert row["even"] == str(stored.even).lower()
        assert float(row["scale"]) == swept.parameters(stored.param_set)["scale"]
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]
    into = io.StringIO()
    swept.to_csv(into)
    assert into.getvalue() == (tmp_path / "out.csv").read_text()


@pytest.mark.parametrize(("place", "said"), [("none/x.csv", "can't be written"), (".", "is a folder")])
def test_a_place_that_cannot_be_written_is_refused(swept: tw.Campaign, tmp_path: Path, place: str, said: str) -> None:
    with pytest.raises(tw.InvalidArgument, match=f"path: .*{said}"):
        swept.to_csv(tmp_path / place)


def test_times_and_nested_values_keep_their_form(packed: tw.Campaign, tmp_path: Path) -> None:
    packed.to_csv(tmp_path / "out.csv")
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
        second = list(csv.DictReader(file))[1]
    assert second == {"run": "1", "hits": "1", "at": "2025-12-31T22:00:01+00:00", "path": "[1,7]"}


def test_parquet_has_types(packed: tw.Campaign, swept: tw.Campaign, tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    assert packed.to_parquet(tmp_path / "out.parquet") == 30
    table = parquet.read_table(tmp_path / "out.parquet")
    assert table.schema.field("at").type == pyarrow.timestamp("us", tz="UTC")
    assert table.column("at")[1].as_py() == datetime.datetime(2025, 12, 31, 22, 0, 1, tzinfo=datetime.UTC)
    swept.to_parquet(tmp_path / "swept.parquet")
    found = parquet.read_table(tmp_path / "swept.parquet").to_pydict()
    assert found["value"] == [row.value for row in swept.results()]
    assert set(found["scale"]) == {1.0, 2.5}


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_frame_has_all_rows(swept: tw.Campaign, library: str) -> None:
    pytest.importorskip(library)
    frame = swept.frame(library)  # type: ignore[arg-type]
    assert list(frame.columns) == ["run", "param_set", "scale", "param_kind", "kind", "value", "even", "label"]
    assert list(frame["value"]) == [row.value for row in swept.results()]


def test_a_missing_package_is_reported_with_its_install_command(
    swept: tw.Campaign, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(tw.InvalidArgument, match=r"pip install 'pyarrow"):
        swept.to_parquet(tmp_path / "out.parquet")
    with pytest.raises(tw.InvalidArgument, match="kind: 'numpy' is not allowed"):
        swept.frame("numpy")  # type: ignore[arg-type]


def test_a_campaign_without_results_says_so(module_store: str, tmp_path: Path) -> None:
    empty = tw.campaign(functions.untyped, runs=10, name="empty", store=module_store)
    with pytest.raises(tw.InvalidArgument, match="'empty' has no results yet"):
        empty.to_csv(tmp_path / "out.csv")
    assert len(empty.summary()) == 0 and repr(empty.summary())
    empty.report().page(tmp_path / "empty.html")
    assert "No worker has stored anything yet" in (tmp_path / "empty.html").read_text()


# Pages


def test_the_page_of_a_sweep_has_pictures_and_a_table_by_set_and_loads_nothing(
    swept: tw.Campaign, tmp_path: Path
) -> None:
    report = swept.report()
    report.page(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    for words in ("Rate over time", "workers' time went", "distribution of value", report.limiting, report.digest):
        assert html.escape(words) in text, words
    assert "http" not in text and "<script" not in text
    assert "<svg" in report._repr_html_() and "distribution" not in report._repr_html_(), "a notebook reads no rows"
    # A row for each of the four sets, with the figures that the summary has.
    [table] = re.findall(r'<section class="wide">.*?</section>', text, re.DOTALL)
    head, *rows = [re.findall(r"<t[hd]>(.*?)</t[hd]>", row) for row in re.findall(r"<tr>(.*?)</tr>", table)]
    assert head[:1] == ["set"] and {"scale", "kind", "fixed", "value", "even"} < set(head) and len(rows) == 4
    for number, row in enumerate(rows):
        cells = dict(zip(head, row, strict=True))
        assert cells["kind"] == swept.parameters(number)["kind"]
        [value] = [
            one for one in swept.summary(by="param_set") if one.column == "value" and one.by["param_set"] == number
        ]
        assert cells["value"] == f"{value.mean:,.6g} ± {value.standard_error:.3g}"
        truths = sum(row.even for row in swept.results() if row.run % 4 == number)
        assert cells["even"].startswith(f"{truths} of 100 true")
    assert "value by parameter set" in text and "By scale, kind" in text
    assert "counts of even" in text and "distribution of even" not in text


def test_a_page_of_many_rows_reads_parts_spread_over_the_runs(
    swept: tw.Campaign, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "_ROWS_MAX", 40)
    monkeypatch.setattr(page, "_ROWS_AT_ONCE", 4)
    swept.report().page(tmp_path / "report.html")
    assert "of 40 of 400 rows" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("runs", [1, 2, 30])
def test_any_values_have_a_picture_that_stays_in_its_frame(tmp_path: Path, runs: int) -> None:
    campaign = tw.campaign(functions.pictured, runs=runs, store=f"sqlite:///{tmp_path}/farm.db")
    campaign.run(workers=1, progress=False).page(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    for name in ("same", "wide", "tenths", "whole", "huge", "huger", "ends", "tiny"):
        assert f"distribution of {name}" in text
    pictures = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(pictures) >= 6
    for picture in pictures:
        assert not re.search(r"\b(nan|inf)\b", picture)
        places = [float(x) for x in re.findall(r' (?:x|x1|x2)="([-\d.]+)"', picture)]
        assert places and all(-1 <= x <= 521 for x in places), places


def test_an_export_that_fails_leaves_the_old_file_and_nothing_else(swept: tw.Campaign, tmp_path: Path) -> None:
    place = tmp_path / "old.csv"
    place.write_text("old")
    code = """
import resource, signal, sys
import tidewire as tw
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
campaign = tw.open_campaign(sys.argv[1], "swept")
resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, 2_000))
try:
    campaign.to_csv(sys.argv[2])
except OSError as error:
    print(type(error).__name__)
"""
    command = [sys.executable, "-c", code, swept.store, str(place)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ran.stdout == "OSError\n", ran.stderr
    assert place.read_text() == "old" and [path.name for path in tmp_path.iterdir()] == ["old.csv"]


def test_a_store_that_is_looked_at_is_not_made(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/typo.db"
    for look in (lambda: tw.campaigns(url), lambda: tw.open_campaign(url, "pi")):
        with pytest.raises(tw.CampaignError, match=r"typo\.db"):
            look()
    assert list(tmp_path.iterdir()) == []
