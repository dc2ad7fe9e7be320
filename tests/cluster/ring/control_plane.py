"""kube-apiserver, kube-controller-manager and kube-scheduler as a stock cluster runs them: TLS, RBAC, Node
authorizer."""
import json

from . import network
from .certs import kubeconfig
from .process import spawn, stop

SERVER = f"https://{network.API_SERVICE}:{network.API_PORT}"     # inside the ring's network


# Controllers of objects that neither Carve nor a test uses. They take a third of the controller manager's processor time.
UNUSED_CONTROLLERS = (
    "certificatesigningrequest-approving", "certificatesigningrequest-cleaner", "certificatesigningrequest-signing",
    "cronjob", "endpointslice-mirroring", "ephemeral-volume", "horizontal-pod-autoscaler",
    "legacy-serviceaccount-token-cleaner", "persistentvolume-attach-detach", "persistentvolume-binder",
    "persistentvolume-expander", "persistentvolume-protection", "persistentvolumeclaim-protection",
    "replicationcontroller", "ttl", "ttl-after-finished")

AUDIT_LOG = "audit.log"       # every request that was answered: user, object, status code; no bodies


def _audit_policy(state):
    path = state.folder / "audit-policy.json"
    path.write_text(json.dumps({
        "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
        "rules": [{"level": "None", "verbs": ["get", "list", "watch"]}, {"level": "Metadata"}]}))
    return path


def start_api_server(state, binaries, certificates, place, *more) -> int:
    """`more`: additional flags, for a server that differs from the stock one."""
    file = certificates.file
    return spawn(state, "apiserver", [
        binaries["kube-apiserver"], "--bind-address=0.0.0.0", f"--secure-port={network.API_PORT}",
        f"--advertise-address={network.node_address(1)}", f"--service-cluster-ip-range={network.SERVICE_RANGE}",
        "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--anonymous-auth=false",
        "--allow-privileged=true", "--endpoint-reconciler-type=none", "--profiling=false",
        "--etcd-servers=https://127.0.0.1:2379", f"--etcd-cafile={file('ca.crt')}",
        f"--etcd-certfile={file('apiserver.crt')}", f"--etcd-keyfile={file('apiserver.key')}",
        f"--tls-cert-file={file('apiserver.crt')}", f"--tls-private-key-file={file('apiserver.key')}",
        f"--client-ca-file={file('ca.crt')}",
        f"--kubelet-client-certificate={file('kubelet-client.crt')}",
        f"--kubelet-client-key={file('kubelet-client.key')}", f"--kubelet-certificate-authority={file('ca.crt')}",
        "--kubelet-preferred-address-types=InternalIP",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={file('service-account.pub')}",
        f"--service-account-signing-key-file={file('service-account.key')}",
        f"--audit-policy-file={_audit_policy(state)}", f"--audit-log-path={state.log('apiserver').parent / AUDIT_LOG}",
        "--audit-log-mode=blocking-strict", *more], place)


def stop_api_server(state) -> None:
    """After SIGTERM it waits for its watchers for a minute, so SIGKILL follows after three seconds."""
    stop(state, "apiserver", grace=3)


def _kubeconfig(state, certificates, name):
    return kubeconfig(state.folder / f"{name}.kubeconfig", SERVER, certificates.file("ca.crt"),
                      certificates.file(f"{name}.crt"), certificates.file(f"{name}.key"))


def start_controller_manager(state, binaries, certificates, place) -> int:
    file = certificates.file
    config = _kubeconfig(state, certificates, "controller-manager")
    return spawn(state, "controller-manager", [
        binaries["kube-controller-manager"], f"--kubeconfig={config}", f"--authentication-kubeconfig={config}",
        f"--authorization-kubeconfig={config}", "--bind-address=127.0.0.1", "--leader-elect=false",
        "--controllers=*," + ",".join(f"-{name}-controller" for name in UNUSED_CONTROLLERS),
        "--use-service-account-credentials=true", f"--root-ca-file={file('ca.crt')}",
        f"--service-account-private-key-file={file('service-account.key')}",
        # A removed node is noticed after 20 s instead of the default 40 s or more, to keep the tests short.
        "--node-monitor-grace-period=20s"], place)


def start_scheduler(state, binaries, certificates, place, settings=None, environment=None) -> int:
    """`settings`: text of a KubeSchedulerConfiguration that names the kubeconfig by kubeadm's path."""
    config = _kubeconfig(state, certificates, "scheduler")
    more = []
    if settings is not None:
        path = state.folder / "scheduler-config.yaml"
        path.write_text(settings.replace("/etc/kubernetes/scheduler.conf", str(config)))
        more = [f"--config={path}", "--feature-gates=OpportunisticBatching=false"]
    return spawn(state, "scheduler", [
        binaries["kube-scheduler"], f"--kubeconfig={config}", f"--authentication-kubeconfig={config}",
        f"--authorization-kubeconfig={config}", "--bind-address=127.0.0.1", "--leader-elect=false", *more], place, environment)
