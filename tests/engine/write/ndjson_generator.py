"""Lines of NDJSON of all kinds, from a seed: right ones, wrong ones, and ones with damaged bytes."""

from __future__ import annotations

from random import Random

from tests.support.rule_tables import catalog

TYPES = catalog("""
node A {
  k: String @key  i: I32?  l: I64?  u: U32?  v: U64?  f: F32?  d: F64?  b: Bool?  day: Date?  at: DateTime?
  e: enum(x, y)?  vec: Vector(2)?  blob: Blob?  ss: [String]?  fs: [F32]?  days: [Date]?  ls: [I64]?  bs: [Bool]?
}
node B { x: String  n: F64  day: Date? }
node C { n: F64 @key  m: I32? }
edge E: A -> B { w: F32?  since: DateTime?  must: Bool? }
edge F: A -> A
edge G: A -> A { n: I32 }
""")


def words(text: str) -> list[str]:
    return text.split()


TEXTS = words(r"""
"" "a" "b:c" ":" "{" "}" "}}" "},{" "null" "é" "日本" "id" "data" "\"" "\\" "\\\"" "\n" "\u0041" "\u00e9"
"\ud83d\ude00" "\ud83d" "\u0000" "a\/b" "x" "y" "NaN" "-0"
""")
NUMBERS = words("""
0 1 -1 7 -0 -0.0 0.0 1.0 1.5 1e3 1E-2 -7 2147483647 2147483648 -2147483649 4294967295 4294967296 9223372036854775807
9223372036854775808 -9223372036854775808 18446744073709551615 18446744073709551616 1e38 3.5e38 1e39 1e308 1e309 1e-400
9007199254740993 0.1 1.00000017881393432617187499 1.00000017881393421514957253748434595763683319091796875001 123456.7891
""")
DATES = words("""
"2024-01-31" "2024-1-3" "20240131" "2024-01-31T12:30:00Z" "2024-01-31T12:30:00.123456Z" "2024-01-31T12:30:00+01:00"
"0001-01-01" "9999-12-31" "0000-01-01" "2024-02-30" "2024-01-31T24:00:00Z" "12:00" "2024-01-31T12:30"
"2024-01-31T12:30:00.1234567Z" 0 19753 -5
""")
DATES += ['"1969-12-31 23:59:59.9999"', '"2024-01-31 12:30:00 "']
BLOBS = words("""
"base64:" "base64:aGk=" "base64:aGkh" "base64:aA==" "base64:a" "base64:a===" "base64:aGl=" "s3://x/y" "base64:aG%20"
""")
LISTS = words("""
[] [1] [1,2] [1.5,-2.5] [null] [1,null] ["a"] ["a",null] ["a","b"] [true,false] [1,"a"] [[1]] [1e39,0] [-0,1] [-0.0,1]
[1,2,3]
""")
DATE_LISTS = words('["2024-01-31"] ["2024-01-31",null] [5] ["nope"] [] ["2024-1-3","20240131"]')
WILD = words('null true false NaN Infinity -Infinity nul 01 1. .5 + - {} [] {"a":1} [}')
FITTING = {
    **dict.fromkeys("kxe", TEXTS[:12]),
    **dict.fromkeys(("i", "l", "u", "v", "m"), NUMBERS[:3] + ["7", "8", "12"]),
    **dict.fromkeys("fdwn", NUMBERS[:16] + NUMBERS[-5:] + words("NaN 17976931348623157e293")),
    **dict.fromkeys(("b", "must"), words("true false")),
    **dict.fromkeys(("day", "at", "since"), DATES[:7]),
    "vec": ["[1,2]", "[1.5,-2.5]", "[-0.0,1]"],
    "blob": BLOBS[:4],
    "ss": ["[]", '["a"]', '["a",null]'],
    "fs": ["[]", "[1]", "[1.5,-2.5]", "[1,null]"],
    "days": DATE_LISTS[:2],
    "ls": ["[]", "[1]", "[1,null]"],
    "bs": ["[true,false]"],
    "id": ['"a"', '"1"', '"1.5"', '"new"'],
}
ANY = TEXTS + NUMBERS + DATES + BLOBS + LISTS + DATE_LISTS + WILD
DAMAGE = [
    b'"',
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b" ",
    b"\t",
    b"\r",
    b"\n",
    b"\x00",
    b"\x01",
    b"\xff",
    b"\xc3",
    b"\xed\xa0\x80",
]
DAMAGE += [b"null", b"-0", b"e", b"0", b'"id":null', b'"data":null', b"{}", b"}null{", b'"k":"a",', b"\xef\xbb\xbf"]
SEPARATORS = [(",", ":")] * 6 + [(", ", ": ")] * 3 + [(" , ", " :\t")]


def members(random: Random, names: list[str], *, comma: str, colon: str) -> str:
    """Return the members of one object, now and then with one that is wrong, null, unknown or there twice."""
    parts = []
    for name in names:
        value = random.choice(FITTING.get(name, TEXTS))
        odds = random.random()
        if odds < 0.03:
            value = random.choice(ANY)
        elif odds < 0.1:
            value = "null"
        parts.append(f'"{name}"{colon}{value}')
    if parts and random.random() < 0.03:
        parts.append(random.choice(parts))
    if random.random() < 0.02:
        parts.append(random.choice(['"zip":1', '"src":"a"', '"\\u0069d":null', '"i\\u0064":"q"', '"":null']))
    return "{" + comma.join(parts) + "}"


def line(random: Random) -> str:
    """Return one line that is a record, or nearly one."""
    name = random.choice("AAABBCEEFG")
    comma, colon = random.choice(SEPARATORS)
    type_ = TYPES.nodes.get(name) or TYPES.edges[name]
    required = [one for one, item in type_.properties.items() if not item.type.nullable]
    optional = [one for one in type_.properties if one not in required]
    names = required if random.random() < 0.97 else required[:-1]
    names = names + random.sample(optional, random.randint(0, min(4, len(optional))))
    names += ["id"] * (random.random() < 0.2)
    random.shuffle(names)
    data = f'"data"{colon}' + members(random, names, comma=comma, colon=colon)
    if name in TYPES.nodes:
        outer = [f'"type"{colon}"{name}"', data]
    else:
        name = name.lower() if random.random() < 0.1 else name
        outer = [f'"edge"{colon}"{name}"', f'"from"{colon}"a"', f'"to"{colon}{random.choice(TEXTS)}', data]
    odds = random.random()
    if odds < 0.05:
        outer.pop()
    elif odds < 0.1:
        random.shuffle(outer)
    elif odds < 0.13:
        outer.append(random.choice(['"x":1', '"data":null', '"type":"A"', '"from":null', *outer]))
    whole = "{" + comma.join(outer) + "}"
    odds = random.random()
    if odds < 0.03:
        return whole[:-1] + random.choice("]x} ,")
    if odds < 0.06:
        # Two objects where one should be.
        again = data[data.index("{") :] if name in TYPES.nodes else "{" + comma.join(outer[1:]) + "}"
        return whole.replace(data, data + again) if name in TYPES.nodes else whole + again
    return whole


def text(random: Random) -> bytes:
    """Return the lines of one file. Many come twice, so that they are read together with one that is like them."""
    lines = []
    for _ in range(random.randint(1, 4)):
        one = line(random)
        lines += [one] * random.choice((1, 2, 2, 3))
    if random.random() < 0.3:
        random.shuffle(lines)
    if random.random() < 0.1:
        lines.insert(random.randint(0, len(lines)), random.choice(["", " ", "null", "[]", "5", '"x"', "\ufeff"]))
    raw = random.choice(["\n"] * 8 + ["\r\n", " \n"]).join(lines).encode() + random.choice([b"\n", b"\n", b"", b"\r\n"])
    for _ in range(random.choice((0, 0, 0, 0, 1, 1, 2))):
        raw = damaged(random, raw)
    return raw


def damaged(random: Random, raw: bytes) -> bytes:
    """Return bytes of which a few are gone, new, doubled or different."""
    place = random.randrange(len(raw) + 1)
    length = random.choice((0, 0, 1, 1, 2, 5))
    middle = random.choice((b"", random.choice(DAMAGE), random.choice(DAMAGE), raw[place : place + length] * 2))
    return raw[:place] + middle + raw[place + length :]
