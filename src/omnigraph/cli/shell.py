"""`omnigraph shell`: statements and commands, typed at a prompt or read from standard input."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from omnigraph.cli.app import Writes
from omnigraph.cli.config import home
from omnigraph.cli.options import Branch, Format, Shape, Snapshot
from omnigraph.cli.output import echo, escape_controls, plural, print_error
from omnigraph.cli.query import affected, print_result, read_parameters
from omnigraph.cli.shell_completion import completions
from omnigraph.errors import OmniGraphError, UsageError
from omnigraph.extras import requiring_extra
from omnigraph.lang.diagnostic import Source
from omnigraph.lang.query import ast
from omnigraph.lang.query.parser import is_unfinished, parse_queries

if TYPE_CHECKING:
    from omnigraph.cli.target import Target
    from omnigraph.client import Graph as ServedGraph
    from omnigraph.graph import Graph
    from omnigraph.lang.catalog import Catalog


def shell(target: Writes, branch: Branch = "main", at: Snapshot = None, shape: Shape = None) -> int:
    with target.open_to_read() as graph:
        session = Session(target, graph, branch, at, shape)
        if sys.stdin.isatty():
            run_prompt(session)
        else:
            for statement in split_statements(sys.stdin):
                if not session.run(statement):
                    break
    return 0


def split_statements(lines: Iterable[str]) -> Iterator[str]:
    """Yield statements as soon as they are complete; what is left at the end is the last one.

    >>> list(split_statements(["match { $p: Person }\\n", "return { $p.name }\\n", "\\n", ":branch b\\n"]))
    ['match { $p: Person }\\nreturn { $p.name }\\n\\n', ':branch b\\n']
    """
    text = ""
    for line in lines:
        text += line
        if is_complete(text):
            yield text
            text = ""
    if text.strip():
        yield text


def is_complete(text: str) -> bool:
    """Return True if a text can be run: a command, a statement on one line, or one that ends in an empty line or `;`.

    >>> is_complete(":help"), is_complete("match { $p: Person }"), is_complete("match { $p: Person } return { $p }")
    (True, False, True)
    """
    body = text.strip()
    if not body or body.startswith(":") or body.endswith(";"):
        return True
    is_ended = not text.removesuffix("\n").rpartition("\n")[2].strip()
    return (is_ended or "\n" not in body) and not is_unfinished(Source("statement", body))


@dataclass
class Session:
    """What a shell remembers between statements: the branch, a past state, parameters, and queries by name.

    Without a terminal nothing is asked, and the first error ends the session.
    """

    target: Target
    graph: Graph | ServedGraph
    branch: str = "main"
    at: str | None = None
    shape: Format | None = None
    ask: Callable[[str], bool] | None = None
    params: dict[str, object] = field(default_factory=dict)
    sources: dict[str, Source] = field(default_factory=dict)
    last_commit: str | None = None

    def run(self, text: str) -> bool:
        """Run a statement or a command; return False if it ends the session."""
        try:
            return self._run(text.strip().removesuffix(";").strip())
        except (OmniGraphError, KeyboardInterrupt) as error:
            if self.ask is None:
                raise
            if isinstance(error, OmniGraphError):
                print_error(error, as_json=False)
            else:
                echo("stopped", err=True)
        return True

    def _run(self, text: str) -> bool:
        word, _, rest = text.partition(" ")
        if word in QUIT:
            return False
        if word.startswith(":"):
            if word not in COMMANDS:
                raise UsageError(f"there is no command `{word}`; `:help` lists them")
            COMMANDS[word][1](self, rest.strip())
        elif text:
            self._run_statement(Source("statement", text))
        return True

    @cached_property
    def catalog(self) -> Catalog:
        """The types of the graph when the session began."""
        return self.graph.schema.catalog

    @property
    def query_names(self) -> list[str]:
        """The queries that `:run` knows: those of this session, and the stored ones of a server."""
        return [*self.sources, *self.stored_queries]

    @cached_property
    def stored_queries(self) -> dict[str, dict[str, Any]]:
        from omnigraph.client import Graph as ServedGraph

        return {query["name"]: query for query in self.graph.queries()} if isinstance(self.graph, ServedGraph) else {}

    def _run_statement(self, source: Source) -> None:
        """Run the only query of a text, or remember those of a text that has several."""
        queries = parse_queries(source)
        if len(queries) == 1:
            self._run_query(source, queries[0], self.params)
        else:
            self.define(source)

    def define(self, source: Source) -> None:
        """Remember the queries of a source by name."""
        names = [query.name.text for query in parse_queries(source)]
        self.sources.update(dict.fromkeys(names, source))
        echo(f"{plural(len(names), 'query')}{''.join(f', {name}' for name in names)}; run one with `:run NAME`")

    def _run_query(self, source: Source, query: ast.Query, params: dict[str, object]) -> None:
        name, declared = query.name.text, {param.name.text for param in query.params}
        values = {key: value for key, value in params.items() if key in declared}
        if isinstance(query.body, ast.Mutation):
            self._write(lambda graph: graph.mutate(source, values, name=name, branch=self.branch))
            return
        self._print_rows(self.graph.query(source, values, name=name, branch=self.branch, at=self.at))

    def _print_rows(self, result: Any) -> None:
        read: dict[str, object] = {"branch": self.branch} if self.at is None else {"snapshot": self.at}
        print_result(result, read, self.shape, False)

    def _write(self, run: Callable[[Any], Any]) -> None:
        if self.at is not None:
            raise UsageError(f"the shell shows the past state `{self.at}`; go back to the branch with `:at` to write")
        if self.ask is not None and not self.ask(f"write to branch {self.branch} of {self.target.address}?"):
            echo("nothing was changed")
            return
        with self.target.open_to_write() as graph:
            receipt = run(graph)
        if receipt.commit is None:
            echo(f"{affected(receipt)}, nothing changed, no commit")
            return
        self.last_commit = receipt.commit.commit_id
        undo = "" if self.ask is None else "; `:undo` reverts it"
        echo(f"{affected(receipt)}, commit {self.last_commit}{undo}")


def _show_schema(session: Session, name: str) -> None:
    if not name:
        echo(session.graph.schema.source.rstrip("\n"))
        return
    catalog = session.catalog
    type_ = catalog.nodes.get(name) or catalog.edge_by_word(name)
    if type_ is None:
        raise UsageError(f"there is no type `{name}`; the types are {', '.join([*catalog.nodes, *catalog.edges])}")
    echo(str(type_))


def _choose_branch(session: Session, name: str) -> None:
    branches: list[str] = session.graph.branches.list()
    if not name:
        for branch in branches:
            echo(f"{'*' if branch == session.branch else ' '} {branch}")
    elif name not in branches:
        raise UsageError(f"there is no branch `{name}`; the branches are {', '.join(branches)}")
    else:
        session.branch, session.at = name, None


def _choose_state(session: Session, text: str) -> None:
    if text:
        session.graph.snapshot(session.branch, at=text)
    session.at = text or None


def _explain(session: Session, text: str, *, analyze: bool = False) -> None:
    name = text if text in session.sources else None
    if not text:
        raise UsageError("there is no query to explain; write one after the command")
    source = session.sources[name] if name else Source("statement", text)
    explanation = session.graph.explain(
        source, session.params, name=name, branch=session.branch, at=session.at, profile=analyze
    )
    echo(explanation.render())


def _set_parameters(session: Session, text: str) -> None:
    if text:
        session.params = read_parameters(text, None)
    for name, value in session.params.items():
        echo(f"${name} = {value!r}")


def _set_format(session: Session, name: str) -> None:
    if name not in set(Format):
        raise UsageError(f"there is no format `{name}`; the formats are {', '.join(Format)}")
    session.shape = Format(name)


def _read_queries(session: Session, path: str) -> None:
    from omnigraph.source_files import read_source

    if path:
        session.define(read_source(Path(path), "Q000"))
        return
    for name in session.query_names:
        echo(name)


def _run_named(session: Session, text: str) -> None:
    name, _, members = text.partition(" ")
    params = {**session.params, **read_parameters(members.strip() or None, None)}
    if name in session.sources:
        source = session.sources[name]
        query = next(query for query in parse_queries(source) if query.name.text == name)
        session._run_query(source, query, params)
        return
    stored = session.stored_queries.get(name)
    if stored is None:
        raise UsageError(f"there is no query `{name}`; read a file with `:queries FILE`, and list them with `:queries`")
    declared = {param["name"] for param in stored["params"]}
    values = {key: value for key, value in params.items() if key in declared}
    if stored["mutation"]:
        session._write(lambda graph: graph.invoke_mutation(name, values, branch=session.branch))
        return
    served: Any = session.graph
    session._print_rows(served.invoke(name, values, branch=session.branch, at=session.at))


def _undo(session: Session, text: str) -> None:
    if session.last_commit is None:
        raise UsageError("this session has written nothing that could be undone; see `omnigraph revert`")
    with session.target.open_to_write() as graph:
        receipt = graph.revert(session.last_commit, session.branch)
    commit = "no commit" if receipt.commit is None else f"commit {receipt.commit.commit_id}"
    echo(f"reverted {session.last_commit} on {session.branch}, {commit}")
    session.last_commit = None


def _help(session: Session, text: str) -> None:
    echo("Write a query or mutation: match { $p: Type } return { $p }. A single line runs at once; several lines run")
    echo("after an empty line or `;`. Commands:")
    width = max(len(usage) for usage, _, _ in COMMANDS.values())
    for usage, _, about in COMMANDS.values():
        echo(f"  {usage:<{width}}  {about}")
    echo(f"  {':quit':<{width}}  End the session; so does Ctrl-D.")


QUIT: Final = (":quit", ":exit", ":q")
COMMANDS: Final[dict[str, tuple[str, Callable[[Session, str], None], str]]] = {
    ":schema": (":schema [TYPE]", _show_schema, "Show the schema, or one type."),
    ":branch": (":branch [NAME]", _choose_branch, "Work on another branch, or list the branches."),
    ":at": (":at [REVISION]", _choose_state, "Read a past state; without a revision, the newest one."),
    ":explain": (":explain QUERY", _explain, "Show how a query would run."),
    ":analyze": (
        ":analyze QUERY",
        lambda session, text: _explain(session, text, analyze=True),
        "Run a query, and show its plan with measured rows and times.",
    ),
    ":queries": (":queries [FILE]", _read_queries, "Read the queries of a file, or list those that are known."),
    ":run": (":run NAME [JSON]", _run_named, "Run a query by its name, with parameters."),
    ":params": (":params [JSON]", _set_parameters, "Set parameters for the queries that follow, or show them."),
    ":format": (":format NAME", _set_format, f"Print rows as {', '.join(Format)}."),
    ":undo": (":undo", _undo, "Revert the last commit of this session."),
    ":help": (":help", _help, "Show this help."),
}

# What completion proposes: each command once.
COMMAND_NAMES: Final = (*COMMANDS, QUIT[0])
HISTORY: Final = "shell_history"


def run_prompt(session: Session) -> None:
    """Read statements at a terminal and run them, until `:quit` or Ctrl-D."""
    without = "Without it, write the statements to a file: `omnigraph shell GRAPH < statements.gq`"
    with requiring_extra("shells at a terminal", without):
        from prompt_toolkit import PromptSession
        from prompt_toolkit.completion import Completer, Completion
        from prompt_toolkit.history import FileHistory, InMemoryHistory
    path = _history_file()
    prompt: Any = PromptSession(
        history=InMemoryHistory() if path is None else FileHistory(path),
        multiline=True,
        key_bindings=_key_bindings(),
        prompt_continuation="... ",
    )

    class ShellCompleter(Completer):
        def get_completions(self, document: Any, complete_event: Any) -> Iterator[Any]:
            word, candidates = completions(document.text_before_cursor, session, COMMAND_NAMES)
            return (Completion(candidate, start_position=-len(word)) for candidate in candidates)

    prompt.completer = ShellCompleter()
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
