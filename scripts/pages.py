"""Shared by the scripts that check pages: the pages' folder, and the code blocks in a page."""

import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent


def outside_code(lines):
    """The lines outside of code blocks, with their numbers."""
    fenced = False
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield number, line


def code_blocks(text, language):
    """The code blocks of a language: for each its lines with their numbers."""
    block = None
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("```"):
            if block is not None:
                block.append((number, line))
        elif block is not None:
            yield block
            block = None
        elif line == f"```{language}":
            block = []
