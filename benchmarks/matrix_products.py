"""This script compares tuned matrix products and a convolution with the multiply-add peak of the same run and with
NumPy.

``python benchmarks/matrix_products.py [--trials 64] [--db benchmarks.db] [--target "native -num-cores=1"]``
"""

from table import arguments, run

ROWS = [
    ("matmul 1024³", "matmul:M=1024,N=1024,K=1024", 0.75),
    ("matmul 512³", "matmul:M=512,N=512,K=512", 0.75),
    ("matmul 255³", "matmul:M=255,N=255,K=255", 0.6),
    ("matmul 197×768×768", "matmul:M=197,N=768,K=768", 0.6),
    ("conv 3×3 64×56² → 64", "conv2d:H=56,W=56,CI=64,CO=64,kernel=3,padding=1,layout=NHWC", 0.6),
]

if __name__ == "__main__":
    options = arguments(__doc__.splitlines()[0]).parse_args()
    raise SystemExit(0 if run("products, tuned", ROWS, options) else 1)
