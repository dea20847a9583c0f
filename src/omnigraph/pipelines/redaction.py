"""Errors of a pipeline as its author may see them: with the position in the file, and without secrets."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Final

from omnigraph.errors import OmniGraphError
from omnigraph.pipelines.declaration.config import PipelineDeclaration
from omnigraph.pipelines.declaration.document import SECRET_NAME, VARIABLE

# A shorter value may be part of any word, so it is replaced only if its name says that it is a secret.
_CHARACTERS_MIN: Final = 4
_SECRET_PARAMETER: Final = re.compile(r"(?i)\b(?:password|passwd|pwd|secret|token|sig|api_?key)=([^\s;&,]+)")
_USER_INFO: Final = re.compile(r"://[^/@\s:]+:([^/@\s]+)@")
# Rows of a frame are staged in files that are gone when the error is read.
_STAGED_ROW: Final = re.compile(r"`the frame of [^`]*` line [0-9]+: |^line [0-9]+: ")
_STAGED_LINES: Final = re.compile(r", in lines? [0-9]+(?: of `[^`]*`)? and (?:line )?[0-9]+(?: of `[^`]*`)?")
# Spark logs the mistakes in a statement as JSON with a stack, beside the error that it raises.
_LOGGERS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


@contextmanager
def redact_errors(pipeline: PipelineDeclaration, *, uses_spark: bool = True) -> Iterator[None]:
    """Add the position in the file to errors about a part of a pipeline, and remove resolved variables from all."""
    try:
        with _quiet_loggers() if uses_spark else nullcontext():
            yield
    except OmniGraphError as error:
        position = pipeline.positions.get(str(error.context.pop("part", "")))
        plain = _STAGED_LINES.sub("", _STAGED_ROW.sub("a row: ", error.message))
        message = redact(plain, pipeline)
        if message != plain:
            # The cause has the same text.
            error.__cause__ = None
            error.__suppress_context__ = True
        error.message = message if position is None else f"{position}: {message}"
        error.args = (error.message,)
        error.context = {
            name: redact(value, pipeline) if isinstance(value, str) else value for name, value in error.context.items()
        }
        raise


def redact(text: str, pipeline: PipelineDeclaration) -> str:
    """Replace the values of the variables that a pipeline uses by their names, and passwords in them by stars."""
    values = {os.environ[name]: name for name in _variables(pipeline) if os.environ.get(name)}
    for value, name in sorted(values.items(), key=lambda item: -len(item[0])):
        if len(value) >= _CHARACTERS_MIN or SECRET_NAME.search(name):
            text = text.replace(value, f"${{{name}}}")
    for candidate in (*values, text):
        for secret in (*_SECRET_PARAMETER.findall(candidate), *_USER_INFO.findall(candidate)):
            text = text.replace(secret, "***")
    return text


def _variables(pipeline: PipelineDeclaration) -> set[str]:
    texts = [pipeline.master or "", *pipeline.spark_options.values()]
    for source in pipeline.sources.values():
        texts += [source.path or "", *source.options.values()]
    return {name for text in texts for name in VARIABLE.findall(text)}


@contextmanager
def _quiet_loggers() -> Iterator[None]:
    try:
        from pyspark.logger import PySparkLogger
    except ImportError:
        yield
        return
    loggers = [PySparkLogger.getLogger(name) for name in _LOGGERS]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, was_disabled in zip(loggers, before, strict=True):
            logger.disabled = was_disabled
