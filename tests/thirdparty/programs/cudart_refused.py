"""A CUDA runtime program on the simulated driver: it must fail immediately with an error of the runtime.

  cudart_refused.py <libcudart.so.13>
"""
import ctypes
import sys
import time

start = time.monotonic()
rt = ctypes.CDLL(sys.argv[1])
rt.cudaGetErrorName.restype = ctypes.c_char_p
pointer = ctypes.c_void_p()
code = rt.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(1 << 20))
print(f'cudaMalloc: {code} {rt.cudaGetErrorName(code).decode()} after '
      f'{time.monotonic() - start:.2f} s')
sys.exit(0 if code != 0 and time.monotonic() - start < 5 else 1)
