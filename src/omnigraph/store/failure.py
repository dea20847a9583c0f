"""What a failed system call means: which kind of storage failure it is, and what to do about it.

Judges by errno alone, never by message text.
"""

from __future__ import annotations

import errno
import os
from typing import Final

from omnigraph.errors import Effect, StorageError, StorageKind

_REMEDIES: Final[dict[int, tuple[StorageKind, str]]] = {
    errno.ENOENT: (StorageKind.NOT_FOUND, "check the path"),
    errno.ENOSPC: (StorageKind.PERMANENT, "the disk is full: free some space, then try again"),
    errno.EDQUOT: (StorageKind.PERMANENT, "the disk quota is used up: free some space, then try again"),
    errno.EFBIG: (StorageKind.PERMANENT, "the file would exceed the size that the file system or the process allows"),
    errno.EIO: (StorageKind.PERMANENT, "the disk reports a fault: check it before you write again"),
    errno.EROFS: (StorageKind.CONFIGURATION, "the file system is read-only: mount it for writing, or move the graph"),
    errno.EACCES: (
        StorageKind.CONFIGURATION,
        "permission denied: check owner and mode of the directories above it",
    ),
    errno.EPERM: (
        StorageKind.CONFIGURATION,
        "not permitted: check owner and attributes of the directories above",
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


def from_os_error(error: OSError, action: str, target: str, effect: Effect = Effect.NONE) -> StorageError:
    """Return the storage failure that a failed system call stands for; `action` reads like `write`.

    >>> print(from_os_error(OSError(errno.ENOSPC, ""), "write", "/g/_schema.pg").message)
    cannot write `/g/_schema.pg`: the disk is full: free some space, then try again
    """
    code = error.errno or 0
    kind, remedy = _REMEDIES.get(code, (StorageKind.UNKNOWN, f"{os.strerror(code).lower()}: check the file system"))
    return StorageError(
        f"cannot {action} `{target}`: {remedy}",
        effect=effect,
        kind=kind,
        object=target,
        errno=errno.errorcode.get(code, ""),
    )
