"""Print a script for shell completion of the commands and their options."""

import argparse

from nsmbayes.cli.arguments import COMMANDS, parser

_SCRIPT = """\
_nsmbayes() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" options=""
    if [ "$COMP_CWORD" -eq 1 ]; then
        options="{commands} --help --version"
    else
        case "${{COMP_WORDS[1]}}" in
{cases}
        esac
        [ "${{word:0:1}}" = "-" ] || options=""
    fi
    COMPREPLY=($(compgen -W "$options" -- "$word"))
}}
complete -o default -F _nsmbayes nsmbayes
"""
_ZSH = "autoload -U +X bashcompinit && bashcompinit\n"


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    print((_ZSH if options.shell == "zsh" else "") + script(), end="")
    return 0


def script() -> str:
    """Build the completion script for bash from the options of the commands."""
    cases = "\n".join(f'            {name}) options="{" ".join(_options(name))}" ;;' for name in COMMANDS)
    return _SCRIPT.format(commands=" ".join(COMMANDS), cases=cases)


def _options(command: str) -> list[str]:
    """The long options of a command."""
    [commands] = [each for each in parser()._actions if isinstance(each, argparse._SubParsersAction)]
    actions = commands.choices[command]._actions
    return sorted(flag for action in actions for flag in action.option_strings if flag.startswith("--"))
