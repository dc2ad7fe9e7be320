"""nvitop as a library: nvitop_api.py --cards N --memory BYTES --name NAME"""
import argparse

from nvitop import Device

parser = argparse.ArgumentParser()
parser.add_argument('--cards', type=int, required=True)
parser.add_argument('--memory', type=int, required=True)
parser.add_argument('--name', required=True)
args = parser.parse_args()
devices = Device.all()
assert len(devices) == args.cards, devices
for device in devices:
    assert device.name() == args.name, device.name()
    assert device.memory_total() == args.memory, device.memory_total()
    snapshot = device.as_snapshot()
    assert snapshot.gpu_utilization is not None
    device.processes()
print('workout complete')
