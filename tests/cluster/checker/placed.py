"""Where pods were put, on which cards, and by whom: from the API server's objects and its audit log alone.

pods, nodes, gpus: the objects. wanted: pod's name -> [(bytes, cores)] of the cards it asks for. bindings: (pod's name,
who asked, HTTP code) of each Binding that somebody asked for, in their order.
"""
import check
import views


def check_bindings(wanted, bindings, who) -> list:
    """Each pod was bound once, by `who`; nobody else was bound."""
    asked, found = {name: [] for name in wanted}, []
    for name, user, code in bindings:
        asked.setdefault(name, []).append((user, code))
    for name, calls in sorted(asked.items()):
        bound = [user for user, code in calls if code < 300]
        if bound and name not in wanted:
            found.append(f"{name}: was bound by {bound[0]}, and nobody asked for it")
        elif name in wanted and not bound:
            found.append(f"{name}: was refused for good, the last time with {calls[-1][1]}" if calls else
                         f"{name}: nobody bound it")
        if len(bound) > 1:
            found.append(f"{name}: was bound {len(bound)} times")
        found += [f"{name}: was bound by {user}, not by {who}" for user in sorted(set(bound) - {who})
                  if name in wanted]
    return found


def check_place(pod, nodes, cards, wanted) -> list:
    """One pod. nodes: their names; cards: UUID -> the card's node."""
    name, node = pod["metadata"]["name"], pod["spec"].get("nodeName")
    record = views.record_of(pod)
    if node not in nodes:
        return [f"{name}: is on {node}, which is no node"]
    if record is None:
        return [f"{name}: has no record"]
    given = [card for part in record["parts"] for card in part["cards"]]
    found = [f"{name}: is on {node} and was given {card['uuid']} of {cards.get(card['uuid'], 'no node')}"
             for card in given if cards.get(card["uuid"]) != node]
    if record["owner"]["uid"] != pod["metadata"]["uid"]:
        found.append(f"{name}: its record is for UID {record['owner']['uid']}")
    if len({card["uuid"] for card in given}) != len(given):
        found.append(f"{name}: was given one card twice")
    amounts = sorted((card["bytes"], card["compute"]) for card in given)
    if amounts != sorted(wanted):
        found.append(f"{name}: was given {amounts} of bytes and cores, and asks for {sorted(wanted)}")
    return found


def check_places(pods, nodes, gpus, wanted) -> list:
    """Each pod is there, on a node that exists, with as much of that node's cards as it asks for; no card is over."""
    names = {node["metadata"]["name"] for node in nodes}
    cards = {gpu["spec"]["uuid"]: gpu["spec"]["nodeName"] for gpu in gpus}
    found = [f"{name}: is gone" for name in sorted(wanted.keys() - {pod["metadata"]["name"] for pod in pods})]
    for pod in pods:
        found += check_place(pod, names, cards, wanted.get(pod["metadata"]["name"], []))
    return found + check.check_records(pods, {gpu["spec"]["uuid"]: gpu["spec"]["memory"] for gpu in gpus})
