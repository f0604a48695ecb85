"""What the commands beside this package have in common: arguments, one line for an error, exit codes."""

import argparse
import pathlib
import signal
import sys

from .problem import Problem

PROGRAM = pathlib.Path(sys.argv[0]).name


class Arguments(argparse.ArgumentParser):
    """Ends with 2 and one line, and knows no abbreviations: what works today works tomorrow."""

    def __init__(self, description, **options):
        super().__init__(prog=PROGRAM, description=description, allow_abbrev=False,
                         formatter_class=argparse.RawDescriptionHelpFormatter, **options)

    def add_name(self):
        self.add_argument("--name", default="default",
                          help="which instance; up to 24 of a-z, 0-9 and - (default: default)")

    def error(self, message):
        self.exit(2, f"{self.prog}: {message} (see tests/kubernetes/{self.prog} --help)\n")


def say(line):
    """Progress: to the side, so that the output holds answers only."""
    print(f"{PROGRAM}: {line}", file=sys.stderr, flush=True)


def run(main):
    """main() returns the exit code. Asked to end, it still cleans up on its way out."""

    def interrupt(number, _frame):
        raise SystemExit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
    try:
        sys.exit(main())
    except Problem as problem:
        print(f"{PROGRAM}: {problem}", file=sys.stderr)
        sys.exit(1)
