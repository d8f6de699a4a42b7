"""`hpcserve completion`: what a shell reads to complete verbs, jobs and sites."""

import click
from click.shell_completion import get_completion_class

from hpcserve.cli.options import examples
from hpcserve.errors import MissingToolError

__all__ = ["completion"]


@click.command(
    epilog=examples(
        'eval "$(hpcserve completion bash)"', "hpcserve completion fish > ~/.config/fish/completions/hpcserve.fish"
    )
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of a SHELL."""
    kind = get_completion_class(shell)
    if kind is None:
        raise MissingToolError(f"click knows no completion for {shell}")
    root = context.find_root()
    click.echo(kind(root.command, {}, "hpcserve", "_HPCSERVE_COMPLETE").source())
