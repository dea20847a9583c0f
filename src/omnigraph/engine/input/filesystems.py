"""Open files by name, local or in an object store, with the storage settings of this process."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from pyarrow import fs

from omnigraph.errors import UsageError
from omnigraph.store.objects.client_settings import s3_options
from omnigraph.store.objects.schemes import REMOTE

_OBJECT_SCHEMES: Final = {f"{kind.scheme}://": kind.scheme for kind in REMOTE}


def object_scheme(name: str) -> str | None:
    """Return the scheme of the address of an object or a prefix, with `://`; None for a local path.

    >>> object_scheme("gs://lake/a.csv"), object_scheme("/data/a.csv")
    ('gs://', None)
    """
    return next((scheme for scheme in _OBJECT_SCHEMES if name.startswith(scheme)), None)


def path_in_store(name: str) -> str:
    """Return the bucket and key of an address, as file systems take them; a local path as it is."""
    return name.removeprefix(object_scheme(name) or "")


def filesystem(name: str) -> Any:
    scheme = object_scheme(name)
    if scheme is None:
        return fs.LocalFileSystem()
    if scheme == "s3://":
        return _s3_filesystem(tuple(sorted(s3_options().items())))
    # Its client is loaded by those who need it.
    from omnigraph.store.objects.arrow_files import object_files

    return object_files(_OBJECT_SCHEMES[scheme])


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
        return filesystem(name).open_input_file(path_in_store(name))
    except OSError as error:
        raise unreadable_file(name, error) from error


def open_stream(name: str, compression: str | None) -> Any:
    """Open a file as a decompressed stream."""
    try:
        return filesystem(name).open_input_stream(path_in_store(name), compression=compression)
    except OSError as error:
        raise unreadable_file(name, error) from error


def unreadable_file(name: str, error: OSError) -> UsageError:
    """Return the error for a file that cannot be read."""
    reason = (error.strerror or str(error).splitlines()[0]).rstrip(".").lower()
    return UsageError(f"cannot read `{name}`: {reason}; check the path", path=name)
