"""Reads what a node itself reports: the kubelet's PodResources and its checkpoint, the agent's journal, CDI files.

Everything is decoded here, from the published formats, without code of Carve or the ring and without a protobuf
library.
"""
import base64
import json
import socket
import struct
from pathlib import Path
from urllib.parse import unquote

SLOT = "elasticgpu.io/slot"
KIND = "carve.elasticgpu.io/slice"


# --- protobuf and gRPC, only what a List call needs ----------------------------------------------------------------

def fields(data):
    """(number, value) of each field of a message: bytes for length-delimited and fixed fields, numbers for varints."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7f) << shift
            shift += 7
            if byte < 0x80:
                return value
    while at < len(data):
        number, kind = divmod(varint(), 8)
        if kind == 0:
            yield number, varint()
        elif kind == 2:
            size = varint()
            if at + size > len(data):
                raise ValueError("a field is longer than its message")
            yield number, data[at:at + size]
            at += size
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
            yield number, data[at:at + size]
            at += size
        else:
            raise ValueError(f"wire type {kind}")


def _frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def _receive(connection, size):
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionError("the kubelet closed the connection")
        data += more
    return data


def unary(path, method, timeout=20):
    """The bytes of the answer to a gRPC call without arguments on a unix socket (RFC 9113, literal headers only)."""
    headers = b""
    for name, value in ((":method", "POST"), (":scheme", "http"), (":path", method), (":authority", "localhost"),
                        ("content-type", "application/grpc"), ("te", "trailers")):
        headers += b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
    most = 0x7fffffff
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(timeout)
        connection.connect(str(path))
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" +
                           _frame(4, 0, 0, struct.pack(">HI", 4, most)) +                # a window for the whole answer
                           _frame(8, 0, 0, struct.pack(">I", most - 65535)) +
                           _frame(1, 4, 1, headers) + _frame(0, 1, 1, b"\0\0\0\0\0"))
        body = b""
        while True:
            head = _receive(connection, 9)
            size, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
            payload = _receive(connection, size)
            if kind == 4 and not flags & 1:
                connection.sendall(_frame(4, 1, 0))
            elif kind == 6 and not flags & 1:
                connection.sendall(_frame(6, 1, 0, payload))
            elif kind in (3, 7):
                raise ConnectionError(f"the kubelet ended the call: {payload!r}")
            elif kind == 0:
                body += payload[1:len(payload) - payload[0]] if flags & 8 else payload
            if kind in (0, 1) and flags & 1:
                break
    if len(body) < 5 or body[0] != 0 or struct.unpack(">I", body[1:5])[0] != len(body) - 5:
        raise ConnectionError("the kubelet's answer is not one complete message")
    return body[5:]


def slots_by_container(answer):
    """PodResources' List: (namespace, pod, container) -> its slots, sorted."""
    found = {}
    for number, pod in fields(answer):
        if number != 1:
            continue
        name = space = ""
        containers = []
        for key, value in fields(pod):
            if key == 1:
                name = value.decode()
            elif key == 2:
                space = value.decode()
            elif key == 3:
                containers.append(value)
        for container in containers:
            label, slots = "", []
            for key, value in fields(container):
                if key == 1:
                    label = value.decode()
                elif key == 2:
                    device = list(fields(value))
                    if any(one == (1, SLOT.encode()) for one in device):
                        slots += [text.decode() for which, text in device if which == 2]
            if slots:
                found[(space, name, label)] = sorted(slots)
    return found


def pod_resources(path):
    return slots_by_container(unary(path, "/v1.PodResourcesLister/List"))


# --- the kubelet's checkpoint --------------------------------------------------------------------------------------

def cdi_names(allocated):
    """The CDI names in the answer to Allocate."""
    return [value.decode() for number, device in fields(allocated) if number == 5
            for key, value in fields(device) if key == 1]


def checkpoint(text):
    """(pod UID, container) -> (its slots, sorted; the CDI names that Allocate answered)."""
    found = {}
    for entry in json.loads(text)["Data"]["PodDeviceEntries"] or []:
        if entry["ResourceName"] == SLOT:
            slots = sorted(one for group in entry["DeviceIDs"].values() for one in group)
            found[(entry["PodUID"], entry["ContainerName"])] = (
                slots, cdi_names(base64.b64decode(entry["AllocResp"] or "")))
    return found


# --- the agent's journal ------------------------------------------------------------------------------------------

def _crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def journal(text):
    """Replays the lines: (UID -> the record's text, slice id -> its note). ValueError for a damaged line. A last line
    without its end was never acknowledged and is ignored."""
    lines = text.split("\n")
    head = lines[0].split(" ")
    if head[:2] != ["carve-journal", "1"]:
        raise ValueError("not a journal")
    number, records, notes = int(head[2]), {}, {}
    for line in lines[1:-1]:
        crc, _, rest = line.partition(" ")
        if int(crc, 16) != _crc32c(rest.encode()):
            raise ValueError(f"journal line {number}: its checksum differs")
        _, at, events = rest.split(" ", 2)
        if int(at) != number:
            raise ValueError(f"journal line {number} is missing")
        number += 1
        for event in events.split("\t"):
            what, _, more = event.partition(" ")
            if what == "put":
                records[json.loads(more)["owner"]["uid"]] = more
            elif what == "drop":
                records.pop(more.split(" ")[1])
            elif what == "note":
                key, _, text_of_note = more.partition(" ")
                notes[key] = text_of_note
                if not text_of_note:
                    del notes[key]
    return records, notes


# --- the grant pages ----------------------------------------------------------------------------------------------

PAGE_ABI = 2
PAGE = {"magic": (0, 4), "abi": (4, 2), "card_uuid": (8, 48), "share_class": (56, 4), "priority_class": (60, 4),
        "memory_limit": (128, 8), "compute_limit": (144, 4), "revoked": (148, 4)}     # offset, bytes: abi/page.h
SHARES = ("fixed", "burst", "besteffort")
PRIORITIES = ("online", "standard", "offline")


def page(data) -> dict:
    """Decodes the bytes of a grant page. ValueError when they are no grant page or one of another version."""
    word = {name: data[at:at + size] for name, (at, size) in PAGE.items()}
    number = {name: int.from_bytes(part, "little") for name, part in word.items()}
    if word["magic"] != b"CAVG" or number["abi"] != PAGE_ABI:
        raise ValueError(f"not a grant page of ABI {PAGE_ABI}: {data[:8]!r}")
    return {"uuid": word["card_uuid"].split(b"\0")[0].decode(), "memory": number["memory_limit"],
            "cores": number["compute_limit"], "share": SHARES[number["share_class"]],
            "priority": PRIORITIES[number["priority_class"]], "revoked": number["revoked"] != 0}


def pages(folder) -> dict:
    """Slice id -> its pages, one per card, from the files s-<boot>-<number>-<index of the card>."""
    found = {}
    for path in sorted(Path(folder).glob("s-*")):
        found.setdefault(path.name.rpartition("-")[0], []).append(page(path.read_bytes()))
    return found


def note(text) -> dict:
    """The words of a slice's note: keep, uid, owner, part, pods (a list), env (a dict), name and others that it has.
    Version 1 escapes bytes of the environment as % and two hex digits; earlier releases wrote no version and no
    escapes. ValueError for another version."""
    head, _, name = text.partition(" name=")
    words = dict(word.partition("=")[::2] for word in head.split(" "))
    version = words.get("v")
    if version not in (None, "1"):
        raise ValueError(f"a note of version {version}")
    plain = (lambda value: value) if version is None else unquote
    words["name"] = name
    words["pods"] = [pod for pod in words.get("pods", "").split(",") if pod]
    words["env"] = {plain(key): plain(value) for key, _, value in
                    (one.partition("=") for one in words.get("env", "").split(";") if one)}
    return words


def owners(notes) -> dict:
    """Slice id -> (UID of the pod or claim, part), from the journal's notes."""
    found = {}
    for key, text in notes.items():
        words = note(text)
        if "owner" in words:
            found[key] = (words["owner"].partition("/")[2], words["part"])
    return found


# --- devices for the runtime -------------------------------------------------------------------------------------

def devices(folder):
    """CDI name -> the paths of its device nodes, from the slices' CDI files in a folder."""
    found = {}
    for path in Path(folder).glob("*.json"):
        spec = json.loads(path.read_text())
        if spec.get("kind") == KIND:
            for device in spec["devices"]:
                edits = [device.get("containerEdits", {}), spec.get("containerEdits", {})]
                found[f"{KIND}={device['name']}"] = sorted(
                    node["path"] for edit in edits for node in edit.get("deviceNodes", []))
    return found
