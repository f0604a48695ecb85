#!/usr/bin/env python3
"""undocumented.py XML_FOLDER: names of the public C++ API that have no comment, one a line.

Reads doxygen's XML. Of overloads one comment is enough; what the language defines (destructors,
copies, moves, assignment) needs none, nor do the ready-made Coders: coder.h has them in a table.
"""

import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path


# Parts of macros, and what macros put into a class.
INTERNAL = re.compile(r"^divisi_|^DIVISI_DETAIL_|_(NUMBERED|EXPANDED)$")


def has_text(element):
    """Whether doxygen found a comment."""
    parts = (element.find(tag) for tag in ("briefdescription", "detaileddescription"))
    return any(part is not None and "".join(part.itertext()).strip() for part in parts)


def is_special(member, owner):
    """A member that every class has."""
    name = member.findtext("name", "")
    if name.startswith("~") or name == "operator=":
        return True
    if name != owner or member.get("kind") != "function":
        return False
    types = ["".join(param.find("type").itertext()) for param in member.findall("param")]
    same = re.compile(rf"(const )?{owner} ?&?&?")
    return not types or (len(types) == 1 and same.fullmatch(types[0].strip()) is not None)


def of_compound(compound):
    """Undocumented names of one class, namespace or file."""
    full = compound.findtext("compoundname", "")
    kind = compound.get("kind")
    if "<" in full or re.search(r"\b(detail|runtime|event)\b", full) or compound.get("prot") == "private":
        return
    is_class = kind in ("class", "struct", "concept")
    if is_class and not has_text(compound):
        yield full
    owner = full.rsplit("::", 1)[-1] if is_class else ""
    documented, bare = set(), []
    for member in compound.iter("memberdef"):
        name = member.findtext("name", "")
        if member.get("prot") == "private" or (kind == "file") != (member.get("kind") == "define"):
            continue
        if member.get("kind") == "friend" or INTERNAL.search(name):
            continue
        if member.get("kind") == "enum":
            values = (value for value in member.findall("enumvalue") if not has_text(value))
            yield from (f"{full}::{name}::{value.findtext('name')}" for value in values)
        if has_text(member):
            documented.add(name)
        elif not is_special(member, owner):
            bare.append(name)
    yield from (f"{full}::{name}" for name in dict.fromkeys(bare) if name not in documented)


def main():
    names = []
    for path in sorted(Path(sys.argv[1]).glob("*.xml")):
        for compound in ElementTree.parse(path).getroot().iter("compounddef"):
            if compound.get("kind") in ("class", "struct", "namespace", "concept", "file"):
                names += of_compound(compound)
    print("\n".join(names), end="\n" if names else "")
    return 1 if names else 0


if __name__ == "__main__":
    sys.exit(main())
