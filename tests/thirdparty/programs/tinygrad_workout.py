"""tinygrad with DEV=CUDA: compiles kernels with NVRTC, launches them, copies in and out.

  tinygrad_workout.py --cards N --memory BYTES --name NAME

The simulated card does not compute this kernel, so only copies are compared.
"""
import argparse
import os

os.environ['DEV'] = 'CUDA'

import numpy  # noqa: E402
from tinygrad import Device, Tensor  # noqa: E402


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--cards', type=int, required=True)
    parser.add_argument('--memory', type=int, required=True)
    parser.add_argument('--name', required=True)
    args = parser.parse_args()
    source = numpy.arange(4096, dtype=numpy.float32)
    tensor = Tensor(source, device='CUDA').realize()
    assert (tensor.numpy() == source).all(), 'the copied data differs'
    result = (tensor * 2 + 1).sum().realize()
    Device['CUDA'].synchronize()
    assert result.device == 'CUDA', result.device
    if args.cards > 1:
        second = Tensor(source, device='CUDA:1').realize()
        assert (second.numpy() == source).all()
    print('workout complete')


if __name__ == '__main__':
    main()
