#!/usr/bin/env python3
"""Prints `PASSED FAILED` of a JUnit file, then one line for each test that failed or was skipped."""

import sys
import xml.etree.ElementTree as ElementTree


def main(path):
    passed, failed, lines = 0, 0, []
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        name = case.get("name", "?")
        if case.find("failure") is not None or case.find("error") is not None or case.get("status") == "fail":
            failed += 1
            lines.append(f"failed: {name}")
        elif case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
            reason = case.find("skipped")
            reason = reason.get("message", "") if reason is not None else ""
            # A test that was registered but whose program is missing is no pass.
            if "Unable to find executable" in reason or "NOT_BUILT" in name:
                failed += 1
                lines.append(f"failed: {name} (not built)")
            else:
                lines.append(f"skipped: {name} {reason}")
        else:
            passed += 1
    print(passed, failed)
    print("\n".join(lines))


if __name__ == "__main__":
    main(sys.argv[1])
