"""Expression compiler: typed IR to functions that return a vector or a row mask.

Compiled once per plan. Null is false in a mask; the language has no negation of conditions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np

from omnigraph.engine.arguments import decode_literal
from omnigraph.engine.query.compare import compare, is_member
from omnigraph.engine.query.context import QueryRun
from omnigraph.engine.query.search import Constant, Mask, Numbers, Rows, Strings, Vector
from omnigraph.errors import DataError
from omnigraph.lang.catalog import Scalar, TypeKey
from omnigraph.lang.query import ir

Evaluate: TypeAlias = Callable[[QueryRun, Rows], Vector]
Predicate: TypeAlias = Callable[[QueryRun, Rows], Mask]


def compile_value(expression: ir.Expr) -> Evaluate:
    """Return a function from rows to the values of an expression."""
    match expression:
        case ir.Literal(value=value, type=type_):
            constant = Constant(decode_literal(value, type_), type_)
            return lambda run, rows: constant
        case ir.ParameterRef(name=name, type=type_):
            return lambda run, rows: Constant(run.parameter(name), type_)
        case ir.Now(type=type_):
            return lambda run, rows: Constant(run.now_ms, type_)
        case ir.PropertyRef(variable=variable) | ir.NodeRef(variable=variable):
            key, name = stored_column(expression)
            return lambda run, rows: run.entities(key).values(name, rows.columns[variable])
        case ir.HopsRef(variable=variable):
            return lambda run, rows: _hop_counts(rows, variable)
        case _:
            return _raise_unknown_column(expression)


def stored_column(expression: ir.PropertyRef | ir.NodeRef) -> tuple[TypeKey, str]:
    """Return the table key and the column that an expression reads."""
    if isinstance(expression, ir.NodeRef):
        return TypeKey.of("node", expression.node_type), "id"
    return TypeKey.of(expression.owner_kind, expression.owner), expression.property


def _hop_counts(rows: Rows, variable: str) -> Numbers:
    hops = rows.columns[variable].astype(np.int64)
    return Numbers(hops, hops >= 0 if len(hops) and hops.min() < 0 else None)


def _raise_unknown_column(expression: ir.Expr) -> Evaluate:
    def raise_error(run: QueryRun, rows: Rows) -> Vector:
        name = f"`{expression.name}`" if isinstance(expression, ir.ColumnRef) else type(expression).__name__.lower()
        raise DataError(f"{name} cannot be evaluated here; no column has that name", rule="E2")

    return raise_error


def compile_predicate(condition: ir.Expr) -> Predicate:
    """Return a function from rows to the mask of those for which a condition is true."""
    match condition:
        case ir.And(conditions=conditions):
            tests = [compile_predicate(item) for item in conditions]
            return lambda run, rows: np.logical_and.reduce([test(run, rows) for test in tests])
        case ir.Or(conditions=conditions):
            tests = [compile_predicate(item) for item in conditions]
            return lambda run, rows: np.logical_or.reduce([test(run, rows) for test in tests])
        case ir.Compare(op=op, left=left, right=right):
            return _compile_compare(op, left, right)
        case ir.IsNull(operand=operand, negated=negated):
            return _compile_null_test(operand, negated)
        case ir.In(operand=operand, collection=collection):
            return _compile_membership(operand, collection)
        case ir.TextMatch():
            return _compile_text_match(condition)
        case _:
            raise AssertionError(f"not a condition: {condition}")


def _compile_compare(op: ir.CompareOp, left: ir.Expr, right: ir.Expr) -> Predicate:
    if isinstance(left, ir.NodeRef) and isinstance(right, ir.NodeRef) and left.node_type == right.node_type:
        # Dense ids of one type are equal exactly when the ids are.
        first, second = left.variable, right.variable
        return lambda run, rows: (rows.columns[first] == rows.columns[second]) & (rows.columns[first] >= 0)
    evaluate_left, evaluate_right = compile_value(left), compile_value(right)
    if isinstance(left, ir.PropertyRef) and left.type.is_text and isinstance(right, ir.Literal | ir.ParameterRef):
        return _compile_string_predicate(
            left, lambda run, rows, strings, count: compare(op, strings, evaluate_right(run, rows), count)
        )
    return lambda run, rows: compare(op, evaluate_left(run, rows), evaluate_right(run, rows), rows.count)


def _compile_string_predicate(
    reference: ir.PropertyRef, test: Callable[[QueryRun, Rows, Vector, int], Mask]
) -> Predicate:
    """Return a test of one text with constants; where texts repeat, each distinct one is tested once."""
    (key, property_), variable = stored_column(reference), reference.variable

    def run_test(run: QueryRun, rows: Rows) -> Mask:
        entities, ids = run.entities(key), rows.columns[variable]
        coded = entities.coded(property_, ids)
        if coded is None:
            return test(run, rows, entities.values(property_, ids), rows.count)
        strings, codes = coded
        truth = test(run, rows, Strings(strings), len(strings))
        true = np.flatnonzero(truth)
        if len(true) == 1:
            mask: Mask = codes == true[0]
            return mask
        # The extra last entry is what a null code reads.
        return np.append(truth, False).take(codes, mode="wrap")

    return run_test


def _compile_null_test(operand: ir.Expr, negated: bool) -> Predicate:
    if isinstance(operand, ir.NodeRef | ir.HopsRef):
        variable = operand.variable
        return lambda run, rows: (rows.columns[variable] < 0) ^ negated
    if isinstance(operand, ir.PropertyRef):
        (key, property_), variable = stored_column(operand), operand.variable
        is_blob = operand.type.scalar is Scalar.BLOB

        def test(run: QueryRun, rows: Rows) -> Mask:
            ids = rows.columns[variable]
            if is_blob:
                mask = run.entities(key).null_mask(property_)
                missing = (mask[ids] if len(mask) else np.ones(len(ids), np.bool_)) | (ids < 0)
            else:
                missing = _null_mask(run.entities(key).values(property_, ids), rows.count)
            return missing ^ negated

        return test
    evaluate = compile_value(operand)
    return lambda run, rows: _null_mask(evaluate(run, rows), rows.count) ^ negated


def _null_mask(vector: Vector, count: int) -> Mask:
    if isinstance(vector, Constant):
        return np.full(count, vector.value is None)
    if isinstance(vector, Numbers):
        return np.zeros(count, np.bool_) if vector.valid is None else ~vector.valid
    mask: Mask = vector.array.is_null().to_numpy(zero_copy_only=False)
    return mask


def _compile_membership(operand: ir.Expr, collection: ir.Literal | ir.ParameterRef) -> Predicate:
    evaluate, items = compile_value(operand), compile_value(collection)

    def test(run: QueryRun, rows: Rows, values: Vector, count: int) -> Mask:
        members = items(run, rows)
        assert isinstance(members, Constant)
        if not isinstance(members.value, tuple):
            return np.zeros(count, np.bool_)
        return is_member(values, members.value, count)

    if isinstance(operand, ir.PropertyRef) and operand.type.is_text:
        return _compile_string_predicate(operand, test)
    return lambda run, rows: test(run, rows, evaluate(run, rows), rows.count)


def _compile_text_match(match: ir.TextMatch) -> Predicate:
    field, function = match.field, match.function
    query = compile_value(match.query)
    edits = compile_value(match.max_edits) if match.max_edits is not None else None

    def test(run: QueryRun, rows: Rows) -> Mask:
        from omnigraph.engine.query.search import match_text

        search_text = query(run, rows)
        assert isinstance(search_text, Constant)
        if not isinstance(search_text.value, str):
            return np.zeros(rows.count, np.bool_)
        bound = edits(run, rows) if edits is not None else None
        max_edits_value = bound.value if isinstance(bound, Constant) and isinstance(bound.value, int) else None
        entities = run.nodes(field.owner)
        matching_rows = match_text(run.view, field.owner, field.property, search_text.value, function, max_edits_value)
        mask = np.zeros(entities.count + 1, np.bool_)
        mask[entities.from_row_ids(np.asarray(matching_rows, np.uint64))] = True
        # The extra last entry is what a null id reads; it matches nothing.
        return mask[rows.columns[field.variable]]

    return test


def variables_of(expression: ir.Expr | None) -> set[str]:
    """Return the variables that an expression reads."""
    return {variable for part in walk(expression) if (variable := getattr(part, "variable", None)) is not None}


def parameters_of(expression: ir.Expr | None) -> set[str]:
    """Return the parameters that an expression reads."""
    return {part.name for part in walk(expression) if isinstance(part, ir.ParameterRef)}


def walk(expression: ir.Expr | None) -> Iterator[ir.Expr]:
    """Yield an expression and all its parts."""
    if expression is None:
        return
    yield expression
    match expression:
        case ir.And(conditions=parts) | ir.Or(conditions=parts):
            children: tuple[ir.Expr | None, ...] = parts
        case ir.Compare(left=left, right=right):
            children = (left, right)
        case ir.IsNull(operand=operand):
            children = (operand,)
        case ir.In(operand=operand, collection=collection):
            children = (operand, collection)
        case ir.TextMatch(field=field, query=query, max_edits=edits):
            children = (field, query, edits)
        case ir.Nearest(field=field, query=query) | ir.Bm25(field=field, query=query):
            children = (field, query)
        case ir.Rrf(first=first, second=second, k=k):
            children = (first, second, k)
        case ir.Aggregate(argument=argument):
            children = (argument,)
        case _:
            children = ()
    for child in children:
        yield from walk(child)
