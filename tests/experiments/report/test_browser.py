"""The page in a browser: filters, curves, pages of runs, themes and narrow screens, against the result files."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest

from experiments.report.collect import collect
from experiments.report.page import make_page
from experiments.results import write_result
from tests.experiments.report.browser import NAMES, Browser, find_browser

LONG = "</script><b>a-name-that-is-much-too-long-for-any-table-" + 8 * "and-longer"
ROWS = """[...document.querySelectorAll('#run-list tbody tr:not([hidden])')]
    .map(row => [...row.cells].map(cell => cell.textContent))"""
LEGEND = "[...document.querySelectorAll('#wikitext .legend a')].map(link => link.textContent)"
READ = """[...document.querySelectorAll('#wikitext .readout:not([hidden]) li')]
    .map(item => [item.querySelector('span').textContent, Number(item.querySelector('b').textContent)])"""
PLACE = """(() => { const box = document.querySelector('#wikitext .canvas'); box.scrollIntoView({block: 'center'});
    const {left, top, width, height} = box.getBoundingClientRect(); return [left, top, width, height]; })()"""


@pytest.fixture
def results(make_result, make_run, make_reconstruction):
    nats = {"base": [6.0, 5.5, 5.25], "tensor": [5.75, 5.375, 5.125], "tensor_depth": [5.5, 5.0, 4.625]}
    language = [
        make_result(
            model=model,
            seed=seed,
            causal=model != "tensor_depth",
            history={"step": [250, 500, 750], "tokens": [1, 2, 3], "validation_nats": [v + seed / 8 for v in values]},
            metrics__test_perplexity=200.25 + seed - 8 * place,
            gates=[0.25, 0.75] if model != "base" else None,
        )
        for place, (model, values) in enumerate(nats.items())
        for seed in (0, 1)
    ]
    return [*language, make_run("tensor", 0.75, zero=0.5), make_reconstruction(), make_result(model=LONG, command=LONG)]


@pytest.fixture
def browser(tmp_path, results):
    """A browser that has the report of the results open."""
    executable = find_browser()
    if executable is None:
        pytest.skip(f"needs a browser: none of {', '.join(NAMES)} is installed (Debian: apt-get install chromium)")
    for number, result in enumerate(results):
        write_result(tmp_path / "runs" / str(number) / "result.json", result)
    log = [{"step": step, "train/nats": 8 - step / 100} for step in range(10, 510, 10)]
    (tmp_path / "runs" / "0" / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in log))
    page = tmp_path / "report.html"
    page.write_text(make_page(*collect([tmp_path / "runs"]), figures=False)[0], encoding="utf-8")
    (tmp_path / "profile").mkdir()
    browser = Browser(executable, tmp_path / "profile")
    try:
        browser.resize(1280)
        browser.prefer("light")
        browser.open(page.as_uri())
        yield browser
        assert browser.errors == []
        assert [url for url in browser.requests if not url.startswith(("file:", "data:"))] == []
    finally:
        browser.close()


def click(browser, selector):
    browser.evaluate(f"document.querySelector({json.dumps(selector)}).click()")


def pressed(browser, name, value):
    click(browser, f'[data-filter="{name}"][data-value="{value}"]')


def row_of(result):
    """What the list of runs must show of a result: model, benchmark, seed and value."""
    metric, digits = {
        "wikitext": ("test_perplexity", 2),
        "diagnostics": ("test_accuracy", 4),
        "cub200": ("test_psnr", 2),
    }[result["experiment"]]
    value = f"{result['metrics'][metric]:.{digits}f}"
    return (result["model"], result["experiment"], str(result["seed"]), value)


def listed(browser):
    return sorted((row[0], row[1], row[2], row[5]) for row in browser.evaluate(ROWS))


def test_filters_act_on_runs_curves_and_pages(browser, results):
    def check(leaves, legend):
        kept = [result for result in results if leaves(result)]
        assert listed(browser) == sorted(map(row_of, kept))
        assert browser.evaluate(LEGEND) == legend
        return kept

    everything = browser.evaluate(LEGEND)
    assert len(everything) == 7
    assert len(check(lambda _: True, everything)) == 9
    pressed(browser, "model", "tensor")
    check(lambda r: r["model"] == "tensor", ["tensor, seed 0", "tensor, seed 1"])
    pressed(browser, "model", "tensor_depth")
    pressed(browser, "seed", "1")
    check(lambda r: r["model"].startswith("tensor") and r["seed"] == 1, ["tensor, seed 1", "tensor_depth, seed 1"])
    pressed(browser, "causal", "yes")
    (kept,) = check(lambda r: r["model"] == "tensor" and r["seed"] == 1, ["tensor, seed 1"])
    assert "1 of 9 runs" in browser.evaluate("document.querySelector('.outcome').textContent")
    assert browser.evaluate("document.getElementById('diagnostics').hidden")

    click(browser, "#run-list tbody tr:not([hidden]) a")
    browser.wait("!document.getElementById('run').hidden")
    values = browser.evaluate(
        """Object.fromEntries([...document.querySelectorAll('[data-key]')]
            .map(entry => [entry.dataset.key, entry.lastChild.textContent]))"""
    )
    assert float(values["test_perplexity"]) == kept["metrics"]["test_perplexity"] == 193.25
    assert values["torch"] == kept["provenance"]["versions"]["torch"]
    assert browser.evaluate("document.querySelector('.command').textContent") == kept["command"]
    assert browser.evaluate("document.querySelectorAll('.steps a').length") == 1, "no neighbour is left by the filters"
    pressed(browser, "seed", "1")
    assert browser.evaluate("document.querySelector('.steps [rel=prev]').hash").startswith("#run/tensor-seed0")
    pressed(browser, "model", "tensor")
    assert "filters leave this run out" in browser.evaluate("document.getElementById('run').textContent")

    click(browser, "#clear")
    browser.evaluate("location.hash = '#runs'")
    browser.wait("!document.getElementById('sections').hidden")
    check(lambda _: True, everything)


def test_curves_are_read_zoomed_and_told_by_keyboard(browser, results):
    pressed(browser, "model", "base")
    pressed(browser, "model", "tensor_depth")
    histories = {
        f"{r['model']}, seed {r['seed']}": r["history"]["validation_nats"]
        for r in results
        if r["experiment"] == "wikitext" and r["model"] in ("base", "tensor_depth")
    }
    zoomed = "document.querySelector('#wikitext .chart').classList.contains('zoomed')"
    left, top, width, height = browser.evaluate(PLACE)
    middle = top + height / 2
    browser.mouse("Moved", left + width - 20, middle)
    assert dict(browser.evaluate(READ)) == {name: values[2] for name, values in histories.items()}
    assert len(browser.evaluate("[...document.querySelectorAll('#wikitext .line [stroke-dasharray]')]")) == 2

    browser.mouse("Pressed", left + 0.3 * width, middle)
    browser.mouse("Moved", left + 0.7 * width, middle, buttons=1)
    browser.mouse("Released", left + 0.7 * width, middle)
    assert browser.evaluate(zoomed)
    browser.mouse("Moved", left + width - 20, middle)
    assert dict(browser.evaluate(READ)) == {name: values[1] for name, values in histories.items()}, "the ends are gone"
    browser.evaluate("document.querySelector('#wikitext .canvas').focus()")
    browser.press("Home")
    assert dict(browser.evaluate(READ)) == {name: values[1] for name, values in histories.items()}
    assert "step 500: base, seed 1 5.625; base, seed 0 5.5; " in browser.evaluate(
        "document.querySelector('#wikitext [aria-live]').textContent"
    )
    click(browser, "#wikitext .reset")
    assert not browser.evaluate(zoomed)
    browser.press("Home")
    assert dict(browser.evaluate(READ)) == {name: values[0] for name, values in histories.items()}

    click(browser, "#wikitext .numbers summary")
    browser.wait("document.querySelector('#wikitext .numbers tbody')")
    table = browser.evaluate(
        "[...document.querySelectorAll('#wikitext .numbers tr')].map(row => [...row.cells].map(c => c.textContent))"
    )
    columns = dict(zip(table[0][1:], zip(*(map(float, row[1:]) for row in table[1:]), strict=True), strict=True))
    assert columns == {name: pytest.approx(values, rel=1e-4) for name, values in histories.items()}
    browser.evaluate(
        """(() => { const select = document.querySelectorAll('#wikitext .controls select')[1];
            select.value = 'log train/nats'; select.dispatchEvent(new Event('change')); })()"""
    )
    assert browser.evaluate(LEGEND) == ["base, seed 0"]
    browser.press("End")
    assert dict(browser.evaluate(READ)) == {"base, seed 0": 3.0}


def test_themes_and_narrow_screens(browser, results):
    ground = "getComputedStyle(document.body).backgroundColor"
    light = browser.evaluate(ground)
    browser.prefer("dark")
    dark = browser.evaluate(ground)
    assert light != dark
    click(browser, "#theme")
    assert browser.evaluate(ground) == light
    assert browser.evaluate("document.getElementById('theme').getAttribute('aria-pressed')") == "false"
    browser.prefer("light")
    click(browser, "#theme")
    assert browser.evaluate(ground) == dark

    browser.resize(390, 844)
    assert browser.evaluate("document.documentElement.scrollWidth") <= 390
    assert browser.evaluate("[...document.querySelectorAll('.scroll')].some(box => box.scrollWidth > box.clientWidth)")
    for result in (results[2], results[-1]):
        name = f"{result['model']}-seed{result['seed']}-{result['config_hash']}"
        browser.evaluate(f"location.hash = {json.dumps('#run/' + quote(name))}")
        browser.wait(f"document.title.startsWith({json.dumps(name)})")
        browser.evaluate("document.querySelectorAll('#run details').forEach(one => { one.open = true; })")
        assert browser.evaluate("document.getElementById('run-title').textContent") == f"{result['model']}, seed 0"
        assert browser.evaluate("document.documentElement.scrollWidth") <= 390
    assert browser.evaluate("document.querySelector('b b, article > b, h2 b')") is None
