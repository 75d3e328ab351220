"""The app, its commands, and the only place that turns errors into exit codes."""

import shlex
import sys
import traceback
from itertools import pairwise
from typing import Annotated, Any

import typer

from omni_kit import __version__
from omni_kit.cli.commands import Commands
from omni_kit.errors import BadInput, Interrupted, MissingRequirement, OmniKitError
from omni_kit.files import cache_directory, write_atomic
from omni_kit.isolation.failures import install, lacking_package, missing
from omni_kit.output import Format, Output
from omni_kit.termination import asked, stoppable

# Typer brings its own copy of click in newer releases; its public BadParameter leads to the base class in both.
_ClickException: type[Exception] = typer.BadParameter.mro()[2]

_LOOP = "Symlink loop from "  # how Python's `Path.resolve` begins to say so
_SHOWN = 200  # characters of a path
app = Commands(
    name="omni-kit",
    help="Bring a new model into a training or serving framework, and verify the result.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"omni-kit {__version__}")
        raise typer.Exit()


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Bring a new model into a training or serving framework, and verify the result."""


def main(arguments: list[str] | None = None) -> int:
    """Run the CLI and return the exit code: 0 fine, 1 wrong, 2 bad input, 3 environment, 130 interrupted."""
    given = sys.argv[1:] if arguments is None else arguments
    output = Output("error", Format.json if _wants_json(given) else Format.human)
    try:
        with stoppable():
            try:
                return _run(given, output)
            except KeyboardInterrupt:  # while an error was being reported
                return output.fail(_interrupted(given))
    except KeyboardInterrupt:  # while that was
        return output.fail(_interrupted(given))


def _run(given: list[str], output: Output) -> int:
    try:
        result = app(args=given, standalone_mode=False, prog_name="omni-kit")
    except OmniKitError as error:
        return output.fail(_interrupted(given) if asked() else error)
    except _ClickException as error:
        return _usage_error(error, output)
    except (typer.Abort, KeyboardInterrupt):
        result = Interrupted.exit_code
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except Exception as error:  # nobody foresaw it: the traceback goes to a file, one line to whoever waits
        return output.fail(_interrupted(given) if asked() else _unforeseen(error))
    if result == Interrupted.exit_code:  # typer may swallow the interruption, and answer with its code
        return output.fail(_interrupted(given))
    return result if isinstance(result, int) else 0


_RESUMED = {"convert": "finished shards are kept", "upgrade": "passed stages are kept"}  # commands with --resume


def _interrupted(given: list[str]) -> OmniKitError:
    """Return what an interrupted command kept, and the command to resume."""
    kept = _RESUMED.get(next(iter(given), ""))
    again = [*given, "--resume"] if kept and "--resume" not in given else given
    kept = kept or "no file is half written"
    return Interrupted("interrupted", f"{kept}; resume with: {shlex.join(['omni-kit', *again])}")


def _unforeseen(error: Exception) -> OmniKitError:
    """Report an exception that no command expects; the exit code is 3, because nothing was verified."""
    if package := lacking_package(error):
        return MissingRequirement(missing(error, package), install(package))
    if why := _of_the_disk(error):
        return BadInput(why, "pass another path, or fix this one")
    said = " ".join(str(error).split())[:200]
    message = f"omni-kit failed: {type(error).__name__}: {said}"
    log = cache_directory() / "failure.log"
    try:
        write_atomic(log, "".join(traceback.format_exception(error)))
    except OmniKitError:
        return MissingRequirement(message, "the traceback could not be written anywhere")
    return MissingRequirement(message, f"the traceback is in {log}")


def _of_the_disk(error: Exception) -> str:
    """Return the system's message for a file that a command could not use; empty for any other error."""
    if isinstance(error, RuntimeError) and (link := str(error).removeprefix(_LOOP)) != str(error):
        return f"{link[:_SHOWN]} is a link that leads to itself"
    if not isinstance(error, OSError) or error.strerror is None:
        return ""
    names = [str(name)[:_SHOWN] for name in (error.filename, error.filename2) if name is not None]
    return ": ".join([" -> ".join(names) or "a file cannot be used", error.strerror])


def _wants_json(arguments: list[str]) -> bool:
    return "--format=json" in arguments or ("--format", "json") in pairwise(arguments)


def _usage_error(error: Any, output: Output) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return BadInput.exit_code
    context = error.ctx
    return output.fail(
        BadInput(
            error.format_message().replace("Value error, ", ""),
            f"see {context.command_path if context else 'omni-kit'} --help",
        )
    )
