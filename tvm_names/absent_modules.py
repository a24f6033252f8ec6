"""Parts of TVM that there are not here, each with what takes their place."""

from __future__ import annotations

ABSENT = {
    "auto_scheduler": "te tensors are tuned by tilewright.tune([A, B, C]), which needs no template, and built by tilewright.build(…, db=)",
    "autotvm": "te tensors are tuned by tilewright.tune([A, B, C]), which needs no template, and built by tilewright.build(…, db=)",
    "contrib": "module.export('x.so') links a library by the compiler that is there",
    "dlight": "functions without a schedule get the analytic model's: tilewright.build(func)",
    "micro": "C for microcontrollers comes from target 'c -mcpu=…' and module.export('x.c')",
    "relax": "models come in by tilewright.from_onnx, from_torch and from_stablehlo",
    "relay": "models come in by tilewright.from_onnx, from_torch and from_stablehlo",
    "rpc": "tilewright worker and tune --runner dask://… measure on other machines",
    "s_tir": "TensorIR's names are in tilewright.tir and tilewright.Schedule",
    "transform": "lowering takes no configuration; tilewright.codegen.lower shows what each pass makes",
}
