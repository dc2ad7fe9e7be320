"""numba-cuda: compiles a Python kernel, loads it as a library, launches it, copies back.

  numba_workout.py --cards N --memory BYTES --name NAME
"""
import argparse

import numpy
from numba import cuda


@cuda.jit
def double(values):
    i = cuda.grid(1)
    if i < values.size:
        values[i] *= 2.0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--cards', type=int, required=True)
    parser.add_argument('--memory', type=int, required=True)
    parser.add_argument('--name', required=True)
    args = parser.parse_args()
    assert len(cuda.gpus) == args.cards, cuda.gpus
    name = cuda.get_current_device().name
    name = name.decode() if isinstance(name, bytes) else name
    assert name == args.name, name
    free, total = cuda.current_context().get_memory_info()
    assert 0 < free <= total <= args.memory, (free, total)
    source = numpy.arange(1000, dtype=numpy.float32)
    values = cuda.to_device(source)
    double[8, 128](values)
    cuda.synchronize()
    untouched = cuda.to_device(source).copy_to_host()
    assert (untouched == source).all()
    assert values.copy_to_host().shape == source.shape
    print('workout complete')


if __name__ == '__main__':
    main()
