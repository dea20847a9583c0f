"""The options that the formats of Spark have: a misspelt one would be ignored by Spark, without a word."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import yaml

from omnigraph.lang.diagnostic import did_you_mean
from omnigraph.pipelines.declaration.document import PipelineDocument
from omnigraph.spark.datasource.options import READ_OPTIONS

_FILES: Final = (
    "pathGlobFilter recursiveFileLookup modifiedBefore modifiedAfter ignoreCorruptFiles ignoreMissingFiles basePath"
    " timeZone compression"
)
_TIMES: Final = "dateFormat timestampFormat timestampNTZFormat enableDateTimeParsingFallback locale"
_TEXTS: Final = "mode columnNameOfCorruptRecord encoding charset multiLine lineSep samplingRatio singleVariantColumn"
_OPTIONS: Final[Mapping[str, str]] = {
    "csv": f"{_FILES} {_TIMES} {_TEXTS} sep delimiter quote quoteAll escape escapeQuotes comment header inferSchema"
    " preferDate enforceSchema ignoreLeadingWhiteSpace ignoreTrailingWhiteSpace nullValue nanValue positiveInf"
    " negativeInf emptyValue maxColumns maxCharsPerColumn charToEscapeQuoteEscaping unescapedQuoteHandling"
    " columnPruning extension inputBufferSize",
    "json": f"{_FILES} {_TIMES} {_TEXTS} primitivesAsString prefersDecimal allowComments allowUnquotedFieldNames"
    " allowSingleQuotes allowNumericLeadingZeros allowBackslashEscapingAnyCharacter allowUnquotedControlChars"
    " allowNonNumericNumbers dropFieldIfAllNull ignoreNullFields inferTimestamp maxNestingDepth maxNumLen maxStringLen",
    "xml": f"{_FILES} {_TIMES} {_TEXTS} rowTag rootTag excludeAttribute inferSchema attributePrefix valueTag"
    " ignoreSurroundingSpaces rowValidationXSDPath ignoreNamespace wildcardColName nullValue prefersDecimal"
    " validateName preferDate",
    "parquet": f"{_FILES} mergeSchema datetimeRebaseMode int96RebaseMode",
    "orc": f"{_FILES} mergeSchema",
    "avro": f"{_FILES} avroSchema avroSchemaUrl mode ignoreExtension positionalFieldMatching datetimeRebaseMode"
    " recursiveFieldMaxDepth enableStableIdentifiersForUnionType stableIdentifierPrefixForUnionType",
    "text": f"{_FILES} wholetext lineSep encoding",
    "omnigraph": " ".join(READ_OPTIONS),
    "jdbc": "url dbtable query driver user password partitionColumn lowerBound upperBound numPartitions queryTimeout"
    " fetchsize batchsize isolationLevel sessionInitStatement customSchema pushDownPredicate pushDownAggregate"
    " pushDownLimit pushDownOffset pushDownTableSample keytab principal refreshKrb5Config connectionProvider"
    " preferTimestampNTZ hint prepareQuery",
}
_ANY_FORMAT: Final = ("schema", "table")


def check_options(document: PipelineDocument, node: yaml.Node, format_name: str, members: Iterable[str]) -> None:
    """Report options of a source that its format does not have, with the one that was probably meant.

    A database driver has options of its own, so of these only what looks like a misspelt one is reported. Names with a
    dot are settings of file systems, and formats of others may have any option.
    """
    if format_name not in _OPTIONS or not isinstance(node, yaml.MappingNode):
        return
    known = [*_OPTIONS[format_name].split(), *members, *_ANY_FORMAT]
    lowered = {name.lower() for name in known}
    for key, _ in node.value:
        name = str(key.value)
        if name.lower() in lowered or "." in name:
            continue
        suggestion = did_you_mean(name, known)
        if suggestion or format_name != "jdbc":
            hint = suggestion or f"it has {', '.join(_OPTIONS[format_name].split()[:8])} and others"
            document.fault(key, f"`{format_name}` has no option `{name}`; {hint}")
