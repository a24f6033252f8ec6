"""This script compares tuned row-wise operators with NumPy.

``python benchmarks/row_operators.py [--trials 32] [--db benchmarks.db] [--target "native -num-cores=1"]``
"""

from table import arguments, run

ROWS = [
    ("softmax 12×128×128", "softmax:M=1536,N=128", 5.0),
    ("layer_norm 128×768", "layer_norm:M=128,N=768", 5.0),
]

if __name__ == "__main__":
    options = arguments(__doc__.splitlines()[0]).parse_args()
    raise SystemExit(0 if run("rows, tuned", ROWS, options, versus="NumPy") else 1)
