"""Do all sources report the same about the cards? And when all pods are gone: does every source report nothing?

The records on the living pods alone define what is given. Each other view is compared with them, in both directions:
nothing may be missing, nothing may be surplus.

A cluster is plain data:
    pods      Pod objects, all that request cards
    gpus      GPU objects
    ledgers   name of a replica of control -> the JSON of its /v1/cluster
    room      name of a replica -> node -> (does a pod fit that requests room_of() MiB of one card, does one of 1 MiB
    more) nodes     name of a node with a kubelet -> {resources, checkpoint, journal, notes, devices, inspect}, as
    read_node.py returns them; inspect: the JSON of `carve inspect`
    physical  card -> bytes of the hardware
"""
import json

import check
import read_node


def record_of(pod):
    text = pod["metadata"].get("annotations", {}).get(check.RECORD)
    return json.loads(text) if text else None


def living(pod):
    """True when the pod may hold cards: it is on a node and has not ended."""
    return bool(pod["spec"].get("nodeName")) and pod["status"].get("phase") not in ("Succeeded", "Failed")


def slices_of(record):
    """{(UID, part, card, bytes, cores)}"""
    return {(record["owner"]["uid"], part["part"], card["uuid"], card["bytes"], card["compute"])
            for part in record["parts"] for card in part["cards"]}


def _both_ways(name, wanted, said):
    """Sentences for what is only in one of the two sets."""
    return [f"{name} does not have {', '.join(map(str, one))}" for one in sorted(wanted - said)] + \
        [f"{name} has {', '.join(map(str, one))}, which no living pod's record has" for one in sorted(said - wanted)]


def given_by_node(pods):
    """Returns (node -> the slices of its living pods' records, faults of the records themselves)."""
    given, wrong = {}, []
    for pod in pods:
        if not living(pod):
            continue
        name, record = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}", record_of(pod)
        if record is None:
            wrong.append(f"{name} is on a node and has no record")
        elif record["owner"]["uid"] != pod["metadata"]["uid"]:
            wrong.append(f"{name} has a record for UID {record['owner']['uid']}, its own is {pod['metadata']['uid']}")
        else:
            given.setdefault(pod["spec"]["nodeName"], set()).update(slices_of(record))
    return given, wrong


# --- the GPU objects, and control's ledger -------------------------------------------------------------------------

def held_by_gpus(gpus):
    """node -> the slices in its GPU objects."""
    held = {}
    for gpu in gpus:
        for holder in gpu.get("status", {}).get("holders", []):
            held.setdefault(gpu["spec"]["nodeName"], set()).add(
                (holder["owner"]["uid"], holder["part"], gpu["spec"]["uuid"], holder["memory"], holder["cores"]))
    return held


def check_ending(gpus):
    return [f"GPU {gpu['metadata']['name']}: {holder['owner']['uid']} is still ending" for gpu in gpus
            for holder in gpu.get("status", {}).get("holders", []) if holder.get("ending")]


def check_ledger(name, ledger, pods):
    """Compares the ledger of a replica of control with the records of each node's pods."""
    given, _ = given_by_node(pods)
    found, seen = [], set()
    for node in ledger["nodes"]:
        said = {(holder["uid"], holder["part"], card["uuid"], holder["memory_bytes"], holder["cores"])
                for card in node["cards"] for holder in card["holders"]}
        found += _both_ways(f"the ledger of {name}, node {node['name']},", given.get(node["name"], set()), said)
        seen.add(node["name"])
        for card in node["cards"]:
            for what in ("memory_bytes", "cores"):
                if card[what]["granted"] > card[what]["total"]:
                    found.append(f"the ledger of {name}: card {card['uuid']} has granted {what} {card[what]}")
    return found + [f"the ledger of {name} does not know node {node}" for node in sorted(given.keys() - seen)]


def room_of(pods, gpus) -> dict:
    """node -> the largest free piece of one card's memory by the records, in MiB. For pods without init containers."""
    used, alone, room = {}, set(), {}
    for pod in pods:
        for part in (record_of(pod) or {"parts": []})["parts"] if living(pod) else ():
            for card in part["cards"]:
                used[card["uuid"]] = used.get(card["uuid"], 0) + card["bytes"]
                if part.get("whole") or part.get("exclusive"):
                    alone.add(card["uuid"])
    for gpu in gpus:
        uuid, node = gpu["spec"]["uuid"], gpu["spec"]["nodeName"]
        free = 0 if uuid in alone else (gpu["spec"]["memory"] - used.get(uuid, 0)) >> 20
        room[node] = max(room.get(node, 0), free)
    return room


def check_room(name, answers, room) -> list:
    """A replica must place exactly what the records leave free. Tests its ledger from outside."""
    found = []
    for node, free in sorted(room.items()):
        fits, more = answers.get(node, (False, False))
        if free and not fits:
            found.append(f"{name} has no room for {free} MiB on {node}, where records leave that free")
        if more:
            found.append(f"{name} has room for {free + 1} MiB on {node}, where records leave {free} free")
    return found


# --- one node -----------------------------------------------------------------------------------------------------

def check_kubelet(name, node, pods):
    """Slots: each container has one per card, no slot twice; the kubelet's checkpoint has the same, by UID."""
    found, wanted, users = [], {}, {}
    for pod in pods:
        here = (pod["metadata"]["namespace"], pod["metadata"]["name"])
        running = {one["name"] for one in pod["status"].get("containerStatuses", [])
                   if "running" in one.get("state", {})}
        for part in (record_of(pod) or {"parts": []})["parts"]:
            if part["part"] in running:
                wanted[(*here, part["part"])] = (pod["metadata"]["uid"], len(part["cards"]))
    for key, (uid, cards) in sorted(wanted.items()):
        slots = node["resources"].get(key, [])
        if len(slots) != cards:
            found.append(f"{name}: PodResources gives {'/'.join(key)} {len(slots)} slots, its record {cards} cards")
        filed, names = node["checkpoint"].get((uid, key[2]), ([], []))
        if filed != slots:
            found.append(f"{name}: the kubelet's file gives {'/'.join(key)} {filed}, PodResources {slots}")
        if len(names) != 1:
            found.append(f"{name}: {'/'.join(key)} got the devices {names} from Allocate")
    for key in sorted(node["resources"].keys() - wanted.keys()):
        found.append(f"{name}: PodResources gives slots to {'/'.join(key)}, which runs without a record")
    for key, slots in node["resources"].items():
        for slot in slots:
            users.setdefault(slot, []).append("/".join(key))
    return found + [f"{name}: {slot} is held by {' and '.join(sorted(holders))}" for slot,
                    holders in sorted(users.items())
                    if len(holders) > 1]


def check_devices(name, node, pods, paths):
    """Each container's device, by the CDI name from Allocate's answer, opens exactly the cards of its record."""
    found, used = [], set()
    for pod in pods:
        uid = pod["metadata"]["uid"]
        for part in (record_of(pod) or {"parts": []})["parts"]:
            label = f"{pod['metadata']['name']}/{part['part']}"
            for device in node["checkpoint"].get((uid, part["part"]), ([], []))[1]:
                used.add(device)
                cards = sorted(paths[card["uuid"]] for card in part["cards"])
                nodes = [path for path in node["devices"].get(device, []) if path in paths.values()]
                if device not in node["devices"]:
                    found.append(f"{name}: {label} got {device} from Allocate, which does not exist")
                elif nodes != cards:
                    found.append(f"{name}: {device} opens {nodes}; {label} was given {cards}")
                note = node["notes"].get(device.partition("=")[2], "")
                words = read_node.note(note)
                if (words.get("owner"), words.get("part")) != (f"pod/{uid}", part["part"]):
                    found.append(f"{name}: the journal does not say that {device} belongs to {label}, but: {note!r}")
    return found + [f"{name}: {device} belongs to no living container" for device in sorted(node["devices"].keys() - used)]


def _essence(record):
    """The part of a record that a node keeps: without the epoch; its parts are in the order of container starts
    there."""
    record = json.loads(record)
    return {**record, "epoch": 0, "parts": sorted(record["parts"], key=lambda part: part["part"])}


def check_agent(name, node, pods):
    """The journal's records must equal the pods' except for the epoch, which the node does not keep. `carve inspect`
    must show the same limits."""
    wanted = {pod["metadata"]["uid"]: pod["metadata"]["annotations"][check.RECORD] for pod in pods if record_of(pod)}
    found = []
    for uid in sorted(wanted.keys() | node["journal"].keys()):
        if uid not in node["journal"]:
            found.append(f"{name}: the journal has no record of pod {uid}")
        elif uid not in wanted:
            found.append(f"{name}: the journal has a record of {uid}, which is no living pod's")
        elif _essence(wanted[uid]) != _essence(node["journal"][uid]):
            found.append(f"{name}: the journal's record of {uid} is {node['journal'][uid]}, the pod's {wanted[uid]}")
    shown = {(one["name"], card["card"], card["limit_bytes"], card["compute"])
             for one in node["inspect"]["slices"] for card in one["cards"]}
    limits = {(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}/{part['part']}", card["uuid"], card["bytes"],
               card["compute"])
              for pod in pods for part in (record_of(pod) or {"parts": []})["parts"] for card in part["cards"]}
    return found + _both_ways(f"{name}: carve inspect", limits, shown)


def check_node(name, node, pods, paths):
    """`pods`: the living pods of that node; `paths`: card -> its device node there."""
    return check_kubelet(name, node, pods) + check_devices(name, node, pods, paths) + check_agent(name, node, pods)


# --- all of it ----------------------------------------------------------------------------------------------------

def check_all(cluster) -> list:
    """All differences; empty when all sources report the same and no card is over-committed."""
    pods = [pod for pod in cluster["pods"] if living(pod)]
    given, found = given_by_node(pods)
    found += check.check_records(pods, cluster["physical"])
    held = held_by_gpus(cluster["gpus"])
    for node in sorted(cluster["nodes"].keys() | held.keys()):
        found += _both_ways(f"the GPU objects of {node}", given.get(node, set()), held.get(node, set()))
    found += check_ending(cluster["gpus"])
    for name, ledger in sorted(cluster["ledgers"].items()):
        found += check_ledger(name, ledger, pods)
        found += check_room(name, cluster["room"].get(name, {}), room_of(pods, cluster["gpus"]))
    for name, node in sorted(cluster["nodes"].items()):
        here = [pod for pod in pods if pod["spec"]["nodeName"] == name]
        paths = {gpu["spec"]["uuid"]: gpu["spec"]["path"] for gpu in cluster["gpus"] if gpu["spec"]["nodeName"] == name}
        found += check_node(name, node, here, paths)
    return found


def check_nothing(cluster) -> list:
    """After the last pod is gone: everything that any source still reports."""
    found = check_all({**cluster, "pods": []})
    for gpu in cluster["gpus"]:
        status = gpu.get("status", {})
        if status.get("holders") or status.get("allocated"):
            found.append(f"GPU {gpu['metadata']['name']} is held: {status.get('summary')}")
        if status.get("free") != status.get("capacity"):
            found.append(f"GPU {gpu['metadata']['name']} has free {status.get('free')} of {status.get('capacity')}")
    for name, node in sorted(cluster["nodes"].items()):
        found += [f"{name}: the journal notes {key}: {note}" for key, note in sorted(node["notes"].items())]
        found += [f"{name}: {what} is left" for what in sorted(node.get("left", []))]
    return found


__all__ = ["check_all", "check_nothing", "read_node"]
