"""The manual page and the shells' completions, made from the parser of the command line.

`python -m tools.command_line` writes them below share/, from where they get into the wheel.
"""

from tools.command_line import bash, fish, man, zsh
from tools.command_line.model import command_line


def generate() -> dict[str, str]:
    """The text of each file, by its path below share/."""
    program = command_line()
    return {
        "man/man1/ftracefs.1": man.page(program),
        "bash-completion/completions/ftracefs": bash.completion(program),
        "zsh/site-functions/_ftracefs": zsh.completion(program),
        "fish/vendor_completions.d/ftracefs.fish": fish.completion(program),
    }
