"""Expression compiler: typed IR to functions that return a vector or a row mask.

Compiled once per plan. A mask says where a condition is true; what is false rather than unknown is the mask of its
opposite, so that three-valued logic needs no third value in the masks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.engine.arguments import decode_literal
from omnigraph.engine.query.adjacency import type_names
from omnigraph.engine.query.compare import compare, is_member, mask_nulls, refute, validity
from omnigraph.engine.query.context import QueryRun
from omnigraph.engine.query.entities import take_numbers
from omnigraph.engine.query.functions import apply_function
from omnigraph.engine.query.paths import path_values
from omnigraph.engine.query.vectors import (
    UNIT_ROW,
    Constant,
    Ids,
    Lists,
    Mask,
    Numbers,
    Rows,
    Strings,
    Vector,
    flag_positions,
    is_null_constant,
    materialize,
    repeat_value,
    to_arrow,
    vector_from_arrow,
)
from omnigraph.errors import DataError
from omnigraph.lang.catalog import PropertyType, TypeKey
from omnigraph.lang.query import ir
from omnigraph.lang.schema.arrow_schema import arrow_type
from omnigraph.lang.times import DAY_MS

Evaluate: TypeAlias = Callable[[QueryRun, Rows], Vector]
Predicate: TypeAlias = Callable[[QueryRun, Rows], Mask]


def compile_value(expression: ir.Expr) -> Evaluate:
    match expression:
        case ir.Literal(value=value, type=type_):
            constant = Constant(decode_literal(value, type_), type_)
            return lambda run, rows: constant
        case ir.ParameterRef(name=name, type=parameter_type):
            return lambda run, rows: Constant(run.parameter(name), parameter_type)
        case ir.Now(type=now_type):
            return lambda run, rows: Constant(run.now_ms, now_type)
        case ir.PropertyRef(variable=variable) | ir.NodeRef(variable=variable):
            key, name = stored_column(expression)
            return lambda run, rows: run.entities(key).values(name, rows.columns[variable])
        case ir.HopsRef(variable=variable):
            return lambda run, rows: _hop_counts(rows, variable)
        case ir.ValueRef(variable=variable):
            value_type = expression.type
            return lambda run, rows: source_values(run, variable, rows.columns[variable], value_type)
        case ir.VariableRef(variable=variable):
            return lambda run, rows: Numbers(rows.columns[variable], None)
        case ir.PathRef(variable=variable):
            return lambda run, rows: path_values(run, expression, rows.columns[variable])
        case ir.TypeRef(variable=variable, owner_kind=kind, owner=owner):
            table_key = TypeKey.of(kind, owner)
            return lambda run, rows: type_names(run.entities(table_key), owner, rows.columns[variable])
        case ir.ColumnRef(name=name, type=column_type) if column_type is not None:
            return lambda run, rows: rows.values[name]
        case ir.Call():
            return _compile_call(expression)
        case ir.Case():
            return _compile_case(expression)
        case ir.Quantifier():
            return _compile_quantifier(expression)
        case ir.Compare() | ir.IsNull() | ir.In() | ir.Not() | ir.And() | ir.Or() | ir.TextMatch():
            return _compile_truth(expression)
        case _:
            return _raise_unknown_column(expression)


def compile_constant(expression: ir.Expr) -> Callable[[QueryRun], Any]:
    """Return a function from a run to the value of an expression that reads no variable."""
    evaluate = compile_value(expression)

    def value(run: QueryRun) -> Any:
        constant = evaluate(run, UNIT_ROW)
        assert isinstance(constant, Constant)
        return constant.value

    return value


def _compile_call(call: ir.Call) -> Evaluate:
    if call.function == "today":
        return lambda run, rows: Constant(run.now_ms // DAY_MS, call.type)
    arguments = [compile_value(argument) for argument in call.arguments]
    return lambda run, rows: apply_function(call, [evaluate(run, rows) for evaluate in arguments], rows.count)


def _compile_truth(condition: ir.Expr) -> Evaluate:
    is_true, is_false = compile_predicate(condition), compile_predicate(ir.negate(condition))

    def evaluate(run: QueryRun, rows: Rows) -> Vector:
        true = is_true(run, rows)
        known = true | is_false(run, rows)
        return Numbers(true, None if bool(known.all()) else known)

    return evaluate


def _compile_case(case: ir.Case) -> Evaluate:
    """Return a function that evaluates each branch for its rows alone, so that what guards it also protects it."""
    branches = [(compile_predicate(condition), compile_value(value)) for condition, value in case.branches]
    otherwise = compile_value(case.otherwise)
    constants = [value for _, value in case.branches] + [case.otherwise]
    is_number = not case.type.is_list and not case.type.is_text
    if len(branches) == 1 and is_number and all(isinstance(value, ir.Literal) for value in constants):
        return _compile_choice(case.type, *branches[0], otherwise)

    def evaluate(run: QueryRun, rows: Rows) -> Vector:
        waiting: Ids = np.arange(rows.count)
        row_sets: list[Ids] = []
        pieces: list[Vector] = []
        for is_chosen, value in [*branches, (None, otherwise)]:
            part = rows if len(waiting) == rows.count else rows.take(waiting)
            mask = np.ones(part.count, np.bool_) if is_chosen is None else is_chosen(run, part)
            chosen = part.where(mask)
            if chosen.count:
                row_sets.append(waiting[mask])
                pieces.append(value(run, chosen))
            waiting = waiting[~mask]
        return _join_pieces(case.type, pieces, row_sets, rows.count)

    return evaluate


def _compile_choice(type_: PropertyType, test: Predicate, chosen: Evaluate, otherwise: Evaluate) -> Evaluate:
    """Return a choice between two constants, which no row has to be moved for."""

    def evaluate(run: QueryRun, rows: Rows) -> Vector:
        mask = test(run, rows)
        sides = [to_arrow(value(run, UNIT_ROW), type_, 1) for value in (chosen, otherwise)]
        pair = vector_from_arrow(pa.concat_arrays(sides))
        assert isinstance(pair, Numbers)
        if pair.valid is None:
            return Numbers(np.where(mask, pair.data[0], pair.data[1]), None)
        return pair.take(np.where(mask, 0, 1))

    return evaluate


def _join_pieces(type_: PropertyType, pieces: list[Vector], row_sets: list[Ids], count: int) -> Vector:
    """Put the values of some rows each where they belong."""
    if len(pieces) == 1:
        return pieces[0]
    if not pieces:
        return Constant(None, type_)
    if type_.is_list or type_.is_text:
        arrays = [to_arrow(piece, type_, len(rows)) for piece, rows in zip(pieces, row_sets, strict=True)]
        order = np.empty(count, np.int64)
        order[np.concatenate(row_sets)] = np.arange(count)
        return vector_from_arrow(pa.concat_arrays(arrays).take(pa.array(order)))
    numbers = [vector_from_arrow(repeat_value(None, arrow_type(type_), 0))]
    numbers += [materialize(piece, 1) if isinstance(piece, Constant) else piece for piece in pieces]
    assert isinstance(numbers[0], Numbers)
    data, valid = np.zeros(count, numbers[0].data.dtype), np.ones(count, np.bool_)
    for piece, rows in zip(numbers[1:], row_sets, strict=True):
        assert isinstance(piece, Numbers)
        data[rows] = piece.data
        valid[rows] = True if piece.valid is None else piece.valid
    return Numbers(data, None if bool(valid.all()) else valid)


def _compile_quantifier(quantifier: ir.Quantifier) -> Evaluate:
    """Return a test of list items: all items of all rows are tested at once, then counted by row."""
    evaluate, is_any = compile_value(quantifier.collection), quantifier.function == "any"
    is_true, is_false = compile_predicate(quantifier.condition), compile_predicate(ir.negate(quantifier.condition))

    def test(run: QueryRun, rows: Rows) -> Vector:
        lists = materialize(evaluate(run, rows), rows.count)
        assert isinstance(lists, Lists)
        parents = np.repeat(np.arange(rows.count), lists.lengths)
        items = rows.take(parents)
        values = {**items.values, quantifier.item: lists.items}
        items = Rows(items.count, items.columns, values)
        true, false = is_true(run, items), is_false(run, items)
        decided = np.bincount(parents[true if is_any else false], minlength=rows.count) > 0
        is_open = np.bincount(parents[~(true | false)], minlength=rows.count) > 0
        known = decided | ~is_open
        valid = validity(lists)
        return Numbers(decided if is_any else ~decided, known if valid is None else known & valid)

    return test


def stored_column(expression: ir.PropertyRef | ir.NodeRef) -> tuple[TypeKey, str]:
    if isinstance(expression, ir.NodeRef):
        return TypeKey.of("node", expression.node_type), "id"
    return TypeKey.of(expression.owner_kind, expression.owner), expression.property


def source_values(run: QueryRun, variable: str, row_indices: Ids, type_: PropertyType = ir.SCORE) -> Vector:
    """Return the values of a variable that the source of a read or an `unwind` has bound, by their places there.

    A negative place is null; so is all, of this type, if no row reached the `unwind`.
    """
    values: Vector = run.scratch.get(source_key(variable), Constant(None, type_))
    if isinstance(values, Constant):
        return values
    if not len(row_indices) or row_indices.min() >= 0:
        return values.take(row_indices)
    if isinstance(values, Numbers):
        return take_numbers(values, row_indices)
    places = pa.array(row_indices, pa.int64(), mask=row_indices < 0)
    return type(values)(values.array.take(places))


def source_key(variable: str) -> str:
    return f"source {variable}"


def _hop_counts(rows: Rows, variable: str) -> Numbers:
    hops = rows.columns[variable].astype(np.int64)
    return Numbers(hops, hops >= 0 if len(hops) and hops.min() < 0 else None)


def _raise_unknown_column(expression: ir.Expr) -> Evaluate:
    def raise_error(run: QueryRun, rows: Rows) -> Vector:
        name = f"`{expression.name}`" if isinstance(expression, ir.ColumnRef) else type(expression).__name__.lower()
        raise DataError(f"{name} cannot be evaluated here; no column has that name", rule="E2")

    return raise_error


def compile_predicate(condition: ir.Expr, *, is_negated: bool = False) -> Predicate:
    """Return a function from rows to the mask of those for which a condition is true, or false if it `is_negated`."""
    match condition:
        case ir.Compare(op=op, left=left, right=right):
            return _compile_compare(op, left, right, is_negated)
        case ir.In(operand=operand, collection=collection):
            return _compile_membership(operand, collection, is_negated)
        case ir.IsNull(operand=operand, negated=negated):
            return _compile_null_test(operand, negated is not is_negated)
        case ir.TextMatch():
            match_ = _compile_text_match(condition)
            return (lambda run, rows: ~match_(run, rows)) if is_negated else match_
        case ir.Not(condition=inner):
            return compile_predicate(inner, is_negated=not is_negated)
        case ir.And() | ir.Or() if is_negated:
            return compile_predicate(ir.negate(condition))
        case ir.And(conditions=conditions):
            tests = [compile_predicate(item) for item in conditions]
            return lambda run, rows: np.logical_and.reduce([test(run, rows) for test in tests])
        case ir.Or(conditions=conditions):
            tests = [compile_predicate(item) for item in conditions]
            return lambda run, rows: np.logical_or.reduce([test(run, rows) for test in tests])
        case _:
            return _compile_boolean(condition, not is_negated)


def _compile_boolean(value: ir.Expr, expected: bool) -> Predicate:
    evaluate = compile_value(value)

    def test(run: QueryRun, rows: Rows) -> Mask:
        vector = evaluate(run, rows)
        if isinstance(vector, Constant):
            return np.full(rows.count, vector.value is expected)
        assert isinstance(vector, Numbers)
        return mask_nulls(vector.data if expected else ~vector.data, vector.valid)

    return test


def _compile_compare(op: ir.CompareOp, left: ir.Expr, right: ir.Expr, is_negated: bool) -> Predicate:
    if isinstance(left, ir.NodeRef) and isinstance(right, ir.NodeRef) and left.node_type == right.node_type:
        return _compile_same_node(left.variable, right.variable, (op is ir.CompareOp.EQ) is not is_negated)
    evaluate_left, evaluate_right = compile_value(left), compile_value(right)

    def test(left_side: Vector, right_side: Vector, count: int) -> Mask:
        return (refute if is_negated else compare)(op, left_side, right_side, count)

    if isinstance(left, ir.PropertyRef) and left.type.is_text and isinstance(right, ir.Literal | ir.ParameterRef):
        return _compile_string_predicate(
            left, lambda run, rows, strings, count: test(strings, evaluate_right(run, rows), count)
        )
    return lambda run, rows: test(evaluate_left(run, rows), evaluate_right(run, rows), rows.count)


def _compile_same_node(first: str, second: str, is_same: bool) -> Predicate:
    """Compare dense ids of one type, which are equal exactly when the ids are; a missing node equals nothing."""

    def test(run: QueryRun, rows: Rows) -> Mask:
        left, right = rows.columns[first], rows.columns[second]
        mask: Mask = ((left == right) == is_same) & (left >= 0) & (right >= 0)
        return mask

    return test


def _compile_string_predicate(
    reference: ir.PropertyRef, test: Callable[[QueryRun, Rows, Vector, int], Mask]
) -> Predicate:
    """Return a test of one text with constants; where texts repeat, each distinct one is tested once."""
    (key, property_), variable = stored_column(reference), reference.variable

    def run_test(run: QueryRun, rows: Rows) -> Mask:
        entities, ids = run.entities(key), rows.columns[variable]
        encoded = entities.dictionary_codes(property_, ids)
        if encoded is None:
            return test(run, rows, entities.values(property_, ids), rows.count)
        strings, codes = encoded
        truth = test(run, rows, Strings(strings), len(strings))
        true = np.flatnonzero(truth)
        if len(true) == 1:
            mask: Mask = codes == true[0]
            return mask
        # The extra last entry is what a null code reads.
        return np.append(truth, False).take(codes, mode="wrap")

    return run_test


def _compile_null_test(operand: ir.Expr, negated: bool) -> Predicate:
    if isinstance(operand, ir.NodeRef | ir.HopsRef | ir.PathRef):
        variable = operand.variable
        return lambda run, rows: (rows.columns[variable] < 0) ^ negated
    if isinstance(operand, ir.PropertyRef) and operand.type.is_blob:
        (key, property_), variable = stored_column(operand), operand.variable

        def test(run: QueryRun, rows: Rows) -> Mask:
            ids, mask = rows.columns[variable], run.entities(key).null_mask(property_)
            missing = (mask[ids] if len(mask) else np.ones(len(ids), np.bool_)) | (ids < 0)
            return missing ^ negated

        return test
    evaluate = compile_value(operand)
    return lambda run, rows: _null_mask(evaluate(run, rows), rows.count) ^ negated


def _null_mask(vector: Vector, count: int) -> Mask:
    if isinstance(vector, Constant):
        return np.full(count, vector.value is None)
    valid = validity(vector)
    return np.zeros(count, np.bool_) if valid is None else ~valid


def _compile_membership(operand: ir.Expr, collection: ir.Literal | ir.ParameterRef, is_negated: bool) -> Predicate:
    evaluate, items = compile_value(operand), compile_constant(collection)

    def test(run: QueryRun, rows: Rows, values: Vector, count: int) -> Mask:
        members = items(run)
        # A null among the items may be anything, so nothing is known not to be there.
        if not isinstance(members, tuple) or (is_negated and None in members):
            return np.zeros(count, np.bool_)
        if not is_negated:
            return is_member(values, members, count)
        if is_null_constant(values):
            return np.zeros(count, np.bool_)
        return mask_nulls(~is_member(values, members, count), validity(values))

    if isinstance(operand, ir.PropertyRef) and operand.type.is_text:
        return _compile_string_predicate(operand, test)
    return lambda run, rows: test(run, rows, evaluate(run, rows), rows.count)


def _compile_text_match(match: ir.TextMatch) -> Predicate:
    field, search = match.field, compile_text_search(match)

    def test(run: QueryRun, rows: Rows) -> Mask:
        entities = run.nodes(field.owner)
        matching_ids = entities.from_row_ids(search(run))
        # The extra last entry is what a null id reads; it matches nothing.
        return flag_positions(matching_ids, entities.count + 1)[rows.columns[field.variable]]

    return test


def compile_text_search(match: ir.TextMatch) -> Callable[[QueryRun], npt.NDArray[np.uint64]]:
    """Return a function from a run to the sorted row ids that a text condition matches."""
    field, query = match.field, compile_constant(match.query)
    edits = compile_constant(match.max_edits) if match.max_edits is not None else None

    def search(run: QueryRun) -> npt.NDArray[np.uint64]:
        from omnigraph.engine.query.ranking import match_text

        text, bound = query(run), edits(run) if edits is not None else None
        if not isinstance(text, str):
            return np.empty(0, np.uint64)
        max_edits = bound if isinstance(bound, int) else None
        return match_text(run.view, field.owner, field.property, text, match.function, max_edits)

    return search


def variables_of(expression: ir.Expr | None) -> set[str]:
    return {variable for part in walk(expression) if (variable := getattr(part, "variable", None)) is not None}


def parameters_of(expression: ir.Expr | None) -> set[str]:
    return {part.name for part in walk(expression) if isinstance(part, ir.ParameterRef)}


def walk(expression: ir.Expr | None) -> Iterator[ir.Expr]:
    if expression is None:
        return
    yield expression
    for child in ir.children_of(expression):
        yield from walk(child)
