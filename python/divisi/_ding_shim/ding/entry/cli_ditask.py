"""The command `ditask`."""

from divisi.launch import main as cli_ditask

__all__ = ["cli_ditask"]

if __name__ == "__main__":
    cli_ditask()
