"""`carve doctor --node` on a living node: it finds nothing on a healthy node, and exactly what was broken on purpose.
Run on the node and as the Job that users get."""
import json
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from ring import carve, images, installed, paths  # noqa: E402
from ring.kube import wait_for  # noqa: E402
from ring.testing import CarveTest, in_soak, main, pod  # noqa: E402

DEVICES = "/run/cdi"


class Doctor(CarveTest):
    plugins = "dra,slots"

    def doctor(self):
        """(exit code, ids of the findings other than notes)."""
        done = self.carve.node.run([str(self.ring.build / "bin" / "carve"), "doctor", "--node", "-o", "json"], check=False)
        faults = [f["id"] for f in json.loads(done.stdout) if f["severity"] != "note"]
        return done.returncode, faults

    def outside(self, path):
        return self.carve.node.outside(path)

    def fraction(self):
        name = self.name()
        self.create(pod(name, image=images.PROGRAMS, command=["ring-look", "hold", "3600"], node=self.carve.node.name,
                        claims={"gpu": self.template(memory="4Gi", cores="30")}))
        self.wait_ready(name)
        return name

    def devices(self):
        return sorted(self.outside(DEVICES).glob("carve-slice-*.json"))

    def test_finds_nothing_on_a_healthy_node(self):
        self.fraction()
        self.assertEqual(self.doctor(), (0, []))

    def test_finds_a_slice_without_its_device_file(self):
        self.fraction()
        (file,) = self.devices()
        kept = file.read_text()
        file.unlink()
        self.addCleanup(file.write_text, kept)
        self.assertEqual(self.doctor(), (1, ["cdi-missing"]))

    def test_finds_a_device_file_without_a_slice_and_one_that_names_a_missing_file(self):
        self.fraction()
        (file,) = self.devices()
        spec = json.loads(file.read_text())
        spec["devices"][0]["name"] = "nobody"
        other = file.with_name("carve-slice-nobody.json")
        other.write_text(json.dumps(spec))
        self.addCleanup(other.unlink)
        self.assertEqual(self.doctor(), (1, ["cdi-leftover"]))
        spec["devices"][0]["containerEdits"]["mounts"][0]["hostPath"] = "/usr/lib/gone.so"
        other.write_text(json.dumps(spec))
        self.assertEqual(self.doctor(), (1, ["cdi-stale", "cdi-leftover"]))

    def test_finds_a_registry_that_the_agent_cannot_write(self):
        registry = "/var/lib/kubelet/plugins_registry"     # the agent would re-create a removed socket immediately
        self.carve.node.run(["mount", "-t", "tmpfs", "-o", "ro", "none", registry])
        try:
            self.assertEqual(self.doctor(), (1, ["kubelet-no-dra"]))
        finally:
            self.carve.node.run(["umount", registry])
        wait_for("the kubelet has registered the driver again", 60, self.carve.registered)
        self.assertEqual(self.doctor(), (0, []))

    def test_finds_a_kubelet_without_slots(self):
        file = self.outside("/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint")
        wait_for("slots in the kubelet's checkpoint", 30,
                 lambda: file.exists() and "elasticgpu.io/slot" in file.read_text())
        with self.carve.node.kubelet_stopped():
            kept = file.with_name("kept")
            shutil.copy(file, kept)
            try:
                noted = json.loads(file.read_text())
                noted["Data"]["RegisteredDevices"]["elasticgpu.io/slot"] = []
                file.write_text(json.dumps(noted))
                self.assertEqual(self.doctor(), (1, ["kubelet-no-slots"]))
            finally:
                kept.rename(file)
                self.carve.forget_registration()
        wait_for("the kubelet has registered the driver again", 60, self.carve.registered)

    def test_finds_an_agent_that_is_gone(self):
        self.carve.kill_agent()
        try:
            self.assertEqual(self.doctor(), (1, ["agent-away"]))
        finally:
            self.carve.start_agent()
        wait_for("no finding", 20, lambda: self.doctor() == (0, []))

    def test_finds_an_unhealthy_card(self):
        simctl = str(self.ring.build / "bin" / "carve-simctl")
        self.addCleanup(self.carve.node.run, [simctl, "return", "0"])
        self.carve.node.run([simctl, "xid", "0", "64"])     # a row that could not be remapped
        uuid = self.carve.truth("cards")["cards"][0]["uuid"]
        wait_for("the finding", 20, lambda: self.doctor() == (1, ["card-unhealthy"]))
        said = self.carve.node.run([str(self.ring.build / "bin" / "carve"), "doctor", "--node"], check=False).stdout
        self.assertIn(uuid, said)
        self.assertIn("XID 64", said)
        self.carve.node.run([simctl, "return", "0"])
        wait_for("no finding", 40, lambda: self.doctor() == (0, []))

    # -- as a Job, the way users run it -----------------------------------------------------------------------------
    def job(self):
        """(succeeded, its output)."""
        text = (paths.REPOSITORY / "deploy" / "jobs" / "doctor.yaml").read_text().replace("NODE", self.carve.node.name)
        name = self.ring.kubectl("create", "-o", "name", "-f", "-", input=text).stdout.strip().split("/")[1]
        self.addCleanup(self.ring.kubectl, "-n", carve.NAMESPACE, "delete", "job", name)

        def ended():
            status = self.kube.get("Job", name, carve.NAMESPACE).get("status", {})
            return next((c["type"] for c in status.get("conditions", []) if c["status"] == "True"
                         and c["type"] in ("Complete", "Failed")), None)
        how = wait_for("the doctor's Job has ended", 60, ended)
        return how == "Complete", self.ring.kubectl("-n", carve.NAMESPACE, "logs", "job/" + name).stdout

    @in_soak
    def test_the_job_finds_the_same(self):
        archive = self.ring.state.folder / "images" / "carve.tar"
        installed.make_image(self.ring.build, archive)
        self.carve.node.import_images([archive])
        self.fraction()
        well, said = self.job()
        self.assertTrue(well, said)
        self.assertIn("nothing is wrong", said)
        self.assertIn("SIMULATED", said)
        (file,) = self.devices()
        kept = file.read_text()
        file.unlink()
        self.addCleanup(file.write_text, kept)
        well, said = self.job()
        self.assertFalse(well)
        self.assertIn("cdi-missing", said)


if __name__ == "__main__":
    main()
