"""Tables of text, by hand."""

from experiments.tables import marked, plain


def test_markdown() -> None:
    assert marked(("a", "b"), [("x|y", "1")]) == "| a | b |\n| --- | --- |\n| x\\|y | 1 |"


def test_columns_stand_under_each_other() -> None:
    rows = [("data 8", "7", "x"), ("fsdp", "1,024", "")]
    assert plain(("mesh", "rows", ""), rows) == ["mesh    rows", "data 8  7      x", "fsdp    1,024"]
    assert plain(("mesh", "rows", ""), rows, right=True) == ["mesh     rows", "data 8      7  x", "fsdp    1,024"]
