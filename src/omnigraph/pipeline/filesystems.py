"""Open files by name, local or `s3://`, with the storage settings of this process."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from pyarrow import fs

from omnigraph.errors import UsageError
from omnigraph.store.objects.client_settings import s3_options

_S3: Final = "s3://"


def filesystem(name: str) -> Any:
    if not name.startswith(_S3):
        return fs.LocalFileSystem()
    return _s3_filesystem(tuple(sorted(s3_options().items())))


@lru_cache(maxsize=4)
def _s3_filesystem(option_items: tuple[tuple[str, str], ...]) -> Any:
    options = dict(option_items)
    endpoint = options.get("aws_endpoint", "")
    scheme, _, host = endpoint.partition("://") if endpoint else ("https", "", "")
    return fs.S3FileSystem(
        access_key=options.get("aws_access_key_id"),
        secret_key=options.get("aws_secret_access_key"),
        session_token=options.get("aws_session_token"),
        region=options.get("aws_region"),
        scheme="http" if scheme == "http" else "https",
        endpoint_override=host or None,
        force_virtual_addressing=options.get("aws_virtual_hosted_style_request") == "true",
    )


def open_file(name: str) -> Any:
    """Open a file for random access."""
    try:
        return filesystem(name).open_input_file(name.removeprefix(_S3))
    except OSError as error:
        raise unreadable_file(name, error) from error


def open_stream(name: str, compression: str | None) -> Any:
    """Open a file as a decompressed stream."""
    try:
        return filesystem(name).open_input_stream(name.removeprefix(_S3), compression=compression)
    except OSError as error:
        raise unreadable_file(name, error) from error


def unreadable_file(name: str, error: OSError) -> UsageError:
    """Return the error for a file that cannot be read."""
    reason = (error.strerror or str(error).splitlines()[0]).rstrip(".").lower()
    return UsageError(f"cannot read `{name}`: {reason}; check the path", path=name)
