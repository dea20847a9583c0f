"""Classification of storage failures: the kind of a failed request, and a hint what to do about it.

System calls are judged by errno. Both clients of object stores, ours and the one inside Lance, are the same library
(`object_store`) and hand over all that they know as text: the status and the code of the answer, or that none came.
Nothing but these is read from it; the campaign of injected faults fails when a new release words them differently.

`{…}` in a remedy is filled in from the table of stores.
"""

from __future__ import annotations

import errno
import os
import re
from typing import Final

from omnigraph.errors import StorageError, StorageKind
from omnigraph.store.objects.schemes import StoreKind, kind_named_in

_FREE: Final = "free some space, for example with `omnigraph cleanup`, then try again"
_REMEDIES: Final[dict[int, tuple[StorageKind, str]]] = {
    errno.ENOENT: (StorageKind.NOT_FOUND, "check the path"),
    errno.ENOSPC: (StorageKind.FULL, f"the disk is full: {_FREE}"),
    errno.EDQUOT: (StorageKind.FULL, f"the disk quota is used up: {_FREE}"),
    errno.EFBIG: (StorageKind.PERMANENT, "the file would exceed the size that the file system or the process allows"),
    errno.EIO: (StorageKind.PERMANENT, "the disk reports a fault: check it before you write again"),
    errno.EROFS: (StorageKind.CONFIGURATION, "the file system is read-only: mount it for writing, or move the graph"),
    errno.EACCES: (
        StorageKind.CONFIGURATION,
        "permission denied: this user may not do that; check the owner and mode of the directory",
    ),
    errno.EPERM: (
        StorageKind.CONFIGURATION,
        "not permitted: this user may not do that; check the owner and attributes of the directory",
    ),
    errno.ENOTDIR: (StorageKind.CONFIGURATION, "a part of the path is a file, not a directory: choose another path"),
    errno.EISDIR: (StorageKind.CONFIGURATION, "a directory has this name: remove or rename it"),
    errno.ENAMETOOLONG: (StorageKind.CONFIGURATION, "the path is too long: put the graph at a shorter one"),
    errno.ELOOP: (StorageKind.CONFIGURATION, "symbolic links form a loop: choose another path"),
    errno.EMFILE: (StorageKind.TRANSIENT, "too many open files: raise the limit (`ulimit -n`), or try again"),
    errno.ENFILE: (StorageKind.TRANSIENT, "too many open files on this machine: try again"),
    errno.ESTALE: (StorageKind.TRANSIENT, "the network file system lost the file handle: try again"),
    errno.ETIMEDOUT: (StorageKind.TRANSIENT, "the network file system did not answer: try again"),
    errno.EBUSY: (StorageKind.TRANSIENT, "another program holds it: try again"),
    errno.ENOTEMPTY: (StorageKind.TRANSIENT, "something was written there meanwhile: try again"),
    errno.EAGAIN: (StorageKind.TRANSIENT, "the system is short of resources: try again"),
}


# Failures that concern the directory of a graph, not the requested file.
_FORBIDDEN: Final = (errno.EACCES, errno.EPERM, errno.EROFS)


def from_os_error(error: OSError, action: str, target: str, root: str | None = None) -> StorageError:
    """Return the storage failure of a failed system call; `action` reads like `write`.

    What is forbidden in the whole directory of a graph, its `root`, is reported for that directory.

    >>> print(from_os_error(OSError(errno.ENOSPC, ""), "write", "/g/a").message)
    cannot write `/g/a`: the disk is full: free some space, for example with `omnigraph cleanup`, then try again
    >>> print(from_os_error(OSError(errno.EROFS, ""), "write", "/g/_schema.pg", "/g").message)
    cannot write in `/g`: the file system is read-only: mount it for writing, or move the graph
    """
    code = error.errno or 0
    kind, remedy = _of_errno(code)
    where = f"in `{root}`" if root is not None and code in _FORBIDDEN else f"`{target}`"
    return StorageError(
        f"cannot {action} {where}: {remedy}",
        kind=kind,
        object=target,
        errno=errno.errorcode.get(code, ""),
    )


def forbidden_in_directory(error: BaseException) -> str | None:
    """Return why the system does not let Lance work in the directory of a graph; None for any other failure."""
    call = _SYSTEM_CALL.search(str(error))
    code = int(call[1]) if call else getattr(error, "errno", None) or 0
    return _of_errno(code)[1] if code in _FORBIDDEN else None


def _of_errno(code: int) -> tuple[StorageKind, str]:
    return _REMEDIES.get(code, (StorageKind.UNKNOWN, f"{os.strerror(code).lower()}: check the file system"))


_REGION: Final = (StorageKind.CONFIGURATION, "the {bucket} is in another region or account: check {place}")
_TOKEN: Final = (StorageKind.CONFIGURATION, "the token is expired or invalid: renew it; {credentials}")
_BUSY: Final = (StorageKind.TRANSIENT, "the store is overloaded or out of order: try again later")
_CONFLICT: Final = (StorageKind.TRANSIENT, "another request for it was under way: try again")
_DENIED: Final = (StorageKind.CONFIGURATION, "permission denied; {credentials}")
_NO_BUCKET: Final = (
    StorageKind.CONFIGURATION,
    "there is no such {bucket}: check the address, or create the {bucket}",
)
_NOT_PROVEN: Final = (StorageKind.CONFIGURATION, "the store does not accept the credentials; {credentials}")
_EXISTS: Final = (StorageKind.PRECONDITION, "it exists already, or changed meanwhile")

# What an answer means by its code, where the status alone would mislead.
_CODES: Final[dict[str, tuple[StorageKind, str]]] = {
    "InvalidAccessKeyId": (
        StorageKind.CONFIGURATION,
        "the store does not know this access key: check AWS_ACCESS_KEY_ID",
    ),
    "SignatureDoesNotMatch": (
        StorageKind.CONFIGURATION,
        "the secret does not belong to the access key: check AWS_SECRET_ACCESS_KEY",
    ),
    "RequestTimeTooSkewed": (StorageKind.CONFIGURATION, "the clock of this machine is wrong: set it"),
    "BlobAlreadyExists": _EXISTS,
    **dict.fromkeys(("ExpiredToken", "ExpiredTokenException", "InvalidToken", "TokenRefreshRequired"), _TOKEN),
    **dict.fromkeys(("NoSuchBucket", "ContainerNotFound", "ContainerDisabled", "ContainerBeingDeleted"), _NO_BUCKET),
    **dict.fromkeys(("AuthenticationFailed", "AuthenticationRequired"), _NOT_PROVEN),
    **dict.fromkeys(("InvalidAuthenticationInfo", "NoAuthenticationInformation"), _NOT_PROVEN),
    **dict.fromkeys(("ServerBusy", "OperationTimedOut", "RequestTimeout", "SlowDown"), _BUSY),
    **dict.fromkeys(("PermanentRedirect", "AuthorizationHeaderMalformed"), _REGION),
    "IllegalLocationConstraintException": _REGION,
    **dict.fromkeys(("ConditionalRequestConflict", "OperationAborted"), _CONFLICT),
}
_STATUSES: Final[dict[int, tuple[StorageKind, str]]] = {
    301: _REGION,
    307: _REGION,
    # A request for the head of an object is answered without a code, and 400 is what a bad token or region gets.
    400: (StorageKind.CONFIGURATION, "the store takes the request for a wrong one; {credentials}, and {place}"),
    401: (StorageKind.CONFIGURATION, "not authenticated; {credentials}"),
    403: _DENIED,
    404: (StorageKind.NOT_FOUND, "there is no such object or {bucket}; check the address and {place}"),
    405: (StorageKind.PERMANENT, "the store lacks the operation: use one that has it"),
    408: _BUSY,
    409: _CONFLICT,
    412: _EXISTS,
    429: _BUSY,
    501: (StorageKind.PERMANENT, "the store lacks the operation: use one that has it"),
    507: (StorageKind.FULL, f"the store is full or its quota is used up: {_FREE}"),
}
_ANSWER: Final = re.compile(
    r"status code: (\d{3})\b[^:]*(?::\s*\ufeff?(?:<\?xml[^>]*>\s*)?<Error>.*?<Code>(\w+)</Code>)?", re.DOTALL
)
_REDIRECTED: Final = re.compile(r"incorrectly configured region", re.IGNORECASE)
_NO_CERTIFICATES: Final = re.compile(r"no CA certificates|UnknownIssuer", re.IGNORECASE)
_KEYLESS: Final = re.compile(
    r"169\.254\.169\.254|InstanceCredentials|no credentials|missing credential|token request"
    r"|metadata\.google\.internal",
    re.IGNORECASE,
)
# Answers of a service of credentials that say nothing of these.
_TOKEN_SERVICE_BUSY: Final = (429, *range(500, 600))
_REFUSED: Final = re.compile(
    r"connection refused|os error 111|dns error|lookup address|Could not resolve", re.IGNORECASE
)
_SILENT: Final = re.compile(
    r"HTTP error|error sending request|operation timed out|deadline has elapsed|connection (?:closed|reset)"
    r"|broken pipe|error decoding response body|response body error|NETWORK_CONNECTION|curlCode",
    re.IGNORECASE,
)
# What Arrow's own client says, with which tasks of the pipeline read files.
_ARROW_BUSY: Final = re.compile(
    r"AWS Error (?:SLOW_DOWN|SERVICE_UNAVAILABLE|THROTTLING|REQUEST_TIMEOUT|NETWORK_CONNECTION|INTERNAL_FAILURE) during"
)
_ARROW_DENIED: Final = re.compile(r"AWS Error (?:ACCESS_DENIED|INVALID_ACCESS_KEY_ID|SIGNATURE_DOES_NOT_MATCH) during")
_SYSTEM_CALL: Final = re.compile(r"\(os error (\d+)\)")


def fill_in(remedy: str, store: StoreKind) -> str:
    """Return a remedy with the words and settings of a store."""
    return remedy.format(
        bucket=store.bucket_word,
        credentials=store.credentials_hint,
        endpoint=store.endpoint_setting,
        place=store.place_setting,
    )


def from_text(text: str, store: StoreKind | None = None) -> tuple[StorageKind, str] | None:
    """Return what a client's words about a failed request mean, and the remedy; None when they are not about one.

    Without a `store`, the words tell which one it is.

    >>> from_text("status code: 503 Service Unavailable: <Error><Code>SlowDown</Code></Error>")[0]
    <StorageKind.TRANSIENT: 'transient'>
    >>> from_text("the file is too short") is None
    True
    """
    meaning = _meaning(text)
    if meaning is None:
        return None
    kind, remedy = meaning
    return kind, fill_in(remedy, store or kind_named_in(text)) if "{" in remedy else remedy


def _meaning(text: str) -> tuple[StorageKind, str] | None:
    if _NO_CERTIFICATES.search(text):
        return (
            StorageKind.CONFIGURATION,
            "no CA certificate of this machine vouches for the store: install `ca-certificates`, or set SSL_CERT_FILE",
        )
    answer = _ANSWER.search(text)
    status, code = (int(answer[1]), answer[2] or "") if answer is not None else (0, "")
    if _KEYLESS.search(text) and status not in _TOKEN_SERVICE_BUSY:
        return StorageKind.CONFIGURATION, "there are no credentials, or they are not accepted; {credentials}"
    if _REDIRECTED.search(text):
        return _REGION
    if answer is not None:
        by_status = _BUSY if status >= 500 else (StorageKind.PERMANENT, "the store refused the request")
        kind, remedy = _CODES.get(code) or _STATUSES.get(status, by_status)
        return kind, f"{remedy} (the store answered {status}{f' {code}' if code else ''})"
    if _ARROW_DENIED.search(text):
        return _DENIED
    if _ARROW_BUSY.search(text):
        return _BUSY
    if _REFUSED.search(text):
        return (
            StorageKind.TRANSIENT,
            "no connection to the store: check {endpoint} and that it runs, then try again",
        )
    if _SILENT.search(text):
        remedy = "the store did not answer, or the connection broke: try again; if it stays, check {endpoint}"
        return StorageKind.TRANSIENT, remedy
    if (call := _SYSTEM_CALL.search(text)) is not None:
        return _of_errno(int(call[1]))
    return None
