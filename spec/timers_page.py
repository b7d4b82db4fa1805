"""The site's page of every timer: a hook of MkDocs (mkdocs.yml).

`mrc doctor --timers` prints the same table from the same rows, so that no copy of it has to be kept.
"""

from __future__ import annotations

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from openmrc.programs.endpoint.timer_table import as_markdown

PAGE = "timers.md"
_HEAD = """# Every timer

Values are defaults. `mrc doctor --timers` prints this table; [Timeouts](timeouts.md) says which timer of a job fires
first. Timers of the modelled transports in the simulator are part of their [scenarios](simulator/scenarios.md).

"""


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the page to the site."""
    files.append(File.generated(config, PAGE, content=_HEAD + as_markdown().replace("\n### ", "\n## ") + "\n"))
    return files
