#!/usr/bin/env python3
"""doxygen_filter.py HEADER: the header as doxygen wants it, on standard output.

The headers have ordinary comments. Doxygen reads only marked ones, so here a `//` block directly
above a declaration becomes `///`, a trailing comment `///<`, and the comment at the top of the file
the description of the file. A class or function that this comment introduces (`Buffer: ...`) and
that has no comment of its own gets it as well. A comment that ends with a colon is for all
declarations down to the next blank line or comment. Comments inside functions stay as they are.
"""

import re
import sys

COMMENT = re.compile(r"^(\s*)//(?!/)(.*)$")
SECTION = re.compile(r"^ -{2,} .* -{2,}$")
SCOPE = re.compile(r"\b(namespace|class|struct|enum|union)\b")
INTRODUCED = re.compile(r"^ ([A-Za-z_][\w<>]*(?:(?:, | and )[A-Za-z_][\w<>]*)*): ")


def without_literals(code):
    """The code with strings, characters and a trailing comment taken out."""
    code = re.sub(r'"(?:\\.|[^"\\])*"', '""', code)
    code = re.sub(r"'(?:\\.|[^'\\])'", "''", code)
    return code.split("//", 1)[0]


def comment_at(line):
    """Where the trailing comment of a line of code begins, or -1."""
    return re.sub(r'"(?:\\.|[^"\\])*"', lambda text: "_" * len(text[0]), line).find("//")


def without_template(text):
    """A declaration behind its `template <...>`."""
    text = text.strip()
    while text.startswith("template"):
        depth = 0
        for i, char in enumerate(text):
            depth += (char == "<") - (char == ">")
            if char == ">" and depth == 0:
                text = text[i + 1 :].strip()
                break
        else:
            return ""
    return text


class Scopes:
    """Whether a line stands where declarations are, or inside a function."""

    def __init__(self):
        self._open = []
        self._statement = ""
        self._in_directive = False

    def is_declaring(self):
        return all(self._open)

    def is_fresh(self):
        """Nothing of the current declaration has been read."""
        return not self._statement.strip()

    def read(self, line):
        if self._in_directive or line.lstrip().startswith("#"):
            self._in_directive = line.endswith("\\")
            return
        for char in without_literals(line):
            if char == "{":
                text = without_template(self._statement)
                self._open.append(bool(SCOPE.search(text)) and "operator" not in text)
                self._statement = ""
            elif char == "}":
                if self._open:
                    self._open.pop()
                self._statement = ""
            elif char == ";":
                self._statement = ""
            else:
                self._statement += char
        self._statement = re.sub(r"\b(public|protected|private)\s*:(?!:)", "", self._statement) + " "


def escaped(text):
    """Prose without what doxygen would take for a command or a tag; `code` stays."""
    parts = text.split("`")
    for i in range(0, len(parts), 2):
        parts[i] = re.sub(r"([\\@<>#&]|::(?=main\b))", r"\\\1", parts[i])
    return "`".join(parts)


def marked(indent, lines):
    """A block of comment texts as doxygen's: indented parts are code."""
    out, code = [], []

    def end_code():
        while code and not code[-1].strip():
            code.pop()
        if code:
            width = min(len(c) - len(c.lstrip()) for c in code if c.strip())
            code[:] = [c[width:] for c in code]
            is_cpp = any(";" in c for c in code)
            kind = ("code{.cpp}", "endcode") if is_cpp else ("verbatim", "endverbatim")
            out.extend([f"{indent}/// @{kind[0]}", *(f"{indent}/// {c}" for c in code)])
            out.append(f"{indent}/// @{kind[1]}")
            code.clear()

    for text in lines:
        if text.startswith("   ") or (code and not text.strip()):
            code.append(text)
        else:
            end_code()
            out.append(f"{indent}///{escaped(text)}")
    end_code()
    return out


def introduced(first):
    """The names that the file's comment introduces."""
    match = INTRODUCED.match(first)
    return {re.sub(r"<.*", "", name) for name in re.split(", | and ", match[1])} if match else set()


def declared(lines, at):
    """The name of the class or function that is declared from this line on, or an empty text."""
    text = without_template(" ".join(without_literals(line) for line in lines[at : at + 6]))
    match = re.match(r"(?:class|struct)\s+(?:DIVISI_API\s+)?(\w+)\s*(?:[{:;]|final)", text)
    match = match or re.match(r"#define (\w+)", lines[at])
    match = match or re.match(r"(?:DIVISI_API\s+)?[\w:<>]+[&*]?\s+(\w+)\(", text)
    return match[1] if match else ""


class Filter:
    """One header, line by line."""

    def __init__(self, lines):
        self._lines = lines
        self._at = 0
        self._out = []
        self._scopes = Scopes()
        self._column = -1  # of the trailing comment of the line before
        self._group = []  # the comment of the declarations that follow

    def run(self):
        """The marked lines."""
        about = self._block()
        self._about = marked("", about)
        self._names = introduced(about[0]) if about else set()
        self._out += ["/// @file", *self._about]
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if COMMENT.match(line) and self._scopes.is_declaring():
                self._comment(line)
            else:
                self._code(line)
        return self._out

    def _block(self):
        """Reads comment lines; their texts."""
        texts = []
        while self._at < len(self._lines) and COMMENT.match(self._lines[self._at]):
            texts.append(COMMENT.match(self._lines[self._at])[2])
            self._at += 1
        return texts

    def _comment(self, line):
        indent = line[: line.index("//")]
        if self._column == len(indent):  # a trailing comment goes on
            self._out.append(f"{indent}///<{escaped(line[len(indent) + 2 :])}")
            self._at += 1
            return
        if self._out[-1:] and "///<" in self._out[-1]:
            self._out.append("")  # or doxygen would take the two for one comment
        texts = [text for text in self._block() if not text.startswith(" NOLINT")]
        while texts and (SECTION.match(texts[0]) or not texts[0].strip()):
            texts.pop(0)
        following = self._lines[self._at].strip() if self._at < len(self._lines) else ""
        if not texts or following in ("", "}") or not self._scopes.is_fresh():
            self._group = []
            return
        self._names.discard(declared(self._lines, self._at))
        is_for_all = texts[-1].endswith(":")
        if is_for_all:
            texts[-1] = texts[-1][:-1] + "."
        block = marked(indent, texts)
        self._out += block
        self._code(self._lines[self._at])
        self._group = block if is_for_all else []

    def _code(self, line):
        self._at += 1
        self._column = -1
        if not line.strip():
            self._group = []
        elif self._scopes.is_declaring():
            note_at = -1 if line.startswith("#") else comment_at(line)
            if self._scopes.is_fresh():
                self._inherit(line, note_at)
            if note_at > 0:
                self._column = note_at
                line = self._noted(line[:note_at].rstrip(), line[note_at + 2 :].strip())
        self._scopes.read(line)
        self._out.append(line)

    def _inherit(self, line, note_at):
        """The comment of a declaration that has none directly above it."""
        name = declared(self._lines, self._at - 1)
        is_forward = line.endswith(";") and "(" not in line
        if name in self._names and not is_forward:
            self._names.discard(name)
            self._out += self._about
        elif note_at < 0:
            self._out += self._group

    @staticmethod
    def _noted(code, note):
        is_end = code.endswith("{") or code.strip() in ("}", "};")
        if not note or note.startswith("NOLINT") or is_end:
            return code
        return f"{code}  ///< {escaped(note)}"


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        print("\n".join(Filter(file.read().split("\n")).run()))


if __name__ == "__main__":
    main()
