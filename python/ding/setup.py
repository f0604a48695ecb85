"""Puts divisi_ding.pth beside the module; everything else is in pyproject.toml."""

import os

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithPth(build_py):
    """Setuptools has no word for a file at the top of site-packages that is not a module."""

    _PTH = "divisi_ding.pth"

    def run(self):
        """Builds the module, then copies the file."""
        super().run()
        self.copy_file(self._PTH, os.path.join(self.build_lib, self._PTH))

    def get_outputs(self, include_bytecode=1):
        """The module and the file."""
        return [*super().get_outputs(include_bytecode), os.path.join(self.build_lib, self._PTH)]


setup(cmdclass={"build_py": BuildWithPth})
