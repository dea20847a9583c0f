"""The prompt of `omnigraph shell`: line editing, completion and history, by prompt_toolkit."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from omnigraph.cli.config import home
from omnigraph.cli.options import Format
from omnigraph.cli.output import echo, escape_controls
from omnigraph.cli.shell import COMMANDS, QUIT, Session, is_complete
from omnigraph.errors import OmniGraphError, UsageError
from omnigraph.lang.query.functions import FUNCTION_NAMES
from omnigraph.lang.query.parser import read_keywords

HISTORY: Final = "shell_history"
# A word of the language, a command, a variable, or a name with slashes, as branches have.
_WORD: Final = re.compile(r"[:$@]?[\w/.-]*")


def run_prompt(session: Session) -> None:
    """Read statements at a terminal and run them, until `:quit` or Ctrl-D."""
    try:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.completion import DynamicCompleter, WordCompleter
        from prompt_toolkit.history import FileHistory, InMemoryHistory
    except ImportError as error:
        raise UsageError(
            f"the shell needs `{error.name}`; install it with `pip install 'omnigraph[shell]'`. Without it, write the"
            " statements to a file: `omnigraph shell GRAPH < statements.gq`",
            missing=error.name,
        ) from None
    path = _history_file()
    prompt: Any = PromptSession(
        history=InMemoryHistory() if path is None else FileHistory(path),
        multiline=True,
        key_bindings=_key_bindings(),
        prompt_continuation="... ",
    )
    prompt.completer = DynamicCompleter(
        lambda: WordCompleter(complete(prompt.default_buffer.document.text_before_cursor, session), pattern=_WORD)
    )
    # Questions have their own session, so that answers are neither completed nor kept in the history.
    answers: Any = PromptSession()
    session.ask = lambda question: answers.prompt(f"{escape_controls(question)} [y/N] ").strip().lower() in ("y", "yes")
    echo(f"{session.target.address}; :help lists the commands")
    while True:
        try:
            text = prompt.prompt(prompt_text(session))
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        if not session.run(text):
            return


def prompt_text(session: Session) -> str:
    """Return the prompt, which names the branch and the past state that is read."""
    state = "" if session.at is None else f" at {session.at}"
    return escape_controls(f"{session.branch}{state}> ")


def _key_bindings() -> Any:
    from prompt_toolkit.key_binding import KeyBindings

    def enter(event: Any) -> None:
        buffer = event.current_buffer
        if is_complete(f"{buffer.text}\n" if buffer.document.is_cursor_at_the_end else buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    bindings = KeyBindings()
    bindings.add("enter")(enter)
    return bindings


def _history_file() -> str | None:
    """Return the file that keeps statements, readable by its owner alone; None if it cannot be written."""
    with suppress(OSError, RuntimeError):
        path = home() / HISTORY
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600))
        return str(path)
    return None


def complete(before: str, session: Session) -> Sequence[str]:
    """Return the words that may follow a text; the prompt keeps those that begin as the last word does."""
    word, space, _ = before.lstrip().partition(" ")
    if before.lstrip().startswith(":") and not space:
        return [*COMMANDS, *QUIT[:1]]
    # What a server does not show must not disturb typing.
    with suppress(OmniGraphError):
        if word in (":branch", ":at"):
            tags = [tag.name for tag in session.graph.tags.list()] if word == ":at" else []
            return [*session.graph.branches.list(), *tags]
        if word == ":format":
            return list(Format)
        if word == ":run":
            return session.query_names
        return _language_words(session)
    return read_keywords()


def _language_words(session: Session) -> list[str]:
    nodes, edges = session.catalog.nodes, session.catalog.edges
    properties = {name for types in (nodes, edges) for type_ in types.values() for name in type_.properties}
    walks = {edge.word for edge in edges.values()}
    return sorted({*read_keywords(), *FUNCTION_NAMES, *nodes, *edges, *properties, *walks, *session.sources})
