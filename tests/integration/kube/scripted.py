"""An HTTPS server that does what the test specifies, a misbehaving proxy in front of it, and the client as a process."""
import contextlib
import ctypes
import json
import queue
import socket
import ssl
import struct
import subprocess
import threading
import time
from pathlib import Path

LIMIT = 20.0        # seconds until a test stops waiting for something that should happen immediately


class Authority:
    """A certificate authority and the certificates that it signs, created with openssl."""

    def __init__(self, folder: Path, name: str):
        self.folder, self.name = folder, name
        self._run("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1",
                  "-subj", f"/CN={name}", "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.crt")
        self.certificate = folder / f"{name}.crt"

    @staticmethod
    def _run(*words):
        subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)

    def issue(self, name, names="", days=1):
        """(certificate, key) for server and client use; `names` is the subjectAltName."""
        certificate, key = self.folder / f"{self.name}-{name}.crt", self.folder / f"{self.name}-{name}.key"
        request, extensions = self.folder / f"{name}.csr", self.folder / f"{name}.ext"
        extensions.write_text("extendedKeyUsage=clientAuth,serverAuth\n" +
                              (f"subjectAltName={names}\n" if names else ""))
        self._run("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                  "-subj", f"/CN={name}", "-keyout", key, "-out", request)
        self._run("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self.folder / f"{self.name}.key",
                  "-CAcreateserial", "-days", days, "-extfile", extensions, "-out", certificate)
        return certificate, key


class Request:
    def __init__(self, method, target, headers, body, peer, connection):
        self.method, self.target, self.headers, self.body = method, target, headers, body
        self.path = target.split("?")[0]
        self.query = dict(part.split("=", 1) for part in target.partition("?")[2].split("&") if "=" in part)
        self.peer = peer                    # the client's certificate, or None
        self.connection = connection        # a number


class Server:
    """`answer(request, out)` is called for each request; `out` is an Answer. False closes the connection."""

    def __init__(self, certificate, key, answer, client_authority=None):
        self.answer = answer
        self.requests = []
        self.connections = 0
        self.names = []         # the SNI values that clients sent
        self._open = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._client_authority = client_authority
        self.show(certificate, key)
        threading.Thread(target=self._accept, daemon=True).start()

    def show(self, certificate, key):
        """Uses this certificate from the next connection on."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(str(certificate), str(key))
        context.sni_callback = lambda _, name, __: self.names.append(name)
        if self._client_authority:
            context.load_verify_locations(str(self._client_authority))
            context.verify_mode = ssl.CERT_OPTIONAL
        self._context = context

    def hang_up(self):
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self):
        self._listener.close()
        self.hang_up()

    def _accept(self):
        while True:
            try:
                raw, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(raw, self.connections), daemon=True).start()

    def _serve(self, raw, number):
        with contextlib.suppress(OSError, ValueError), \
                self._context.wrap_socket(raw, server_side=True) as connection, connection.makefile("rb") as stream:
            self._open.add(connection)
            self._requests(connection, stream, number)
        raw.close()

    def _requests(self, connection, stream, number):
        try:
            while line := stream.readline():
                method, target, _ = line.decode().split(" ")
                headers = {}
                while (line := stream.readline()) not in (b"\r\n", b""):
                    name, _, value = line.decode().partition(":")
                    headers[name.lower()] = value.strip()
                body = stream.read(int(headers.get("content-length", 0))).decode()
                request = Request(method, target, headers, body, connection.getpeercert(), number)
                self.requests.append(request)
                if self.answer(request, Answer(connection)) is False:
                    break
        finally:
            self._open.discard(connection)


class Answer:
    """The well-formed and malformed answers that a server can send."""

    def __init__(self, connection):
        self.connection = connection

    def raw(self, data: bytes):
        self.connection.sendall(data)

    def json(self, content, status=200, **headers):
        body = json.dumps(content).encode()
        lines = [f"HTTP/1.1 {status} x", "Content-Type: application/json", f"Content-Length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.raw("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    def status(self, code, message="as the test says", **headers):
        self.json({"kind": "Status", "code": code, "message": message}, code, **headers)

    def begin_stream(self):
        self.raw(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")

    def chunk(self, data: bytes):
        self.raw(b"%x\r\n%s\r\n" % (len(data), data))

    def event(self, kind, object_):
        self.chunk(json.dumps({"type": kind, "object": object_}).encode() + b"\n")

    def end_stream(self):
        self.raw(b"0\r\n\r\n")

    def reset(self):
        """Sends RST instead of a clean end, once `answer` returns this False."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return False


class Proxy:
    """A byte-level proxy between client and server. `mode`: pass, stall (no transfer, no end), refuse."""

    def __init__(self, port):
        self.target, self.mode, self.refused = port, "pass", 0
        self._pairs = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._go = threading.Condition()
        threading.Thread(target=self._accept, daemon=True).start()

    def set(self, mode):
        with self._go:
            self.mode = mode
            self._go.notify_all()

    def cut(self):
        """Closes every connection on both sides before it returns."""
        pairs, self._pairs = self._pairs, []
        for side in (side for pair in pairs for side in pair):
            with contextlib.suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)

    def reset(self):
        """The same with a RST, like a middle box that has lost its state."""
        pairs, self._pairs = self._pairs, []
        for side in (side for pair in pairs for side in pair):
            # close() would wait for a thread in recv(). Python's sockets have no call for "disconnect".
            ctypes.CDLL(None).connect(side.fileno(), struct.pack("=H14x", socket.AF_UNSPEC), 16)

    def close(self):
        self._listener.close()
        self.cut()

    def _accept(self):
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if self.mode == "refuse":
                self.refused += 1
                near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                near.close()
                continue
            far = socket.create_connection(("127.0.0.1", self.target))
            self._pairs.append((near, far))
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._copy, args=(one, other), daemon=True).start()

    def _copy(self, one, other):
        with contextlib.suppress(OSError), one:
            while data := one.recv(65536):
                with self._go:
                    self._go.wait_for(lambda: self.mode != "stall")
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)


class Probe:
    """The client as a process."""

    def __init__(self, program, kubeconfig, short=True):
        words = [program] + (["--short"] if short else []) + [kubeconfig]
        self.process = subprocess.Popen([str(word) for word in words], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        self._answers, self._lock, self._count = {}, threading.Lock(), 0
        self.log = []
        self._readers = [threading.Thread(target=self._read, daemon=True),
                         threading.Thread(target=lambda: self.log.extend(self.process.stderr), daemon=True)]
        for reader in self._readers:
            reader.start()
        self.opened = self.answer(0)

    def _queue(self, number):
        with self._lock:
            return self._answers.setdefault(number, queue.Queue())

    def _read(self):
        for line in self.process.stdout:
            said = json.loads(line)
            self._queue(said["id"]).put(said)

    def answer(self, number, seconds=LIMIT):
        return self._queue(number).get(timeout=seconds)

    def start(self, verb, path="", **call):
        self._count += 1
        call.update(id=self._count, do=verb, path=path)
        self.process.stdin.write(json.dumps(call) + "\n")
        self.process.stdin.flush()
        return self._count

    def call(self, verb, path="", **call):
        return self.answer(self.start(verb, path, **call))

    def timed(self, verb, path="", **call):
        began = time.monotonic()
        return self.call(verb, path, **call), time.monotonic() - began

    def stop(self, number):
        self.process.stdin.write(json.dumps({"id": number, "do": "stop"}) + "\n")
        self.process.stdin.flush()

    def close(self):
        """Returns the exit status: the client ends with all its threads when its stdin is closed."""
        self.process.stdin.close()
        try:
            status = self.process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        for reader in self._readers:
            reader.join()
        self.process.stdout.close()
        self.process.stderr.close()
        return status


def kubeconfig(path: Path, server, authority, user):
    path.write_text(f"""apiVersion: v1
kind: Config
clusters:
- name: c
  cluster: {{server: "{server}", certificate-authority: "{authority}"}}
users:
- name: u
  user: {{{user}}}
contexts:
- name: x
  context: {{cluster: c, user: u}}
current-context: x
""")
    return path
