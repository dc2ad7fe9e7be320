"""The ring's own certificate authority and all certificates, created with openssl in the state folder."""
import subprocess
import time
from pathlib import Path

from . import network


class Certificates:
    """Files <name>.crt and <name>.key in a folder; `ca` signs all."""

    def __init__(self, folder: Path):
        self.folder = folder

    def file(self, name: str) -> Path:
        return self.folder / name

    def _openssl(self, *arguments, text=None) -> None:
        done = subprocess.run(["openssl", *map(str, arguments)], input=text, text=True, capture_output=True)
        if done.returncode != 0:
            raise RuntimeError(f"openssl {arguments[0]}: {done.stderr.strip()}")

    def make_authority(self) -> None:
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self._openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                      "-subj", "/CN=carve ring", "-keyout", self.file("ca.key"), "-out", self.file("ca.crt"))
        self._openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048",
                      "-out", self.file("service-account.key"))
        self._openssl("pkey", "-in", self.file("service-account.key"), "-pubout",
                      "-out", self.file("service-account.pub"))

    def issue(self, name: str, user: str, group: str = "", names: str = "") -> None:
        """A certificate for client and server use. `names`: subjectAltName, for servers."""
        subject = (f"/O={group}" if group else "") + f"/CN={user}"
        request = self.file(name + ".csr")
        self._openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                      "-subj", subject, "-keyout", self.file(name + ".key"), "-out", request)
        extensions = "extendedKeyUsage=clientAuth,serverAuth\n" + (f"subjectAltName={names}\n" if names else "")
        extension_file = self.file(name + ".ext")
        extension_file.write_text(extensions)
        self._openssl("x509", "-req", "-in", request, "-CA", self.file("ca.crt"), "-CAkey", self.file("ca.key"),
                      "-CAcreateserial", "-days", "2", "-extfile", extension_file, "-out", self.file(name + ".crt"))
        request.unlink()
        extension_file.unlink()

    def make_all(self, nodes: dict) -> None:
        """nodes: name -> address."""
        self.make_authority()
        self.issue("apiserver", "kube-apiserver", names="DNS:kubernetes,DNS:kubernetes.default,"
                   "DNS:kubernetes.default.svc,DNS:localhost,IP:127.0.0.1,IP:" + network.API_SERVICE)
        self.issue("etcd", "etcd", names="IP:127.0.0.1,DNS:localhost")
        self.issue("admin", "admin", "system:masters")
        self.issue("kubelet-client", "kube-apiserver-kubelet-client", "ring:kubelet-clients")
        self.issue("controller-manager", "system:kube-controller-manager")
        self.issue("scheduler", "system:kube-scheduler")
        for node, address in nodes.items():
            self.issue(node, f"system:node:{node}", "system:nodes", f"DNS:{node},IP:{address}")


def dated(folder: Path, name: str, subject: str, days: tuple, extensions: str, signer: str = "") -> None:
    """Writes <name>.crt and <name>.key into a folder. `days`: validity as (first day, last day) relative to now;
    `openssl x509` cannot set the first. signer: <signer>.crt and <signer>.key sign it; empty: self-signed."""
    settings, database, extension_file = folder / "openssl-ca.cnf", folder / "openssl-ca.txt", folder / f"{name}.ext"
    settings.write_text(f"[ca]\ndefault_ca = this\n[this]\ndatabase = {database}\nnew_certs_dir = {folder}\n"
                        "rand_serial = yes\ndefault_md = sha256\npolicy = any\nunique_subject = no\n"
                        "[any]\ncommonName = supplied\n")
    database.touch()
    extension_file.write_text(extensions)
    from_, until = (time.strftime("%Y%m%d%H%M%SZ", time.gmtime(time.time() + 86400 * day)) for day in days)
    key, request = folder / f"{name}.key", folder / f"{name}.csr"
    by = ["-cert", folder / f"{signer}.crt", "-keyfile", folder / f"{signer}.key"] if signer else \
        ["-selfsign", "-keyfile", key]
    for words in (["req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", subject,
                   "-keyout", key, "-out", request],
                  ["ca", "-batch", "-notext", "-config", settings, "-in", request, "-out", folder / f"{name}.crt", *by,
                   "-startdate", from_, "-enddate", until, "-extfile", extension_file]):
        done = subprocess.run(["openssl", *map(str, words)], text=True, capture_output=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"openssl {words[0]}: {done.stderr.strip()}")


def kubeconfig(path: Path, server: str, authority: Path, certificate: Path = None, key: Path = None,
               token: str = None) -> Path:
    """Writes a kubeconfig that names files (so that renewed files are used) or contains a token."""
    user = f"token: {token}" if token else f"client-certificate: {certificate}\n    client-key: {key}"
    path.touch(mode=0o600)
    path.write_text(f"""apiVersion: v1
kind: Config
clusters:
- name: ring
  cluster:
    server: {server}
    certificate-authority: {authority}
users:
- name: user
  user:
    {user}
contexts:
- name: ring
  context: {{cluster: ring, user: user}}
current-context: ring
""")
    return path
