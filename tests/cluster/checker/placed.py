"""Where pods were placed, on which cards, and by which user: only from the API server's objects and its audit log.

pods, nodes, gpus: the objects. wanted: pod's name -> [(bytes, cores)] of the cards that it requests. bindings: (pod's
name, user, HTTP code) of each Binding request, in their order.
"""
import check
import views


def check_bindings(wanted, bindings, binder) -> list:
    """Each pod in `wanted` must be bound once, by the user `binder`, and no other pod."""
    asked, found = {name: [] for name in wanted}, []
    for name, user, code in bindings:
        asked.setdefault(name, []).append((user, code))
    for name, calls in sorted(asked.items()):
        bound = [user for user, code in calls if code < 300]
        if bound and name not in wanted:
            found.append(f"{name}: was bound by {bound[0]}, and was not to be bound")
        elif name in wanted and not bound:
            found.append(f"{name}: was refused permanently, the last time with {calls[-1][1]}" if calls else
                         f"{name}: was never bound")
        if len(bound) > 1:
            found.append(f"{name}: was bound {len(bound)} times")
        found += [f"{name}: was bound by {user}, not by {binder}" for user in sorted(set(bound) - {binder})
                  if name in wanted]
    return found


def check_place(pod, nodes, cards, wanted) -> list:
    """Checks one pod. nodes: names; cards: UUID -> the card's node."""
    name, node = pod["metadata"]["name"], pod["spec"].get("nodeName")
    record = views.record_of(pod)
    if node not in nodes:
        return [f"{name}: is on {node}, which does not exist"]
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
        found.append(f"{name}: was given {amounts} of bytes and cores, and requests {sorted(wanted)}")
    return found


def check_places(pods, nodes, gpus, wanted) -> list:
    """Each pod must exist, on an existing node, with the requested amounts of that node's cards; no card
    over-committed."""
    names = {node["metadata"]["name"] for node in nodes}
    cards = {gpu["spec"]["uuid"]: gpu["spec"]["nodeName"] for gpu in gpus}
    found = [f"{name}: is gone" for name in sorted(wanted.keys() - {pod["metadata"]["name"] for pod in pods})]
    for pod in pods:
        found += check_place(pod, names, cards, wanted.get(pod["metadata"]["name"], []))
    return found + check.check_records(pods, {gpu["spec"]["uuid"]: gpu["spec"]["memory"] for gpu in gpus})
