"""The blocks of docs/python.md are parts of the examples, which scripts/python-check runs."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import darter
import pytest

ROOT = Path(__file__).parents[3]
EXAMPLES = Path(__file__).parents[1] / "examples"


def test_blocks_are_in_the_examples() -> None:
    examples = [path.read_text() for path in EXAMPLES.glob("*.py")]
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/python.md").read_text(), re.DOTALL)
    assert len(blocks) == 6
    for block in blocks:
        assert any(block in example for example in examples), block


def test_every_public_name_has_a_docstring() -> None:
    for name in darter.__all__:
        value = getattr(darter, name)
        assert value.__doc__, name
        for attribute in dir(value) if isinstance(value, type) else ():
            if not attribute.startswith("_") and not hasattr(Exception, attribute):
                member = getattr(value, attribute)
                assert not callable(member) or member.__doc__, f"{name}.{attribute}"


@pytest.mark.parametrize("kind", [darter.Store, darter.Transaction])
def test_examples_of_the_extension_module(kind: type) -> None:
    parser, found = doctest.DocTestParser(), 0
    for name in dir(kind):
        text = getattr(kind, name).__doc__ if not name.startswith("_") else None
        if text is not None and name not in vars(kind):
            found += text.count(">>> ")
            with darter.open("mem:16M") as db:
                runner = doctest.DocTestRunner(verbose=False)
                globals = {"db": db, "darter": darter}
                runner.run(parser.get_doctest(text, globals, f"{kind.__name__}.{name}", None, 0))
                assert runner.failures == 0, name
    assert found > 5


def test_all_errors_are_exported() -> None:
    from darter import _errors

    assert set(_errors.__all__) <= set(darter.__all__)
    assert all(issubclass(getattr(darter, name), darter.Error) for name in _errors.__all__)
