#!/usr/bin/env python3
"""Prints `PASSED FAILED` of a JUnit file, then one line for each test that failed. A test that did not
run has failed: everything that it needs is installed, or is to be."""

import sys
import xml.etree.ElementTree as ElementTree


def main(path):
    passed, failed = 0, []
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        name, skipped = case.get("name", "?"), case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None or case.get("status") == "fail":
            failed.append(name)
        elif skipped is not None or case.get("status") in ("notrun", "disabled"):
            reason = skipped.get("message", "") if skipped is not None else ""
            failed.append(f"{name} (skipped: {' '.join(reason.split()) or 'no reason given'})")
        else:
            passed += 1
    print(passed, len(failed))
    for line in failed:
        print(line)


if __name__ == "__main__":
    main(sys.argv[1])
