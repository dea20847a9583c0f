"""The stores that a graph can be kept in: one table, with everything in which they differ.

Code asks for the property that it needs, never for a scheme. A new store is a line here, its settings in `settings.py`
and `client_settings.py`, and its client in `bucket_objects.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from omnigraph.errors import UsageError
from omnigraph.settings import SETTINGS
from omnigraph.store.objects import client_settings


@dataclass(frozen=True, slots=True)
class StoreKind:
    """One kind of store: how its addresses are written, its settings, and what it can do."""

    scheme: str
    # As messages call it, and what it calls the first part of an address.
    title: str
    bucket_word: str
    form: str
    # A directory of this machine, or of a file system that is mounted here: names are paths, which may be links.
    has_paths: bool = False
    # Each request takes a network round trip, so what need not be waited for runs in the background.
    has_round_trips: bool = True
    # A listing costs no more than a look at one object.
    lists_cheaply: bool = False
    # A commit is published by one conditional put; otherwise by a hard link to a file that was synced before.
    publishes_by_put: bool = True
    # An object is there with all of its bytes or not at all; a file may be cut short by a crash or a full disk.
    keeps_objects_whole: bool = True
    # The last bytes of an object can be asked for without knowing its size.
    reads_from_end: bool = True
    # The headers that bind a put to the absence of an object, and to what it was: its ETag or its generation.
    create_condition: str = "If-None-Match: *"
    match_condition: str = "If-Match"
    matches_generations: bool = False
    bucket_pattern: re.Pattern[str] = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
    options: Callable[[str], dict[str, str]] = lambda _bucket: {}
    endpoint_name: Callable[[], str] = lambda: ""
    # The word for this store in errors of the clients.
    client_name: str = ""
    # Settings to check when the store refuses credentials, cannot be reached, or does not have the bucket.
    credential_settings: tuple[str, ...] = ()
    endpoint_setting: str = ""
    place_setting: str = ""

    @property
    def settings(self) -> tuple[str, ...]:
        return tuple(setting.name for setting in SETTINGS.values() if setting.scheme == self.scheme)

    @property
    def credentials_hint(self) -> str:
        *names, last = self.credential_settings
        return f"check {', '.join(names)} and {last}, and what they may do" if names else "check the credentials"


_TABLE: Final = (
    StoreKind(
        scheme="file",
        title="the local disk",
        bucket_word="directory",
        form="`file:///path`",
        has_paths=True,
        has_round_trips=False,
        lists_cheaply=True,
        publishes_by_put=False,
        keeps_objects_whole=False,
    ),
    StoreKind(
        scheme="s3",
        title="S3",
        bucket_word="bucket",
        form="`s3://bucket/prefix`",
        options=client_settings.s3_bucket_options,
        endpoint_name=client_settings.s3_endpoint_name,
        client_name="S3",
        credential_settings=("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
        endpoint_setting="AWS_ENDPOINT_URL",
        place_setting="AWS_REGION",
    ),
    StoreKind(
        scheme="gs",
        title="Google Cloud Storage",
        bucket_word="bucket",
        form="`gs://bucket/prefix`",
        create_condition="x-goog-if-generation-match: 0",
        match_condition="x-goog-if-generation-match",
        matches_generations=True,
        bucket_pattern=re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]"),
        options=client_settings.gcs_options,
        endpoint_name=client_settings.gcs_endpoint_name,
        client_name="GCS",
        credential_settings=(
            "GOOGLE_APPLICATION_CREDENTIALS",
            "GOOGLE_SERVICE_ACCOUNT",
            "GOOGLE_SERVICE_ACCOUNT_KEY",
            "GOOGLE_BEARER_TOKEN",
        ),
        endpoint_setting="GOOGLE_BASE_URL",
        place_setting="GOOGLE_BASE_URL",
    ),
    StoreKind(
        scheme="az",
        title="Azure Blob Storage",
        bucket_word="container",
        form="`az://container/prefix`",
        reads_from_end=False,
        bucket_pattern=re.compile(r"(?!.*--)[a-z0-9][a-z0-9-]{1,61}[a-z0-9]"),
        options=client_settings.azure_options,
        endpoint_name=client_settings.azure_endpoint_name,
        client_name="MicrosoftAzure",
        credential_settings=(
            "AZURE_STORAGE_ACCOUNT_NAME",
            "AZURE_STORAGE_ACCOUNT_KEY",
            "AZURE_STORAGE_SAS_TOKEN",
            "AZURE_STORAGE_TOKEN",
        ),
        endpoint_setting="AZURE_STORAGE_ENDPOINT",
        place_setting="AZURE_STORAGE_ACCOUNT_NAME",
    ),
)

STORES: Final[Mapping[str, StoreKind]] = MappingProxyType({kind.scheme: kind for kind in _TABLE})
LOCAL: Final = STORES["file"]
REMOTE: Final = tuple(kind for kind in _TABLE if not kind.has_paths)

# Spellings of other tools, by the scheme that is meant.
OTHER_SPELLINGS: Final[Mapping[str, str]] = MappingProxyType(
    {"s3a": "s3", "s3n": "s3", "gcs": "gs"} | dict.fromkeys(("azure", "abfs", "abfss", "adl", "wasb", "wasbs"), "az")
)
REMOTE_FORMS: Final = " or ".join(kind.form for kind in REMOTE)
FORMS: Final = f"a local path, {', '.join(kind.form for kind in _TABLE[:-1])} or {_TABLE[-1].form}"


def kind_named_in(text: str) -> StoreKind:
    """Return the store that an error of a client is about: by its name for it, else by the endpoint it was sent to.

    >>> kind_named_in("Generic MicrosoftAzure error: Error performing GET").scheme
    'az'
    """
    for kind in REMOTE:
        if re.search(rf"\b{kind.client_name} error\b|store: \"{kind.client_name}\"", text):
            return kind
    for kind in REMOTE:
        # The settings of another store may be wrong, which is no matter of this error.
        with suppress(UsageError):
            if kind.endpoint_name() in text:
                return kind
    return STORES["s3"]
