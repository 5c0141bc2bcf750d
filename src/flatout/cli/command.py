"""A verb that starts the user's own command: where our options end and its words begin."""

from __future__ import annotations

import click


class UpToTheScript(click.Command):
    """Our options end where the script begins: at the first word, at `--`, or at python's `-m`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = self._end_of_options(args)
        if at < len(args) and args[at].startswith("-m"):
            args = [*args[:at], "--", *args[at:]]
        return super().parse_args(ctx, args)

    def _end_of_options(self, args: list[str]) -> int:
        options = (param for param in self.params if isinstance(param, click.Option))
        valued = {name for option in options if not option.is_flag for name in option.opts}
        at = 0
        while at < len(args) and args[at].startswith("-") and args[at] not in ("-", "--") and args[at][:2] != "-m":
            at += 2 if args[at] in valued else 1
        return at
