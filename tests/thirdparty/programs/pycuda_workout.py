"""PyCUDA: linked against the driver; calls of CUDA 1.x and later.

  pycuda_workout.py --cards N --memory BYTES --name NAME --cubin FILE
"""
import argparse

import numpy
import pycuda.driver as cuda


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--cards', type=int, required=True)
    parser.add_argument('--memory', type=int, required=True)
    parser.add_argument('--name', required=True)
    parser.add_argument('--cubin', required=True)
    args = parser.parse_args()
    cuda.init()
    assert cuda.Device.count() == args.cards, cuda.Device.count()
    device = cuda.Device(0)
    assert device.name() == args.name, device.name()
    assert device.total_memory() <= args.memory
    context = device.make_context()
    try:
        source = numpy.random.default_rng(1).random((64, 48), dtype=numpy.float32)
        memory = cuda.mem_alloc(source.nbytes)
        cuda.memcpy_htod(memory, source)
        back = numpy.empty_like(source)
        cuda.memcpy_dtoh(back, memory)
        assert (back == source).all()
        pitched, pitch = cuda.mem_alloc_pitch(48 * 4, 64, 4)
        copy = cuda.Memcpy2D()
        copy.set_src_host(source)
        copy.set_dst_device(int(pitched))
        copy.src_pitch, copy.dst_pitch = 48 * 4, pitch
        copy.width_in_bytes, copy.height = 48 * 4, 64
        copy(aligned=False)
        with open(args.cubin, 'rb') as f:
            module = cuda.module_from_buffer(f.read())
        function = module.get_function('workout_kernel')
        stream, first, last = cuda.Stream(), cuda.Event(), cuda.Event()
        first.record(stream)
        function(memory, numpy.uint32(4), grid=(4, 1), block=(64, 1, 1), stream=stream)
        last.record(stream)
        stream.synchronize()
        assert first.time_till(last) >= 0
        free, total = cuda.mem_get_info()
        assert 0 < free < total <= args.memory
    finally:
        context.pop()
    print('workout complete')


if __name__ == '__main__':
    main()
