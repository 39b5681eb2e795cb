"""Opens the report of a real run in a real browser: it must have no complaints and no empty chart, be legible in both
colour schemes and in a narrow window, be usable by keyboard, and open quickly.

Usage: report_browser.py PROGRAM [SCREENSHOTS]. Trains ten epochs on two ranks with a small generated MNIST. If a
folder SCREENSHOTS is given, writes pictures of the page there. Skipped (77) without Chromium, which
tools/bootstrap.sh chromium installs.
"""
import gzip
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

import browser

IMAGES = 512
SIDE = 28
# The target is 1 s on an otherwise idle machine; a busy one may take longer.
MOST_SECONDS = 5
MOST_BYTES = 1_000_000
NARROW = 380


def write_mnist(folder):
    numbers = random.Random(1)
    for split in ("train", "t10k"):
        labels = bytes(number % 10 for number in range(IMAGES))
        # A bright bar whose position is the class, so that there is something to learn.
        images = bytearray(numbers.randrange(64) for _ in range(IMAGES * SIDE * SIDE))
        for number, label in enumerate(labels):
            at = number * SIDE * SIDE + (4 + 2 * label) * SIDE
            images[at:at + SIDE] = bytes([230] * SIDE)
        (folder / f"{split}-images-idx3-ubyte.gz").write_bytes(
            gzip.compress(struct.pack(">4i", 2051, IMAGES, SIDE, SIDE) + bytes(images), 1))
        (folder / f"{split}-labels-idx1-ubyte.gz").write_bytes(
            gzip.compress(struct.pack(">2i", 2049, IMAGES) + labels, 1))


def run(*words):
    result = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    assert result.returncode == 0, f"{words}: {result.stderr}"


def train(program, data, out, ranks):
    run(program, "train", "mnist", "--data", data, "--nproc-per-node", ranks, "--max-epochs", 10, "--batch-size", 32,
        "--threads", 1, "--workers", 1, "--accelerator", "cpu", "--trace", "--out", out)


# Texts that extend beyond their picture, and texts that are too small to read.
TEXTS = """[...document.querySelectorAll('svg text')].filter(text => text.getClientRects().length).flatMap(text => {
  const own = text.getBoundingClientRect(), all = text.ownerSVGElement.getBoundingClientRect();
  const size = parseFloat(getComputedStyle(text).fontSize) * all.width / text.ownerSVGElement.viewBox.baseVal.width;
  const leaves = own.left < all.left - 2 || own.right > all.right + 2 || own.top < all.top - 2 ||
                 own.bottom > all.bottom + 2;
  return leaves || size < 10 ? [`${text.textContent}: ${size.toFixed(1)} px${leaves ? ', leaves its picture' : ''}`] : [];
})"""

# The visible charts, each with the number of its shapes that represent values and are not empty.
CHARTS = """[...document.querySelectorAll('svg')].filter(svg => svg.getClientRects().length).map(svg => {
  const shapes = [...svg.querySelectorAll('rect,circle,path.a')].filter(shape => {
    const box = shape.getBoundingClientRect();
    return box.width > 0 || box.height > 0;
  });
  return [svg.getAttribute('aria-label'), shapes.length, svg.getBoundingClientRect().width];
})"""

EMPTY_FIGURES = """[...document.querySelectorAll('figure')].filter(figure =>
  ![...figure.querySelectorAll('svg,img,table')].some(each => each.getBoundingClientRect().height > 20) ||
  [...figure.querySelectorAll('img')].some(img => !img.naturalWidth)).map(figure => figure.ariaLabel)"""

# Visible tables of which a column is cut off.
CUT_TABLES = """[...document.querySelectorAll('.scroll')].filter(each =>
  !each.closest('details:not([open])') && each.scrollWidth > each.clientWidth + 1).map(each => each.ariaLabel)"""

# The contrast between each kind of text and the page, as defined by WCAG.
CONTRAST = """(() => {
  const light = color => {
    const [r, g, b] = color.match(/[\\d.]+/g).map(Number).map(c => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const back = light(getComputedStyle(document.body).backgroundColor);
  const ratio = color => { const own = light(color); return (Math.max(own, back) + 0.05) / (Math.min(own, back) + 0.05); };
  const worst = {};
  for (const each of document.querySelectorAll('p,td,th,a,summary,b,span,h1,h2,h3,svg text')) {
    const style = getComputedStyle(each), color = each.closest('svg') ? style.fill : style.color;
    worst[color] = ratio(color);
  }
  return [getComputedStyle(document.body).backgroundColor, Math.min(...Object.values(worst))];
})()"""

FOCUSED = "(document.activeElement.className || '') + ' ' + document.activeElement.tagName"


def check_keyboard(page):
    page.press("Tab", 9)
    assert page.value(FOCUSED) == "skip A", page.value(FOCUSED)
    assert page.value("document.activeElement.getBoundingClientRect().left") >= 0, "the skip link is not to be seen"
    for _ in range(100):
        page.press("Tab", 9)
        if page.value("document.activeElement.tagName") == "SUMMARY":
            break
    assert page.value("document.activeElement.tagName") == "SUMMARY", "no table is reached by the keyboard"
    outline = page.value("getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none", "the focus is not to be seen"
    page.press("Enter", 13)
    assert page.value("document.activeElement.parentElement.open"), "Enter does not open the rows"


def check(page, path, figures, pictures, name):
    assert path.stat().st_size <= MOST_BYTES, f"{path} has {path.stat().st_size} bytes"
    xml.etree.ElementTree.parse(path)  # well-formed
    page.show_as(1280)
    page.open(path.as_uri())  # the first page is a warm-up for the browser
    seconds = page.open(path.as_uri())
    timing = page.value("performance.getEntriesByType('navigation')[0].loadEventEnd / 1000")
    print(f"{name}: {path.stat().st_size} bytes, load event after {timing:.3f} s, drawn after {seconds:.3f} s")
    assert seconds < MOST_SECONDS, f"the page opens in {seconds:.1f} s"
    backs = set()
    for scheme in ("light", "dark"):
        for width in (1280, 800, NARROW):
            page.show_as(width, scheme=scheme)
            page.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
            where = f"{name}, {scheme}, {width} px"
            back, contrast = page.value(CONTRAST)
            backs.add(back)
            assert contrast >= 4.5, f"{where}: a text has the contrast {contrast:.2f}"
            wide = page.value("document.documentElement.scrollWidth")
            assert wide <= width, f"{where}: the page is {wide} px wide"
            cut = page.value(CUT_TABLES) if width >= 800 else []
            assert not cut, f"{where}: a column is cut off in {cut}"
            charts = page.value(CHARTS)
            for title, shapes, chart_width in charts:
                assert shapes > 0 and chart_width > 200, f"{where}: {title} has {shapes} shapes, {chart_width} px"
            titles = {title for title, _, _ in charts}
            assert figures <= titles, f"{where}: no {figures - titles}"
            for complaint in (page.value(TEXTS), page.value(EMPTY_FIGURES)):
                assert not complaint, f"{where}: {complaint}"
            if pictures:
                page.screenshot(pictures / f"{name}_{scheme}_{width}.png")
    assert len(backs) == 2, f"both schemes have the background {backs}"
    page.show_as(1280)
    check_keyboard(page)
    outside = [url for url in page.requests if not url.startswith(("file:", "data:", "about:"))]
    assert not outside, f"the page asks for {outside}"
    assert not page.complaints, f"the browser complains: {page.complaints}"


# Percentage of a step that the critical path must account for.
LEAST_ACCOUNTED = 99


def check_accounted(path):
    share = float(re.search(r" accounts for ([\d.]+)% of its ", path.read_text())[1])
    print(f"the critical path accounts for {share} %")
    assert LEAST_ACCOUNTED <= share <= 100, f"the critical path accounts for {share} %"


COMMON = {"Loss", "Validation: accuracy", "Throughput", "Phases of a step",
          "Processors that a rank keeps busy, the mean over the ranks", "Critical path", "The loader's queue"}


def main():
    chromium = browser.find_chromium()
    if chromium is None:
        print("skipped: there is no Chromium, which tools/bootstrap.sh chromium installs")
        return 77
    program = sys.argv[1]
    pictures = pathlib.Path(sys.argv[2]).resolve() if len(sys.argv) > 2 else None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        folder = pathlib.Path(place)
        data = folder / "data"
        data.mkdir()
        write_mnist(data)
        for ranks in (1, 2):
            train(program, data, folder / f"run-{ranks}", ranks)
        run(program, "data", "preview", "mnist", "--data", data, "--out", folder / "run-2/preview.png")
        run(program, "report", folder / "run-2", "--out", folder / "one.html")
        check_accounted(folder / "one.html")
        run(program, "report", folder / "run-1", folder / "run-2", "--out", folder / "two.html")
        page = browser.Browser(chromium, folder / "profile")
        try:
            check(page, folder / "one.html", COMMON, pictures, "one_run")
            assert page.value("document.images.length") == 1, "the contact sheet is not there"
            check(page, folder / "two.html", COMMON | {"Speed-up by ranks"}, pictures, "two_runs")
        finally:
            page.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
