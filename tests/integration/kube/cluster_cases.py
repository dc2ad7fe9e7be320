"""The API server's client with the real API server: kube-apiserver and etcd of a ring that `tests/cluster/up` started.

Usage: cluster_cases.py KUBE_PROBE [arguments of unittest]
"""
import itertools
import json
import os
import re
import sys
import tempfile
import time
import unittest
from pathlib import Path

import scripted

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "cluster"))
from ring.cluster import Ring  # noqa: E402
from ring.disaster import api_server_away  # noqa: E402
from ring.kube import wait_for  # noqa: E402
from ring.process import run  # noqa: E402

PROGRAM = ""
_counter = itertools.count(1)
MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


class RealServer(unittest.TestCase):
    def setUp(self):
        self.ring = Ring.load()
        self.kube = self.ring.kube()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.label = f"probe-{os.getpid()}-{next(_counter)}"
        self.created = []
        self.addCleanup(self._clean)

    def _clean(self):
        for kind, name in self.created:
            self.kube.delete(kind, name, grace=0 if kind == "Pod" else None)

    def probe(self, config=None, short=False):
        """A probe with the production timeouts, unless `short`."""
        probe = scripted.Probe(PROGRAM, config or self.ring.kubeconfig, short)
        self.addCleanup(lambda: self.assertEqual(probe.close(), 0))
        self.assertEqual(probe.opened.get("ok"), "open", probe.opened)
        return probe

    def proxied(self, short=False):
        """(proxy, probe through it)"""
        text = self.ring.kubeconfig.read_text()
        proxy = scripted.Proxy(int(re.search(r"127\.0\.0\.1:(\d+)", text).group(1)))
        self.addCleanup(proxy.close)
        config = self.folder / "proxied"
        config.write_text(re.sub(r"127\.0\.0\.1:\d+", f"127.0.0.1:{proxy.port}", text))
        return proxy, self.probe(config, short)

    def config_map(self, suffix="", **data):
        name = self.label + suffix
        self.created.append(("ConfigMap", name))
        return {"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": name, "labels": {"of": self.label}}, "data": data}

    def ok(self, answer):
        self.assertIn("ok", answer)
        return json.loads(answer["ok"]) if answer["ok"] else None

    def code(self, code, answer):
        self.assertEqual(answer.get("code"), code, answer)

    def watch(self, probe):
        """Starts a watch on this test's ConfigMaps: (id, the first list)."""
        number = probe.start("watch", MAPS, query=[["labelSelector", "of=" + self.label]])
        said = probe.answer(number)
        self.assertIn("replace", said)
        return number, said["replace"]

    def follow(self, probe, number, enough, seconds=60):
        """Applies the watch's messages until `enough(known, said)`: (objects by name, message kinds in order)."""
        known, words = {}, []
        deadline = time.monotonic() + seconds
        while not enough(known, words):
            said = probe.answer(number, max(0.1, deadline - time.monotonic()))
            word = next(key for key in ("replace", "put", "deleted", "trouble", "ended") if key in said)
            words.append(word)
            if word == "replace":
                known = {}
            for text in said["replace"] if word == "replace" else [said[word]] if word in ("put", "deleted") else []:
                object_ = json.loads(text)
                name = object_["metadata"]["name"]
                if word == "deleted":
                    known.pop(name, None)
                else:
                    known[name] = object_.get("data", {})
        return known, words

    # --- calls ---------------------------------------------------------------------------------------------------

    def test_objects_are_created_read_changed_and_deleted(self):
        probe = self.probe()
        wanted = self.config_map(a="1")
        path = f"{MAPS}/{wanted['metadata']['name']}"
        made = self.ok(probe.call("create", MAPS, body=json.dumps(wanted)))
        self.code("already exists", probe.call("create", MAPS, body=json.dumps(wanted)))
        self.assertEqual(self.ok(probe.call("get", path))["metadata"]["uid"], made["metadata"]["uid"])
        changed = self.ok(probe.call("replace", path, body=json.dumps(dict(made, data={"a": "2"}))))
        self.code("aborted", probe.call("replace", path, body=json.dumps(made)))
        self.assertEqual(self.kube.get("ConfigMap", self.label)["data"], {"a": "2"})
        stale = {"kind": "DeleteOptions", "apiVersion": "v1",
                 "preconditions": {"resourceVersion": made["metadata"]["resourceVersion"]}}
        self.code("aborted", probe.call("remove", path, body=json.dumps(stale)))
        stale["preconditions"]["resourceVersion"] = changed["metadata"]["resourceVersion"]
        self.assertIn("ok", probe.call("remove", path, body=json.dumps(stale)))
        self.code("not found", probe.call("get", path))
        self.code("not found", probe.call("remove", path))
        self.code("invalid argument", probe.call("create", MAPS, body='{"kind":"ConfigMap","apiVersion":"v1"}'))
        self.code("invalid argument", probe.call("create", MAPS, body="no json"))

    def test_all_four_patches(self):
        probe = self.probe()
        wanted = self.config_map(a="1")
        path = f"{MAPS}/{self.label}"
        self.ok(probe.call("create", MAPS, body=json.dumps(wanted)))

        def patched(kind, body, **more):
            return self.ok(probe.call("patch", path, kind=kind, body=json.dumps(body), **more))["data"]
        self.assertEqual(patched("merge", {"data": {"b": "2"}}), {"a": "1", "b": "2"})
        self.assertEqual(patched("json", [{"op": "test", "path": "/data/b", "value": "2"},
                                          {"op": "remove", "path": "/data/a"}]), {"b": "2"})
        self.assertEqual(patched("strategic", {"data": {"c": "3"}}), {"b": "2", "c": "3"})
        mine = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"b": "9"}}
        conflict = probe.call("patch", path, kind="apply", body=json.dumps(mine), query=[["fieldManager", "other"]])
        self.code("aborted", conflict)
        self.assertIn("conflict", conflict["what"])
        self.assertEqual(patched("apply", mine, query=[["fieldManager", "other"], ["force", "true"]])["b"], "9")
        managers = {entry["manager"] for entry in self.kube.get("ConfigMap", self.label)["metadata"]["managedFields"]}
        self.assertIn("other", managers)

    def test_a_list_of_many_pages(self):
        probe = self.probe()
        for number in range(620):
            self.kube.create(self.config_map(f"-{number}", n=str(number)))
        items = probe.call("list", MAPS, query=[["labelSelector", "of=" + self.label]])["ok"]
        self.assertEqual({json.loads(item)["data"]["n"] for item in items}, {str(n) for n in range(620)})

    def test_binding_and_eviction(self):
        probe = self.probe()
        self.created.append(("Pod", self.label))
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": self.label},
                "spec": {"schedulerName": "nobody", "containers": [{"name": "main", "image": "none"}]}}
        self.ok(probe.call("create", PODS, body=json.dumps(body)))
        path = f"{PODS}/{self.label}"
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": self.label},
                   "target": {"apiVersion": "v1", "kind": "Node", "name": "no-such-node"}}
        self.assertIn("ok", probe.call("create", path + "/binding", body=json.dumps(binding)))
        self.assertEqual(self.kube.get("Pod", self.label)["spec"]["nodeName"], "no-such-node")
        self.code("already exists", probe.call("create", path + "/binding", body=json.dumps(binding)))
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": self.label},
                    "deleteOptions": {"gracePeriodSeconds": 0}}
        self.assertIn("ok", probe.call("create", path + "/eviction", body=json.dumps(eviction)))
        self.assertIsNone(self.kube.get("Pod", self.label))

    def test_a_coordination_lease_has_one_holder(self):
        one, two = self.probe(), self.probe()
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": self.label},
                "spec": {"holderIdentity": "one", "leaseDurationSeconds": 15}}
        path = f"{LEASES}/{self.label}"
        try:
            self.ok(one.call("create", LEASES, body=json.dumps(body)))
            seen = self.ok(two.call("get", path))
            # (A write that changes nothing is no write: the API server would accept it.)
            seen["spec"]["holderIdentity"] = "two"
            # Both saw the same version; the second write must lose.
            third = dict(seen, spec=dict(seen["spec"], holderIdentity="three"))
            first = one.start("replace", path, body=json.dumps(third))
            second = two.start("replace", path, body=json.dumps(seen))
            outcomes = sorted("ok" if "ok" in answer else answer["code"]
                              for answer in (one.answer(first), two.answer(second)))
            self.assertEqual(outcomes, ["aborted", "ok"])
        finally:
            one.call("remove", path)

    def test_a_call_that_rbac_forbids_is_denied_with_the_account_name(self):
        config = scripted.kubeconfig(
            self.folder / "nobody", re.search(r"https://\S+", self.ring.kubeconfig.read_text()).group(0),
            self.ring.certificates.file("ca.crt"), "token: " + self._token("default"))
        answer = self.probe(config).call("list", "/api/v1/nodes")
        self.code("permission denied", answer)
        self.assertIn("system:serviceaccount:default:default", answer["what"])

    def _token(self, account):
        path = f"/api/v1/namespaces/default/serviceaccounts/{account}/token"
        made = self.kube.request("POST", path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
                                                "spec": {"expirationSeconds": 600}})
        return made["status"]["token"]

    def test_an_invalid_token_is_replaced_from_its_file(self):
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": self.label}}
        self.created.append(("ServiceAccount", self.label))
        self.kube.create(account)
        token = self.folder / "token"
        token.write_text(self._token(self.label))
        config = scripted.kubeconfig(
            self.folder / "token.kubeconfig", re.search(r"https://\S+", self.ring.kubeconfig.read_text()).group(0),
            self.ring.certificates.file("ca.crt"), f'tokenFile: "{token}"')
        probe = self.probe(config)
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}

        def user():
            answer = probe.call("create", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body=json.dumps(review))
            return json.loads(answer["ok"])["status"]["userInfo"] if "ok" in answer else answer["code"]
        first = user()
        self.assertEqual(first["username"], f"system:serviceaccount:default:{self.label}")
        self.kube.delete("ServiceAccount", self.label)
        wait_for("the old token is refused", 30, lambda: user() == "permission denied", every=0.5)
        self.kube.create(account)
        token.write_text(self._token(self.label))
        second = wait_for("the new token is used", 10, lambda: isinstance(now := user(), dict) and now, every=0.2)
        self.assertNotEqual(second["uid"], first["uid"])

    # --- watches -------------------------------------------------------------------------------------------------

    def test_a_watch_sees_only_its_objects(self):
        probe = self.probe()
        self.kube.create(self.config_map("-old"))
        number, first = self.watch(probe)
        self.assertEqual(len(first), 1)
        self.kube.create(self.config_map("-new", a="1"))
        self.kube.patch("ConfigMap", self.label + "-new", {"data": {"a": "2"}})
        self.kube.delete("ConfigMap", self.label + "-old")
        self.kube.patch("ConfigMap", self.label + "-new", {"metadata": {"labels": {"of": "nobody"}}})
        _, words = self.follow(probe, number, lambda known, said: said.count("deleted") == 2)
        self.assertEqual(words, ["put", "put", "deleted", "deleted"])
        probe.stop(number)
        self.assertEqual(probe.answer(number), {"id": number, "ended": True})

    def test_a_watch_through_cuts_and_resets_loses_nothing(self):
        proxy, probe = self.proxied()
        number, _ = self.watch(probe)
        ends = itertools.cycle((proxy.cut, proxy.reset))
        for step in range(30):
            self.kube.create(self.config_map(f"-{step}", n=str(step)))
            if step % 6 == 3:
                next(ends)()
        known, words = self.follow(probe, number, lambda known, said: len(known) == 30)
        self.assertNotIn("replace", words, "a cut must not cause a new list")
        self.assertEqual(words.count("put"), 30, "nor repeat an event")

    def test_a_stalled_connection_is_given_up_in_time_and_used_again(self):
        """Connections stay open but transfer nothing; the server itself works."""
        proxy, probe = self.proxied(short=True)
        number, _ = self.watch(probe)
        proxy.set("stall")
        answer, seconds = probe.timed("get", MAPS + "/none")
        self.code("deadline exceeded", answer)
        self.assertLess(seconds, 5)
        self.assertIn("trouble", probe.answer(number))
        self.kube.create(self.config_map(a="1"))
        proxy.set("pass")
        known, _ = self.follow(probe, number, lambda known, said: known)
        self.assertEqual(known, {self.label: {"a": "1"}})
        self.code("not found", probe.call("get", MAPS + "/none"))

    def test_the_api_server_restarts(self):
        probe = self.probe()
        number, _ = self.watch(probe)
        self.ring.stop_api_server()
        stopped = time.monotonic()
        answer = probe.call("get", MAPS + "/none")
        self.assertIn(answer["code"], ("unavailable", "deadline exceeded"))
        self.ring.start_api_server()
        self.ring.wait_api_server()
        back = time.monotonic()
        self.kube.create(self.config_map(a="1"))
        known, words = self.follow(probe, number, lambda known, said: known)
        print(f"away for {back - stopped:.1f} s; the watch had it {time.monotonic() - back:.1f} s after, by {words}",
              file=sys.stderr)
        self.assertEqual(words.count("trouble"), 1)
        self.code("not found", probe.call("get", MAPS + "/none"))

    def test_the_api_server_is_unreachable_during_a_watch(self):
        probe = self.probe(short=True)
        number, _ = self.watch(probe)
        with api_server_away(self.ring):
            answer, seconds = probe.timed("get", MAPS + "/none")
            self.code("deadline exceeded", answer)
            self.assertLess(seconds, 5)
            self.assertIn("trouble", probe.answer(number))
        self.kube.create(self.config_map(a="1"))
        self.follow(probe, number, lambda known, said: known)

    def test_a_version_that_the_server_forgot(self):
        proxy, probe = self.proxied()
        number, _ = self.watch(probe)
        self.kube.create(self.config_map("-kept"))
        self.kube.create(self.config_map("-lost"))
        self.follow(probe, number, lambda known, said: len(known) == 2)
        proxy.set("refuse")
        proxy.cut()
        self.kube.delete("ConfigMap", self.label + "-lost")
        self.kube.create(self.config_map("-new"))
        self._compact()
        self.ring.stop_api_server()     # its watch cache restarts, after the version that the client knows
        self.ring.start_api_server()
        self.ring.wait_api_server()
        proxy.set("pass")
        known, words = self.follow(probe, number, lambda known, said: "replace" in said)
        self.assertEqual(set(known), {self.label + "-kept", self.label + "-new"})

    def _compact(self):
        """Makes etcd forget all old revisions, through its HTTP gateway."""
        version = int(self.kube.get("ConfigMap", self.label + "-new")["metadata"]["resourceVersion"])
        file = self.ring.certificates.file
        script = ("import http.client, json, ssl, sys\n"
                  "c = ssl.create_default_context(cafile=sys.argv[1]); c.load_cert_chain(*sys.argv[2:4])\n"
                  "h = http.client.HTTPSConnection('127.0.0.1', 2379, context=c)\n"
                  "h.request('POST', '/v3/kv/compaction', json.dumps({'revision': sys.argv[4], 'physical': True}))\n"
                  "r = h.getresponse(); sys.exit(0 if r.status == 200 else r.read().decode())\n")
        run([sys.executable, "-c", script, file("ca.crt"), file("etcd.crt"), file("etcd.key"), version],
            self.ring.control)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main(verbosity=2, warnings="ignore")
