"""Finds the parts of pages that the benchmarks write, which are between two marks."""


def around_marks(page, begin, end):
    """Returns the page's text before and after the marks."""
    text = page.read_text() if page.exists() else ""
    if text.count(begin) != 1 or text.count(end) != 1:
        raise SystemExit(f"error: {page} must have one line '{begin}' and one '{end}'")
    return text.split(begin)[0], text.split(end)[1]


def replace_between(page, begin, end, text):
    before, after = around_marks(page, begin, end)
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}")
    print(f"wrote {page}")
