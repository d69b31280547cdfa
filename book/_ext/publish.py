"""Buttons that need the repository's address: source, issues, download and launch, off until it is set.

One setting in `_config.yml`, `repository_address` under sphinx.config, switches all of them on.
"""

from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.errors import ConfigError


def switch_on(app: Sphinx, config: Config) -> None:
    """Give the theme the address and ask for its buttons."""
    address = config.repository_address
    if not address:
        return
    if not address.startswith("https://github.com/"):
        raise ConfigError(
            f"repository_address is {address!r}, expected https://github.com/OWNER/NAME, or nothing"
        )
    config.html_theme_options |= {
        "repository_url": address.rstrip("/"),
        "repository_branch": "main",
        "use_repository_button": True,
        "use_issues_button": True,
        "launch_buttons": {
            "notebook_interface": "jupyterlab",
            "binderhub_url": "https://mybinder.org",
            "colab_url": "https://colab.research.google.com",
            "thebe": False,
        },
    }


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_config_value("repository_address", "", "html", types=[str])
    app.connect("config-inited", switch_on, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
