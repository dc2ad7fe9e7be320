"""The client certificate of a running kube-scheduler expires, as it would after 90 days.

By then control has replaced it, and the kubelet has updated the scheduler's volume. kube-scheduler reads the new one
for its next connection: pods with cards are placed, and no process was restarted.
"""
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))
import install  # noqa: E402
from ring import certs  # noqa: E402
from ring.testing import main, wait_for  # noqa: E402

SPACE = install.SPACE
SECRET = "carve-scheduler-tls"
GOOD_FOR = 75       # seconds: long enough to start a scheduler; control replaces it before


class ClientCertificate(install.Installation):
    def schedulers(self):
        """(UID, its node, restarts of its container) of the living schedulers."""
        return [(pod["metadata"]["uid"], one.node, pod["status"]["containerStatuses"][0]["restartCount"])
                for one in self.carves for pod in one.pods_of("carve-scheduler")]

    def mounted(self):
        """The certificate in the volume of each scheduler, from its node's disk."""
        return [file.read_bytes() for uid, node, _ in self.schedulers()
                for file in node.outside("/var/lib/kubelet/pods").glob(f"{uid}/volumes/kubernetes.io~secret/*/tls.crt")]

    def short(self):
        """Stores a client certificate like control's, but with little time left, in control's Secret. Returns (when it
        expires, its text)."""
        with tempfile.TemporaryDirectory(prefix="carve-certificates-") as name:
            folder = Path(name)
            for kind, content in self.kube.secret("carve-control-tls", SPACE).items():
                (folder / kind).write_bytes(content)
            until = time.time() + GOOD_FOR
            certs.dated(folder, "client", "/CN=carve-scheduler", (-80, GOOD_FOR / 86400),
                        "basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\n"
                        "extendedKeyUsage=clientAuth\n", "ca")
            made = {f"tls.{kind}": (folder / f"client.{kind}").read_text(encoding="ascii") for kind in ("crt", "key")}
        self.kube.patch("Secret", SECRET, {"stringData": made}, SPACE)
        return until, made["tls.crt"].encode()

    def test_a_running_scheduler_uses_the_renewed_certificate(self):
        scale = ("-n", SPACE, "scale", "deployment/carve-control")
        self.ring.kubectl(*scale, "--replicas=0")       # it would replace the certificate before a scheduler reads it
        wait_for("control is away", 60, lambda: not [
            one for one in self.kube.list("Pod", SPACE) if one["metadata"]["name"].startswith("carve-control-")])
        ends, short = self.short()
        self.ring.kubectl("-n", SPACE, "rollout", "restart", "deployment/carve-scheduler")
        self.rolled("deployment/carve-scheduler")
        before = self.schedulers()
        self.assertTrue(before)
        self.assertEqual(self.mounted(), [short] * len(before), "they must start with the expiring certificate")
        self.assertLess(time.time(), ends, "and before it expires")
        self.ring.kubectl(*scale, "--replicas=2")
        self.rolled("deployment/carve-control")
        follows = self.kube.secret(SECRET, SPACE)["tls.crt"]
        self.assertNotEqual(follows, short, "control has replaced it")
        wait_for("the kubelets have updated the volumes", 150, lambda: self.mounted() == [follows] * len(before),
                 every=1)
        time.sleep(max(0.0, ends + 2 - time.time()))
        name = self.create(self.asking())["metadata"]["name"]   # the first call to control after its restart
        self.wait_ready(name)
        print(f"\nplaced {self.waited(name)} s after its creation, running {time.time() - ends:.0f} s after the "
              "certificate's end",
              flush=True)
        self.assertEqual(self.schedulers(), before, "the same processes")
        self.assert_right([name])


if __name__ == "__main__":
    main()
