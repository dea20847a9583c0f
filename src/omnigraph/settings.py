"""Every environment variable that the package reads, in one table, which the documentation shows.

Ground layer: imports only `errors`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from omnigraph.errors import UsageError

_SECRET_CHARACTERS_MIN: Final = 6
_SCHEMES: Final = {"AWS": "s3", "GOOGLE": "gs", "AZURE": "az"}
_SIGNATURE: Final = re.compile(r"([?&](?:sig|X-Goog-Signature|X-Amz-Signature)=)[^&\s\"'`<>,]+")


@dataclass(frozen=True, slots=True)
class Setting:
    """One variable: its default, the values it may take (empty: any), and what it does.

    A secret never appears in a message.
    """

    name: str
    default: str
    summary: str
    choices: tuple[str, ...] = ()
    is_secret: bool = False

    @property
    def scheme(self) -> str:
        """That of the addresses whose store it belongs to: tasks on other machines get it from their driver."""
        return _SCHEMES.get(self.name.partition("_")[0], "")


_TABLE = (
    Setting(
        "OMNIGRAPH_DURABILITY",
        "power",
        "`power`: an acknowledged commit survives power loss; `process`: it survives the death of the process.",
        ("power", "process"),
    ),
    Setting(
        "OMNIGRAPH_TRAVERSAL_MODE",
        "auto",
        "How edges are traversed: by index lookups on `src` and `dst`, over adjacency in memory, or the cheaper.",
        ("auto", "indexed", "csr"),
    ),
    Setting("OMNIGRAPH_EXPAND_INDEXED_MAX_FRONTIER", "1024", "Largest frontier of a hop that uses index lookups."),
    Setting("OMNIGRAPH_EXPAND_INDEXED_MAX_HOPS", "6", "Most hops that use index lookups."),
    Setting(
        "OMNIGRAPH_MAINTENANCE_CONCURRENCY",
        "8",
        "Types that `optimize`, `ensure_indices` and `cleanup` process concurrently.",
    ),
    Setting(
        "OMNIGRAPH_LOAD_CONCURRENCY",
        "8",
        "Parts of an input that an in-process load stages concurrently; never more than there are cores.",
    ),
    Setting(
        "OMNIGRAPH_SPARK_ARCHIVE",
        "on",
        "`on`: the first Spark session writes a class-data archive to the cache directory; later ones start faster.",
        ("on", "off"),
    ),
    Setting(
        "OMNIGRAPH_SPARK_TRACEBACK",
        "off",
        "`on`: errors of the data source come with their Python traceback; `off`: with code and message.",
        ("on", "off"),
    ),
    Setting("AWS_REGION", "us-east-1", "Region of `s3://` graphs."),
    Setting("AWS_ACCESS_KEY_ID", "", "Access key of `s3://` graphs."),
    Setting("AWS_SECRET_ACCESS_KEY", "", "Secret key of `s3://` graphs.", is_secret=True),
    Setting("AWS_SESSION_TOKEN", "", "Session token of `s3://` graphs, if the keys are temporary.", is_secret=True),
    Setting("AWS_ENDPOINT_URL", "", "Endpoint of an S3-compatible store."),
    Setting("AWS_ENDPOINT_URL_S3", "", "The same for S3 alone; it wins over `AWS_ENDPOINT_URL`."),
    Setting(
        "AWS_S3_FORCE_PATH_STYLE",
        "",
        "`true` addresses buckets by path, `false` by host name: `bucket.` is put before the host of the endpoint,"
        " unless it is there already. By path if unset.",
    ),
    Setting(
        "AWS_ALLOW_HTTP",
        "",
        "`true` allows an endpoint without TLS; an `http://` endpoint is refused without it.",
    ),
    Setting("GOOGLE_APPLICATION_CREDENTIALS", "", "File with the application default credentials of `gs://` graphs."),
    Setting("GOOGLE_SERVICE_ACCOUNT", "", "File with the key of the service account of `gs://` graphs."),
    Setting("GOOGLE_SERVICE_ACCOUNT_KEY", "", "The same key itself, as JSON.", is_secret=True),
    Setting("GOOGLE_BEARER_TOKEN", "", "Access token of `gs://` graphs; it is not renewed.", is_secret=True),
    Setting("GOOGLE_BASE_URL", "", "Endpoint of `gs://` graphs, if it is not that of Google."),
    Setting("GOOGLE_ALLOW_HTTP", "", "`true` allows an endpoint of `gs://` graphs without TLS."),
    Setting(
        "AZURE_STORAGE_ACCOUNT_NAME",
        "",
        "Storage account of `az://` graphs; always needed, because an address names the container alone.",
    ),
    Setting("AZURE_STORAGE_ACCOUNT_KEY", "", "Key of that account.", is_secret=True),
    Setting("AZURE_STORAGE_SAS_TOKEN", "", "Shared access signature, in place of a key.", is_secret=True),
    Setting("AZURE_STORAGE_TOKEN", "", "Access token of `az://` graphs; it is not renewed.", is_secret=True),
    Setting("AZURE_CLIENT_ID", "", "Application or managed identity that reads and writes `az://` graphs."),
    Setting("AZURE_CLIENT_SECRET", "", "Secret of that application.", is_secret=True),
    Setting("AZURE_TENANT_ID", "", "Tenant of that application."),
    Setting("AZURE_FEDERATED_TOKEN_FILE", "", "File with the token of a workload identity."),
    Setting(
        "AZURE_STORAGE_ENDPOINT",
        "",
        "Endpoint of `az://` graphs, if it is not that of the account; that of an emulator ends with the account:"
        " `http://host:10000/devstoreaccount1`.",
    ),
    Setting(
        "AZURE_STORAGE_USE_EMULATOR",
        "",
        "`true` uses the Azurite emulator: its account, its published key, and `http://127.0.0.1:10000` if there is no"
        " endpoint.",
    ),
    Setting("AZURE_ALLOW_HTTP", "", "`true` allows an endpoint of `az://` graphs without TLS."),
    Setting(
        "OMNIGRAPH_EMBED_PROVIDER",
        "openai-compatible",
        "Embedding provider.",
        ("openai-compatible", "openai", "gemini", "mock"),
    ),
    Setting("OMNIGRAPH_EMBED_BASE_URL", "", "Base URL of the provider's API; empty: its default."),
    Setting("OMNIGRAPH_EMBED_MODEL", "", "Embedding model; empty: the provider's default."),
    Setting("OMNIGRAPH_EMBED_DEADLINE_MS", "60000", "Milliseconds for one embedding, retries included; `0`: no limit."),
    Setting("OMNIGRAPH_EMBED_TIMEOUT_MS", "30000", "Timeout of one request to the provider in milliseconds."),
    Setting("OMNIGRAPH_EMBED_RETRY_ATTEMPTS", "4", "Attempts per request, the first included."),
    Setting("OMNIGRAPH_EMBED_RETRY_BACKOFF_MS", "200", "Milliseconds before the first retry; doubles with each."),
    Setting(
        "OMNIGRAPH_EMBED_REQUESTS_PER_SECOND",
        "0",
        "Rate limit of requests to the provider per second, over all tasks of a job; `0`: none.",
    ),
    Setting(
        "OMNIGRAPH_EMBEDDINGS_MOCK",
        "false",
        "`true` embeds with meaningless vectors and no provider, for tests; it wins over `OMNIGRAPH_EMBED_PROVIDER`.",
        ("true", "false", "1", "0"),
    ),
    Setting("OPENROUTER_API_KEY", "", "Key of the `openai-compatible` provider.", is_secret=True),
    Setting(
        "OPENAI_API_KEY", "", "Key of the `openai` provider; the second choice of `openai-compatible`.", is_secret=True
    ),
    Setting("GEMINI_API_KEY", "", "Key of the `gemini` provider.", is_secret=True),
    Setting("OMNIGRAPH_SERVER_BEARER_TOKEN", "", "Token of the actor `default` of a server.", is_secret=True),
    Setting(
        "OMNIGRAPH_SERVER_BEARER_TOKENS_FILE",
        "",
        'File with the tokens of a server as JSON, `{"ada": "token of ada"}`; readable by its owner alone.',
    ),
    Setting(
        "OMNIGRAPH_SERVER_BEARER_TOKENS_JSON", "", "The same as a JSON string; set one of the two.", is_secret=True
    ),
    Setting("OMNIGRAPH_SERVER_BEARER_TOKENS_AWS_SECRET", "", "Rejected: AWS secrets are not supported."),
    Setting(
        "OMNIGRAPH_UNAUTHENTICATED",
        "",
        "Lets a server start without tokens, open to every client; empty, `0` and `false` do not.",
    ),
    Setting(
        "OMNIGRAPH_REQUIRE_ALL_GRAPHS",
        "",
        "Lets `serve --cluster` start only if every graph is healthy; empty, `0` and `false` do not.",
    ),
    Setting("OMNIGRAPH_SERVER_THREADS", "16", "Threads of a server for reads, and the same number for writes."),
    Setting(
        "OMNIGRAPH_SERVER_CONNECTIONS_PER_PEER",
        "256",
        "Connections that a server accepts per address; behind a proxy, all clients share one.",
    ),
    Setting(
        "OMNIGRAPH_SERVER_ALLOWED_HOSTS",
        "",
        "Values of the header `Host` that a server accepts, separated by commas: `graph.example.org`, `.example.org`"
        " for its subdomains, `*` for any.",
    ),
    Setting("OMNIGRAPH_PER_ACTOR_INFLIGHT_MAX", "16", "Writes that one actor may have in flight on a server."),
    Setting("OMNIGRAPH_PER_ACTOR_BYTES_MAX", "4294967296", "Total bytes of the requests of these writes."),
    Setting("OPENLINEAGE_URL", "", "Address of a lineage service that pipelines send events to; empty: none."),
    Setting("OPENLINEAGE_ENDPOINT", "api/v1/lineage", "Path of that service for events."),
    Setting("OPENLINEAGE_API_KEY", "", "Key that events are sent with, as a bearer token.", is_secret=True),
    Setting("OPENLINEAGE_NAMESPACE", "omnigraph", "Namespace of pipelines in lineage events."),
    Setting("OMNIGRAPH_LINEAGE_FILE", "", "File that lineage events are appended to, a line each; empty: none."),
    Setting("OMNIGRAPH_HOME", "", "Directory of `config.yaml` and `credentials`; `~/.omnigraph` if unset."),
    Setting("OMNIGRAPH_STORE", "", "Graph of commands that name no graph, server or profile."),
    Setting("OMNIGRAPH_PROFILE", "", "Profile of commands without `--profile`."),
    Setting(
        "OMNIGRAPH_BEARER_TOKEN", "", "Token that commands send to a server without stored credentials.", is_secret=True
    ),
)

SETTINGS: Mapping[str, Setting] = MappingProxyType({setting.name: setting for setting in _TABLE})


def read(name: str) -> str:
    """Return the value of a setting, or its default; raises `UsageError` for a value outside its choices."""
    setting = SETTINGS[name]
    value = os.environ.get(name, "") or setting.default
    if setting.choices and value not in setting.choices:
        raise UsageError(
            f"{name} is `{value}`; set it to one of: {', '.join(setting.choices)}", setting=name, value=value
        )
    return value


def mask_secrets(text: str) -> str:
    """Return a text with the names of secret settings in place of their values, also of a signature in an address.

    >>> mask_secrets("GET https://a.example.org/c?sp=r&sig=abc%3D failed")
    'GET https://a.example.org/c?sp=r&sig=… failed'
    """
    for setting in SETTINGS.values():
        value = os.environ.get(setting.name, "") if setting.is_secret else ""
        # A shorter one would also be found in words that say nothing of it.
        if len(value) >= _SECRET_CHARACTERS_MIN:
            text = text.replace(value, f"${{{setting.name}}}")
    return _SIGNATURE.sub(r"\1…", text)


def read_integer(name: str, *, least: int = 0) -> int:
    value = read(name)
    if not (value.isascii() and value.isdigit() and int(value) >= least):
        bound = f" of at least {least}" if least else ""
        raise UsageError(f"{name} is `{value}`; set it to an integer{bound}", setting=name, value=value)
    return int(value)
