"""The contents of the report: names for readers, and pages."""

from scalecard.report import answers, sections, toc


def test_what_is_listed_exists_once_and_has_a_name() -> None:
    listed = [name for page in toc.PAGES.values() for name in page]
    assert len(set(listed)) == len(listed)
    assert set(listed) <= {*sections.names(), *answers.names()}
    assert set(toc.NAMES) == set(listed)
    assert len(set(toc.NAMES.values())) == len(listed)


def test_pages_without_anything_are_left_out_and_trouble_is_marked() -> None:
    found = toc.by_page(["ddp", "copy_cost", "new_one", "allreduce", "health"], {"allreduce": False, "copy_cost": True})
    assert list(found) == ["Health", "Learn", "Others"]
    assert [(toc.label(name), judged) for name, judged in found["Health"]] == [
        ("Health", None),
        ("Copies", True),
        ("All-reduce", False),
    ]
    assert toc.label(found["Others"][0][0]) == "new one"
