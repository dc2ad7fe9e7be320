"""cuda-core: devices, memory, kernels, graphs through objects.

  cuda_core_workout.py --cards N --memory BYTES --name NAME
"""
import argparse

from cuda.core import (Device, EventOptions, LaunchConfig, Program, ProgramOptions, launch,
                       system)

SOURCE = 'extern "C" __global__ void scale(float* x, float by, int n) { if (n < 0) x[0] = by; }'


def look_at_system(args):
    """cuda.core.system: NVML, 370 names looked up eagerly."""
    assert system.get_num_devices() == args.cards, system.get_num_devices()
    assert all(isinstance(part, int) for part in system.get_user_mode_driver_version())
    for card in system.Device.get_all_devices():
        assert card.name == args.name, card.name
        assert card.memory_info.total == args.memory, card.memory_info.total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--cards', type=int, required=True)
    parser.add_argument('--memory', type=int, required=True)
    parser.add_argument('--name', required=True)
    args = parser.parse_args()
    devices = Device.get_all_devices()
    assert len(devices) == args.cards, f'{len(devices)} devices, wanted {args.cards}'
    dev = devices[0]
    assert dev.name == args.name, dev.name
    dev.set_current()
    stream = dev.create_stream()
    arch = ''.join(str(n) for n in dev.compute_capability)
    module = Program(SOURCE, code_type='c++', options=ProgramOptions(arch=f'sm_{arch}')).compile(
        'cubin', name_expressions=('scale',))
    kernel = module.get_kernel('scale')
    buffer = dev.memory_resource.allocate(1 << 20, stream=stream)
    config = LaunchConfig(grid=8, block=128)
    timed = EventOptions(timing_enabled=True)
    first, last = dev.create_event(timed), dev.create_event(timed)
    stream.record(first)
    launch(stream, config, kernel, buffer, 2.0, 4)
    stream.record(last)
    stream.sync()
    assert last - first >= 0
    builder = dev.create_graph_builder()
    builder.begin_building()
    launch(builder, config, kernel, buffer, 2.0, 4)
    graph = builder.end_building().complete()
    graph.upload(stream)
    graph.launch(stream)
    stream.sync()
    buffer.close(stream)
    stream.sync()
    look_at_system(args)
    print('workout complete')


if __name__ == '__main__':
    main()
