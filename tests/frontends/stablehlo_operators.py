"""``python -m tests.frontends.stablehlo_operators``: operations of StableHLO, compared with ``stablehlo.eval_module``.

``CASES`` has small functions by the operation that they show. ``--markdown FILE`` writes the table of
docs/reference/jax-operators.md; without ``--reference`` compiled code is compared.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from tilewright.driver.models.model_building import build_graph
from tilewright.frontends.stablehlo import StableHloError, UnsupportedStableHloOperators, from_stablehlo
from tilewright.frontends.stablehlo.hlo_reader import module_of
from tilewright.graph import GraphError, evaluate

F, I, U, B = "tensor<3x5xf32>", "tensor<3x5xi32>", "tensor<3x5xui8>", "tensor<3x5xi1>"  # noqa: E741


def function(given: str, result: str, body: str) -> str:
    """Returns the text of a function: ``%r`` is what it returns, ``%a``, ``%b`` … are its arguments."""
    types = [t for t in given.split(" ") if t]
    args = ", ".join(f"%{'abcdefg'[n]}: {t}" for n, t in enumerate(types))
    results = result.split(" ")
    names = "%r" if len(results) == 1 else ", ".join(f"%r#{n}" for n in range(len(results)))
    return f"func.func @main({args}) -> ({', '.join(results)}) {{\n{body}\nreturn {names} : {', '.join(results)}\n}}"


def unary(op: str, *types: str) -> list[str]:
    return [function(t, t, f"%r = stablehlo.{op} %a : {t}") for t in types]


def binary(op: str, *types: str) -> list[str]:
    return [function(f"{t} {t}", t, f"%r = stablehlo.{op} %a, %b : {t}") for t in types]


def reducer(op: str, kind: str = "f32") -> str:
    t = f"tensor<{kind}>"
    return f"({{\n^bb0(%x: {t}, %y: {t}):\n%z = stablehlo.{op} %x, %y : {t}\nstablehlo.return %z : {t}\n}})"


def compare(direction: str, kind: str = "f32") -> str:
    t = f"tensor<{kind}>"
    return (
        f"({{\n^bb0(%x: {t}, %y: {t}):\n%z = stablehlo.compare {direction}, %x, %y : ({t}, {t}) -> tensor<i1>\n"
        "stablehlo.return %z : tensor<i1>\n})"
    )


ZERO = "%zero = stablehlo.constant dense<0.0> : tensor<f32>\n"
LOW = "%low = stablehlo.constant dense<0xFF800000> : tensor<f32>\n"
T = "tensor<2x5x5xf32>"
ALONE = "replica_groups = dense<0> : tensor<1x1xi64>"
POSITIVE = """%t = stablehlo.transpose %a, dims = [0, 2, 1] : (tensor<2x5x5xf32>) -> tensor<2x5x5xf32>
%q = stablehlo.dot_general %a, %t, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<2x5x5xf32>, tensor<2x5x5xf32>) -> tensor<2x5x5xf32>
%i = stablehlo.iota dim = 1 : tensor<2x5x5xi32>
%j = stablehlo.iota dim = 2 : tensor<2x5x5xi32>
%e = stablehlo.compare EQ, %i, %j : (tensor<2x5x5xi32>, tensor<2x5x5xi32>) -> tensor<2x5x5xi1>
%n = stablehlo.convert %e : (tensor<2x5x5xi1>) -> tensor<2x5x5xf32>
%p = stablehlo.add %q, %n : tensor<2x5x5xf32>
"""
DOMINANT = """%i = stablehlo.iota dim = 0 : tensor<5x5xf32>
%j = stablehlo.iota dim = 1 : tensor<5x5xf32>
%e = stablehlo.compare EQ, %i, %j : (tensor<5x5xf32>, tensor<5x5xf32>) -> tensor<5x5xi1>
%n = stablehlo.constant dense<9.0> : tensor<5x5xf32>
%p = stablehlo.select %e, %n, %a : tensor<5x5xi1>, tensor<5x5xf32>
"""
IMAGE = "tensor<2x9x7x4xf32>"
DIMS = "dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]"

CASES: dict[str, list[str]] = {
    "AbsOp": unary("abs", F, I),
    "AddOp": binary("add", F, I, U, B),
    "AndOp": binary("and", I, B),
    "Atan2Op": binary("atan2", F),
    "BatchNormGradOp": [function(
        f"{IMAGE} tensor<4xf32> tensor<4xf32> tensor<4xf32> {IMAGE}", f"{IMAGE} tensor<4xf32> tensor<4xf32>",
        "%v = stablehlo.abs %d : tensor<4xf32>\n"
        '%r:3 = "stablehlo.batch_norm_grad"(%a, %b, %c, %v, %e) {epsilon = 0.1 : f32, feature_index = 3 : i64} : '
        f"({IMAGE}, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, {IMAGE}) -> ({IMAGE}, tensor<4xf32>, tensor<4xf32>)",
    )],
    "BatchNormInferenceOp": [function(
        f"{IMAGE} tensor<4xf32> tensor<4xf32> tensor<4xf32> tensor<4xf32>", IMAGE,
        "%v = stablehlo.abs %e : tensor<4xf32>\n"
        '%r = "stablehlo.batch_norm_inference"(%a, %b, %c, %d, %v) {epsilon = 0.1 : f32, feature_index = 3 : i64} : '
        f"({IMAGE}, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> {IMAGE}",
    )],
    "BatchNormTrainingOp": [function(
        f"{IMAGE} tensor<4xf32> tensor<4xf32>", f"{IMAGE} tensor<4xf32> tensor<4xf32>",
        '%r:3 = "stablehlo.batch_norm_training"(%a, %b, %c) {epsilon = 0.1 : f32, feature_index = 3 : i64} : '
        f"({IMAGE}, tensor<4xf32>, tensor<4xf32>) -> ({IMAGE}, tensor<4xf32>, tensor<4xf32>)",
    )],
    "BitcastConvertOp": [
        function(F, I, f"%r = stablehlo.bitcast_convert %a : ({F}) -> {I}"),
        function(F, "tensor<3x5x4xui8>", f"%r = stablehlo.bitcast_convert %a : ({F}) -> tensor<3x5x4xui8>"),
        function("tensor<3x2xui16>", "tensor<3xi32>", "%r = stablehlo.bitcast_convert %a : (tensor<3x2xui16>) -> tensor<3xi32>"),
    ],
    "BroadcastInDimOp": [function(
        "tensor<5x1xf32>", "tensor<3x5x7xf32>",
        "%r = stablehlo.broadcast_in_dim %a, dims = [1, 2] : (tensor<5x1xf32>) -> tensor<3x5x7xf32>",
    )],
    "BroadcastOp": [function(F, "tensor<2x3x5xf32>", f"%r = stablehlo.broadcast %a, sizes = [2] : ({F}) -> tensor<2x3x5xf32>")],
    "CaseOp": [function(
        f"tensor<i32> {F}", F,
        f'%r = "stablehlo.case"(%a) ({{\nstablehlo.return %b : {F}\n}}, {{\n%n = stablehlo.negate %b : {F}\n'
        f"stablehlo.return %n : {F}\n}}) : (tensor<i32>) -> {F}",
    )],
    "CbrtOp": unary("cbrt", F),
    "CeilOp": unary("ceil", F),
    "ClampOp": [function(f"tensor<f32> {F} {F}", F, f"%r = stablehlo.clamp %a, %b, %c : (tensor<f32>, {F}, {F}) -> {F}")],
    "ClzOp": unary("count_leading_zeros", I, U),
    "CompareOp": [
        function(f"{t} {t}", B, f"%r = stablehlo.compare {d}, %a, %b : ({t}, {t}) -> {B}")
        for d, t in (("EQ", I), ("NE", U), ("LT", F), ("LE", I), ("GT", F), ("GE", F), ("LT", B))
    ] + [function(f"{F} {F}", B, f"%r = stablehlo.compare LT, %a, %b, TOTALORDER : ({F}, {F}) -> {B}")],
    "CompositeOp": [
        function(F, F, f'%r = stablehlo.composite "my.twice" %a {{decomposition = @twice}} : ({F}) -> {F}')
        + f"\nfunc.func private @twice(%x: {F}) -> {F} {{\n%y = stablehlo.add %x, %x : {F}\nreturn %y : {F}\n}}"
    ],
    "ConcatenateOp": [function(f"{F} {F}", "tensor<3x10xf32>", f"%r = stablehlo.concatenate %a, %b, dim = 1 : ({F}, {F}) -> tensor<3x10xf32>")],
    "ConstantOp": [function("", "tensor<2x2xf32>", "%r = stablehlo.constant dense<[[1.0, 2.5], [-3.0, 0.0]]> : tensor<2x2xf32>")],
    "ConvertOp": [
        function(a, b, f"%r = stablehlo.convert %a : ({a}) -> {b}")
        for a, b in ((F, I), (I, F), (F, B), (B, F), (I, U), (F, "tensor<3x5xf64>"), (F, "tensor<3x5xf16>"))
    ],
    "ConvolutionOp": [
        function(f"{IMAGE} tensor<3x3x4x6xf32>", "tensor<2x5x4x6xf32>",
                 f"%r = stablehlo.convolution(%a, %b) {DIMS}, window = {{stride = [2, 2], pad = [[1, 1], [1, 1]]}} "
                 f"{{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} : ({IMAGE}, tensor<3x3x4x6xf32>) -> tensor<2x5x4x6xf32>"),
        function(f"{IMAGE} tensor<3x3x2x6xf32>", "tensor<2x19x15x6xf32>",
                 f"%r = stablehlo.convolution(%a, %b) {DIMS}, window = {{pad = [[3, 1], [2, 2]], lhs_dilate = [2, 2], reverse = [1, 0]}} "
                 f"{{batch_group_count = 1 : i64, feature_group_count = 2 : i64}} : ({IMAGE}, tensor<3x3x2x6xf32>) -> tensor<2x19x15x6xf32>"),
        function(f"{IMAGE} tensor<2x2x4x6xf32>", "tensor<1x7x5x6xf32>",
                 f"%r = stablehlo.convolution(%a, %b) {DIMS}, window = {{rhs_dilate = [2, 2]}} "
                 f"{{batch_group_count = 2 : i64, feature_group_count = 1 : i64}} : ({IMAGE}, tensor<2x2x4x6xf32>) -> tensor<1x7x5x6xf32>"),
    ],
    "CosineOp": unary("cosine", F),
    "CustomCallOp": [function(F, F, f'%r = stablehlo.custom_call @Sharding(%a) : ({F}) -> {F}')],
    "DivOp": binary("divide", F, I, U),
    "DotGeneralOp": [
        function(f"{F} tensor<5x7xf32>", "tensor<3x7xf32>", f"%r = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : ({F}, tensor<5x7xf32>) -> tensor<3x7xf32>"),
        function("tensor<2x3x4x5xf32> tensor<5x2x3x7xf32>", "tensor<2x3x4x7xf32>",
                 "%r = stablehlo.dot_general %a, %b, batching_dims = [0, 1] x [1, 2], contracting_dims = [3] x [0] : "
                 "(tensor<2x3x4x5xf32>, tensor<5x2x3x7xf32>) -> tensor<2x3x4x7xf32>"),
        function("tensor<3x5xi8> tensor<7x5xi8>", "tensor<3x7xi32>", "%r = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<3x5xi8>, tensor<7x5xi8>) -> tensor<3x7xi32>"),
    ],
    "DotOp": [function(f"{F} tensor<5x7xf32>", "tensor<3x7xf32>", f"%r = stablehlo.dot %a, %b : ({F}, tensor<5x7xf32>) -> tensor<3x7xf32>")],
    "DynamicBroadcastInDimOp": [function(
        "tensor<5xf32>", F, "%s = stablehlo.constant dense<[3, 5]> : tensor<2xi32>\n"
        f"%r = stablehlo.dynamic_broadcast_in_dim %a, %s, dims = [1] : (tensor<5xf32>, tensor<2xi32>) -> {F}",
    )],
    "DynamicConvOp": [function(
        f"{IMAGE} tensor<3x3x4x6xf32>", "tensor<2x9x7x6xf32>",
        "%p = stablehlo.constant dense<1> : tensor<2x2xi64>\n"
        f'%r = "stablehlo.dynamic_conv"(%a, %b, %p) {{dimension_numbers = #stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>, '
        f"batch_group_count = 1 : i64, feature_group_count = 1 : i64}} : ({IMAGE}, tensor<3x3x4x6xf32>, tensor<2x2xi64>) -> tensor<2x9x7x6xf32>",
    )],
    "DynamicGatherOp": [function(
        f"{F} tensor<4x1xi32>", "tensor<4x5xf32>",
        "%s = stablehlo.constant dense<[1, 5]> : tensor<2xi32>\n"
        '%r = "stablehlo.dynamic_gather"(%a, %b, %s) {dimension_numbers = #stablehlo.gather<offset_dims = [1], '
        "collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>} : "
        f"({F}, tensor<4x1xi32>, tensor<2xi32>) -> tensor<4x5xf32>",
    )],
    "DynamicIotaOp": [function("", I, f"%s = stablehlo.constant dense<[3, 5]> : tensor<2xi64>\n%r = stablehlo.dynamic_iota %s, dim = 1 : (tensor<2xi64>) -> {I}")],
    "DynamicPadOp": [function(
        f"{F} tensor<f32>", "tensor<4x10xf32>",
        "%l = stablehlo.constant dense<[0, 1]> : tensor<2xi32>\n%h = stablehlo.constant dense<[1, 0]> : tensor<2xi32>\n"
        "%i = stablehlo.constant dense<[0, 1]> : tensor<2xi32>\n"
        f"%r = stablehlo.dynamic_pad %a, %b, %l, %h, %i : ({F}, tensor<f32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> tensor<4x10xf32>",
    )],
    "DynamicReshapeOp": [function(F, "tensor<5x3xf32>", f"%s = stablehlo.constant dense<[5, 3]> : tensor<2xi32>\n%r = stablehlo.dynamic_reshape %a, %s : ({F}, tensor<2xi32>) -> tensor<5x3xf32>")],
    "DynamicSliceOp": [function(f"{F} tensor<i32> tensor<i32>", "tensor<2x3xf32>", f"%r = stablehlo.dynamic_slice %a, %b, %c, sizes = [2, 3] : ({F}, tensor<i32>, tensor<i32>) -> tensor<2x3xf32>")],
    "DynamicUpdateSliceOp": [function(f"{F} tensor<2x3xf32> tensor<i32> tensor<i32>", F, f"%r = stablehlo.dynamic_update_slice %a, %b, %c, %d : ({F}, tensor<2x3xf32>, tensor<i32>, tensor<i32>) -> {F}")],
    "EinsumOp": [function(f"{F} tensor<5x7xf32>", "tensor<3x7xf32>", f'%r = "stablehlo.einsum"(%a, %b) {{einsum_config = "ij,jk->ik"}} : ({F}, tensor<5x7xf32>) -> tensor<3x7xf32>')],
    "ExpOp": unary("exponential", F),
    "Expm1Op": unary("exponential_minus_one", F),
    "FloorOp": unary("floor", F),
    "GatherOp": [
        function(f"{F} tensor<4x2xi32>", "tensor<2x4x3xf32>",
                 '%r = "stablehlo.gather"(%a, %b) {dimension_numbers = #stablehlo.gather<offset_dims = [0, 2], '
                 "start_index_map = [1, 0], index_vector_dim = 1>, slice_sizes = array<i64: 2, 3>, indices_are_sorted = false} : "
                 f"({F}, tensor<4x2xi32>) -> tensor<2x4x3xf32>"),
        function(f"{F} tensor<3x2xi32>", "tensor<3x2xf32>",
                 '%r = "stablehlo.gather"(%a, %b) {dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [1], '
                 "operand_batching_dims = [0], start_indices_batching_dims = [0], start_index_map = [1], index_vector_dim = 2>, "
                 f"slice_sizes = array<i64: 1, 1>, indices_are_sorted = false}} : ({F}, tensor<3x2xi32>) -> tensor<3x2xf32>"),
        function(f"{F} tensor<2x4xi32>", "tensor<2x3x4xf32>",
                 '%r = "stablehlo.gather"(%a, %b) {dimension_numbers = #stablehlo.gather<offset_dims = [1], '
                 "collapsed_slice_dims = [1], start_index_map = [1], index_vector_dim = 2>, slice_sizes = array<i64: 3, 1>, "
                 f"indices_are_sorted = false}} : ({F}, tensor<2x4xi32>) -> tensor<2x3x4xf32>"),
    ],
    "GetDimensionSizeOp": [function(F, "tensor<i32>", f"%r = stablehlo.get_dimension_size %a, dim = 1 : ({F}) -> tensor<i32>")],
    "IfOp": [function(
        f"tensor<i1> {F}", F,
        f'%r = "stablehlo.if"(%a) ({{\nstablehlo.return %b : {F}\n}}, {{\n%n = stablehlo.negate %b : {F}\n'
        f"stablehlo.return %n : {F}\n}}) : (tensor<i1>) -> {F}",
    )],
    "ImagOp": [function(F, F, f"%r = stablehlo.imag %a : ({F}) -> {F}")],
    "IotaOp": [function("", I, f"%r = stablehlo.iota dim = 1 : {I}")],
    "IsFiniteOp": [function(F, B, f"%i = stablehlo.divide %a, %a : {F}\n%r = stablehlo.is_finite %i : ({F}) -> {B}")],
    "Log1pOp": [function(F, F, f"%p = stablehlo.abs %a : {F}\n%r = stablehlo.log_plus_one %p : {F}")],
    "LogOp": [function(F, F, f"%p = stablehlo.abs %a : {F}\n%r = stablehlo.log %p : {F}")],
    "LogisticOp": unary("logistic", F),
    "MapOp": [function(f"{F} {F}", F, f'%r = "stablehlo.map"(%a, %b) {reducer("multiply")} {{dimensions = array<i64: 0, 1>}} : ({F}, {F}) -> {F}'.replace("}) {dim", "}) {dim"))],
    "MaxOp": binary("maximum", F, I, B),
    "MinOp": binary("minimum", F, I, U),
    "MulOp": binary("multiply", F, I, B),
    "NegOp": unary("negate", F, I),
    "NotOp": unary("not", I, U, B),
    "OptimizationBarrierOp": [function(f"{F} {I}", f"{F} {I}", f"%r:2 = stablehlo.optimization_barrier %a, %b : {F}, {I}")],
    "OrOp": binary("or", I, B),
    "PadOp": [
        function(f"{F} tensor<f32>", "tensor<4x8xf32>", f"%r = stablehlo.pad %a, %b, low = [1, -1], high = [0, 0], interior = [0, 1] : ({F}, tensor<f32>) -> tensor<4x8xf32>"),
        function(F, "tensor<6x6xf32>", ZERO + f"%r = stablehlo.pad %a, %zero, low = [1, 2], high = [2, -1], interior = [0, 0] : ({F}, tensor<f32>) -> tensor<6x6xf32>"),
    ],
    "PopulationCountOp": unary("popcnt", I, U),
    "PowOp": [function(f"{F} {F}", F, f"%p = stablehlo.abs %a : {F}\n%r = stablehlo.power %p, %b : {F}"), *binary("power", I)],
    "RealDynamicSliceOp": [function(
        F, "tensor<2x2xf32>",
        "%s = stablehlo.constant dense<[0, 1]> : tensor<2xi32>\n%l = stablehlo.constant dense<[2, 5]> : tensor<2xi32>\n"
        "%t = stablehlo.constant dense<[1, 2]> : tensor<2xi32>\n"
        f"%r = stablehlo.real_dynamic_slice %a, %s, %l, %t : ({F}, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> tensor<2x2xf32>",
    )],
    "RealOp": [function(F, F, f"%r = stablehlo.real %a : ({F}) -> {F}")],
    "ReduceOp": [
        function(f"{F} tensor<f32>", "tensor<5xf32>", f'%r = "stablehlo.reduce"(%a, %b) {reducer(op)} {{dimensions = array<i64: 0>}} : ({F}, tensor<f32>) -> tensor<5xf32>')
        for op in ("add", "maximum", "minimum", "multiply")
    ] + [function(
        f"{F} {I} tensor<f32> tensor<i32>", "tensor<3xf32> tensor<3xi32>",
        '%r:2 = "stablehlo.reduce"(%a, %b, %c, %d) ({\n^bb0(%x: tensor<f32>, %i: tensor<i32>, %y: tensor<f32>, %j: tensor<i32>):\n'
        "%t = stablehlo.compare GE, %x, %y : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"
        "%u = stablehlo.select %t, %x, %y : tensor<i1>, tensor<f32>\n%v = stablehlo.select %t, %i, %j : tensor<i1>, tensor<i32>\n"
        "stablehlo.return %u, %v : tensor<f32>, tensor<i32>\n}) {dimensions = array<i64: 1>} : "
        f"({F}, {I}, tensor<f32>, tensor<i32>) -> (tensor<3xf32>, tensor<3xi32>)",
    )],
    "ReducePrecisionOp": [function(F, F, f"%r = stablehlo.reduce_precision %a, format = e5m10 : {F}")],
    "ReduceWindowOp": [
        function(IMAGE, "tensor<2x4x3x4xf32>", LOW + f'%r = "stablehlo.reduce_window"(%a, %low) {reducer("maximum")} '
                 "{window_dimensions = array<i64: 1, 3, 3, 1>, window_strides = array<i64: 1, 2, 2, 1>} : "
                 f"({IMAGE}, tensor<f32>) -> tensor<2x4x3x4xf32>"),
        function(f"{IMAGE} tensor<f32>", "tensor<2x9x15x4xf32>", f'%r = "stablehlo.reduce_window"(%a, %b) {reducer("add")} '
                 "{window_dimensions = array<i64: 1, 2, 2, 1>, base_dilations = array<i64: 1, 1, 2, 1>, window_dilations = array<i64: 1, 2, 1, 1>, "
                 f"padding = dense<[[0, 0], [1, 1], [2, 1], [0, 0]]> : tensor<4x2xi64>}} : ({IMAGE}, tensor<f32>) -> tensor<2x9x15x4xf32>"),
        function(F, F, ZERO + f'%r = "stablehlo.reduce_window"(%a, %zero) {reducer("add")} '
                 f"{{window_dimensions = array<i64: 1, 5>, padding = dense<[[0, 0], [4, 0]]> : tensor<2x2xi64>}} : ({F}, tensor<f32>) -> {F}"),
        function(F, "tensor<3x7xf32>", LOW + f'%r = "stablehlo.reduce_window"(%a, %low) {reducer("maximum")} '
                 f"{{window_dimensions = array<i64: 1, 3>, base_dilations = array<i64: 1, 2>}} : ({F}, tensor<f32>) -> tensor<3x7xf32>"),
        function(I, "tensor<2x4xi32>", "%low = stablehlo.constant dense<-2147483648> : tensor<i32>\n"
                 f'%r = "stablehlo.reduce_window"(%a, %low) {reducer("maximum", "i32")} '
                 f"{{window_dimensions = array<i64: 2, 2>}} : ({I}, tensor<i32>) -> tensor<2x4xi32>"),
    ],
    "RemOp": binary("remainder", F, I),
    "ReshapeOp": [function(F, "tensor<5x3xf32>", f"%r = stablehlo.reshape %a : ({F}) -> tensor<5x3xf32>")],
    "ReverseOp": [function(F, F, f"%r = stablehlo.reverse %a, dims = [0, 1] : {F}")],
    "RoundNearestEvenOp": unary("round_nearest_even", F),
    "RoundOp": unary("round_nearest_afz", F),
    "RsqrtOp": [function(F, F, f"%p = stablehlo.abs %a : {F}\n%r = stablehlo.rsqrt %p : {F}")],
    "ScatterOp": [
        function(f"{F} tensor<4x1xi32> tensor<4x5xf32>", F,
                 f'%r = "stablehlo.scatter"(%a, %b, %c) {reducer("add")} {{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], '
                 "inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, indices_are_sorted = false, "
                 f"unique_indices = false}} : ({F}, tensor<4x1xi32>, tensor<4x5xf32>) -> {F}"),
        function(f"{F} tensor<6x2xi32> tensor<6x1x1xf32>", F,
                 f'%r = "stablehlo.scatter"(%a, %b, %c) {reducer("maximum")} {{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1, 2], '
                 "scatter_dims_to_operand_dims = [1, 0], index_vector_dim = 1>, indices_are_sorted = false, "
                 f"unique_indices = false}} : ({F}, tensor<6x2xi32>, tensor<6x1x1xf32>) -> {F}"),
    ],
    "SelectAndScatterOp": [function(
        f"{IMAGE} tensor<2x5x4x4xf32>", IMAGE,
        ZERO + f'%r = "stablehlo.select_and_scatter"(%a, %b, %zero) ({compare("GE")[1:-1]}, {reducer("add")[1:-1]}) '
        "{window_dimensions = array<i64: 1, 3, 3, 1>, window_strides = array<i64: 1, 2, 2, 1>, "
        f"padding = dense<[[0, 0], [1, 1], [1, 1], [0, 0]]> : tensor<4x2xi64>}} : ({IMAGE}, tensor<2x5x4x4xf32>, tensor<f32>) -> {IMAGE}",
    )],
    "SelectOp": [function(f"{B} {F} {F}", F, f"%r = stablehlo.select %a, %b, %c : {B}, {F}"),
                 function(f"tensor<i1> {I} {I}", I, f"%r = stablehlo.select %a, %b, %c : tensor<i1>, {I}")],
    "ShiftLeftOp": binary("shift_left", I, U),
    "ShiftRightArithmeticOp": binary("shift_right_arithmetic", I),
    "ShiftRightLogicalOp": binary("shift_right_logical", I, U),
    "SignOp": unary("sign", F, I),
    "SineOp": unary("sine", F),
    "SliceOp": [function(F, "tensor<2x2xf32>", f"%r = stablehlo.slice %a [1:3, 0:4:2] : ({F}) -> tensor<2x2xf32>")],
    "SortOp": [
        function(F, F, f'%r = "stablehlo.sort"(%a) {compare("LT")} {{dimension = 1 : i64, is_stable = true}} : ({F}) -> {F}'),
        function(f"{I} {F}", f"{I} {F}",
                 '%r:2 = "stablehlo.sort"(%a, %b) ({\n^bb0(%x: tensor<i32>, %y: tensor<i32>, %u: tensor<f32>, %v: tensor<f32>):\n'
                 "%z = stablehlo.compare GT, %x, %y : (tensor<i32>, tensor<i32>) -> tensor<i1>\nstablehlo.return %z : tensor<i1>\n}) "
                 f"{{dimension = 0 : i64, is_stable = true}} : ({I}, {F}) -> ({I}, {F})"),
    ],
    "SqrtOp": [function(F, F, f"%p = stablehlo.abs %a : {F}\n%r = stablehlo.sqrt %p : {F}")],
    "SubtractOp": binary("subtract", F, I, U),
    "TanOp": unary("tan", F),
    "TanhOp": unary("tanh", F),
    "TorchIndexSelectOp": [function(f"{F} tensor<4xi32>", "tensor<4x5xf32>", f'%r = "stablehlo.torch_index_select"(%a, %b) {{dim = 0 : i64, batch_dims = 0 : i64}} : ({F}, tensor<4xi32>) -> tensor<4x5xf32>')],
    "TransposeOp": [function("tensor<2x3x5xf32>", "tensor<5x2x3xf32>", "%r = stablehlo.transpose %a, dims = [2, 0, 1] : (tensor<2x3x5xf32>) -> tensor<5x2x3xf32>")],
    "UnaryEinsumOp": [function(F, "tensor<3xf32>", f'%r = "stablehlo.unary_einsum"(%a) {{einsum_config = "ij->i"}} : ({F}) -> tensor<3xf32>')],
    "WhileOp": [function(
        F, F,
        "%i = stablehlo.constant dense<0> : tensor<i32>\n%n = stablehlo.constant dense<3> : tensor<i32>\n%o = stablehlo.constant dense<1> : tensor<i32>\n"
        f"%w:2 = stablehlo.while(%k = %i, %x = %a) : tensor<i32>, {F}\n"
        "cond {\n%t = stablehlo.compare LT, %k, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>\nstablehlo.return %t : tensor<i1>\n} do {\n"
        f"%k1 = stablehlo.add %k, %o : tensor<i32>\n%x1 = stablehlo.add %x, %x : {F}\nstablehlo.return %k1, %x1 : tensor<i32>, {F}\n}}\n"
        f"%r = stablehlo.add %w#1, %a : {F}",
    ), function(
        F, F,
        "%i = stablehlo.constant dense<0> : tensor<i32>\n%n = stablehlo.constant dense<100> : tensor<i32>\n"
        f"%w:2 = stablehlo.while(%k = %i, %x = %a) : tensor<i32>, {F}\n"
        "cond {\n%t = stablehlo.compare LT, %k, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>\nstablehlo.return %t : tensor<i1>\n} do {\n"
        f"%o = stablehlo.constant dense<3> : tensor<i32>\n%k1 = stablehlo.add %k, %o : tensor<i32>\n%x1 = stablehlo.cosine %x : {F}\nstablehlo.return %k1, %x1 : tensor<i32>, {F}\n}}\n"
        f"%r = stablehlo.add %w#1, %a : {F}",
    )],
    "XorOp": binary("xor", I, B),
    "AllGatherOp": [function(F, F, f'%r = "stablehlo.all_gather"(%a) <{{all_gather_dim = 0 : i64, {ALONE}}}> : ({F}) -> {F}')],
    "AllReduceOp": [function(F, F, f'%r = "stablehlo.all_reduce"(%a) <{{{ALONE}}}> {reducer("add")} : ({F}) -> {F}')],
    "AllToAllOp": [function(F, F, f'%r = "stablehlo.all_to_all"(%a) <{{split_dimension = 0 : i64, concat_dimension = 0 : i64, split_count = 1 : i64, {ALONE}}}> : ({F}) -> {F}')],
    "CollectiveBroadcastOp": [function(F, F, f'%r = "stablehlo.collective_broadcast"(%a) <{{{ALONE}}}> : ({F}) -> {F}')],
    "CollectivePermuteOp": [function(F, F, f'%r = "stablehlo.collective_permute"(%a) <{{source_target_pairs = dense<0> : tensor<1x2xi64>}}> : ({F}) -> {F}')],
    "CrossReplicaSumOp": [function(F, F, f'%r = "stablehlo.cross-replica-sum"(%a) <{{{ALONE}}}> : ({F}) -> {F}')],
    "ReduceScatterOp": [function(F, F, f'%r = "stablehlo.reduce_scatter"(%a) <{{scatter_dimension = 0 : i64, {ALONE}}}> {reducer("add")} : ({F}) -> {F}')],
    "ReplicaIdOp": [function(F, "tensor<ui32>", "%r = stablehlo.replica_id : tensor<ui32>")],
    "PartitionIdOp": [function(F, "tensor<ui32>", "%r = stablehlo.partition_id : tensor<ui32>")],
    "CholeskyOp": [
        function(T, T, POSITIVE + f"%r = stablehlo.cholesky %p, lower = true : {T}"),
        function(T, T, POSITIVE + f"%u = stablehlo.cholesky %p, lower = false : {T}\n%r = stablehlo.transpose %u, dims = [0, 2, 1] : ({T}) -> {T}"),
    ],
    "TriangularSolveOp": [function(
        "tensor<5x5xf32> tensor<5x3xf32>", "tensor<5x3xf32>",
        DOMINANT + f'%r = "stablehlo.triangular_solve"(%p, %b) <{{left_side = true, lower = {lower}, unit_diagonal = false, transpose_a = #stablehlo<transpose {how}>}}> : (tensor<5x5xf32>, tensor<5x3xf32>) -> tensor<5x3xf32>',
    ) for lower in ("true", "false") for how in ("NO_TRANSPOSE", "TRANSPOSE")],
    "AfterAllOp": [function(F, F, f"%t = stablehlo.after_all : !stablehlo.token\n%r = stablehlo.add %a, %a : {F}")],
    **dict.fromkeys(("GetTupleElementOp", "TupleOp"), [function(F, F, f"%t = stablehlo.tuple %a, %a : tuple<{F}, {F}>\n%r = stablehlo.get_tuple_element %t[1] : (tuple<{F}, {F}>) -> {F}")]),
    "CreateTokenOp": [function(F, F, f"%t = stablehlo.create_token : !stablehlo.token\n%r = stablehlo.add %a, %a : {F}")],
}  # fmt: skip
"""Functions by the operation that they show, under the name that jaxlib's class for it has."""

_PARTS = ("ReturnOp",)
"""Operations that all functions contain."""


UNCHANGED = (
    "AllGatherOp", "AllReduceOp", "AllToAllOp", "CollectiveBroadcastOp", "CollectivePermuteOp", "CrossReplicaSumOp",
    "ReduceScatterOp", "GetTupleElementOp", "TupleOp",
)  # fmt: skip
"""Operations between devices, of which each group has one, and others that return what they are given."""


def _normal(x: np.ndarray, mean: np.ndarray, var: np.ndarray) -> np.ndarray:
    return (x - mean) / np.sqrt(var + np.float32(0.1))


def _batch_norm_gradient(x: Any, scale: Any, mean: Any, var: Any, given: Any) -> list[Any]:
    normal, axes, count = _normal(x, mean, abs(var)), (0, 1, 2), x.size // x.shape[-1]
    of_scale, of_offset = (given * normal).sum(axes), given.sum(axes)
    inner = given - of_offset / count - normal * of_scale / count
    return [scale * inner / np.sqrt(abs(var) + np.float32(0.1)), of_scale, of_offset]


def _batch_norm_training(x: Any, scale: Any, offset: Any) -> list[Any]:
    mean, var = x.mean((0, 1, 2)), x.var((0, 1, 2))
    return [_normal(x, mean, var) * scale + offset, mean, var]


_BY_NUMPY = {
    "BatchNormGradOp": _batch_norm_gradient,
    "BatchNormInferenceOp": lambda x, scale, offset, mean, var: [_normal(x, mean, abs(var)) * scale + offset],
    "BatchNormTrainingOp": _batch_norm_training,
    **dict.fromkeys(UNCHANGED, lambda a: [a]),
    **dict.fromkeys(("PartitionIdOp", "ReplicaIdOp"), lambda a: [np.uint32(0)]),
    **dict.fromkeys(("AfterAllOp", "CreateTokenOp"), lambda a: [a + a]),
    "CholeskyOp": lambda a: [np.linalg.cholesky(a @ a.transpose(0, 2, 1) + np.eye(5, dtype=np.float32))],
    "BroadcastOp": lambda a: [np.broadcast_to(a, (2, 3, 5))],
    "CustomCallOp": lambda a: [a],
    "DotOp": lambda a, b: [a @ b],
    "EinsumOp": lambda a, b: [a @ b],
    "RealDynamicSliceOp": lambda a: [a[0:2, 1:5:2]],
    "TorchIndexSelectOp": lambda a, i: [np.take(a, np.clip(i, 0, 2), 0)],
    "UnaryEinsumOp": lambda a: [a.sum(1)],
}
"""What NumPy says where ``eval_module`` does not know an operation; it ends the process then."""


REASONS = {
    "AsyncDoneOp": "one thread of calls: nothing runs meanwhile",
    "AsyncStartOp": "one thread of calls: nothing runs meanwhile",
    "ComplexOp": "complex numbers are not supported",
    "FftOp": "complex numbers are not supported, and each of its forms takes or gives them",
    "InfeedOp": "a program has inputs and outputs only",
    "OutfeedOp": "a program has inputs and outputs only",
    "RecvOp": "programs are for one device",
    "RngBitGeneratorOp": "left to the caller: its bits are those of one implementation; keys of threefry are arithmetic",
    "RngOp": "left to the caller: the same numbers twice would need a state",
    "SendOp": "programs are for one device",
    "SetDimensionSizeOp": "shapes do not depend on data",
    "UniformDequantizeOp": "quantized types are not supported; integers with explicit scales are",
    "UniformQuantizeOp": "quantized types are not supported; integers with explicit scales are",
}
"""Why operations are not there."""


def arguments(text: str) -> list[np.ndarray]:
    """Returns arrays for the arguments of a function, the same each time."""
    rng = np.random.default_rng(0)
    head = text.partition("->")[0]
    out = []
    for shape, kind in re.findall(r"tensor<((?:\d+x)*)(\w+)>", head):
        dims = [int(d) for d in shape.split("x") if d]
        if kind == "i1":
            out.append(np.asarray(rng.integers(0, 2, dims), bool))
        elif kind.startswith(("ui", "i")):
            name = kind.replace("ui", "uint") if kind.startswith("ui") else kind.replace("i", "int")
            low = 0 if kind.startswith("ui") or "scatter" in text or "gather" in text or "index" in text else -4
            numbers = rng.integers(low, 5, dims)
            zeros = (numbers == 0) & ("divide" in text or "remainder" in text)
            out.append(np.asarray(np.where(zeros, 3, numbers), name))
        else:
            out.append(np.asarray(rng.integers(-12, 13, dims) / 4 + (0.25 if "divide" in text else 0), np.float32))
    return out


def expected(name: str, text: str, given: list[np.ndarray]) -> list[np.ndarray]:
    """Returns what the oracle computes."""
    if name in _BY_NUMPY:
        return _BY_NUMPY[name](*given)
    module = module_of(text)
    with module.context, ir.Location.unknown():
        (main,) = [f for f in module.body.operations if f.operation.attributes["sym_name"].value == "main"]
        types = [a.type for a in main.regions[0].blocks[0].arguments]
        attributes = [_attribute(a, t) for a, t in zip(given, types, strict=True)]
        results = stablehlo.eval_module(module, attributes)
        return [np.array(r) for r in results]


def _attribute(array: np.ndarray, kind: Any) -> Any:
    return ir.DenseElementsAttr.get(np.ascontiguousarray(array), type=kind.element_type, shape=array.shape)


def problem_of(name: str, text: str, compiled: bool) -> str:
    """Returns what is wrong with one case, or an empty text."""
    given = arguments(text)
    try:
        graph = from_stablehlo(text)
    except UnsupportedStableHloOperators:
        return "no converter"
    except (StableHloError, GraphError) as error:
        return f"refused: {error}"
    run = build_graph(graph, "native -num-cores=1", processes=0) if compiled else lambda *a: evaluate(graph, *a)
    got = run(*given)
    got = list(got) if isinstance(got, tuple) else [got]
    for g, want in zip(got, expected(name, text, given), strict=True):
        if g.shape != want.shape or g.dtype != want.dtype:
            return f"{g.dtype}{g.shape}, not {want.dtype}{want.shape}"
        same = (
            np.allclose(g, want, rtol=1e-5, atol=1e-5, equal_nan=True) if want.dtype.kind == "f" else (g == want).all()
        )
        if not same:
            return "wrong numbers"
    return ""


def main() -> None:
    """Runs all cases, and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="operations whose name has this text")
    parser.add_argument("--reference", action="store_true", help="the reference evaluation in place of compiled code")
    parser.add_argument("--markdown", type=Path, help="a file for the table")
    options = parser.parse_args()
    names = sorted(n for n in dir(stablehlo) if n.endswith("Op") and n not in _PARTS)
    found: dict[str, list[str]] = {}
    for name in names:
        if options.only not in name:
            continue
        for text in CASES.get(name, []):
            try:
                problem = problem_of(name, text, not options.reference)
            except Exception as error:  # a defect of a case or of the program under test: shown
                problem = f"{type(error).__name__}: {str(error)[:300]}"
            found.setdefault(name, []).append(problem)
            if problem:
                print(f"{name}: {problem}", flush=True)
    good = [n for n in names if n in found and not any(found[n])]
    print(f"of {len(names) + len(_PARTS)} operations {len(good) + len(_PARTS)} are equal in all cases")
    if options.markdown:
        _write(options.markdown, names, found, good)


def _write(path: Path, names: list[str], found: dict[str, list[str]], good: list[str]) -> None:
    lines = [
        "# Operations of StableHLO",
        "",
        "`python -m tests.frontends.stablehlo_operators` compares compiled code with `stablehlo.eval_module`, and with",
        f"NumPy where that lacks an operation. Of {len(names) + 1} operations {len(good) + 1} are equal in all cases.",
        "",
        "| operation | cases equal | not supported |",
        "|---|---|---|",
    ]
    for name in names:
        cases = found.get(name, [])
        text = "; ".join(" ".join(p.split()).replace("|", "/")[:120] for p in cases if p) or (
            "" if cases else REASONS.get(name, "not supported")
        )
        lines.append(f"| {name.removesuffix('Op')} | {sum(not p for p in cases)} | {text} |")
    path.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
