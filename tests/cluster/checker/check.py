"""Compares what containers see with what they were given. Input and output are plain data; nothing is looked up.

given: from API objects (ResourceClaims and ResourceSlices, or the record on a pod).
seen: {(namespace, pod name, container name): the JSON object that `ring-look` printed there}.
"""
import json

DRIVER = "gpu.elasticgpu.io"
RECORD = "carve.elasticgpu.io/record"
_UNITS = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "k": 10 ** 3, "M": 10 ** 6, "G": 10 ** 9,
          "T": 10 ** 12}


def quantity(text) -> int:
    """The value of a Kubernetes quantity that is a whole number."""
    text = str(text)
    for unit, factor in _UNITS.items():
        if text.endswith(unit):
            number = float(text[:-len(unit)]) * factor
            break
    else:
        number = float(text)
    if number != int(number):
        raise ValueError(f"{text}: not a whole number")
    return int(number)


def devices_of(slices) -> dict:
    """(pool, device) -> {uuid, memory, cores} from the driver's newest ResourceSlices."""
    newest = {}
    for item in slices:
        if item["spec"]["driver"] == DRIVER:
            pool = item["spec"]["pool"]
            newest[pool["name"]] = max(newest.get(pool["name"], 0), pool["generation"])
    found = {}
    for item in slices:
        pool = item["spec"]["pool"]
        if item["spec"]["driver"] != DRIVER or pool["generation"] != newest[pool["name"]]:
            continue
        for device in item["spec"].get("devices", []):
            attributes = {name.rpartition("/")[2]: next(iter(value.values()))
                          for name, value in device.get("attributes", {}).items()}
            capacity = {name.rpartition("/")[2]: quantity(value["value"])
                        for name, value in device.get("capacity", {}).items()}
            found[(pool["name"], device["name"])] = {
                "uuid": attributes.get("uuid"), "memory": capacity.get("memory"), "cores": capacity.get("cores"),
                "shared": bool(device.get("allowMultipleAllocations"))}
    return found


def _results(claim, request=None):
    allocation = claim.get("status", {}).get("allocation") or {}
    for result in allocation.get("devices", {}).get("results", []):
        if result["driver"] != DRIVER:
            continue
        if request is None or result["request"] == request or result["request"].split("/")[0] == request:
            yield result


def _given_by_result(result, devices):
    device = devices.get((result["pool"], result["device"]))
    if device is None:
        return None
    consumed = {name.rpartition("/")[2]: quantity(value)
                for name, value in (result.get("consumedCapacity") or {}).items()}
    return {"uuid": device["uuid"], "memory": consumed.get("memory", device["memory"]),
            "cores": consumed.get("cores", device["cores"])}


def _claims_of(pod, claims) -> dict:
    """Claim name in the pod's spec -> claim object."""
    by_name = {(c["metadata"]["namespace"], c["metadata"]["name"]): c for c in claims}
    namespace = pod["metadata"]["namespace"]
    generated = {s["name"]: s.get("resourceClaimName") for s in pod["status"].get("resourceClaimStatuses", [])}
    found = {}
    for reference in pod["spec"].get("resourceClaims", []):
        name = reference.get("resourceClaimName") or generated.get(reference["name"])
        found[reference["name"]] = by_name.get((namespace, name))
    return found


def given_by_claims(pod, container, claims, slices):
    """The cards that claims give to one container, as a list; or a text with the reason why they cannot be
    determined."""
    devices = devices_of(slices)
    named = _claims_of(pod, claims)
    results = []
    for reference in container.get("resources", {}).get("claims", []):
        claim = named.get(reference["name"])
        if claim is None:
            return f"claim {reference['name']} does not exist"
        uids = {user["uid"] for user in claim.get("status", {}).get("reservedFor", [])}
        if pod["metadata"]["uid"] not in uids:
            return f"claim {claim['metadata']['name']} is not reserved for the pod's UID {pod['metadata']['uid']}"
        results += list(_results(claim, reference.get("request")))
    extended = pod["status"].get("extendedResourceClaimStatus") or {}
    for mapping in extended.get("requestMappings", []):
        if mapping["containerName"] != container["name"]:
            continue
        claim = next((c for c in claims if c["metadata"]["namespace"] == pod["metadata"]["namespace"] and
                      c["metadata"]["name"] == extended["resourceClaimName"]), None)
        if claim is None:
            return f"claim {extended['resourceClaimName']} does not exist"
        results += list(_results(claim, mapping["requestName"]))
    given = [_given_by_result(result, devices) for result in results]
    return "a device of the claim is in no ResourceSlice" if None in given else given


def given_by_record(pod, container):
    """The cards that the pod's record gives to one container."""
    text = pod["metadata"].get("annotations", {}).get(RECORD)
    if text is None:
        return []
    record = json.loads(text)
    if record["owner"]["uid"] != pod["metadata"]["uid"]:
        return f"the record is for UID {record['owner']['uid']}, the pod's is {pod['metadata']['uid']}"
    return [{"uuid": card["uuid"], "memory": card["bytes"], "cores": card["compute"]}
            for part in record["parts"] if part["part"] == container["name"] for card in part["cards"]]


def _sum_by_card(cards):
    total = {}
    for card in cards:
        total[card["uuid"]] = total.get(card["uuid"], 0) + card["memory"]
    return total


def _seen_by(api, look):
    part = look.get(api)
    if not part:
        return {}
    return {card["uuid"]: card["memory"] for card in part["cards"]}


def _wanted_by(api, given, whole, physical):
    """Card -> bytes that an API must show. For a whole card NVML shows the hardware's size, as it does without
    Carve."""
    wanted = _sum_by_card(given)
    if api == "nvml" and physical:
        wanted.update({uuid: physical[uuid] for uuid in wanted if wanted[uuid] == whole.get(uuid) and uuid in physical})
    return wanted


def check_container(name, given, look, whole=None, physical=None) -> list:
    """The differences in one container, as sentences; empty when the container sees exactly what it was given.

    whole: card UUID -> bytes as published; physical: card UUID -> bytes of the hardware.
    """
    if isinstance(given, str):
        return [f"{name}: {given}"]
    found = []
    for api in ("cuda", "nvml"):
        wanted = _wanted_by(api, given, whole or {}, physical)
        seen = _seen_by(api, look)
        for uuid in sorted(wanted.keys() - seen.keys()):
            found.append(f"{name}: {api} does not show {uuid}, which it was given")
        for uuid in sorted(seen.keys() - wanted.keys()):
            found.append(f"{name}: {api} shows {uuid}, which it was not given")
        for uuid in sorted(wanted.keys() & seen.keys()):
            if wanted[uuid] != seen[uuid]:
                found.append(f"{name}: {api} shows {seen[uuid]} bytes of {uuid}; it was given {wanted[uuid]}")
    return found


def check_cards(claims, slices) -> list:
    """Finds cards of which claims together give more than the card has."""
    devices, used, users = devices_of(slices), {}, {}
    for claim in claims:
        for result in _results(claim):
            key = (result["pool"], result["device"])
            given = _given_by_result(result, devices)
            if given is None:
                continue
            memory, cores = used.get(key, (0, 0))
            used[key] = (memory + given["memory"], cores + given["cores"])
            users[key] = users.get(key, 0) + 1
    found = []
    for key, (memory, cores) in used.items():
        device = devices[key]
        if memory > device["memory"] or cores > device["cores"]:
            found.append(f"{'/'.join(key)}: {memory} bytes and {cores} cores are given from "
                         f"{device['memory']} and {device['cores']}")
        if not device["shared"] and users[key] > 1:
            found.append(f"{'/'.join(key)}: given to {users[key]} claims although it is not shared")
    return found


def whole_by_records(pods) -> dict:
    """card UUID -> bytes, of the cards that a record gives as whole cards."""
    texts = [pod["metadata"].get("annotations", {}).get(RECORD) for pod in pods]
    return {card["uuid"]: card["bytes"] for text in texts if text for part in json.loads(text)["parts"]
            if part.get("whole") for card in part["cards"]}


def check_records(pods, physical) -> list:
    """Finds cards of which records together give more than the card has. A pod holds the larger of any init container's
    part and the sum of the others."""
    used = {}
    for pod in pods:
        text = pod["metadata"].get("annotations", {}).get(RECORD)
        init, run = {}, {}
        for part in json.loads(text)["parts"] if text else []:
            guaranteed = part["share"] != "besteffort"
            for card in part["cards"]:
                amounts = (card["bytes"], card["compute"] if guaranteed else 0)
                before = (init if part.get("init") else run).get(card["uuid"], (0, 0))
                joined = map(max, before, amounts) if part.get("init") else map(sum, zip(before, amounts))
                (init if part.get("init") else run)[card["uuid"]] = tuple(joined)
        for uuid in init.keys() | run.keys():
            holds = tuple(map(max, init.get(uuid, (0, 0)), run.get(uuid, (0, 0))))
            used[uuid] = tuple(map(sum, zip(used.get(uuid, (0, 0)), holds)))
    return [f"{uuid}: {memory} bytes and {cores} cores are given from {physical.get(uuid, 0)} and 100"
            for uuid, (memory, cores) in sorted(used.items()) if memory > physical.get(uuid, 0) or cores > 100]


# --- the limits that the arbiter enforces --------------------------------------------------------------------------

def _classes(claim, request):
    """(share, priority) of a request: the class's configuration, then the claim's, which overrides it."""
    share, priority = "burst", "standard"
    for one in (claim["status"]["allocation"]["devices"].get("config") or []):
        names = one.get("requests") or [request]
        if one.get("opaque", {}).get("driver") == DRIVER and {request, request.split("/")[0]} & set(names):
            share = one["opaque"]["parameters"].get("shareClass", share)
            priority = one["opaque"]["parameters"].get("priorityClass", priority)
    return share, priority


def granted_by_claims(claims, slices) -> dict:
    """(claim's UID, request, card) -> the limits that the arbiter must enforce. Whole cards have no page: their
    processes use the driver directly."""
    devices, found = devices_of(slices), {}
    for claim in claims:
        for result in _results(claim) if claim.get("status", {}).get("reservedFor") else ():
            given, card = _given_by_result(result, devices), devices.get((result["pool"], result["device"]))
            if given is None or (given["memory"], given["cores"]) == (card["memory"], card["cores"]):
                continue
            share, priority = _classes(claim, result["request"])
            found[(claim["metadata"]["uid"], result["request"], given["uuid"])] = {
                "memory": given["memory"], "cores": given["cores"], "share": share, "priority": priority}
    return found


def granted_by_records(pods) -> dict:
    """The same from records: (pod's UID, container, card)."""
    found = {}
    for pod in pods:
        text = pod["metadata"].get("annotations", {}).get(RECORD)
        for part in json.loads(text)["parts"] if text else []:
            for card in part["cards"] if not part.get("whole") else ():
                found[(pod["metadata"]["uid"], part["part"], card["uuid"])] = {
                    "memory": card["bytes"], "cores": card["compute"], "share": part["share"],
                    "priority": part["priority"]}
    return found


def check_pages(granted, pages, owners) -> list:
    """Compares the grant pages (read_node.pages, read_node.owners) with what was given: memory, compute and classes of
    each slice, missing pages, surplus pages."""
    said, found = {}, []
    for key, cards in pages.items():
        for page in cards:
            said[(*owners.get(key, (f"no owner in the journal ({key})", "?")), page["uuid"])] = page
    for key in sorted(granted.keys() | said.keys()):
        name = " ".join(key)
        if key not in said:
            found.append(f"{name}: has no grant page")
        elif key not in granted:
            found.append(f"{name}: has a grant page and was given nothing")
        else:
            found += [f"{name}: the grant page says {what} {said[key][what]}, given was {wanted}"
                      for what, wanted in granted[key].items() if said[key][what] != wanted]
            found += [f"{name}: the grant page is revoked"] if said[key]["revoked"] else []
    return found


def check(pods, claims, slices, seen, by="claims", physical=None) -> list:
    """All differences; empty when everything is as it was given. Containers without a look are reported, except init
    containers, which may not run `ring-look`.

    physical: card UUID -> bytes of the hardware, where that is more than the published size.
    """
    whole = {device["uuid"]: device["memory"] for device in devices_of(slices).values()}
    if by == "records":
        whole = whole_by_records(pods)
    found = check_cards(claims, slices) if by == "claims" else check_records(pods, physical) if physical else []
    for pod in pods:
        here = (pod["metadata"]["namespace"], pod["metadata"]["name"])
        looked = [one for one in pod["spec"].get("initContainers", []) if (*here, one["name"]) in seen]
        for container in looked + pod["spec"]["containers"]:
            key = (*here, container["name"])
            name = "/".join(key)
            if key not in seen:
                found.append(f"{name}: was not looked into")
                continue
            given = given_by_claims(pod, container, claims, slices) if by == "claims" else \
                given_by_record(pod, container)
            found += check_container(name, given, seen[key], whole, physical)
    return found
