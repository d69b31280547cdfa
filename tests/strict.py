"""nbval without its leniency."""

import re
import subprocess
import sys
from pathlib import Path


def nbval(notebook: Path, timeout: int = 2000) -> list[str]:
    """Run a notebook and compare every output with the one in the file; return the faults, one line each.

    After a time-out nbval calls the rest of the cells expected failures: here they are faults.
    """
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--nbval",
        "--nbval-current-env",
        f"--nbval-cell-timeout={timeout}",
    ]
    command += ["-p", "no:cacheprovider", "-p", "no:xdist", "-q", "-rfEsxX", "--color=no", str(notebook)]
    result = subprocess.run(command, cwd=notebook.parent, capture_output=True, text=True, check=False)
    lines = (result.stdout + result.stderr).splitlines()
    faults = [line for line in lines if re.match(r"(FAILED|ERROR|SKIPPED|XFAIL|XPASS)\b", line)]
    if result.returncode and not faults:
        faults = lines
    if not faults and not re.search(r"^\d+ passed", lines[-1]):
        faults = ["no cell was compared", *lines]
    return faults
