"""The functions, operators and aggregates of the query language: signatures, result types and documentation.

Pure data. The checker resolves calls by these tables, each engine must implement every name in them (a test compares),
and the reference of the documentation is built from them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from omnigraph.lang.catalog import PropertyType
from omnigraph.lang.diagnostic import did_you_mean, join_words
from omnigraph.lang.scalars import FLOATS, INTEGERS, LITERAL_CALLS, NUMBERS, PLAIN, Scalar

# Words of signatures that stand for several types.
_CLASSES: Final[Mapping[str, frozenset[Scalar]]] = {
    "Integer": INTEGERS,
    "Number": NUMBERS,
    "T": PLAIN,
    "Any": frozenset(Scalar),
    **{scalar.value: frozenset({scalar}) for scalar in Scalar},
}
_UNSIGNED: Final = frozenset({Scalar.U32, Scalar.U64})


@dataclass(frozen=True, slots=True)
class Signature:
    """The arguments and the result of one form of a function; the last argument may repeat.

    `T` is one type, the same wherever it stands; numbers of different widths have a common one.
    """

    arguments: tuple[str, ...]
    result: str
    is_variadic: bool
    is_partial: bool

    @classmethod
    def parse(cls, text: str) -> Signature:
        """Read `String, Integer -> String?`, where `?` marks a result that may be null though no argument is.

        >>> Signature.parse("T... -> T")
        Signature(arguments=('T',), result='T', is_variadic=True, is_partial=False)
        """
        left, _, result = (part.strip() for part in text.partition("->"))
        arguments = [word.strip() for word in left.split(",") if word.strip()]
        is_variadic = bool(arguments) and arguments[-1].endswith("...")
        words = tuple(word.removesuffix("...") for word in arguments)
        return cls(words, result.removesuffix("?"), is_variadic, result.endswith("?"))

    def __str__(self) -> str:
        words = ", ".join(self.arguments) + ("…" if self.is_variadic else "")
        return f"{words} → {self.result}{'?' if self.is_partial else ''}".strip()

    def accepts_count(self, count: int) -> bool:
        return count >= len(self.arguments) if self.is_variadic else count == len(self.arguments)

    def expected(self, count: int) -> tuple[str, ...]:
        """Return the words for `count` arguments."""
        return self.arguments + self.arguments[-1:] * (count - len(self.arguments))

    def resolve(self, types: Sequence[PropertyType]) -> PropertyType | None:
        """Return the type of the result for arguments of these types, or None if they do not fit."""
        if not self.accepts_count(len(types)):
            return None
        words = self.expected(len(types))
        if not all(fits_word(type_, word) for type_, word in zip(types, words, strict=True)):
            return None
        scalars = [type_.scalar for type_, word in zip(types, words, strict=True) if word in ("T", "[T]")]
        common = common_scalar(scalars) if scalars else None
        if scalars and common is None:
            return None
        result = self.result.strip("[]")
        scalar = common if result == "T" else Scalar(result)
        assert scalar is not None
        nullable = self.is_partial or any(type_.nullable for type_ in types)
        return PropertyType(scalar, is_list=self.result.startswith("["), nullable=nullable)


def fits_word(type_: PropertyType, word: str) -> bool:
    """Return True if a type is what a word of a signature asks for; `Any` takes lists, too.

    >>> fits_word(PropertyType(Scalar.I32), "Number"), fits_word(PropertyType(Scalar.I32, is_list=True), "[T]")
    (True, True)
    """
    is_shape = type_.is_list is word.startswith("[") or word == "Any"
    return is_shape and type_.scalar in _CLASSES[word.strip("[]")]


def common_scalar(scalars: Sequence[Scalar]) -> Scalar | None:
    """Return the type that can hold values of all these types, or None.

    >>> common_scalar([Scalar.I32, Scalar.U32]), common_scalar([Scalar.I32, Scalar.F32]), common_scalar([Scalar.BOOL])
    (<Scalar.I64: 'I64'>, <Scalar.F64: 'F64'>, <Scalar.BOOL: 'Bool'>)
    """
    distinct = set(scalars)
    if len(distinct) == 1:
        return scalars[0]
    if not distinct <= NUMBERS:
        return None
    if distinct & FLOATS:
        return Scalar.F64
    return Scalar.U64 if distinct <= _UNSIGNED else Scalar.I64


@dataclass(frozen=True, slots=True)
class Function:
    """One function: its group in the reference, its forms, and an example with its result."""

    name: str
    group: str
    signatures: tuple[Signature, ...]
    text: str
    example: str
    result: str


def _function(name: str, group: str, forms: str, text: str, example: str, result: str) -> Function:
    signatures = tuple(Signature.parse(form) for form in forms.split("; "))
    return Function(name, group, signatures, text, example, result)


_SCALAR_FUNCTIONS: Final = (
    _function("+", "operators",
              "Integer, Integer -> I64; Number, Number -> F64; String, String -> String;"
              " Duration, Duration -> Duration; DateTime, Duration -> DateTime; Duration, DateTime -> DateTime;"
              " Date, Duration -> DateTime; Duration, Date -> DateTime",
              "The sum of numbers or durations, the instant so much later, or two strings one after the other.",
              '"a" + "b"', '"ab"'),
    _function("-", "operators",
              "Integer, Integer -> I64; Number, Number -> F64; Integer -> I64; Number -> F64;"
              " Duration, Duration -> Duration; DateTime, DateTime -> Duration; Date, Date -> Duration;"
              " DateTime, Duration -> DateTime; Date, Duration -> DateTime; Duration -> Duration",
              "The difference, or the instant so much earlier; with one operand, its negative.", "5 - 7", "-2"),
    _function("*", "operators",
              "Integer, Integer -> I64; Number, Number -> F64; Duration, Integer -> Duration;"
              " Integer, Duration -> Duration", "The product.", "6 * 7", "42"),
    _function("/", "operators", "Number, Number -> F64?; Duration, Duration -> F64?",
              "The quotient as a float, also of integers and durations; null if the divisor is 0.", "7 / 2", "3.5"),
    _function("%", "operators", "Integer, Integer -> I64?; Number, Number -> F64?",
              "The remainder, with the sign of the dividend; null if the divisor is 0.", "-7 % 3", "-1"),
    _function("div", "numbers", "Integer, Integer -> I64?; Duration, Integer -> Duration?",
              "The quotient by an integer, cut off towards 0; null if the divisor is 0.", "div(-7, 2)", "-3"),
    _function("abs", "numbers", "Integer -> I64; Number -> F64; Duration -> Duration", "The value without its sign.",
              "abs(-3)", "3"),
    _function("round", "numbers", "Integer -> I64; Number -> F64; Number, Integer -> F64",
              "The nearest integer, or the number rounded to a number of decimals; halves go away from 0.",
              "round(2.345, 1)", "2.3"),
    _function("floor", "numbers", "Integer -> I64; Number -> F64", "The next integer downwards.",
              "floor(-1.5)", "-2.0"),
    _function("ceil", "numbers", "Integer -> I64; Number -> F64", "The next integer upwards.", "ceil(1.2)", "2.0"),
    _function("sqrt", "numbers", "Number -> F64?", "The square root; null of a negative number.", "sqrt(9)", "3.0"),
    _function("pow", "numbers", "Number, Number -> F64?",
              "The first number to the power of the second; null where that is no real number.",
              "pow(2, 10)", "1024.0"),
    _function("greatest", "numbers", "T, T... -> T", "The largest argument; null if one is null.",
              "greatest(3, 7, 5)", "7"),
    _function("least", "numbers", "T, T... -> T", "The smallest argument; null if one is null.", "least(3, 7, 5)", "3"),
    _function("coalesce", "conditions", "T... -> T", "The first argument that is not null.",
              'coalesce(null, "none")', '"none"'),
    _function("nullif", "conditions", "T, T -> T?", "Null if both are equal, else the first.", "nullif(5, 5)", "null"),
    _function("lower", "strings", "String -> String", "The string in lower case.", 'lower("Ab")', '"ab"'),
    _function("upper", "strings", "String -> String", "The string in upper case.", 'upper("Ab")', '"AB"'),
    _function("trim", "strings", "String -> String", "The string without white space at its ends.",
              'trim(" a ")', '"a"'),
    _function("length", "strings", "String -> I64", "The number of characters.", 'length("née")', "3"),
    _function("concat", "strings", "String... -> String", "The strings one after the other; null if one is null.",
              'concat("a", "-", "b")', '"a-b"'),
    _function("replace", "strings", "String, String, String -> String",
              "The first string, with every occurrence of the second replaced by the third.",
              'replace("a-b-c", "-", "")', '"abc"'),
    _function("substring", "strings", "String, Integer -> String; String, Integer, Integer -> String",
              "The part from a position on, with a number of characters at most; positions count from 0.",
              'substring("harbour", 3, 2)', '"bo"'),
    _function("split", "strings", "String, String -> [String]", "The parts between the separators.",
              'split("a,b", ",")', '["a", "b"]'),
    _function("year", "dates", "Date -> I64; DateTime -> I64", "The year.", 'year(date("2024-05-31"))', "2024"),
    _function("month", "dates", "Date -> I64; DateTime -> I64", "The month, from 1 to 12.",
              'month(date("2024-05-31"))', "5"),
    _function("day", "dates", "Date -> I64; DateTime -> I64", "The day of the month.",
              'day(date("2024-05-31"))', "31"),
    _function("weekday", "dates", "Date -> I64; DateTime -> I64", "The day of the week, from 1 (Monday) to 7.",
              'weekday(date("2024-05-31"))', "5"),
    _function("hour", "dates", "DateTime -> I64", "The hour, in UTC.", 'hour(datetime("2024-05-31T10:30:00Z"))', "10"),
    _function("minute", "dates", "DateTime -> I64", "The minute of the hour.",
              'minute(datetime("2024-05-31T10:30:00Z"))', "30"),
    _function("second", "dates", "DateTime -> I64", "The second of the minute.",
              'second(datetime("2024-05-31T10:30:07Z"))', "7"),
    _function("date_trunc", "dates", "String, Date -> Date; String, DateTime -> DateTime",
              "The beginning of the unit that the date lies in.", 'date_trunc("month", date("2024-05-31"))',
              '"2024-05-01"'),
    _function("date_add", "dates", "Date, Integer, String -> Date; DateTime, Integer, String -> DateTime",
              "The date a number of units later; a day that the month lacks becomes its last.",
              'date_add(date("2024-01-31"), 1, "month")', '"2024-02-29"'),
    _function("date_diff", "dates", "String, Date, Date -> I64; String, DateTime, DateTime -> I64",
              "How many whole units lie between the first date and the second.",
              'date_diff("day", date("2024-01-01"), date("2024-03-01"))', "60"),
    _function("today", "dates", "-> Date", "The day of the query, in UTC.", "today() = today()", "true"),
    _function("size", "lists", "[T] -> I64", "The number of items.", "size([1, 2, 3])", "3"),
    _function("element", "lists", "[T], Integer -> T?",
              "The item at a position from 0, or from the end if negative; null if there is none. Written `list[n]`.",
              "[1, 2, 3][-1]", "3"),
)  # fmt: skip

FUNCTIONS: Final[Mapping[str, Function]] = {item.name: item for item in _SCALAR_FUNCTIONS}
# Units of dates; those from `hour` on exist for DateTime only.
DATE_UNITS: Final = ("year", "quarter", "month", "week", "day")
TIME_UNITS: Final = ("hour", "minute", "second")


@dataclass(frozen=True, slots=True)
class AggregateFunction:
    """One aggregate: a call of it, its forms, what it does, and its results for `SAMPLE` and for no values, as JSON.

    `Fraction` is a literal from 0 to 1. `takes` is for the message about an argument of another type.
    """

    usage: str
    forms: str
    takes: str
    text: str
    result: str
    empty: str = "null"
    allows_distinct: bool = False
    # Equal values do not change the result, so a plan may leave out rows that repeat.
    ignores_duplicates: bool = False

    @property
    def name(self) -> str:
        return self.usage.partition("(")[0]

    @property
    def signatures(self) -> tuple[Signature, ...]:
        return tuple(Signature.parse(form) for form in self.forms.split("; "))

    @property
    def reads_values(self) -> bool:
        """False if it only tells values apart, and so takes any."""
        return self.signatures[0].arguments[0] != "Any"

    def resolve(self, type_: PropertyType) -> PropertyType | None:
        """Return the type of the result for an argument of a type, or None if it does not fit.

        >>> str(AGGREGATES["max"].resolve(PropertyType(Scalar.STRING, enum_values=("a", "b"))))
        'enum(a, b)?'
        """
        form = next((form for form in self.signatures if fits_word(type_, form.arguments[0])), None)
        if form is None:
            return None
        result = form.result.strip("[]")
        base = type_ if result == "T" else PropertyType(Scalar(result))
        return replace(base, is_list=form.result.startswith("["), nullable=self.empty == "null")


# The values that the results in the table of aggregates are those of.
SAMPLE: Final = (1, 4, 4, 8, 8)
_AGGREGATES: Final = (
    AggregateFunction("count(x)", "Any -> I64", "takes anything",
                      "how many values are not null; `count(*)`: how many rows.", "5", "0", allows_distinct=True),
    AggregateFunction("sum(x)", "U32 -> U64; U64 -> U64; Integer -> I64; Number -> F64; Duration -> Duration",
                      "adds numbers and durations",
                      "the sum of numbers or durations, exact unless they are floats; `query.overflow` where it does"
                      " not fit.", "25", allows_distinct=True),
    AggregateFunction("avg(x)", "Number -> F64; Duration -> Duration", "adds numbers and durations",
                      "the mean: of numbers an F64, of durations one that is cut off to the millisecond.",
                      "5.0", allows_distinct=True),
    AggregateFunction("min(x)", "T -> T", "compares single values", "the smallest value.",
                      "1", ignores_duplicates=True),
    AggregateFunction("max(x)", "T -> T", "compares single values", "the largest value.",
                      "8", ignores_duplicates=True),
    AggregateFunction("collect(x)", "T -> [T]", "collects single values",
                      "the values as a list, in ascending order, without nulls.",
                      "[1, 4, 4, 8, 8]", "[]", allows_distinct=True),
    AggregateFunction("stddev(x)", "Number -> F64", "takes numbers",
                      "the standard deviation of a sample, an F64; null for fewer than two values.", "3.0"),
    AggregateFunction("percentile(x, 0.9)", "Number, Fraction -> F64", "takes numbers",
                      "the value 90 % of the way through the sorted values, interpolated; the fraction is a literal"
                      " from 0 to 1.", "8.0"),
    AggregateFunction("median(x)", "Number -> F64; Date -> Date; DateTime -> DateTime; Duration -> Duration",
                      "takes numbers, dates and durations",
                      "the middle of the sorted values: of numbers the same as `percentile(x, 0.5)`, of others the"
                      " smaller of the two in the middle.", "4.0"),
    AggregateFunction("mode(x)", "T -> T", "compares single values",
                      "the most frequent value, of equally frequent ones the smallest.", "4"),
)  # fmt: skip
AGGREGATES: Final[Mapping[str, AggregateFunction]] = {item.name: item for item in _AGGREGATES}

RANKS: Final = frozenset({"nearest", "bm25", "rrf"})
TEXT_PREDICATES: Final = frozenset({"search", "fuzzy", "match_text"})
# Functions of a bound node, edge or path; `length` is one of them where its argument is a path.
ENTITY_FUNCTIONS: Final = frozenset({"type", "nodes", "edges", "cost"})
# Functions with rules of their own: the fewest and the most arguments they take.
_ARITIES: Final[Mapping[str, tuple[int, int]]] = {
    "now": (0, 0),
    **dict.fromkeys(LITERAL_CALLS, (1, 1)),
    "cast": (2, 2),
    "nearest": (2, 2),
    "bm25": (2, 2),
    "rrf": (2, 4),
    "search": (2, 2),
    "match_text": (2, 2),
    "fuzzy": (2, 3),
    **dict.fromkeys(ENTITY_FUNCTIONS, (1, 1)),
}
FUNCTION_NAMES: Final = frozenset({*_ARITIES, *AGGREGATES, *(name for name in FUNCTIONS if name.isidentifier())})


def arity_of(name: str) -> tuple[int, int | None]:
    """Return the fewest and the most arguments of a function; None if there is no most.

    >>> arity_of("substring"), arity_of("concat")
    ((2, 3), (1, None))
    """
    if name in _ARITIES:
        return _ARITIES[name]
    forms = (AGGREGATES.get(name) or FUNCTIONS[name]).signatures
    counts = [len(form.arguments) for form in forms]
    return min(counts), None if any(form.is_variadic for form in forms) else max(counts)


def show_forms(signatures: Sequence[Signature]) -> str:
    """Return the forms of a function as the reference shows them."""
    return "; ".join(f"`{form}`" for form in signatures)


def retype(type_: PropertyType, scalar: Scalar) -> PropertyType:
    """Return a type with another scalar, as a plain type without enum values."""
    return replace(type_, scalar=scalar, enum_values=None)


def describe_arity(fewest: int, most: int | None) -> str:
    """Return how many arguments a function takes, in words.

    >>> describe_arity(1, 2), describe_arity(1, None)
    ('1 or 2 arguments', 'at least 1 argument')
    """
    if most is None:
        return f"at least {fewest} argument{'s' * (fewest != 1)}"
    return f"{join_words([str(count) for count in range(fewest, most + 1)])} argument{'s' * (most != 1)}"


def function_hint(name: str) -> str:
    """Return a hint for a function that does not exist."""
    if name in ("contains", "starts_with", "ends_with", "matches"):
        return f"write it between its operands: `$v.property {name} …`"
    if name == "exists":
        return "a pattern stands in braces, `exists { $a knows $b }`; a value is there if it `is not null`"
    near = did_you_mean(name, FUNCTION_NAMES)
    return near or f"the functions are {join_words(sorted(FUNCTION_NAMES), conjunction='and')}"
