"""A path to the API server that delays chosen requests, as a network may delay them: they arrive later, even when their
sender is gone; or they arrive immediately and their answers never do. It ends TLS on both sides with the ring's own
certificates; tokens pass unchanged."""
import select
import socket
import ssl
import threading


def some(connection):
    """What can be read from a non-blocking connection: empty at its end, None when there is nothing yet."""
    try:
        return connection.recv(1 << 16)
    except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
        return None


def send(connection, data):
    while data:
        try:
            data = data[connection.send(data):]
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            select.select([connection], [connection], [])


def rest(connection, data):
    """Reads the part of one request that has not been read yet."""
    head, _, body = data.partition(b"\r\n\r\n")
    length = next((int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")), 0)
    more = b""
    while len(body) + len(more) < length:
        piece = some(connection)
        if piece == b"":
            raise OSError("the request ends early")
        if piece is None:
            select.select([connection], [], [])
        else:
            more += piece
    return more


class Stall:
    """Listens on `port` of the loopback. Requests for which `held(first line)` is true wait for release(); with `lost`
    they are forwarded immediately, and the connection ends without the answer."""

    def __init__(self, ring, held, lost=False):
        file = ring.certificates.file
        self._server = (int((ring.state.folder / "port_forward.port").read_text()), ssl.create_default_context(cafile=file("ca.crt")))
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.load_cert_chain(file("apiserver.crt"), file("apiserver.key"))
        self._held = held
        self._release = threading.Event()
        if lost:
            self._release.set()
        self.waiting = threading.Event()        # a request is being held
        self.answers = []                       # the API server's answers to the held requests
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def release(self):
        self._release.set()

    def close(self):
        self._release.set()
        self._listener.close()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _connect(self):
        port, context = self._server
        return context.wrap_socket(socket.create_connection(("127.0.0.1", port)), server_hostname="localhost")

    def _serve(self, raw):
        try:
            client = self._context.wrap_socket(raw, server_side=True)
            server = self._connect()
        except OSError:
            raw.close()
            return
        with client, server:
            try:
                self._forward(client, server)
            except OSError:
                pass

    def _forward(self, client, server):
        """Both directions on one thread: OpenSSL does not allow two threads in one connection."""
        for end in (client, server):
            end.setblocking(False)
        while True:
            for source, target in ((client, server), (server, client)):
                while (data := some(source)) is not None:
                    if not data:
                        return
                    line = data.split(b"\r\n", 1)[0].decode(errors="replace")
                    if source is client and line.startswith("POST ") and self._held(line):
                        return self._hold(data + rest(client, data))
                    send(target, data)
            select.select([client, server], [], [])

    def _hold(self, data):
        """Sends the request on a separate connection, so that it arrives even when its sender is gone."""
        self.waiting.set()
        self._release.wait()
        with self._connect() as server:
            server.sendall(data)
            self.answers.append(server.recv(1 << 16).decode(errors="replace"))
