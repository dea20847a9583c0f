"""The declaration of pipelines: what a file says, and where it is wrong. Nothing here starts Spark."""

from __future__ import annotations

import os
from fractions import Fraction
from pathlib import Path

import pytest

from omnigraph.engine.load.report import prepare_folder
from omnigraph.errors import UsageError
from omnigraph.pipelines.check import find_pipeline
from omnigraph.pipelines.declaration.config import parse_pipelines, read_pipelines
from omnigraph.pipelines.redaction import redact_errors

VALID = """\
version: 1
pipelines:
  crm:
    graph: knowledge
    publish: { branch: load/crm, merge_into: main, review: false }
    schedule: "0 2 * * *"
    sources:
      accounts: { format: jdbc, url: "${CRM_JDBC}", table: accounts, incremental: updated_at }
      tickets: { format: csv, path: tickets, header: true }
    transforms:
      people: "SELECT id, full_name AS name FROM accounts"
    nodes: { Person: { from: people, columns: { name: name } } }
    edges: { Owns: { from: tickets, src: owner, dst: id, mode: merge } }
    expect:
      - { on: people, not_null: [name], at_most: "0.1 %", else: quarantine }
      - { on: people, condition: "name <> ''", else: quarantine }
      - { query: orphans, rows: 0, else: stop }
    queries: queries
    spark: { master: "${MASTER}", conf: { spark.executor.memory: 4g } }
"""


def test_declaration_is_read_with_its_defaults() -> None:
    [pipeline] = parse_pipelines(VALID, folder=Path("/team")).values()
    assert (pipeline.mode, pipeline.target_branch, pipeline.folder) == ("merge", "main", Path("/team"))
    assert pipeline.sources["accounts"].incremental == "updated_at"
    assert pipeline.sources["tickets"].options == {"header": "true"}
    # Without a share, a quarantine takes any number of rows.
    assert [item.at_most for item in pipeline.expectations] == [Fraction(1, 1000), 1, 0]
    assert pipeline.spark_options == {"spark.executor.memory": "4g"}


def test_share_of_rows_is_exact() -> None:
    """As floats, 57 of 10,000 rows are more than 0.57 %."""
    [pipeline] = parse_pipelines(VALID.replace("0.1 %", "0.57 %")).values()
    assert 57 <= pipeline.expectations[0].at_most * 10_000 < 58


def test_known_format_may_be_in_capitals() -> None:
    [pipeline] = parse_pipelines(VALID.replace("format: csv", "format: CSV")).values()
    assert pipeline.sources["tickets"].format == "csv"


def test_digest_covers_what_is_loaded_and_not_where() -> None:
    [pipeline] = parse_pipelines(VALID).values()
    [moved] = parse_pipelines(VALID.replace("load/crm", "load/other").replace("0 2 *", "0 3 *")).values()
    [changed] = parse_pipelines(VALID.replace("SELECT id", "SELECT  id")).values()
    assert pipeline.digest == moved.digest != changed.digest


@pytest.mark.parametrize(
    ("before", "after", "place", "message"),
    [
        ("    graph: knowledge", "    grph: knowledge", "grph", "unknown field `grph`"),
        ("from: people, col", "from: peple, col", "peple", "there is no source or transform `peple`"),
        ("format: csv, ", "", "{ path: tickets", "needs a `format`"),
        ("path: tickets, ", "", "{ format: csv", "needs a `path`"),
        ("mode: merge", "mode: replace", "replace", "`replace` is not one of"),
        ("mode: merge", "mode: append", "graph:", "all its types need the same `mode`"),
        ("mode: merge", "delete_when: { op: d, seq: 1 }", "{ op", "name one column and its values"),
        ("mode: merge", "mode: snapshot", "graph:", "an `incremental` source has only the new ones"),
        ('"${CRM_JDBC}"', '"jdbc:db:crm;password=x"', '"jdbc:', "a secret must not be in the file"),
        ("table: accounts,", "password: hunter2,", "hunter2", "a secret must not be in the file"),
        ("spark.executor.memory: 4g", "fs.s3a.secret.key: abc", "abc", "a secret must not be in the file"),
        ("0.1 %", "many", '"many"', "expected a share"),
        ("0.1 %", "101 %", '"101 %"', "at most 100 percent"),
        ("not_null: [name], ", "", "{ on: people, at_most", "nothing is expected"),
        ("merge_into: main, ", "", "- { on: people, not_null", "add `publish.merge_into`"),
        ("review: false", "review: perhaps", "perhaps", "expected `true` or `false`"),
        ("branch: load/crm", "branch: main", "{ branch", "cannot be merged into itself"),
        ("      people:", "      accounts:", 'accounts: "SELECT', "`accounts` is a source, too"),
        ("      people:", "      Accounts:", 'Accounts: "SELECT', "`accounts` is a source, too"),
        ("      tickets:", "      ACCOUNTS:", "ACCOUNTS:", "does not tell the two names apart"),
        ("branch: load/crm", 'branch: "load crm"', '"load crm"', "cannot name a branch"),
        ("merge_into: main", "merge_into: a//b", "a//b", "cannot name a branch"),
        ("format: csv", 'format: ""', '""', "expected a value for `format`"),
        ("path: tickets", 'path: " "', '" "', "expected a value for `path`"),
        ("incremental: updated_at", "incremental: true", "true", "expected a value for `incremental`"),
        ('url: "${CRM_JDBC}", ', "", "{ format: jdbc", "needs a `url`"),
        (" table: accounts,", "", "{ format: jdbc", "needs a `table` or a `query`"),
        ("table: accounts,", 'table: a, query: "SELECT 1",', "{ format: jdbc", "only one of them"),
        (" table: accounts,", " path: accounts,", "{ format: jdbc", "and no `path`"),
        ("table: accounts,", "accessKey: AKIA1,", "AKIA1", "a secret must not be in the file"),
        ("table: accounts,", "api_key: abc,", "abc", "a secret must not be in the file"),
        ("table: accounts,", "passwd: abc,", "abc", "a secret must not be in the file"),
        ("table: accounts,", 'password: "abc${X}",', '"abc${X}"', "a secret must not be in the file"),
        ('"${CRM_JDBC}"', '"jdbc:oracle:thin:scott/tiger@//db"', '"jdbc:', "a secret must not be in the file"),
        ("path: tickets", 'path: "https://x/y?sig=abc"', '"https:', "a secret must not be in the file"),
        ('"${CRM_JDBC}"', '"$CRM_JDBC"', '"$CRM', "a variable is written as `${NAME}`"),
        ('"${CRM_JDBC}"', '"${CRM_JDBC"', '"${CRM', "a variable is written as `${NAME}`"),
        ('"${CRM_JDBC}"', '"${CRM_JDBC:-x}"', '"${CRM', "there are no defaults"),
        ("columns: { name: name }", "columns: { name: null }", "{ name: null }", "expected the column of `name`"),
        ("rows: 0,", 'rows: 0, at_most: "5 %",', '"5 %"', "`at_most` is about the rows of a view"),
        ("query: orphans", "query: orphans, unique: [a]", "[a]", "`unique` is about the rows of a view"),
        ('at_most: "0.1 %"', "rows: 5", "5,", "a view has `min_rows`"),
        ("not_null: [name], at_most", "min_rows: 1, at_most", '"0.1 %"', "a share of rows may fail"),
        ("SELECT id", "SELECT '${X}' AS id", '"SELECT', "not in SQL; write the value"),
        ("name <> ''", "name <> '${X}'", '"name <>', "not in SQL; write the value"),
        ("branch: load/crm, merge_into: main", "branch: main, merge_into: dev", "{ branch", "before its checks"),
        ("rows: 0", 'rows: "²"', '"²"', "expected an integer"),
        ("version: 1", "version: 2", "2", "unsupported version"),
    ],
)
def test_mistake_is_reported_with_its_position(before: str, after: str, place: str, message: str) -> None:
    assert before in VALID
    text = VALID.replace(before, after, 1)
    above, _, same_line = text[: text.index(place)].rpartition("\n")
    position = f"{above.count(chr(10)) + 2 if above else 1}:{len(same_line) + 1}"
    with pytest.raises(UsageError) as caught:
        parse_pipelines(text, "team.yaml")
    lines = [line for line in str(caught.value).splitlines() if message in line]
    assert [line.partition(": ")[0] for line in lines] == [f"team.yaml:{position}"]


def test_branch_of_two_pipelines_is_refused() -> None:
    both = VALID + VALID.partition("pipelines:\n")[2].replace("  crm:", "  erp:")
    with pytest.raises(UsageError, match=r"^pipelines.yaml:20:3: pipeline `crm` loads to the branch `load/crm`, too"):
        parse_pipelines(both)
    # Branches of two graphs of a cluster are two branches.
    first, second = both.split("  erp:")
    assert len(parse_pipelines(f"{first}  erp:{second.replace('graph: knowledge', 'graph: other')}")) == 2


def test_positions_of_parts_are_known() -> None:
    positions = parse_pipelines(VALID, "team.yaml")["crm"].positions
    assert positions["transforms.people"] == "team.yaml:11:15"
    assert positions["expect.1"] == "team.yaml:16:9"
    assert positions["nodes.Person"] == "team.yaml:12:22"


def test_values_of_variables_are_kept_out_of_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    [pipeline] = parse_pipelines(VALID).values()
    monkeypatch.setenv("CRM_JDBC", "jdbc:derby://db:1527/crm;user=ann;password=hunter2")
    text = f"no route to {os.environ['CRM_JDBC']}, nor to db with password=hunter2; ann:hunter2"
    failure = UsageError(text, part="sources.accounts", url=os.environ["CRM_JDBC"])
    failure.__cause__ = ValueError(text)
    with pytest.raises(UsageError) as caught, redact_errors(pipeline):
        raise failure
    assert str(caught.value) == ("pipelines.yaml:8:17: no route to ${CRM_JDBC}, nor to db with password=***; ann:***")
    assert caught.value.context == {"url": "${CRM_JDBC}"}
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("rule", "column", "values"),
    [("gone", "gone", ()), ("{ op: d }", "op", ("d",)), ("{ op: [d, 4] }", "op", ("d", "4"))],
)
def test_deletes_are_declared_for_edges_as_for_nodes(rule: str, column: str, values: tuple[str, ...]) -> None:
    text = VALID.replace("mode: merge", f"delete_when: {rule}, order_by: seq")
    edge = parse_pipelines(text)["crm"].edges["Owns"]
    assert (edge.delete_when, edge.delete_values, edge.order_by, edge.is_deleting) == (column, values, "seq", True)
    with pytest.raises(UsageError, match="deletes and loads are published together by a merge"):
        parse_pipelines(text.replace("merge_into: main, ", ""))


def test_overwrite_of_incremental_rows_is_refused() -> None:
    text = VALID.replace("columns: { name: name }", "mode: overwrite").replace("mode: merge", "mode: overwrite")
    with pytest.raises(UsageError, match="an `incremental` source has only the new ones"):
        parse_pipelines(text)


def test_all_mistakes_are_reported_at_once() -> None:
    with pytest.raises(UsageError) as caught:
        parse_pipelines(VALID.replace("merge_into", "into").replace("format: csv", "formt: csv"))
    problems = caught.value.context["problems"]
    assert isinstance(problems, list)
    assert len(problems) >= 3


def test_pipeline_of_a_file_is_chosen_by_name(tmp_path: Path) -> None:
    file = tmp_path / "pipelines.yaml"
    file.write_text(
        VALID + VALID.partition("pipelines:\n")[2].replace("  crm:", "  erp:").replace("load/crm", "load/erp")
    )
    assert list(read_pipelines(file)) == ["crm", "erp"]
    assert find_pipeline(file, "erp").folder == tmp_path
    with pytest.raises(UsageError, match="name the pipeline; there are `crm`, `erp`"):
        find_pipeline(file)
    with pytest.raises(UsageError, match="did you mean `crm`"):
        find_pipeline(file, "crn")
    file.write_bytes(b"pipelines: \xff")
    with pytest.raises(UsageError, match="byte 11 is not UTF-8"):
        read_pipelines(file)


@pytest.mark.parametrize("folder", ["s3://lake/report", Path("s3://lake/report")])
def test_report_at_an_address_is_refused(folder: str | Path) -> None:
    """It would become a local directory of the name `s3:`."""
    with pytest.raises(UsageError, match="choose a directory of this machine"):
        prepare_folder(folder)


def test_branch_that_one_pipeline_merges_is_no_target_of_another() -> None:
    one = "publish: {%s}, sources: { s: { format: json, path: s } }, nodes: { P: { from: s } }"
    text = "pipelines:\n  p: { %s }\n  q: { %s }\n"
    merged, direct = one % " branch: load/x, merge_into: main, review: true ", one % " branch: load/x "
    for first, second in ((merged, direct), (direct, merged)):
        with pytest.raises(UsageError, match="pipeline `p` loads to the branch `load/x`, too"):
            parse_pipelines(text % (first, second))
    # Without a merge, several may load to one branch.
    assert set(parse_pipelines(text % (direct, direct))) == {"p", "q"}


MISSPELT = [
    ("header: true", "heder: true", "`csv` has no option `heder`; did you mean `header`"),
    ("header: true", "fs.s3a.endpoint: here", None),
    ("format: csv, path: tickets, header: true", "format: parquet, path: t, mergeShema: true", "`mergeSchema`"),
    ("table: accounts", "table: accounts, fetchsiz: 10", "`jdbc` has no option `fetchsiz`; did you mean `fetchsize`"),
    # An option of the driver.
    ("table: accounts", "table: accounts, applicationName: omnigraph", None),
    ("format: csv", "format: com.example.lake, anything: 1", None),
    ("FROM accounts", "FROM acounts", "nothing reads the source `accounts`"),
    ("from: people", "from: tickets", None),
    ("from: tickets, src", "from: people, src", "nothing reads the source `tickets`"),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after", "message"), MISSPELT)
def test_misspelt_options_and_unused_sources_are_refused(before: str, after: str, message: str | None) -> None:
    """Spark would ignore the option, and the source would be forgotten."""
    assert before in VALID
    text = VALID.replace(before, after, 1)
    if message is None:
        parse_pipelines(text)
        return
    with pytest.raises(UsageError) as caught:
        parse_pipelines(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT reflect('java.lang.System', 'getenv', 'HOME') AS name FROM accounts",
        "SELECT JAVA_METHOD ('java.lang.System', 'getenv', 'HOME') AS name FROM accounts",
        "SELECT `try_reflect`('java.lang.System', 'getenv', 'HOME') AS name FROM accounts",
        "SELECT TRANSFORM (name) USING 'cat /etc/passwd' AS (name) FROM accounts",
    ],
)
def test_sql_that_leaves_the_database_is_refused(statement: str) -> None:
    text = VALID.replace("SELECT id, full_name AS name FROM accounts", statement)
    with pytest.raises(UsageError, match="which SQL of a pipeline may not"):
        parse_pipelines(text)


def test_words_in_strings_and_comments_are_allowed() -> None:
    statement = "SELECT 'reflect(' AS name -- java_method(\n FROM accounts JOIN tickets USING (id)"
    parse_pipelines(VALID.replace("SELECT id, full_name AS name FROM accounts", statement.replace("\n", "\\n")))
