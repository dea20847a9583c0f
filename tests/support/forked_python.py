"""Python processes that start in milliseconds: forks of one that has loaded the product and used nothing of it.

`ForkedPython` is a `subprocess.Popen` for `[sys.executable, "-m", MODULE, …]` and `[sys.executable, "-c", CODE, …]`.
A new interpreter takes a second to load Lance, and a process that has used Lance cannot be forked safely.
"""

from __future__ import annotations

import atexit
import json
import os
import runpy
import select
import socket
import subprocess
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from inspect import signature
from pathlib import Path
from typing import Any, Final
from weakref import finalize

REPOSITORY: Final = Path(__file__).parents[2]
_REQUEST_BYTES_MAX: Final = 200_000


class ForkedPython(subprocess.Popen[Any]):
    """A process that is forked, not started.

    Of the options of `Popen` it takes `cwd`, `env`, `start_new_session`, `text` and the three streams.
    """

    def _execute_child(self, *given: Any) -> None:
        call = signature(subprocess.Popen._execute_child).bind(self, *given).arguments  # type: ignore[attr-defined]
        assert call["args"][0] == sys.executable, "only a Python of this environment can be forked"
        streams = [call["p2cread"], call["c2pwrite"], call["errwrite"]]
        reading, writing = os.pipe()
        self._outcome = reading
        finalize(self, os.close, reading).atexit = False
        request = {
            "args": [os.fspath(word) for word in call["args"][1:]],
            "cwd": os.fspath(call["cwd"] or os.getcwd()),
            "env": dict(os.environ if call["env"] is None else call["env"]),
            "start_new_session": call["start_new_session"],
        }
        body = json.dumps(request).encode()
        assert len(body) <= _REQUEST_BYTES_MAX, "too much for one message"
        socket.send_fds(_launcher(), [body], [*(one if one >= 0 else n for n, one in enumerate(streams)), writing])
        os.close(writing)
        self._close_pipe_fds(*(call[name] for name in _PIPES))  # type: ignore[attr-defined]
        self.pid = int(os.read(self._outcome, _NUMBER_BYTES))
        self._child_created = True

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        return self.returncode if self.returncode is not None else self._wait(0)

    def _wait(self, timeout: float | None) -> int | None:
        """Wait for the process that looks after the child: it tells the status."""
        if self.returncode is None and select.select([self._outcome], [], [], timeout)[0]:
            # Another thread may wait, too, and read first.
            with self._waitpid_lock:  # type: ignore[attr-defined]
                if self.returncode is None:
                    self.returncode = int(os.read(self._outcome, _NUMBER_BYTES))
        elif self.returncode is None and timeout:
            raise subprocess.TimeoutExpired(self.args, timeout)
        return self.returncode


def run_forked(args: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run such a process to its end, as `subprocess.run` with captured text does."""
    with ForkedPython(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options) as process:
        out, err = process.communicate()
    return subprocess.CompletedProcess(args, process.returncode, out, err)


_PIPES: Final = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
_NUMBER_BYTES: Final = 16


@cache
def _launcher() -> socket.socket:
    """Start the process that forks the others; it ends with this one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'src'}"}
    command = [sys.executable, "-m", "tests.support.forked_python", str(theirs.fileno())]
    process = subprocess.Popen(command, cwd=REPOSITORY, env=environment, pass_fds=[theirs.fileno()])
    theirs.close()

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def serve(control: socket.socket) -> dict[str, Any] | None:
    """Fork a child for each request; returns what a child has to run, and None at the end of the launcher."""
    while True:
        body, fds, *_ = socket.recv_fds(control, _REQUEST_BYTES_MAX, 4)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not body:
            return None
        if os.fork() == 0:
            control.close()
            if _look_after(fds) == 0:
                request: dict[str, Any] = json.loads(body)
                return request
        for fd in fds:
            os.close(fd)


def _look_after(fds: list[int]) -> int:
    """Fork the child, tell its id, and when it has ended its status. Only the child returns, with its streams."""
    *streams, outcome = fds
    pid = os.fork()
    if pid == 0:
        for number, fd in enumerate(streams):
            os.dup2(fd, number)
        for fd in fds:
            os.close(fd)
        return 0
    # Whoever reads from the child waits until nobody else has the other end.
    for fd in {0, 1, 2, *streams}:
        os.close(fd)
    os.write(outcome, f"{pid:{_NUMBER_BYTES}}".encode())
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.write(outcome, f"{status:{_NUMBER_BYTES}}".encode())
    os._exit(0)


def run(request: dict[str, Any]) -> None:
    """Be the interpreter that was asked for."""
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    if request["start_new_session"]:
        os.setsid()
    kind, what, *words = request["args"]
    sys.argv = [kind, *words]
    if kind == "-c":
        exec(compile(what, "<string>", "exec"), {"__name__": "__main__"})
    else:
        assert kind == "-m", request["args"]
        sys.modules.pop(what, None)
        runpy.run_module(what, run_name="__main__", alter_sys=True)


def load() -> None:
    """Load what children use, as a short process does."""
    from omnigraph.cli.startup import tune_for_short_process

    tune_for_short_process()
    import tests.support.kernel_fixtures  # noqa: F401


if __name__ == "__main__":
    load()
    with warnings.catch_warnings():
        # Lance warns of forks; nothing of it has been used.
        warnings.simplefilter("ignore")
        wanted = serve(socket.socket(fileno=int(sys.argv[1])))
    if wanted is not None:
        run(wanted)
