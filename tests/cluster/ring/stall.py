"""A way to the API server on which chosen requests are held up, as a network may hold them: they arrive later, whatever
became of whoever sent them. It ends TLS on both sides with the ring's own certificates; tokens go through."""
import socket
import ssl
import threading

from . import door


class Stall:
    """Listens on `port` of the loopback. `held(first line)` says which requests wait for release()."""

    def __init__(self, ring, held):
        file = ring.certificates.file
        self._server = (int((ring.state.folder / "door.port").read_text()), ssl.create_default_context(cafile=file("ca.crt")))
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.load_cert_chain(file("apiserver.crt"), file("apiserver.key"))
        self._held = held
        self._release = threading.Event()
        self.waiting = threading.Event()        # a request is being held
        self.answers = []                       # first lines of what the API server said to those
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
        threading.Thread(target=door.copy, args=(server, client), daemon=True).start()
        try:
            while data := client.recv(1 << 16):
                line = data.split(b"\r\n", 1)[0].decode(errors="replace")
                if line.startswith("POST ") and self._held(line):
                    data += self._rest(client, data)
                    return self._hold(data)
                server.sendall(data)
        except OSError:
            pass
        finally:
            server.close()

    @staticmethod
    def _rest(client, data):
        """What of one request has not been read."""
        head, _, body = data.partition(b"\r\n\r\n")
        length = next((int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")), 0)
        more = b""
        while len(body) + len(more) < length:
            more += client.recv(1 << 16)
        return more

    def _hold(self, data):
        """On a connection of its own, so that it arrives though its sender has gone."""
        self.waiting.set()
        self._release.wait()
        with self._connect() as server:
            server.sendall(data)
            self.answers.append(server.recv(1 << 16).decode(errors="replace"))
