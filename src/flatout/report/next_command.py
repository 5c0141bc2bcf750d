"""The one command to go on with: the same on every surface that shows a verdict."""

from __future__ import annotations

import shlex

from flatout.records.fix import Fix
from flatout.records.report import RunReport
from flatout.words import english

# Where the usual ten minutes were too short.
_LONGER = "30m"


def next_command(report: RunReport) -> str:
    """A fix that flatout can try by itself comes first, then one it can write, then what to read about it."""
    if not report.run.steps:
        return "flatout doctor"
    applied = {one.id for one in report.remedies if one.state == "applied"}
    if any(one.remedy is not None and one.remedy not in applied for one in report.findings):
        return f"flatout fix {shlex.join(report.run.argv)}"
    for finding in report.findings:
        if finding.fix is not None and "--unsafe-fixes" not in finding.fix:
            return finding.fix
    if report.findings:
        return f"flatout explain {report.findings[0].code}"
    return f"flatout diagnose --checklist {shlex.quote(report.run.id)}"


def next_after_fix(fix: Fix, profile: str = "flatout.toml") -> str:
    """What was kept is used by the next run; where nothing was, more time or more leave may help."""
    command = shlex.join(fix.command)
    if fix.profile:
        return f"flatout run --with {profile} {command}"
    if any(one.state == "not measured" for one in fix.tried):
        return f"flatout fix --budget {_LONGER} {command}"
    if any("--allow numeric" in english(one.why) for one in fix.left_out):
        return f"flatout fix --allow numeric {command}"
    return f"flatout run {command}"
