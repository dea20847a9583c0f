"""A typical schema and a typical ten-line query, for benchmarks and for the test that they stay typical."""

from __future__ import annotations

from typing import Final

TYPICAL_SCHEMA: Final = """\
node Person {
  email: String @key
  name: String @index
  born: Date?
  active: Bool
}
node Company {
  code: String @key
  name: String
  country: String
  size: I32?
}
node Skill {
  name: String @key
  vec: Vector(4)?
}
edge WorksAt: Person -> Company { since: Date?  role: String? }
edge Knows: Person -> Person { weight: F64? }
edge Has: Person -> Skill { level: I32? }
"""

TYPICAL_QUERY: Final = """\
query colleagues($country: String, $since: Date, $size: I64) @description("Who works with whom") {
  match {
    $p: Person { active: true }
    $p $w:worksAt $c
    $c.country = $country
    $w.since >= $since
    $p knows{1,3} $friend as $hops
    $friend has $s
    not { $friend worksAt $c }
  }
  return { $p.name as person, $friend.name as friend, $s.name as skill, $hops }
  order { $hops, person desc }
  limit $size
}
"""
