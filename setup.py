"""What pyproject.toml cannot say: ``conf/`` stands at the top of the repository and goes into the
wheel as ``dgbench/conf``.
"""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

CONF = Path(__file__).parent / "conf"


class BuildWithConf(build_py):
    """Copies ``conf/`` beside the modules, except for an editable install, which finds it at the
    top.
    """

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            self.copy_tree(str(CONF), str(Path(self.build_lib) / "dgbench" / "conf"))


setup(cmdclass={"build_py": BuildWithConf})
