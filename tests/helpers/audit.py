"""``python tests/helpers/audit.py``: the pinned versions against the advisories that are known, by pip-audit.

Exit codes: 0 none is known to be vulnerable, 1 some are, 2 nothing is known, as the service could not be asked about
every version. pip-audit itself passes over versions that the service does not know.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

PINS = Path(__file__).parents[2] / "constraints.txt"


def judge(report: dict[str, Any]) -> tuple[int, str]:
    """Exit code, and what is to be said, from pip-audit's report."""
    vulnerable, unknown, count = [], [], len(report["dependencies"])
    for package in report["dependencies"]:
        for found in package.get("vulns", ()):
            mended = ", ".join(found["fix_versions"]) or "no version yet"
            vulnerable.append(f"{package['name']} {package['version']}: {found['id']}, mended in {mended}")
        if "skip_reason" in package:
            unknown.append(package["name"])
    told = [*vulnerable]
    if unknown:
        told.append(f"nothing could be learned about {len(unknown)} of {count} versions: {', '.join(unknown)}")
    if not told:
        told.append(f"{count} versions, none with a known vulnerability")
    return 1 if vulnerable else 2 if unknown or not count else 0, "\n".join(told)


def main() -> int:
    command = [sys.executable, "-m", "pip_audit", "--no-deps", "--disable-pip", "--format", "json", "-r", str(PINS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        report = json.loads(done.stdout)
    except ValueError:
        last = (done.stderr.strip() or "no answer").splitlines()[-1]
        print(f"the advisories could not be asked (is there a network?): {last}", file=sys.stderr)
        return 2
    code, told = judge(report)
    print(told, file=sys.stderr if code else sys.stdout)
    return code


if __name__ == "__main__":
    sys.exit(main())
