"""The API server's client with a server and a proxy that misbehave.

Usage: cases.py KUBE_PROBE [arguments of unittest]
"""
import json
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

import scripted

PROGRAM = ""
TOKEN = "secret-token-of-this-test"
POD = "/api/v1/namespaces/a/pods/one"
PODS = "/api/v1/pods"


def pod(name, version):
    return {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name, "resourceVersion": str(version)}}


def page(names, version, more=""):
    return {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": str(version), "continue": more},
            "items": [{"metadata": {"name": name}} for name in names]}


def bookmark(version):
    return {"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": str(version)}}


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.authority = scripted.Authority(self.folder, "one")
        self.server_certificate = self.authority.issue("server", "IP:127.0.0.1,DNS:localhost")
        self.token_file = self.folder / "token"
        self.token_file.write_text(TOKEN + "\n")

    def start(self, answer, host="127.0.0.1", user=None, proxy=False, certificate=None, client_authority=None):
        self.server = scripted.Server(*(certificate or self.server_certificate), answer, client_authority)
        self.addCleanup(self.server.close)
        port = self.server.port
        if proxy:
            self.proxy = scripted.Proxy(port)
            self.addCleanup(self.proxy.close)
            port = self.proxy.port
        config = scripted.kubeconfig(self.folder / "kubeconfig", f"https://{host}:{port}", self.authority.certificate,
                                     user or f'tokenFile: "{self.token_file}"')
        self.probe = scripted.Probe(PROGRAM, config)
        self.addCleanup(self._end)
        self.assertEqual(self.probe.opened.get("ok"), "open", self.probe.opened)

    def _end(self):
        self.server.close()     # unblocks everything that hangs
        self.assertEqual(self.probe.close(), 0)
        self.assertNotIn(TOKEN, "".join(self.probe.log))

    def failed(self, answer, *codes):
        self.assertIn(answer.get("code"), codes, answer)
        self.assertNotIn(TOKEN, answer["what"])
        return answer

    def eventually(self, what, condition):
        deadline = time.monotonic() + scripted.LIMIT
        while not (seen := condition()):
            self.assertLess(time.monotonic(), deadline, what)
            time.sleep(0.05)
        return seen


class Calls(Case):
    def test_every_verb_sends_the_right_request(self):
        self.start(lambda request, out: out.json(pod("one", 1)))
        self.probe.call("get", POD, query=[["fieldManager", "a b&c"]])
        self.probe.call("create", PODS, body='{"a": 1}')
        self.probe.call("replace", POD, body='{"a": 2}')
        for kind in ("json", "merge", "strategic"):
            self.probe.call("patch", POD, kind=kind, body="[]")
        self.probe.call("patch", POD, kind="apply", body="{}", query=[["fieldManager", "me"], ["force", "true"]])
        self.probe.call("remove", POD, body='{"kind":"DeleteOptions"}')
        self.probe.call("create", POD + "/eviction", body="{}")
        said = [(r.method, r.target, r.headers.get("content-type"), r.body) for r in self.server.requests]
        self.assertEqual(said, [
            ("GET", POD + "?fieldManager=a%20b%26c", None, ""),
            ("POST", PODS, "application/json", '{"a": 1}'),
            ("PUT", POD, "application/json", '{"a": 2}'),
            ("PATCH", POD, "application/json-patch+json", "[]"),
            ("PATCH", POD, "application/merge-patch+json", "[]"),
            ("PATCH", POD, "application/strategic-merge-patch+json", "[]"),
            ("PATCH", POD + "?fieldManager=me&force=true", "application/apply-patch+yaml", "{}"),
            ("DELETE", POD, "application/json", '{"kind":"DeleteOptions"}'),
            ("POST", POD + "/eviction", "application/json", "{}")])
        for request in self.server.requests:
            self.assertEqual(request.headers["authorization"], "Bearer " + TOKEN)
            self.assertEqual(request.headers["accept"], "application/json")
        self.assertEqual(self.server.connections, 1, "all requests use one connection")

    def test_a_list_is_read_page_by_page(self):
        pages = {"": (["a", "b"], "p2"), "p2": (["c"], "p3"), "p3": (["d"], "")}

        def answer(request, out):
            names, more = pages[request.query.get("continue", "")]
            out.json(page(names, 7, more))
        self.start(answer)
        items = [json.loads(item) for item in self.probe.call("list", PODS)["ok"]]
        self.assertEqual([item["metadata"]["name"] for item in items], ["a", "b", "c", "d"])
        self.assertEqual({item["kind"] for item in items}, {"Pod"})

    def test_a_list_whose_continue_token_expired_starts_again(self):
        def answer(request, out):
            if "continue" in request.query:
                out.status(410)
            else:
                out.json(page(["a"], 7, "p2") if "limit" in request.query else page(["a", "b"], 8))
        self.start(answer)
        self.assertEqual(len(self.probe.call("list", PODS)["ok"]), 2)

    def test_statuses_become_codes(self):
        self.start(lambda request, out: out.status(int(request.query["s"]), "because"))
        expected = {400: "invalid argument", 401: "permission denied", 403: "permission denied", 404: "not found",
                    409: "aborted", 422: "invalid argument", 429: "resource exhausted", 500: "unavailable",
                    503: "unavailable"}
        for status, code in expected.items():
            answer = self.probe.call("get", POD, query=[["s", str(status)]])
            self.failed(answer, code)
            self.assertIn("because", answer["what"])
            self.assertIn(POD, answer["what"])
        self.server.answer = lambda request, out: out.status(409, "there is one")
        self.failed(self.probe.call("create", PODS, body="{}"), "already exists")

    def test_retry_after_is_obeyed_and_bounded(self):
        def answer(request, out):
            if request.path == "/never":
                out.status(429, Retry_After=60)
            elif len(self.server.requests) == 1:
                out.status(429, Retry_After=1)
            else:
                out.json(pod("one", 1))
        self.start(answer)
        done, seconds = self.probe.timed("get", POD)
        self.assertIn("ok", done)
        self.assertGreaterEqual(seconds, 0.95)
        refused, seconds = self.probe.timed("get", "/never")
        self.failed(refused, "resource exhausted")
        self.assertLess(seconds, 5, "the client must not start a wait beyond the call's deadline")

    def test_the_clients_own_rate_is_kept(self):
        self.start(lambda request, out: out.json(pod("one", 1)))
        began = time.monotonic()
        for _ in range(60):
            self.assertIn("ok", self.probe.call("get", POD))
        self.assertGreaterEqual(time.monotonic() - began, 0.8, "a burst of 40, then 20 per second")

    def test_a_server_that_stalls_costs_no_more_than_the_deadline(self):
        self.start(lambda request, out: out.json(pod("one", 1)), proxy=True)
        self.assertIn("ok", self.probe.call("get", POD))
        self.proxy.set("stall")
        for verb in ("get", "create"):
            answer, seconds = self.probe.timed(verb, POD, body="" if verb == "get" else "{}")
            self.failed(answer, "deadline exceeded")
            self.assertTrue(1.4 < seconds < 4, seconds)
        self.proxy.set("pass")
        self.assertIn("ok", self.probe.call("get", POD))

    def test_the_end_of_a_kept_connection_is_invisible_to_the_caller(self):
        self.start(lambda request, out: out.json(pod("one", 1)), proxy=True)
        self.assertIn("ok", self.probe.call("get", POD))
        self.proxy.cut()
        self.assertIn("ok", self.probe.call("get", POD))
        self.proxy.cut()
        self.assertIn("ok", self.probe.call("create", PODS, body="{}"))

    def test_a_write_that_may_have_arrived_is_never_sent_twice(self):
        def answer(request, out):
            if request.method == "GET":
                out.json(pod("one", 1))
            else:
                return out.reset()
        self.start(answer)
        for verb in ("create", "replace", "patch", "remove"):
            self.assertIn("ok", self.probe.call("get", POD))    # so that the write uses a kept connection
            answer = self.failed(self.probe.call(verb, POD, body="{}"), "deadline exceeded")  # it may have been done
            self.assertIn("it is unknown whether", answer["what"])
        self.assertEqual([r.method for r in self.server.requests if r.method != "GET"],
                         ["POST", "PUT", "PATCH", "DELETE"])

    def test_invalid_answers(self):
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
        bad = {
            "/reset": lambda out: (out.raw(head + b"Content-Length: 100\r\n\r\n{\"half\":"), out.reset()),
            "/cut": lambda out: out.raw(head + b"Content-Length: 100\r\n\r\n{\"half\":"),
            "/cut-chunk": lambda out: (out.begin_stream(), out.raw(b"40\r\n{\"half\":")),
            "/bad-chunk": lambda out: (out.begin_stream(), out.raw(b"zz\r\n{}\r\n")),
            "/garbage": lambda out: out.raw(b"\x00\xff\x15garbage\r\n\r\n" * 50),
            "/nothing": lambda out: None,
            "/long-head": lambda out: out.raw(head + b"X-Long: " + b"x" * 100000 + b"\r\n\r\n"),
            "/huge": lambda out: out.raw(head + b"Content-Length: 99999999999\r\n\r\n"),
        }

        def answer(request, out):
            if request.path not in bad:
                return out.json(pod("one", 1))
            bad[request.path](out)
            return False
        self.start(answer)
        for path in bad:
            answer = self.probe.call("get", path)
            self.failed(answer, "unavailable", "resource exhausted")
            self.assertIn("ok", self.probe.call("get", POD), "after " + path)
        self.assertLess(self.probe.call("usage")["ok"]["resident_kib"], 64 << 10)

    def test_a_chunked_answer_in_small_pieces(self):
        body = json.dumps(pod("one", 1)).encode()

        def answer(request, out):
            out.begin_stream()
            for byte in body:
                out.chunk(bytes([byte]))
            out.end_stream()
        self.start(answer)
        self.assertEqual(json.loads(self.probe.call("get", POD)["ok"]), pod("one", 1))
        self.assertIn("ok", self.probe.call("get", POD))
        self.assertEqual(self.server.connections, 1)


class Trust(Case):
    def answer(self, request, out):
        out.json({"subject": dict(part[0] for part in request.peer["subject"]) if request.peer else None})

    def test_the_servers_name_is_verified_and_sent(self):
        self.start(self.answer, host="localhost")
        self.assertIn("ok", self.probe.call("get", POD))
        self.assertEqual(self.server.names, ["localhost"])

    def test_an_address_is_verified_against_addresses(self):
        self.start(self.answer, certificate=self.authority.issue("names", "DNS:localhost,DNS:127.0.0.1"))
        self.assertIn("certificate", self.failed(self.probe.call("get", POD), "unavailable")["what"])
        self.assertEqual(self.server.requests, [])

    def test_another_name_is_refused(self):
        self.start(self.answer, host="localhost", certificate=self.authority.issue("other", "DNS:other,IP:127.0.0.1"))
        self.assertIn("certificate", self.failed(self.probe.call("get", POD), "unavailable")["what"])
        self.assertEqual(self.server.requests, [])

    def test_another_authority_is_refused(self):
        other = scripted.Authority(self.folder, "two")
        self.start(self.answer, certificate=other.issue("server", "IP:127.0.0.1"))
        self.assertIn("certificate", self.failed(self.probe.call("get", POD), "unavailable")["what"])
        self.assertEqual(self.server.requests, [], "no token is sent to an untrusted server")

    def test_an_expired_certificate_is_refused(self):
        self.start(self.answer, certificate=self.authority.issue("old", "IP:127.0.0.1", days=0))
        time.sleep(1.1)     # real time: it expires in the second in which it was created
        self.assertIn("expired", self.failed(self.probe.call("get", POD), "unavailable")["what"])

    def test_a_new_token_in_the_file_is_used(self):
        good = [TOKEN]
        self.start(lambda request, out: out.json({}) if request.headers["authorization"] == "Bearer " + good[0]
                   else out.status(401))
        self.assertIn("ok", self.probe.call("get", POD))
        good[0] = "second"
        self.failed(self.probe.call("get", POD), "permission denied")
        self.token_file.write_text("second\n")
        self.eventually("the new token is used", lambda: "ok" in self.probe.call("get", POD))
        self.token_file.unlink()
        self.assertIn("ok", self.probe.call("get", POD), "the last token stays in use")

    def test_a_new_authority_in_the_file_is_used(self):
        self.start(self.answer)
        self.assertIn("ok", self.probe.call("get", POD))
        other = scripted.Authority(self.folder, "two")
        self.server.show(*other.issue("server", "IP:127.0.0.1"))
        self.server.hang_up()
        self.failed(self.probe.call("get", POD), "unavailable")
        self.authority.certificate.write_text(other.certificate.read_text())
        self.eventually("the new authority is used", lambda: "ok" in self.probe.call("get", POD))

    def test_a_new_client_certificate_in_the_file_is_shown(self):
        first = self.authority.issue("first")
        shown = self.folder / "shown.crt", self.folder / "shown.key"
        for source, target in zip(first, shown):
            target.write_text(source.read_text())
        accepted = ["first"]

        def answer(request, out):
            name = dict(part[0] for part in request.peer["subject"])["commonName"] if request.peer else ""
            out.json({}) if name == accepted[0] else out.status(401, name)
        self.start(answer, user=f'client-certificate: "{shown[0]}", client-key: "{shown[1]}"',
                   client_authority=self.authority.certificate)
        self.assertIn("ok", self.probe.call("get", POD))
        accepted[0] = "second"
        self.failed(self.probe.call("get", POD), "permission denied")
        for source, target in zip(self.authority.issue("second"), shown):
            target.write_text(source.read_text())
        self.eventually("the new certificate is shown", lambda: "ok" in self.probe.call("get", POD))


class Watches(Case):
    """The list has version 5. Each watch request gets the next of `streams`, a function of (request, out)."""

    def watch(self, *streams, proxy=False):
        self.streams, self.lists, self.asked, self.hold = list(streams), 0, [], threading.Event()
        self.addCleanup(self.hold.set)

        def answer(request, out):
            if "watch" not in request.query:
                self.lists += 1
                return out.json(page([f"list{self.lists}"], 5 * self.lists))
            self.asked.append(request.query.get("resourceVersion"))
            stream = self.streams.pop(0) if self.streams else Watches.quiet
            return stream(self, request, out)
        self.start(answer, proxy=proxy)
        self.id = self.probe.start("watch", PODS, query=[["fieldSelector", "spec.nodeName=n1"]])
        self.expect_list("list1")

    def quiet(self, request, out):
        out.begin_stream()
        self.hold.wait(60)
        return False

    def expect_list(self, name):
        said = self.probe.answer(self.id)
        self.assertIn("replace", said)
        self.assertEqual([json.loads(item)["metadata"]["name"] for item in said["replace"]], [name])

    def expect(self, word, name=None):
        said = self.probe.answer(self.id)
        self.assertIn(word, said)
        if name:
            self.assertEqual(json.loads(said[word])["metadata"]["name"], name)
        return said

    def end(self):
        began = time.monotonic()
        self.probe.stop(self.id)
        self.assertEqual(self.probe.answer(self.id), {"id": self.id, "ended": True}, "no event was left")
        self.assertLess(time.monotonic() - began, 1.0)

    def test_changes_arrive_in_order_and_bookmarks_are_hidden(self):
        def stream(self, request, out):
            out.begin_stream()
            out.event("ADDED", pod("a", 6))
            out.event("MODIFIED", pod("a", 7))
            out.event("BOOKMARK", bookmark(9))
            out.event("DELETED", pod("a", 10))
            out.event("BOOKMARK", bookmark(12))
            out.end_stream()
        self.watch(stream)
        self.expect("put", "a")
        self.expect("put", "a")
        self.expect("deleted", "a")
        self.eventually("it watches again", lambda: len(self.asked) >= 2)
        self.assertEqual(self.asked[:2], ["5", "12"], "from the list, then from the last bookmark")
        self.assertEqual(self.lists, 1)
        watch = [r for r in self.server.requests if "watch" in r.query][0]
        self.assertEqual(watch.query["allowWatchBookmarks"], "true")
        self.assertEqual(watch.query["fieldSelector"], "spec.nodeName%3Dn1")
        self.end()

    def test_410_in_the_stream_lists_again(self):
        def stream(self, request, out):
            out.begin_stream()
            out.event("ERROR", {"kind": "Status", "code": 410, "message": "too old"})
            out.end_stream()
        self.watch(stream)
        self.expect_list("list2")
        self.eventually("it watches again", lambda: len(self.asked) >= 2)
        self.assertEqual(self.asked, ["5", "10"])
        self.end()

    def test_410_as_a_status_lists_again(self):
        self.watch(lambda self, request, out: out.status(410))
        self.expect_list("list2")
        self.end()

    def test_a_cut_in_the_middle_of_a_line_loses_and_repeats_nothing(self):
        heard = threading.Event()

        def broken(self, request, out):
            out.begin_stream()
            out.event("ADDED", pod("a", 6))
            out.chunk(b'{"type":"ADDED","object":{"metadata":{"name":"b","resour')
            return False

        def reset(self, request, out):
            out.begin_stream()
            out.event("ADDED", pod("b", 7))
            heard.wait(scripted.LIMIT)     # the reset would discard data in flight
            return out.reset()

        def good(self, request, out):
            out.begin_stream()
            out.event("ADDED", pod("c", 8))
            self.hold.wait(60)
            return False
        self.watch(broken, reset, good)
        self.expect("put", "a")
        self.expect("trouble")
        self.expect("put", "b")
        heard.set()
        self.expect("trouble")
        self.expect("put", "c")
        self.assertEqual(self.asked, ["5", "6", "7"])
        self.assertEqual(self.lists, 1)
        self.end()

    def test_invalid_lines_list_again(self):
        def garbage(self, request, out):
            out.begin_stream()
            out.chunk(b"}}}} not json\n")
            self.hold.wait(60)
            return False
        self.watch(garbage)
        self.expect("trouble")
        self.expect_list("list2")
        self.end()

    def test_a_line_without_end_does_not_fill_the_memory(self):
        def endless(self, request, out):
            out.begin_stream()
            block = b"x" * 65536
            while True:
                out.chunk(block)
        self.watch(endless)
        self.expect("trouble")
        self.assertLess(self.probe.call("usage")["ok"]["resident_kib"], 96 << 10)
        self.end()

    def test_a_line_in_single_bytes(self):
        def slow(self, request, out):
            out.begin_stream()
            for byte in json.dumps({"type": "ADDED", "object": pod("a", 6)}).encode() + b"\r\n\n":
                out.chunk(bytes([byte]))
            self.hold.wait(60)
            return False
        self.watch(slow)
        self.expect("put", "a")
        self.end()

    def test_silence_leads_to_a_new_connection_without_trouble(self):
        self.watch()
        self.eventually("it watches again", lambda: len(self.asked) >= 3)
        self.assertEqual(set(self.asked), {"5"})
        self.assertEqual(self.lists, 1)
        self.end()

    def test_an_unreachable_server_is_trouble_once_and_retried_with_back_off(self):
        self.watch(proxy=True)
        self.eventually("it watches", lambda: self.asked)
        self.proxy.set("refuse")
        self.proxy.cut()
        self.expect("trouble")
        began = time.monotonic()
        self.eventually("it tries again", lambda: self.proxy.refused >= 12)
        self.assertGreater(time.monotonic() - began, 0.5, "without back-off it takes a few milliseconds")
        self.proxy.set("pass")
        self.expect_list("list2")      # unreachable for long: the last version is no longer trusted
        self.end()

    def test_a_stop_ends_a_watch_of_a_stalled_server_immediately(self):
        self.watch(proxy=True)
        self.eventually("it watches", lambda: self.asked)
        self.proxy.set("stall")
        self.end()
        self.proxy.set("pass")

    def test_idle_watches_cost_little(self):
        self.watch()
        others = [self.probe.start("watch", PODS) for _ in range(9)]
        for other in others:
            self.assertIn("replace", self.probe.answer(other))
        self.eventually("all watch", lambda: len(self.asked) >= 10)
        before = self.probe.call("usage")["ok"]
        time.sleep(3)       # the measurement: in three seconds each watch is silent and reconnects three times
        after = self.probe.call("usage")["ok"]
        cpu = (after["cpu_us"] - before["cpu_us"]) / 1000
        print(f"ten idle watches: {after['resident_kib']} KiB resident, {cpu:.1f} ms of CPU in 3 s "
              f"with {len(self.asked)} requests", file=sys.stderr)
        self.assertLess(after["resident_kib"], 64 << 10)
        self.assertLess(cpu, 600)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main(verbosity=2)
